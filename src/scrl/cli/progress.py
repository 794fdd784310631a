"""The progress of a run: a bar on a terminal, plain lines elsewhere; and the folder of one that fails or is stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.constrain import Constrain
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from scrl.cli.terminal import plain_console, say
from scrl.listener import Listener
from scrl.metrics import PASS_OR_MAJ, SETS


class Lines:
    """Lines that begin with `name`, of which those about progress come now and then."""

    def __init__(self, console: Console, name: str = "") -> None:
        self._console, self._prefix, self._last = console, f"{name}: " if name else "", time.monotonic()

    def note(self, text: str) -> None:
        say(self._console, self._prefix + text)

    def now_and_then(self, text: str, is_due: bool = False, seconds: float = 10) -> None:
        if is_due or time.monotonic() - self._last >= seconds:
            self._last = time.monotonic()
            self.note(text)


class PlainProgress(Lines, Listener):
    """Steps, evaluations and tokens in lines."""

    def __init__(self, console: Console, steps: int = 0, name: str = "") -> None:
        super().__init__(console, name)
        self._steps = steps

    def step(self, metrics: dict[str, Any], words: str) -> None:
        done = metrics["step"] + 1
        self.now_and_then(f"step {done}/{self._steps}: {words}; {_agreement(metrics)}", done in (1, self._steps))

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        self.now_and_then(f"{SETS.get(benchmark, benchmark)}: sampled {questions} of {total} questions")

    def tokens(self, done: int, most: int) -> None:
        self.now_and_then(f"completions being drawn have {done} of at most {most} tokens", seconds=30)

    def evaluation(self, record: dict[str, Any]) -> None:
        self.note(evaluation_line(record))


class BarProgress(PlainProgress):
    """The same with a bar in place of the lines of steps."""

    def __init__(self, console: Console, steps: int, name: str, bar: Progress) -> None:
        super().__init__(console, steps, name)
        self._bar = bar
        self._task = bar.add_task(name or "training", total=steps, words="")
        self._evaluation: TaskID | None = None
        self._words = ""

    def step(self, metrics: dict[str, Any], words: str) -> None:
        self._words = f"{_agreement(metrics)}; {words}"
        self._bar.update(self._task, completed=metrics["step"] + 1, words=self._words)

    def tokens(self, done: int, most: int) -> None:
        drawn = f"token {done} of at most {most}"
        self._bar.update(self._task, words=f"{drawn}; {self._words}" if self._words else drawn)

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        """A second bar, for as long as questions are left."""
        if self._evaluation is None:
            self._evaluation = self._bar.add_task(benchmark, total=total, words="")
        self._bar.update(self._evaluation, completed=questions)
        if questions == total:
            self._bar.remove_task(self._evaluation)
            self._evaluation = None


def _agreement(metrics: dict[str, Any]) -> str:
    return f"{metrics['agreement']:.0%} agree, entropy {metrics['entropy_mean']:.3f}"


def evaluation_line(record: dict[str, Any]) -> str:
    """The numbers of a benchmark; of a set of questions that a run is measured on, also after which step."""
    name = record["benchmark"]
    what = f"after step {record['step']}, {SETS[name]}" if name in SETS else name
    general = f"{record['answered']:.0%} answered, {record['agreement']:.0%} agree"
    if "pass@1" not in record:
        return f"{what}: {general} (no gold to measure against)"
    interval = f"[{record['pass@1_low']:.1%}, {record['pass@1_high']:.1%}]"
    others = [f"{key} {value:.1%}" for key, value in record.items() if key != "pass@1" and PASS_OR_MAJ.fullmatch(key)]
    scores = ", ".join((f"pass@1 {record['pass@1']:.1%} {interval}", *others))
    graded, asked = record["gold_questions"], record["questions"]
    part = "" if graded == asked else f" of the {graded} of {asked} questions with a right answer"
    return f"{what}: {scores}{part}; {general}"


@contextmanager
def show_progress(steps: int, name: str = "") -> Iterator[PlainProgress]:
    console = plain_console()
    if not sys.stdout.isatty():
        yield PlainProgress(console, steps, name)
        return
    with progress_bar(console) as bar:
        yield BarProgress(console, steps, name, bar)


def progress_bar(console: Console) -> Progress:
    """A bar whose words are cut where the line is too short."""
    words = TextColumn("{task.fields[words]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeRemainingColumn())
    hour = 3600.0  # a step may take minutes: by default, rich looks at the last 30 s alone
    # Without expand there are no ratios.
    return _Bar(*columns, words, console=console, transient=True, expand=True, speed_estimate_period=hour)


class _Bar(Progress):
    """Leaves room for the ^C that a terminal echoes: a full line would wrap and leave the old bar on the screen."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield Constrain(self.make_tasks_table(self.tasks), plain_console().width - 3)  # self.console may not be there


# When a run ends early


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """After an error, remove the folder if nothing was written to it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


@contextmanager
def resumable(folder: Path, command: str, console: Console) -> Iterator[None]:
    """The same; after Ctrl-C, also say which command resumes."""
    try:
        with removed_if_empty(folder):
            yield
    except KeyboardInterrupt:
        if folder.is_dir():
            console.print(f"stopped; resume with: {command}", soft_wrap=True)
        raise
