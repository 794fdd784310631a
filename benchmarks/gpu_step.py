"""Seconds of whole SCRL steps on a GPU by phase, and the share of time in which no kernel runs.

    python benchmarks/gpu_step.py --model FOLDER --questions math500 --data-dir FOLDER

A run of `scrl train` without evaluations: 8 questions a step, 64 completions of at most 3,072 tokens, 32 of them
trained on. Kernels are watched from the second step on, because the first one compiles. Between two steps a run
writes its logs, which counts; its one checkpoint, at the end, does not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from scrl.training.config import read_config
from scrl.training.loop import train
from scrl.training.watchers import Silent

PHASES = ("seconds_rollout", "seconds_credit", "seconds_update")


class Watch(Silent):
    """Says each step's seconds, and watches the GPU between the first step's end and the last one's."""

    def __init__(self, steps: int) -> None:
        """For a run of so many steps."""
        self._steps, self._seconds = steps, 0.0
        self._profiler: Any = None

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A step is done."""
        seconds = ", ".join(f"{name.removeprefix('seconds_')} {metrics[name]:.2f} s" for name in PHASES)
        print(f"step {metrics['step'] + 1}: {metrics['tokens']:,} tokens; {seconds}; {words}", flush=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if metrics["step"] == 0 and torch.cuda.is_available():
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profiler.start()
            self._seconds = time.perf_counter()
        elif metrics["step"] == self._steps - 1 and self._profiler is not None:
            seconds_in_all = time.perf_counter() - self._seconds
            self._profiler.stop()
            busy = union([_span(event) for event in self._profiler.events() if event.device_type.name == "CUDA"]) / 1e6
            share = 1 - busy / seconds_in_all
            print(f"{self._steps - 1} steps in {seconds_in_all:.2f} s, no kernel in {share:.1%} of it")


def _span(event: Any) -> tuple[float, float]:
    return event.time_range.start, event.time_range.end


def union(spans: list[tuple[float, float]]) -> float:
    """How long at least one of them lasts."""
    covered, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        covered += max(0.0, last - max(first, end))
        end = max(end, last)
    return covered


def main() -> None:
    """Take the steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", default="math500")
    parser.add_argument("--data-dir")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("settings", nargs="*", help="more of scrl train's, as name=value")
    options = parser.parse_args()
    settings = [
        f"model={options.model}", f"questions={options.questions}", f"steps={options.steps}", "completions=64",
        "trained=32", "sampling.max_tokens=3072", "evaluation.is_off=true", f"checkpoint_every={options.steps}",
        *([f"data_dir={options.data_dir}"] if options.data_dir else []), *options.settings,
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        train(read_config(None, settings), Path(folder) / "run", Watch(options.steps))


if __name__ == "__main__":
    main()
