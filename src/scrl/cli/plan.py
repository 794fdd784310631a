"""`scrl plan`: what a run would do and need, before it is started."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from scrl.cli.settings import Words
from scrl.cli.terminal import plain_console
from scrl.cli.train import run_config, show_plan
from scrl.errors import ScrlError
from scrl.files.folders import refuse_existing

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

    Memory is counted for this machine. With --gpus, --nodes or --gpu-memory: the memory of each such GPU, by engine,
    from the model's shape alone; no network, weights or GPU are needed. How long a run takes is measured by the probe
    of scrl train.

    Example: scrl plan --model ./SmolLM2-135M --questions mine.txt --completions 64
    Example: scrl plan run.yaml --gpus 8 --gpu-memory 80

    Parameters
    ----------
    settings
        As for scrl train.
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
    if gpus is nodes is gpu_memory is None:
        from scrl.planning.plan import make_plan

        show_plan(make_plan(run_config(settings)), console, FOR_A_GPU)
        return
    from scrl.planning.memory import GIB
    from scrl.planning.on_gpus import gpu_lines, plan_on_gpus

    machines = [f"--{name}={value}" for name, value in (("gpus", gpus), ("nodes", nodes)) if value is not None]
    memory = GIB * (USABLE if gpu_memory is None else gpu_memory)
    gpu_plan = plan_on_gpus(run_config([*settings, *machines]), memory)
    for line in gpu_lines(gpu_plan):
        console.print(Text(line), soft_wrap=True)
    if not gpu_plan.fits:
        raise ScrlError("no engine can run this on these GPUs; what each needs or refuses is said above")
