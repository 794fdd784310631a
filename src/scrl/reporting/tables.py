"""The tables of the page: settings, results before and after, totals of the labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scrl.metrics import PASS_OR_MAJ
from scrl.reporting.label_totals import TOTALS, Ratio
from scrl.reporting.run_folder import Protocol, Run
from scrl.reporting.text import percent, plain, shorten, signed

NOTHING = "–"
HEADLINE = frozenset(
    "method preset model questions completions trained questions_per_step questions_per_update steps seed "
    "optimizer.learning_rate sampling.temperature sampling.max_tokens loss_variant lora.rank".split()
)
"""Settings that stand on the page unfolded."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, with its value in each run."""

    name: str
    values_R: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """The runs do not agree on it."""
        return len(set(self.values_R)) > 1

    @property
    def is_headline(self) -> bool:
        """It stands on the page unfolded."""
        return self.differs or self.name in HEADLINE


def settings(runs: Sequence[Run]) -> list[Setting]:
    """All settings of all runs, nested ones under dotted names, in the order of the files."""
    flat_R = [dict(_flatten(run.config)) for run in runs]
    names = dict.fromkeys(name for flat in flat_R for name in flat)
    return [Setting(name, tuple(flat.get(name, NOTHING) for flat in flat_R)) for name in names]


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, shorten(_words(value), 300)


def _words(value: Any) -> str:
    if value is None or value in ([], {}):
        return NOTHING
    if value == "":
        return "''"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One number of an evaluation."""

    key: str
    words: str
    is_share: bool = True

    def show(self, value: float) -> str:
        """The number as it stands in a cell."""
        return percent(value) if self.is_share else plain(value)

    def show_change(self, change: float) -> str:
        """A difference; of shares in percentage points."""
        return f"{signed(100 * change, 1)} pp" if self.is_share else signed(change, 3)


@dataclass(frozen=True, slots=True)
class Cell:
    """One number, as shown and as it stands in the file."""

    text: str
    value: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One evaluation, or the change between two."""

    words: str
    cells: tuple[Cell, ...]
    is_change: bool = False


@dataclass(frozen=True, slots=True)
class RunResults:
    """The first and the last evaluation of one run."""

    run: str
    look: int
    rows: tuple[ResultRow, ...]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """One benchmark, evaluated in one way, by all runs that did."""

    benchmark: str
    protocol: str
    columns: tuple[Column, ...]
    runs: tuple[RunResults, ...]
    is_graded: bool


def result_tables(runs: Sequence[Run]) -> list[ResultTable]:
    """Before and after, benchmark by benchmark."""
    protocols = dict.fromkeys(protocol for run in runs for protocol in run.series)
    return [_result_table(protocol, runs) for protocol in protocols]


def _result_table(protocol: Protocol, runs: Sequence[Run]) -> ResultTable:
    ends = {look: _ends(run.series[protocol]) for look, run in enumerate(runs) if protocol in run.series}
    keys = {key for lines in ends.values() for line in lines for key in line}
    columns = tuple(column for column in _columns(keys) if column.key in keys)
    results = tuple(RunResults(runs[look].name, look, tuple(_rows(lines, columns))) for look, lines in ends.items())
    return ResultTable(protocol.benchmark, protocol.words, columns, results, is_graded="pass@1" in keys)


def _ends(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return lines if len(lines) == 1 else [lines[0], lines[-1]]


def _columns(keys: set[str]) -> list[Column]:
    found = [match for match in map(PASS_OR_MAJ.fullmatch, keys) if match]
    ordered = sorted(found, key=lambda match: (match[1] == "maj", int(match[2])))
    return [
        *(Column(match[0], match[0]) for match in ordered),
        Column("agreement", "agreement"),
        Column("answered", "answered"),
        Column("truncated", "truncated"),
        Column("entropy_mean", "entropy", is_share=False),
        Column("entropy_correct", "… if right", is_share=False),
        Column("entropy_incorrect", "… if wrong", is_share=False),
    ]


def _rows(lines: list[dict[str, Any]], columns: Sequence[Column]) -> Iterator[ResultRow]:
    for line in lines:
        yield ResultRow(f"step {line['step']}", tuple(_cell(line, column) for column in columns))
    if len(lines) == 2:
        yield ResultRow("change", tuple(_change(lines[0], lines[1], column) for column in columns), is_change=True)


def _cell(line: Mapping[str, Any], column: Column) -> Cell:
    if column.key not in line:
        return Cell(NOTHING)
    low, high = line.get(f"{column.key}_low"), line.get(f"{column.key}_high")
    detail = "" if low is None or high is None else f"{100 * low:.1f} to {percent(high)}"
    return Cell(column.show(line[column.key]), line[column.key], detail)


def _change(first: Mapping[str, Any], last: Mapping[str, Any], column: Column) -> Cell:
    if column.key not in first or column.key not in last:
        return Cell(NOTHING)
    change = last[column.key] - first[column.key]
    return Cell(column.show_change(change), round(change, 6))


@dataclass(frozen=True, slots=True)
class TotalRow:
    """One total of the labels, with its value in each run."""

    words: str
    cells_R: tuple[Cell, ...]


def total_rows(runs: Sequence[Run]) -> list[TotalRow]:
    """What the labels add up to; without gold, only what needs none."""
    is_graded = any(run.is_graded for run in runs)
    shown = [total.words for total in TOTALS if is_graded or not total.needs_gold]
    return [TotalRow(words, tuple(_ratio_cell(run.totals[words]) for run in runs)) for words in shown]


def _ratio_cell(ratio: Ratio) -> Cell:
    if ratio.share is None:
        return Cell(NOTHING)
    return Cell(percent(ratio.share), ratio.share, f"{plain(round(ratio.part, 2))} of {ratio.whole:,}")
