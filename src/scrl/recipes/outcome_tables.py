"""The results of a reproduction, in the shape of the paper's tables.

Every number is read back from the files under OUT. Of several seeds it is the mean of their means; intervals are over
questions. At a scale other than the paper's, models and benchmarks have the names of their substitutes, rows and
columns that become the same are printed once, and the paper's values are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from scrl.evaluation.statistics import mean_over_seeds, paired_difference, question_means
from scrl.recipes.jobs import VOTING
from scrl.recipes.paper import GAIN, SERIES, CellPlace, Derived, PaperCell, PaperTable
from scrl.recipes.reproduce import Choices, read_finished
from scrl.reporting.evaluations import EvaluationProtocol
from scrl.reporting.tables import Table


@dataclass(frozen=True, slots=True)
class Value:
    """A measured number in the paper's unit, with its interval where there is one."""

    mean: float
    low: float | None = None
    high: float | None = None
    by_question: Mapping[str, float] | None = None
    """As fractions, for differences question by question."""
    votes: int | None = None


FOLDERS = {"evaluation": "evaluations", "rollouts": "rollouts", "curve": "runs", "training": "evaluations"}
"""How a table is measured → the folder of its evaluations."""


def values_of(table: PaperTable, choices: Choices, out: Path) -> dict[CellPlace, Value]:
    """The value of every cell whose experiment was run, and of the cells derived from those."""
    folders = [out / f"seed-{seed}" for seed in choices.seeds]
    values: dict[CellPlace, Value] = {}
    for cell in table.cells:
        found = _derived(cell.derived, values) if cell.derived else _measured(table, cell, folders)
        if found is not None:
            values[cell.place] = found
    return values


def _measured(table: PaperTable, cell: PaperCell, folders: Sequence[Path]) -> Value | None:
    name, is_curve = str(cell.experiment), table.measured_with == "curve"
    if cell.metric in table.series:
        lines = [line for folder in folders for line in _lines(folder / "runs" / name, is_followed=is_curve)]
        numbers = [line[cell.metric] for line in lines if line.get(cell.metric) is not None]
        unit = 100 if cell.metric == "pass@1" else 1
        return Value(unit * fmean(numbers)) if numbers else None
    records = []
    for folder in folders:
        kind = "voting" if cell.metric == VOTING else FOLDERS[table.measured_with]
        lines = read_finished(folder / kind / name / "evaluations.jsonl")
        at_end = (line for line in lines if line["benchmark"] == cell.measured_on)
        evaluated = _lines(folder / "runs" / name, is_followed=True) if cell.is_peak else []
        on_the_way = (line for line in evaluated if line["step"] > 0)
        record = max(on_the_way, key=lambda line: line["pass@1"], default=None) or next(at_end, None)
        if record is None:
            return None
        records.append(record)
    return _mean_of(records, cell.metric)


def _lines(run: Path, *, is_followed: bool) -> list[dict[str, Any]]:
    """What a series is read from: a run's evaluations of its own questions, or its steps."""
    if not is_followed:
        return read_finished(run / "metrics.jsonl")
    return [line for line in read_finished(run / "evaluations.jsonl") if line["benchmark"] == "stream"]


def _mean_of(records: Sequence[Mapping[str, Any]], metric: str) -> Value | None:
    """The mean over seeds; for voting, maj@k of all k votes."""
    if not metric.startswith(("pass@", "maj@", VOTING)):
        return Value(fmean(each[metric] for each in records)) if all(metric in each for each in records) else None
    votes = round(fmean(record["samples"] for record in records)) if metric == VOTING else None
    keys = [f"maj@{record['samples']}" if metric == VOTING else metric for record in records]
    by_seed = [record.get(f"{key}_by_question", {}) for key, record in zip(keys, records, strict=True)]
    if not all(by_seed):
        return None
    seed = records[0].get("seed", 0) if len(records) == 1 else 0  # a single evaluation keeps its own interval
    found = mean_over_seeds(by_seed, seed=seed)
    return Value(100 * found.mean, 100 * found.low, 100 * found.high, question_means(by_seed), votes)


def _derived(derived: Derived, values: Mapping[CellPlace, Value]) -> Value | None:
    """A mean, or a difference: paired by question where both sides have their questions."""
    mean = derived.value({place: value.mean for place, value in values.items()})
    if mean is None:
        return None
    sides = [values[place].by_question for place in derived.of]
    if derived.how == "mean" or sides[0] is None or sides[1] is None:
        return Value(mean)
    after, before = sides[0], sides[1]
    change = paired_difference(list(before.values()), [after[name] for name in before], seed=0)
    return Value(100 * change.mean, 100 * change.low, 100 * change.high)


