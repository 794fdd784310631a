"""What came of a reproduction, in the shape of the paper's tables.

Every number is read back from the files under OUT. Several seeds are averaged question by question; intervals are over
questions. At another scale than the paper's the names of models and benchmarks become those of what stands for them,
rows and columns that are one and the same there are printed once, and the paper's values are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scrl.evaluation.statistics import Difference, bootstrap_interval, paired_difference
from scrl.recipes.jobs import VOTING, find
from scrl.recipes.paper_cells import LENGTHS, MODELS, PRINTED
from scrl.recipes.paper_records import GAIN, SERIES, Cell, Place, Table
from scrl.recipes.reproduce import Choices
from scrl.recipes.scales import LEVELS, at_scale, benchmark_at, length_at
from scrl.reporting.curves import write_curves
from scrl.reporting.json_lines import read_finished
from scrl.reporting.result_tables import Sheet


@dataclass(frozen=True, slots=True)
class Value:
    """A measured number in the paper's unit, with its interval where there is one."""

    mean: float
    low: float | None = None
    high: float | None = None
    by_question: Mapping[str, float] | None = None
    """As fractions, for differences question by question."""
    votes: int | None = None

    def text(self, digits: int) -> str:
        """`41.5 [38.0, 45.1]`."""
        shown = f"{self.mean:.{digits}f}"
        if self.low is None or self.high is None:
            return shown
        return f"{shown} [{self.low:.{digits}f}, {self.high:.{digits}f}]"


# The table at another scale


def table_at(table: Table, scale: str) -> Table:
    """The table with the names of what stands for its models and benchmarks; cells that are one and the same, once."""
    if scale == "paper":
        return table
    pairs = _pairs_at(table, scale)
    place_at = {cell.place: renamed.place for cell, renamed in pairs}
    cells: dict[Place, Cell] = {}
    for cell, renamed in pairs:
        of = tuple(dict.fromkeys(place_at[place] for place in cell.derived.of)) if cell.derived else ()
        derived = replace(cell.derived, of=of) if cell.derived else None
        cells.setdefault(renamed.place, replace(renamed, paper=None, derived=derived))
    return replace(table, cells=tuple(cells.values()))


def _originals(table: Table, scale: str) -> dict[Place, Cell]:
    """What is measured for a cell of the table at a scale: the first of those that it stands for."""
    found: dict[Place, Cell] = {}
    for cell, renamed in _pairs_at(table, scale):
        found.setdefault(renamed.place, cell)
    return found


def _pairs_at(table: Table, scale: str) -> list[tuple[Cell, Cell]]:
    """Every cell, and what it is called at a scale.

    Two models that become one share their rows, unless a mean or a gain would then follow from other numbers in one of
    them than in the other: such rows say which model they stand for.
    """
    if scale == "paper":
        return [(cell, cell) for cell in table.cells]
    pairs = [(cell, _renamed(cell, scale)) for cell in table.cells]
    place_at = {cell.place: renamed.place for cell, renamed in pairs}
    follows: dict[Place, set[tuple[Place, ...]]] = {}
    for cell, renamed in pairs:
        if cell.derived:
            follows.setdefault(renamed.place, set()).add(tuple(place_at[place] for place in cell.derived.of))
    if all(len(ways) == 1 for ways in follows.values()):
        return pairs
    return [(cell, replace(renamed, section=f"{renamed.section}, for {_model_of(cell)}")) for cell, renamed in pairs]


def _renamed(cell: Cell, scale: str) -> Cell:
    section, row = (_model_at(text) for text in (cell.section, cell.row))
    level = LEVELS.get(cell.measured_on)
    column = cell.column
    for printed in ("MATH / AMC", PRINTED.get(cell.measured_on, ""), cell.measured_on):
        if level and printed and printed in column:
            column = column.replace(printed, level)
            break
    if column in LENGTHS:
        column = f"{length_at(LENGTHS[column], scale)} tokens"
    for name, printed in PRINTED.items():
        section = section.replace(printed, LEVELS[name])
    if level:
        row = row.replace(f"/{cell.measured_on}/", f"/{level}/")  # an experiment's name
    return replace(cell, section=section, row=row, column=column)


def _model_of(cell: Cell) -> str:
    """The paper's model of a row, as printed."""
    names = (model.rpartition("/")[2] for model in MODELS.values())
    return next(name for name in names if name in cell.row)


def _model_at(text: str) -> str:
    for name, model in MODELS.items():
        text = text.replace(model.rpartition("/")[2], "embedded").replace(f"{name}/", "embedded/")
    return text


# Values, from the files


