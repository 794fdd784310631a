"""Showing a run while it goes: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from scrl.metrics import PASS_OR_MAJ


class PlainWatcher:
    """One line at a time, with a heartbeat at least every ten seconds of steps."""

    def __init__(self, console: Console, steps: int, name: str = "") -> None:
        """Lines begin with `name`."""
        self._console, self._steps = console, steps
        self._prefix = f"{name}: " if name else ""
        self._last = 0.0

    def note(self, text: str) -> None:
        """Something a user should know."""
        self._print(text)

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A step is done; not every one is shown."""
        now, done = time.monotonic(), metrics["step"] + 1
        if now - self._last >= 10 or done in (1, self._steps):
            self._last = now
            self._print(f"step {done}/{self._steps}: {words}; {self._numbers(metrics)}")

    def drawn(self, benchmark: str, questions: int, total: int) -> None:
        """So many questions of a benchmark have their completions; said now and then."""
        if time.monotonic() - self._last >= 10:
            self._last = time.monotonic()
            self._print(f"{benchmark}: {questions} of {total} questions")

    def evaluation(self, record: dict[str, Any]) -> None:
        """An evaluation on the way is done."""
        self._print(evaluation_line(record))

    def measured(self, record: dict[str, Any]) -> None:
        """A benchmark is done, apart from training."""
        self._print(measured_line(record))

    def _numbers(self, metrics: dict[str, Any]) -> str:
        return f"{metrics['agreement']:.0%} agree, entropy {metrics['entropy_mean']:.3f}"

    def _print(self, text: str) -> None:
        self._console.print(Text(self._prefix + text), soft_wrap=True)


class BarWatcher(PlainWatcher):
    """The same with a bar in place of the lines of steps."""

    def __init__(self, console: Console, steps: int, name: str, progress: Progress) -> None:
        """The bar belongs to `progress`."""
        super().__init__(console, steps, name)
        self._progress = progress
        self._task = progress.add_task(name or "training", total=steps, words="")

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=metrics["step"] + 1, words=f"{self._numbers(metrics)}; {words}")


def evaluation_line(record: dict[str, Any]) -> str:
    """An evaluation on the way in one line."""
    return f"after step {record['step']}, {measured_line(record)}"


def measured_line(record: dict[str, Any]) -> str:
    """A benchmark's figures in one line."""
    where = record["benchmark"]
    general = f"{record['answered']:.0%} answered, {record['agreement']:.0%} agree"
    if "pass@1" not in record:
        return f"{where}: {general} (no gold to measure against)"
    spread = f"{record['pass@1']:.1%} [{record['pass@1_low']:.1%}, {record['pass@1_high']:.1%}]"
    others = [f"{key} {value:.1%}" for key, value in record.items() if key != "pass@1" and PASS_OR_MAJ.fullmatch(key)]
    return f"{where}: {', '.join((f'pass@1 {spread}', *others))}; {general}"


@contextmanager
def watching(steps: int, name: str = "") -> Iterator[PlainWatcher]:
    """A listener that suits where the output goes."""
    console = Console(highlight=False, markup=False)
    if not sys.stdout.isatty():
        yield PlainWatcher(console, steps, name)
        return
    with progress_on(console) as progress:
        yield BarWatcher(console, steps, name, progress)


def progress_on(console: Console) -> Progress:
    """The bar; where the line is too short, its words are cut and all else stays."""
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
    )
    return Progress(*columns, console=console, transient=True, expand=True)  # without expand there are no ratios