def outcome_table(table: PaperTable, values: Mapping[CellPlace, Value], caption: str) -> Table:
    """The table as the paper has it, our value first, then the paper's in parentheses."""
    texts: dict[tuple[str, str, str], str] = {}
    for cell in table.cells:
        key = (cell.section, cell.row, cell.column)
        texts[key] = " ".join(filter(None, (texts.get(key, ""), ours_and_papers(cell, values.get(cell.place)))))
    rows = [
        (section, row, *(texts.get((section, row, column), "") or "–" for column in table.columns))
        for section, row in table.rows
    ]
    return Table(("", "", *table.columns), tuple(rows), caption)


def ours_and_papers(cell: PaperCell, value: Value | None) -> str:
    """`41.3 [38.0, 45.1] (41.5)`; a gain with its sign; a copied value says from where."""
    usual = {"pass@1": 1, "tokens": 0}.get(cell.metric, 2 if cell.metric in SERIES else 1)
    digits = 3 if cell.metric.startswith("entropy_") else usual
    ours = "–"
    if value is not None:
        sign = f"Δ {'+' if value.mean > 0 else ''}" if cell.metric == GAIN else ""
        has_interval = value.low is not None and value.high is not None
        interval = f" [{value.low:.{digits}f}, {value.high:.{digits}f}]" if has_interval else ""
        votes = "" if value.votes is None else f" with {value.votes} votes"
        ours = f"{sign}{value.mean:.{digits}f}{interval}{votes}"
    copied = f", {cell.copied_from}" if cell.copied_from else ""
    peak = "*" if cell.is_peak else ""
    return ours if cell.paper is None else f"{ours} ({cell.paper:.{digits}f}{peak}{copied})"


def number_table(table: PaperTable, values: Mapping[CellPlace, Value]) -> Table:
    """One row per number, in full, with the experiment that was run for it: for a spreadsheet."""
    rows = []
    for cell in table.cells:
        value = values.get(cell.place)
        ours = (None, None, None) if value is None else (value.mean, value.low, value.high)
        rows.append((table.name, *cell.place, *ours, cell.paper, cell.experiment))
    header = ("table", "section", "row", "column", "metric", "value", "low", "high", "paper", "experiment")
    return Table(header, tuple(rows))


def caption_of(table: PaperTable, values: Mapping[CellPlace, Value], choices: Choices, out: Path) -> str:
    """What a reader must know beside the numbers: how many questions, samples, seeds, and how they were drawn."""
    seeds = "seed " + ", ".join(map(str, choices.seeds))
    label = f" ({table.label})" if table.label else ""
    if table.measured_with == "training":
        how = f"the mean over all steps of each run, {seeds}"
    elif table.measured_with == "curve":
        how = f"the mean over all evaluations in each run, {_drawn(table, choices, out)}, {seeds}"
    else:
        last = "; last checkpoint" if table.measured_with == "evaluation" else ""
        intervals = ", 95 % intervals over questions" if any(value.low is not None for value in values.values()) else ""
        how = f"{_drawn(table, choices, out)}, {seeds}{last}{intervals}"
    engine = f", trained with {choices.engine}" if choices.engine != "local" else ""
    caption = f"{table.title}{label}. {table.caption} Here: {how}{engine}."
    if choices.scale != "paper":
        why = "not the paper's models, benchmarks and lengths, and its values are left out"
        return f"{caption} At scale {choices.scale}: {why}."
    if any(cell.paper is not None for cell in table.cells):
        caption += " In parentheses what the paper prints."
    if any(cell.is_peak for cell in table.cells):
        ours = ", as ours are, in place of the last checkpoint" if choices.engine == "local" else ""
        caption += f" * is the best evaluation on the way{ours}."
    return caption


def _drawn(table: PaperTable, choices: Choices, out: Path) -> str:
    benchmarks = {"stream"} if table.measured_with == "curve" else {cell.measured_on for cell in table.cells}
    ways = {
        EvaluationProtocol.of(line).words
        for seed in choices.seeds
        for name in table.experiments
        for line in read_finished(out / f"seed-{seed}" / FOLDERS[table.measured_with] / name / "evaluations.jsonl")
        if line["benchmark"] in benchmarks
    }
    return "; ".join(sorted(ways)) or "nothing measured yet"