def values_of(table: Table, scale: str, seeds: Sequence[int], out: Path) -> dict[Place, Value]:
    """The value of every cell whose experiment was carried out, and of what follows from those."""
    scaled = table_at(table, scale)
    originals = _originals(table, scale)
    values: dict[Place, Value] = {}
    for cell in scaled.cells:
        value = _derived(cell, values) if cell.derived else _measured(table, originals[cell.place], scale, seeds, out)
        if value is not None:
            values[cell.place] = value
    return values


def _measured(table: Table, cell: Cell, scale: str, seeds: Sequence[int], out: Path) -> Value | None:
    if cell.experiment is None:
        return None
    name = at_scale(find(cell.experiment), scale).name
    folders = [out / f"seed-{seed}" for seed in seeds]
    if cell.metric in {series.name for series in table.series}:
        return _mean_of_series([folder / "runs" / name for folder in folders], cell.metric)
    records = [_record(folder, table, cell, name, scale) for folder in folders]
    found = [record for record in records if record is not None]
    if len(found) < len(records):
        return None
    return _voting_value(found) if cell.metric == VOTING else _value(found, cell.metric)


def _record(folder: Path, table: Table, cell: Cell, name: str, scale: str) -> dict[str, Any] | None:
    """The line of evaluations.jsonl that has a cell's number."""
    if cell.is_peak and (peak := _peak(folder / "runs" / name)) is not None:
        return peak
    kind = "voting" if cell.metric == VOTING else _kind(table)
    benchmark = benchmark_at(cell.measured_on, scale)
    lines = read_finished(folder / kind / name / "evaluations.jsonl")
    return next((line for line in lines if line["benchmark"] == benchmark), None)


def _kind(table: Table) -> str:
    """The folder of a table's evaluations."""
    return "rollouts" if table.measured_with == "rollouts" else "evaluations"


def _peak(run: Path) -> dict[str, Any] | None:
    """The best evaluation on the way, where some were made; before the first step is not on the way."""
    lines = read_finished(run / "evaluations.jsonl")
    later = [line for line in lines if line["benchmark"] == "stream" and line["step"] > 0]
    return max(later, key=lambda line: line["pass@1"], default=None)


def _voting_value(records: Sequence[Mapping[str, Any]]) -> Value | None:
    """maj@k of all k votes."""
    votes = [record["samples"] for record in records]
    found = _value(
        [{**r, "maj@k": 0.0, "maj@k_by_question": r[f"maj@{r['samples']}_by_question"]} for r in records], "maj@k"
    )
    return found and replace(found, votes=round(sum(votes) / len(votes)))


def _value(records: Sequence[Mapping[str, Any]], metric: str) -> Value | None:
    if not all(metric in record for record in records):
        return None
    if not metric.startswith(("pass@", "maj@")):
        return Value(math.fsum(record[metric] for record in records) / len(records))
    by_question = _by_question([record[f"{metric}_by_question"] for record in records])
    seed = records[0].get("seed", 0) if len(records) == 1 else 0  # of one evaluation the interval that it has itself
    low, high = bootstrap_interval(list(by_question.values()), seed=seed)
    mean = math.fsum(by_question.values()) / len(by_question)
    return Value(100 * mean, 100 * low, 100 * high, by_question)


