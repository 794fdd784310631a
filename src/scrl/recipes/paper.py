"""What the paper prints, read from `paper.yaml`: its tables, what its figures show, and where it contradicts itself.

Numbers that the paper computes from others (Δ, Avg) are cells too, each with the cells it follows from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import yaml

GAIN = "Δ"
"""The metric of a cell that says how much better one row is than another."""
CellPlace = tuple[str, str, str, str]
"""Section, row, column, metric: where a number is in its table."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A number computed from others: their mean, or the first minus the second."""

    how: Literal["mean", "difference"]
    of: tuple[CellPlace, ...]

    def value(self, values: Mapping[CellPlace, float]) -> float | None:
        """Computed from the numbers it follows from; None if one of them is missing."""
        if not all(place in values for place in self.of):
            return None
        numbers = [values[place] for place in self.of]
        return sum(numbers) / len(numbers) if self.how == "mean" else numbers[0] - numbers[1]


@dataclass(frozen=True, slots=True)
class PaperCell:
    """One printed number, or one curve of a figure."""

    table: str
    section: str
    row: str
    column: str
    metric: str
    """`pass@1`, `pass@16`, `entropy_…`, `Δ`, or one of SERIES."""
    paper: float | None
    """As printed; None where the paper draws it or only talks about it."""
    experiment: str | None
    measured_on: str
    """A benchmark's name; empty where the number is a mean over several."""
    copied_from: str | None = None
    """The work from which the paper took the number: it is not from a run of the authors."""
    is_peak: bool = False
    """Starred: the best value before the run degraded, not the last."""
    derived: Derived | None = None

    @property
    def place(self) -> CellPlace:
        return self.section, self.row, self.column, self.metric


@dataclass(frozen=True, slots=True)
class PaperTable:
    name: str
    title: str
    label: str
    caption: str
    cells: tuple[PaperCell, ...]
    series: tuple[str, ...] = ()
    """What a figure draws, and what is averaged over a run: keys of SERIES."""
    measured_with: Literal["evaluation", "curve", "rollouts", "training"] = "evaluation"
    """evaluation: `EVALUATION`, of the last checkpoint; curve: the same, during a run; rollouts: as training
    samples, before the first step; training: `series`, of the steps."""
    not_in_paper: tuple[str, ...] = ()
    """What the paper leaves open about the table as a whole: keys of NOT_IN_PAPER."""

    @property
    def is_figure(self) -> bool:
        return self.measured_with in ("curve", "training")

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        return tuple(dict.fromkeys((cell.section, cell.row) for cell in self.cells))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def experiments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.experiment for cell in self.cells if cell.experiment is not None))


class Inconsistency(NamedTuple):
    """A printed number that does not follow from the paper's other numbers."""

    table: str
    place: CellPlace
    printed: float
    implied: float
    reason: str


def _table(
    name: str, blocks: Sequence[Any], series: Sequence[str] = (), not_in_paper: Sequence[str] = (), **fields: Any
) -> PaperTable:
    cells = tuple(cell for block in blocks for cell in _cells(name, block))
    return PaperTable(name, cells=cells, series=tuple(series), not_in_paper=tuple(not_in_paper), **fields)


def _cells(table: str, block: Mapping[str, Any]) -> Iterator[PaperCell]:
    """The cells of a block, row by row; the head of `paper.yaml` says what its fields mean."""
    section, mean, columns = block["section"], block.get("mean"), block["columns"]
    if isinstance(columns, list):
        columns = {PRINTED[benchmark]: {"benchmark": benchmark} for benchmark in columns}
    benchmarks = {column: heading["benchmark"] for column, heading in columns.items()}
    for row, fields in block["rows"].items():
        copied = fields.get("copied")
        printed = fields.get("printed", "").split()
        numbers = printed[:-1] if mean else printed
        for (column, heading), number in zip(columns.items(), numbers, strict=bool(numbers)):
            if number == "–":
                continue
            run, benchmark = fields["run"], benchmarks[column]
            run = run.replace("<benchmark>", benchmark).replace("<length>", str(heading.get("length")))
            metric = fields.get("metric") or heading.get("metric", "pass@1")
            value = float(number.rstrip("*")) if number[0].isdigit() else None
            yield PaperCell(table, section, row, column, metric, value, run, benchmark, copied, number.endswith("*"))
        if mean and printed:
            of = tuple((section, row, column, "pass@1") for column in columns)
            average = float(printed[-1])
            yield PaperCell(table, section, row, mean, "pass@1", average, None, "", copied, derived=Derived("mean", of))
        gains = fields.get("gains", "").split()
        averages = {mean: ""} if mean else {}
        for (column, benchmark), number in zip((benchmarks | averages).items(), gains, strict=bool(gains)):
            pair = tuple((section, name, column, "pass@1") for name in (fields.get("of", row), fields["over"]))
            difference = Derived("difference", pair)
            yield PaperCell(table, section, row, column, GAIN, float(number), None, benchmark, derived=difference)


# The file says what each of these is.
_PAPER: dict[str, Any] = yaml.load(
    files("scrl.recipes").joinpath("paper.yaml").read_bytes(),
    Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # noqa: S506 - both are safe; the first is faster
)
MODELS: dict[str, str] = {name: hub for name, (hub, _) in _PAPER["models"].items()}
PROMPT_STYLES: dict[str, str] = dict(_PAPER["models"].values())
RIVALS: list[str] = _PAPER["rivals"]
PRINTED: dict[str, str] = _PAPER["benchmarks"]
BUDGETS: dict[str, tuple[int, int]] = {name: (votes, trained) for name, (votes, trained) in _PAPER["budgets"].items()}
LENGTHS: dict[str, int] = _PAPER["lengths"]
EVALUATION: dict[str, float] = _PAPER["evaluation"]
EPISODES: dict[str, int] = _PAPER["episodes"]
SHORTER: dict[str, int] = _PAPER["shorter"]
HYPERPARAMETERS: dict[str, list[float | str]] = _PAPER["hyperparameters"]
"""Of all models but Qwen2.5-Math-7B, and of that one."""
SERIES: dict[str, str] = _PAPER["series"]
TABLES = {name: _table(name, **fields) for name, fields in _PAPER["tables"].items()}
KNOWN_INCONSISTENCIES = tuple(
    Inconsistency(**(fields | {"place": tuple(fields["place"])})) for fields in _PAPER["inconsistencies"]
)
UNSTATED_EVERYWHERE: tuple[str, ...] = tuple(_PAPER["not_in_paper"]["everywhere"])
NOT_IN_PAPER: dict[str, str] = _PAPER["not_in_paper"]["somewhere"] | _PAPER["not_in_paper"]["everywhere"]
