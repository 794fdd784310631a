"""The records of a printed page: cells, tables, and what follows from what. No numbers here; `paper` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

GAIN = "Δ"
"""The metric of a cell that says by how much another is better."""
METHODS = {
    "ttrl": "TTRL", "scrl": "SCRL", "compass": "COMPASS", "etmr": "ETMR", "restrain": "RESTRAIN"
}  # fmt: skip
"""The methods as the paper prints them."""
Place = tuple[str, str, str, str]
"""Section, row, column, metric: where a number stands in its table."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that others make: their mean, or the first minus the second."""

    how: Literal["mean", "difference"]
    of: tuple[Place, ...]

    def value(self, values: Mapping[Place, float]) -> float | None:
        """From the numbers it follows from; none where one of them is not there."""
        given = [values[place] for place in self.of if place in values]
        if len(given) < len(self.of):
            return None
        return sum(given) / len(given) if self.how == "mean" else given[0] - given[1]


@dataclass(frozen=True, slots=True)
class Cell:
    """One printed number, or one curve of a figure."""

    table: str
    section: str
    row: str
    column: str
    metric: str
    """`pass@1`, `pass@16`, `entropy_…`, `Δ`, or a key of `metrics.jsonl` (see `Series`)."""
    paper: float | None
    """As printed; none where the paper draws it or only talks about it."""
    experiment: str | None
    """What measures it; none where it is derived."""
    measured_on: str
    """A benchmark's name; empty where the number is a mean over several."""
    copied_from: str | None = None
    """The work from which the paper took the number: no run of the authors stands behind it."""
    is_peak: bool = False
    """Starred: the best value before the run degraded, not the last."""
    derived: Derived | None = None

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.section, self.row, self.column, self.metric


@dataclass(frozen=True, slots=True)
class Series:
    """A number of every training step, as read from a line of `metrics.jsonl`."""

    name: str
    key: str
    meaning: str
    is_complement: bool = False
    """One minus the key's value."""

    def value(self, line: Mapping[str, float]) -> float | None:
        """Of one step; none where it is undefined."""
        if self.key not in line:
            return None
        return 1 - line[self.key] if self.is_complement else line[self.key]


SERIES: dict[str, Series] = {
    series.name: series
    for series in (
        Series("pass@1", "pass@1", "completions of the step that are right"),
        Series("positive_accuracy", "positive_accuracy", "positive labels that are right"),
        Series("positive_share", "positive_share", "questions with a positive label"),
        Series("negative_accuracy", "negative_accuracy", "ruled-out answers that are wrong"),
        Series("negative_answers", "negative_answers", "answers ruled out a question"),
        Series("tokens", "tokens", "tokens sampled a step"),
        Series("distinct_answers", "distinct_answers", "fragmentation: classes of answers a question"),
        Series("abstention", "positive_share", "questions without a positive label", is_complement=True),
    )
}
"""What the figures and the failure analysis follow through training."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table or figure of the paper."""

    name: str
    title: str
    label: str
    """Its \\label in the paper; for the failure analysis, which has neither table nor figure, its section."""
    caption: str
    cells: tuple[Cell, ...]
    series: tuple[Series, ...] = ()
    """Of a figure, and of what is averaged over a run."""
    measured_with: Literal["evaluation", "rollouts", "training"] = "evaluation"
    """evaluation: `EVALUATION`; rollouts: as training samples, before the first step; training: `series`."""
    not_in_paper: tuple[str, ...] = ()
    """What the paper leaves open about the table as a whole; reasons in `catalogue.NOT_IN_PAPER`."""

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Section and row, in print order."""
        return tuple(dict.fromkeys((cell.section, cell.row) for cell in self.cells))

    @property
    def columns(self) -> tuple[str, ...]:
        """What stands above the numbers, in print order."""
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def experiments(self) -> tuple[str, ...]:
        """Every experiment that a cell needs, once."""
        return tuple(dict.fromkeys(cell.experiment for cell in self.cells if cell.experiment is not None))


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one model: its start, the methods, and the gain of SCRL over `baseline`."""

    table: str
    section: str
    model: str
    """As printed."""
    columns: Mapping[str, str]
    """What is printed above → benchmark."""
    rows: Mapping[str, str]
    """Method → numbers as printed."""
    baseline: str
    name: Callable[[str, str], str]
    """(method, column) → experiment."""
    copied: Mapping[str, str]
    """Method → where its row was taken from."""
    mean: str | None
    """What is printed above the mean of the other columns."""

    def row(self, method: str) -> str:
        """What is printed before the numbers."""
        return {"start": self.model, GAIN: f"{self.model} {GAIN}"}.get(method) or f"{self.model} + {METHODS[method]}"

    def cells(self) -> Iterator[Cell]:
        """All numbers of the block."""
        for method, text in self.rows.items():
            make = self._gains if method == GAIN else self._measured
            yield from make(method, text.split())

    def _measured(self, method: str, printed: list[str]) -> Iterator[Cell]:
        copied = self.copied.get(method)
        numbers = printed if self.mean is None else printed[:-1]
        for (column, benchmark), number in zip(self.columns.items(), numbers, strict=True):
            yield Cell(
                self.table, self.section, self.row(method), column, "pass@1", float(number.rstrip("*")),
                self.name(method, column), benchmark, copied, is_peak=number.endswith("*"),
            )  # fmt: skip
        if self.mean is not None:
            of = tuple((self.section, self.row(method), column, "pass@1") for column in self.columns)
            yield Cell(
                self.table, self.section, self.row(method), self.mean, "pass@1", float(printed[-1]),
                None, "", copied, derived=Derived("mean", of),
            )  # fmt: skip

    def _gains(self, method: str, printed: list[str]) -> Iterator[Cell]:
        columns = dict(self.columns) | ({self.mean: ""} if self.mean is not None else {})
        for (column, benchmark), number in zip(columns.items(), printed, strict=True):
            of = tuple((self.section, self.row(name), column, "pass@1") for name in ("scrl", self.baseline))
            yield Cell(
                self.table, self.section, self.row(method), column, GAIN, float(number),
                None, benchmark, derived=Derived("difference", of),
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A printed number that does not follow from the paper's other numbers."""

    table: str
    place: Place
    printed: float
    implied: float
    reason: str
