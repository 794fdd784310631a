"""Seconds of whole SCRL steps on a GPU by phase, and the share of time in which no kernel runs.

    python benchmarks/gpu_step.py --model FOLDER --questions math500 --data-dir FOLDER

A run of `scrl train` without evaluations: 8 questions per step, 64 completions of at most 3,072 tokens, 32 of them
trained on, 16,384 tokens per pass. Kernels are recorded from the third step on: the first one compiles, and in the
second the sampler finds out how much memory the optimizer leaves. Logs that are written between steps count; the one
checkpoint at the end does not.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from scrl.config import read_config
from scrl.listener import Listener
from scrl.training.loop import timed, train

PHASES = ("seconds_rollout", "seconds_credit", "seconds_update")
UNWATCHED = 2
SIZES = ((0, 5e-6, "under 5 µs"), (5e-6, 1e-3, "under 1 ms"), (1e-3, np.inf, "longer"))
"""Of the times without a kernel: between kernels of a CUDA graph, between launches, and while the host works."""


class Watch(Listener):
    """Prints each step's seconds, and records kernels from the end of the second step to the end of the last."""

    def __init__(self, steps: int) -> None:
        """For a run of `steps` steps."""
        self._steps, self._start = steps, 0
        self._profiler: Any = None
        self.phases: list[tuple[str, int, int]] = []
        """Name, begin and end in nanoseconds."""

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A step is done."""
        seconds = ", ".join(f"{name.removeprefix('seconds_')} {metrics[name]:.2f} s" for name in PHASES)
        print(f"step {metrics['step'] + 1}: {metrics['tokens']:,} tokens; {seconds}; {words}", flush=True)
        if not torch.cuda.is_available():
            return
        torch.cuda.synchronize()
        if metrics["step"] == UNWATCHED - 1:
            self._profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            self._profiler.start()
            self._start = time.time_ns()
        elif metrics["step"] == self._steps - 1:
            whole = (time.time_ns() - self._start) / 1e9
            self._profiler.stop()
            self.say(gaps(kernels(self._profiler, self._start), whole), whole)
            print(f"  calls of the driver: {', '.join(dearest_calls(self._profiler))}")

    def say(self, idle: NDArray[np.float64], whole: float) -> None:
        """Seconds without a kernel, in all, by phase and by their lengths."""
        lengths = idle[:, 1] - idle[:, 0]
        print(f"{self._steps - UNWATCHED} steps in {whole:.2f} s, no kernel in {lengths.sum() / whole:.1%} of it")
        for name in PHASES:
            spans = [
                ((first - self._start) / 1e9, (last - self._start) / 1e9)
                for phase, first, last in self.phases
                if phase == name and first >= self._start
            ]
            inside = sum(float(overlap(idle, *span).sum()) for span in spans)
            lasted = sum(last - first for first, last in spans)
            print(f"  {name.removeprefix('seconds_')}: {lasted:.2f} s, of which {inside:.2f} s without a kernel")
        for low, high, words in SIZES:
            chosen = lengths[(lengths >= low) & (lengths < high)]
            print(f"  {words}: {len(chosen):,} gaps, {chosen.sum():.2f} s")


def kernels(profiler: Any, start: int) -> NDArray[np.float64]:
    """(start, end) of everything that ran on the GPU, in seconds after `start`, in the order of their starts.

    `profiler.events()` would take minutes: a step of 3,072 tokens has a million kernels.
    """
    spans = [
        (event.start_ns() - start, event.end_ns() - start)
        for event in profiler.profiler.kineto_results.events()
        if event.device_type().name == "CUDA"
    ]
    spans_of_kernels = np.array(spans, dtype=np.float64).reshape(-1, 2) / 1e9
    ordered: NDArray[np.float64] = spans_of_kernels[np.argsort(spans_of_kernels[:, 0])]
    return ordered


def dearest_calls(profiler: Any) -> list[str]:
    """The driver calls on which the host spent the most time, including waiting for the GPU."""
    spent: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for event in profiler.profiler.kineto_results.events():
        if event.device_type().name == "CPU":
            spent[event.name()] += event.duration_ns()
            number[event.name()] += 1
    return [f"{name} {number[name]:,} × {time / 1e9:.2f} s" for name, time in spent.most_common(6)]


def gaps(busy: NDArray[np.float64], end: float) -> NDArray[np.float64]:
    """(start, end) of the times between 0 and `end` in which nothing ran."""
    ends = np.maximum.accumulate(np.append(0.0, busy[:, 1]))
    idle = np.stack((ends, np.append(busy[:, 0], end)), axis=1)
    return idle[idle[:, 1] > idle[:, 0]]


def overlap(spans: NDArray[np.float64], first: float, last: float) -> NDArray[np.float64]:
    """How much of each span is between the two."""
    covered: NDArray[np.float64] = np.minimum(spans[:, 1], last) - np.maximum(spans[:, 0], first)
    return np.clip(covered, 0, None)


@contextlib.contextmanager
def phases_noted(phases: list[tuple[str, int, int]]) -> Iterator[None]:
    """Record in `phases` when each timed phase begins and ends."""

    @contextlib.contextmanager
    def noted(seconds: dict[str, float], name: str) -> Iterator[None]:
        first = time.time_ns()
        with timed(seconds, name):
            yield
        phases.append((name, first, time.time_ns()))

    with patch("scrl.training.loop.timed", noted):
        yield


def settings_of(options: argparse.Namespace) -> Sequence[str]:
    """The settings of the run."""
    return [
        f"model={options.model}", f"questions={options.questions}", f"steps={options.steps}", "completions=64",
        "trained=32", "sampling.max_tokens=3072", "evaluation.completions=0",
        f"checkpoint_every={options.steps}",
        *([f"data_dir={options.data_dir}"] if options.data_dir else []), *options.settings,
    ]  # fmt: skip


def main() -> None:
    """Take the steps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--model", required=True)
    parser.add_argument("--questions", default="math500")
    parser.add_argument("--data-dir")
    parser.add_argument("--steps", type=int, default=4, help="at least 3")
    parser.add_argument("settings", nargs="*", help="more of scrl train's, as name=value")
    options = parser.parse_args()
    if options.steps <= UNWATCHED:
        parser.error(f"--steps {options.steps}: the first {UNWATCHED} are not watched")
    watch = Watch(options.steps)
    with tempfile.TemporaryDirectory() as folder, phases_noted(watch.phases):
        train(read_config(None, settings_of(options)), Path(folder) / "run", watch)


if __name__ == "__main__":
    main()
