"""`scrl plan`: what a run would do and need, before it is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from scrl.cli.settings import Words
from scrl.cli.terminal import plain_console
from scrl.cli.train import file_and_overrides, run_config, show_plan
from scrl.config import RunConfig
from scrl.errors import ConfigError, ScrlError
from scrl.files.folders import refuse_existing
from scrl.recipes.catalogue import config_of, find

FOR_A_GPU = ". For a GPU, with activations: --gpus 1 --gpu-memory 24"
USABLE = 79.0
"""GiB that a program can have of an H100 or A100 with 80 GB."""


def plan(
    *settings: Words,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: float | None = None,
    out: Path | None = None,
) -> None:
    """Say what `scrl train` would do with these settings: sizes, memory, disk, the first prompt, warnings.

    Memory is counted for this machine. With a recipe's experiment, --gpus, --nodes or --gpu-memory: the memory of each
    such GPU, by engine, from the model's shape alone; no network, weights or GPU are needed. How long a run takes is
    measured by the probe of scrl train.

    Example: scrl plan --model ./SmolLM2-135M --questions mine.txt --completions 64
    Example: scrl plan qwen2.5-3b/aime25/32-16/scrl --gpus 8 --gpu-memory 80

    Parameters
    ----------
    settings
        As for scrl train; or an experiment of scrl reproduce, then single settings.
    gpus
        GPUs of a machine; by default those of the settings, 1.
    nodes
        Machines; by default those of the settings, 1.
    gpu_memory
        GiB of each GPU; by default 79, what an H100 or A100 of 80 GB has for a program.
    out
        As for scrl train: refused if it exists; never created.
    """
    if out is not None:
        refuse_existing(out)
    console = plain_console()
    recipe = _recipe(settings)
    if recipe is None and gpus is nodes is gpu_memory is None:
        from scrl.planning.plan import make_plan

        show_plan(make_plan(run_config(settings)), console, FOR_A_GPU)
        return
    from scrl.planning.memory import GIB
    from scrl.planning.on_gpus import gpu_lines, plan_on_gpus

    machines = [f"--{name}={value}" for name, value in (("gpus", gpus), ("nodes", nodes)) if value is not None]
    memory = GIB * (USABLE if gpu_memory is None else gpu_memory)
    gpu_plan = plan_on_gpus(_config(recipe, [*settings, *machines]), memory)
    for line in gpu_lines(gpu_plan):
        console.print(Text(line), soft_wrap=True)
    if not gpu_plan.fits:
        raise ScrlError("no engine can run this on these GPUs; what each needs or refuses is said above")


def _recipe(settings: Sequence[str]) -> str | None:
    """The experiment named by the first word, if that is neither a setting nor a file."""
    word = settings[0] if settings else "--"
    name, equals, _ = word.partition("=")  # names of experiments may contain =, as in a/b=0.5
    is_setting = word.startswith("--") or (equals and "/" not in name)
    is_file = word.endswith((".yaml", ".yml")) or Path(word).is_file()
    return None if is_setting or is_file else word


def _config(recipe: str | None, settings: Sequence[str]) -> RunConfig:
    """The settings, on top of the recipe's where there is one."""
    if recipe is None:
        return run_config(settings)
    experiment = find(recipe)
    file, _ = file_and_overrides(settings[1:])
    if file is not None:
        raise ConfigError(f"{str(file)!r}: the settings are those of {recipe}; others are --name value")
    return run_config(settings[1:], config_of(experiment).model_dump(mode="json"))