def _by_question(seeds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A question's mean over seeds; where each seed has questions of its own, all of them."""
    collected: dict[str, list[float]] = {}
    for values in seeds:
        for name, value in values.items():
            collected.setdefault(name, []).append(value)
    return {name: math.fsum(values) / len(values) for name, values in collected.items()}


def _mean_of_series(runs: Iterable[Path], name: str) -> Value | None:
    """A number of every step, averaged over the run."""
    series = SERIES[name]
    found = [
        value
        for run in runs
        for line in read_finished(run / "metrics.jsonl")
        if (value := series.value(line)) is not None
    ]
    unit = 100 if name == "pass@1" else 1
    return Value(unit * math.fsum(found) / len(found)) if found else None


def _derived(cell: Cell, values: Mapping[Place, Value]) -> Value | None:
    derived = cell.derived
    assert derived is not None
    mean = derived.value({place: value.mean for place, value in values.items()})
    if mean is None or derived.how == "mean":
        return None if mean is None else Value(mean)
    return _difference(*(values[place] for place in derived.of))


def _difference(first: Value, second: Value) -> Value:
    if first.by_question is None or second.by_question is None:
        return Value(first.mean - second.mean)
    names = list(second.by_question)
    found: Difference = paired_difference(
        [second.by_question[name] for name in names], [first.by_question[name] for name in names], seed=0
    )
    return Value(100 * found.mean, 100 * found.low, 100 * found.high)


# The page


def sheet_of(table: Table, values: Mapping[Place, Value], caption: str) -> Sheet:
    """The table as the paper has it, ours first, the paper's value behind it in parentheses."""
    texts: dict[tuple[str, str, str], str] = {}
    for cell in table.cells:
        key = (cell.section, cell.row, cell.column)
        texts[key] = " ".join(filter(None, (texts.get(key, ""), cell_text(cell, values.get(cell.place)))))
    rows = [
        (section, row, *(texts.get((section, row, column), "") or "–" for column in table.columns))
        for section, row in table.rows
    ]
    return Sheet(("", "", *table.columns), tuple(rows), caption)


def cell_text(cell: Cell, value: Value | None) -> str:
    """`41.3 [38.0, 45.1] (41.5)`; a gain with its sign; a copied value says from where."""
    digits = _digits(cell.metric)
    ours = "–" if value is None else value.text(digits)
    if value is not None and value.votes is not None:
        ours += f" with {value.votes} votes"
    if value is not None and cell.metric == GAIN:
        ours = "Δ " + ("+" if value.mean > 0 else "") + ours
    copied = f", {cell.copied_from}" if cell.copied_from else ""
    peak = "*" if cell.is_peak else ""
    paper = "" if cell.paper is None else f" ({cell.paper:.{digits}f}{peak}{copied})"
    return ours + paper


def _digits(metric: str) -> int:
    if metric.startswith("entropy_"):
        return 3
    return {"pass@1": 1, "tokens": 0}.get(metric, 2 if metric in SERIES else 1)


def numbers_of(table: Table, values: Mapping[Place, Value], scale: str) -> Sheet:
    """One line a number, in full, with the experiment that was run for it: for a spreadsheet."""
    header = ("table", "section", "row", "column", "metric", "value", "low", "high", "paper", "experiment")
    rows = []
    for cell in table.cells:
        value = values.get(cell.place)
        ours = (None, None, None) if value is None else (value.mean, value.low, value.high)
        experiment = at_scale(find(cell.experiment), scale).name if cell.experiment is not None else None
        rows.append((
            table.name, cell.section, cell.row, cell.column, cell.metric, *ours, cell.paper, experiment,
        ))  # fmt: skip
    return Sheet(header, tuple(rows))


def caption_of(table: Table, values: Mapping[Place, Value], choices: Choices, out: Path) -> str:
    """What a reader must know beside the numbers: how many questions, samples, seeds, and how they were drawn."""
    seeds = "seed " + ", ".join(map(str, choices.seeds))
    label = f" ({table.label})" if table.label else ""
    if table.measured_with == "training":
        how = f"the mean over all steps of each run, {seeds}"
    else:
        drawn = "; ".join(_drawn(table, choices, out)) or "nothing measured yet"
        last = "; last checkpoint" if table.measured_with == "evaluation" else ""
        intervals = ", 95 % intervals over questions" if any(value.low is not None for value in values.values()) else ""
        how = f"{drawn}, {seeds}{last}{intervals}"
    return " ".join((f"{table.title}{label}. {table.caption} Here: {how}.", *_beside(table, choices.scale)))


def _drawn(table: Table, choices: Choices, out: Path) -> list[str]:
    """How the evaluations of a table were made, each way once."""
    run_cells = [cell for cell in table.cells if cell.experiment is not None]
    names = {at_scale(find(cell.experiment or ""), choices.scale).name for cell in run_cells}
    benchmarks = {benchmark_at(cell.measured_on, choices.scale) for cell in run_cells}
    found = [
        line
        for seed in choices.seeds
        for name in names
        for line in read_finished(out / f"seed-{seed}" / _kind(table) / name / "evaluations.jsonl")
        if line["benchmark"] in benchmarks
    ]
    facts = sorted({(line["questions"], line["samples"], line["temperature"], line["top_p"]) for line in found})
    return [f"{n} questions × {k} samples, temperature {t:g}, top-p {p:g}" for n, k, t, p in facts]


def _beside(table: Table, scale: str) -> Iterator[str]:
    """What the paper has to do with the numbers."""
    if scale != "paper":
        yield f"At scale {scale}: not the paper's models, benchmarks and lengths, and its values are left out."
        return
    if any(cell.paper is not None for cell in table.cells):
        yield "In parentheses what the paper prints."
    if any(cell.is_peak for cell in table.cells):
        yield "* is the best evaluation on the way, in place of the last checkpoint."


def write_figure(table: Table, choices: Choices, out: Path, path: Path) -> None:
    """The curves of a figure, of the first seed."""
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    scaled = table_at(table, choices.scale)
    originals = _originals(table, choices.scale)
    for cell in scaled.cells:
        experiment = originals[cell.place].experiment
        assert experiment is not None
        name = at_scale(find(experiment), choices.scale).name
        lines = read_finished(out / f"seed-{choices.seeds[0]}" / "runs" / name / "metrics.jsonl")
        series = SERIES[cell.metric]
        points = [(line["step"], value) for line in lines if (value := series.value(line)) is not None]
        title = cell.section if len(table.series) == 1 else series.meaning
        panels.setdefault(title, {})[cell.row] = points
    write_curves(panels, path)
