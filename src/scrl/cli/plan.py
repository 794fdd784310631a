"""`scrl plan`: what a run would do and need, before it is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.text import Text

from scrl.cli.settings import Words
from scrl.cli.terminal import plain_console
from scrl.cli.train import file_and_overrides, run_config, show_plan
from scrl.config import RunConfig
from scrl.data.folders import refuse_existing
from scrl.errors import ConfigError, ScrlError
from scrl.recipes.catalogue import config_of, find

FOR_A_GPU = ". For a GPU, with activations and seconds a step: --gpus 1 --gpu-memory 24"


def plan(
    *settings: Words,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: float | None = None,
    kind: str | None = None,
    length: float | None = None,
    out: Path | None = None,
) -> None:
    """Say what `scrl train` would do with these settings: sizes, memory, the first prompt, warnings.

    If the model is not on this machine but its shape is known, prompts are not checked; the plan says so.

    Memory is counted for this machine. With a recipe's experiment, or any of the options below: what the run would
    take on such GPUs, by engine, from the model's shape alone; no network, weights or GPU are needed.

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
        GiB of each GPU; by default the kind's.
    kind
        H200, H100, A100 or A100-40; by default H200, or with --gpu-memory the newest with about as much.
    length
        Mean tokens of a completion; by default half of sampling.max_tokens.
    out
        As for scrl train: refused if it exists; never created.
    """
    if out is not None:
        refuse_existing(out)
    console = plain_console()
    recipe = _recipe(settings)
    if recipe is None and (gpus, nodes, gpu_memory, kind, length) == (None,) * 5:
        from scrl.planning.plan import make_plan

        show_plan(make_plan(run_config(settings), by_shape=True), console, FOR_A_GPU)
        return
    from scrl.planning.fit import plan_on_gpus
    from scrl.planning.lines import plan_lines
    from scrl.planning.step_time import make_cluster

    settings = tuple(_without_engine(settings))
    machines = [f"--{name}={value}" for name, value in (("gpus", gpus), ("nodes", nodes)) if value is not None]
    config = _config(recipe, [*settings, *machines])
    cluster = make_cluster(kind, gpus=config.gpus, nodes=config.nodes, memory_gib=gpu_memory)
    gpu_plan = plan_on_gpus(config, cluster, length=length)
    commands = [["scrl", "train", *settings]]
    if recipe is not None:
        write_settings = ["scrl", "reproduce", recipe, "--yaml", ">", "run.yaml"]
        commands = [write_settings, ["scrl", "train", "run.yaml", *settings[1:]]]
    for line in plan_lines(gpu_plan, commands):
        console.print(Text(line), soft_wrap=True)
    if gpu_plan.best is None:
        raise ScrlError("no engine can run this on these GPUs; the changes listed above would make it possible")


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


def _without_engine(settings: Sequence[str]) -> Iterator[str]:
    """Without the engine: which one to use is what this command answers."""
    words = iter(settings)
    for word in words:
        name, equals, _ = word.removeprefix("--").partition("=")
        if name != "engine":
            yield word
        elif not equals:
            next(words, None)
