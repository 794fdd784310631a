"""Which experiments a reproduction needs: tables are chosen, our own rows added, and their cells become jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scrl.errors import ConfigError, did_you_mean
from scrl.recipes.catalogue import EXPERIMENTS, OWN_TABLES, Experiment, Scale, at_scale, benchmark_at, find, with_method
from scrl.recipes.paper import TABLES, CellPlace, PaperCell, PaperTable

Control = Literal["oracle", "random", "inverted"]
VOTING = "voting"
"""The metric that says how far plain voting gets with the tokens that a run sampled."""


@dataclass(frozen=True, slots=True)
class Job:
    """One experiment of the catalogue, its name at the chosen scale, and what is measured for it."""

    experiment: Experiment
    name: str
    measured_on: tuple[str, ...] = ()
    rollouts_on: tuple[str, ...] = ()
    """Benchmarks whose entropies are measured, sampled as in training."""
    has_voting: bool = False
    """Whether its start model votes with as many tokens as it sampled."""
    has_curve: bool = False

    @property
    def is_run(self) -> bool:
        return self.experiment.trained_on is not None


def select(names: Iterable[str]) -> list[PaperTable]:
    """Tables by name; an experiment, or the beginning of some experiments' names, makes a table itself."""
    tables = TABLES | OWN_TABLES
    return [tables[name] if name in tables else _own_table(name) for name in names]


def _own_table(name: str) -> PaperTable:
    """pass@1 of experiments and of their start models; for a start model, on all that the paper measures it on."""
    below = f"{name.rstrip('/')}/"
    experiments = [name] if name in EXPERIMENTS else [each for each in EXPERIMENTS if each.startswith(below)]
    if not experiments:
        nearest = did_you_mean(name, (*TABLES, *OWN_TABLES, *EXPERIMENTS)).partition(" Known:")[0]
        raise ConfigError(f"{name}: there is no such table or experiment.{nearest} `scrl reproduce` lists them.")
    printed: dict[tuple[str | None, str], float | None] = {}  # by experiment and benchmark, as the paper has it first
    for cell in (cell for table in TABLES.values() if table.measured_with == "evaluation" for cell in table.cells):
        if cell.metric == "pass@1":
            printed.setdefault((cell.experiment, cell.measured_on), cell.paper)
    cells: dict[CellPlace, PaperCell] = {}
    for experiment in (EXPERIMENTS[each] for each in experiments):
        for row in (start_of(experiment), experiment.name):
            for (measured, benchmark), value in printed.items():
                if measured == row and experiment.trained_on in (None, benchmark):
                    cell = PaperCell(name, "", row, benchmark, "pass@1", value, row, benchmark)
                    cells[cell.place] = cell
    return PaperTable(name, name, "", "pass@1 in % before and after training.", tuple(cells.values()))


def start_of(experiment: Experiment) -> str:
    """The experiment that measures the model before training; a varied length has its own."""
    start = f"{experiment.name.split('/')[0]}/start"
    longer = f"{start}/{experiment.max_tokens}"
    return longer if longer in EXPERIMENTS else start


def with_controls(table: PaperTable, controls: Sequence[Control]) -> PaperTable:
    """The table with a row for each control arm below every row of SCRL."""
    extra = []
    for cell, experiment in _of_scrl(table):
        for method in controls:
            name = with_method(experiment.name, method)
            row = cell.row.replace("SCRL", method) if "SCRL" in cell.row else f"{cell.row}, {method}"
            row = name if cell.row == cell.experiment else row
            extra.append((cell, replace(cell, row=row, paper=None, experiment=name, is_peak=False)))
    return _with_rows(table, extra)


def with_voting(table: PaperTable) -> PaperTable:
    """The table with rows below every start model: the same voting with as many tokens as a run of SCRL sampled."""
    starts = {
        (cell.section, cell.experiment, cell.column): cell
        for cell in table.cells
        if cell.metric == "pass@1" and cell.experiment in EXPERIMENTS and EXPERIMENTS[cell.experiment].method is None
    }
    extra = []
    for cell, experiment in _of_scrl(table):
        start = starts.get((cell.section, start_of(experiment), cell.column))
        if start is not None and cell.metric == "pass@1" and experiment.trained_on == cell.measured_on:
            row = f"{start.row}, voting at {experiment.completions}/{experiment.trained}"
            extra.append((start, replace(cell, row=row, metric=VOTING, paper=None, is_peak=False)))
    return _with_rows(table, extra)


def _of_scrl(table: PaperTable) -> Iterator[tuple[PaperCell, Experiment]]:
    """The cells that a run of SCRL with its own thresholds fills."""
    for cell in table.cells:
        experiment = EXPERIMENTS.get(cell.experiment or "")
        if experiment is not None and experiment.method == "scrl" and not experiment.credit and cell.metric != VOTING:
            yield cell, experiment


def _with_rows(table: PaperTable, extra: Sequence[tuple[PaperCell, PaperCell]]) -> PaperTable:
    """The table with new cells, in rows below those of the cells they are paired with."""
    order: list[tuple[str, str]] = []
    for row in table.rows:
        order += [row, *dict.fromkeys((new.section, new.row) for old, new in extra if (old.section, old.row) == row)]
    cells = sorted((*table.cells, *(new for _, new in extra)), key=lambda cell: order.index((cell.section, cell.row)))
    return replace(table, cells=tuple(cells))


def jobs(tables: Sequence[PaperTable], scale: Scale) -> list[Job]:
    """Every experiment that the tables need, once at this scale, with all that is measured for it; starts first."""
    found: dict[str, Job] = {}
    for table, cell in ((each, cell) for each in tables for cell in each.cells):
        if cell.experiment is None:
            continue
        experiment, benchmark = find(cell.experiment), benchmark_at(cell.measured_on, scale)
        name = at_scale(experiment, scale).name
        job = found.setdefault(name, Job(experiment, name))
        if cell.metric == VOTING:
            found[name] = replace(job, has_voting=True)
        elif table.measured_with == "curve":
            found[name] = replace(job, has_curve=True)
        elif table.measured_with == "rollouts":
            found[name] = replace(job, rollouts_on=tuple(dict.fromkeys((*job.rollouts_on, benchmark))))
        elif table.measured_with == "evaluation" and cell.metric.startswith(("pass@", "entropy_")):
            found[name] = replace(job, measured_on=tuple(dict.fromkeys((*job.measured_on, benchmark))))
    return sorted(found.values(), key=lambda job: job.is_run)
