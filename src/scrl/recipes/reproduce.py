"""Carry out experiments of the paper: measure the start model, train, measure again; all in one folder, resumable.

    OUT/seed-10/runs/NAME/                  a training run
    OUT/seed-10/evaluations/NAME/           `scrl evaluate` of a start model, or of a run's last checkpoint
    OUT/seed-10/rollouts/NAME/              the same as training samples: for the table of entropies
    OUT/seed-10/voting/NAME/                the start model voting, with as many tokens as the run sampled

NAME is an experiment at the chosen scale; experiments that several tables share are carried out once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from scrl.credit.assign import CreditRule
from scrl.data.sources import load_source
from scrl.errors import ConfigError, DataError, InputError, did_you_mean
from scrl.evaluation.oracle import require_gold
from scrl.evaluation.session import Listener, MeasurementSettings, build_settings, measure, read_settings
from scrl.recipes.catalogue import EXPERIMENTS, Experiment, most_completions, trained_benchmark
from scrl.recipes.own_tables import OWN_TABLES
from scrl.recipes.paper import EVALUATION, TABLES, start_name
from scrl.recipes.printed import Cell, Table
from scrl.recipes.scales import at_scale, benchmark_at, config_at, prompt_at
from scrl.records import Question
from scrl.reporting.json_lines import read_finished
from scrl.training.config import RunConfig, build_config, merged
from scrl.training.crediting import asked
from scrl.training.loop import resume, train
from scrl.training.run_folder import RunFolder
from scrl.training.watchers import Watcher


class Observer(Watcher, Listener, Protocol):
    """Hears of training and of evaluations."""


Observing = Callable[[int, str], AbstractContextManager[Observer]]
"""(steps, name) → whoever watches a run of so many steps."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user may choose about a reproduction."""

    scale: str = "paper"
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    """Fewer or more than the recipe has."""
    overrides: Mapping[str, Any] | None = None
    """Settings on top of every run's, e.g. {"compute": {"sampler_rows": 1024}}; evaluations take those they share."""
    data_dir: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One experiment, and what is measured of it."""

    experiment: Experiment
    """As the catalogue has it, at the paper's scale."""
    name: str
    """At the chosen scale."""
    measured_on: tuple[str, ...]
    """Benchmarks, by the paper's names."""
    rollouts_on: tuple[str, ...]
    """Benchmarks whose entropies are measured as training samples."""
    has_voting: bool = False
    """Whether its start model votes with as many tokens as it sampled."""

    @property
    def is_run(self) -> bool:
        """Whether something is trained."""
        return self.experiment.trained_on is not None


def select(names: Iterable[str]) -> list[Table]:
    """Tables by name; an experiment, or the beginning of some experiments' names, is a table of its own."""
    known = TABLES | OWN_TABLES
    return [known[name] if name in known else _own_table(name) for name in names]


def _own_table(name: str) -> Table:
    below = f"{name.rstrip('/')}/"
    wanted = [name] if name in EXPERIMENTS else [each for each in EXPERIMENTS if each.startswith(below)]
    if not wanted:
        known = (*TABLES, *OWN_TABLES, *EXPERIMENTS)
        raise ConfigError(
            f"{name}: there is no such table or experiment.{did_you_mean(name, known).partition(' Known:')[0]} "
            "`scrl recipes` lists them."
        )
    cells = tuple(cell for each in wanted for cell in _own_cells(name, EXPERIMENTS[each]))
    return Table(name, name, "", "pass@1 in % before and after training.", _once(cells))


def _own_cells(table: str, experiment: Experiment) -> Iterator[Cell]:
    """pass@1 of an experiment and of its start model; of a start model on all that the paper measures it on."""
    for name in dict.fromkeys((start_of(experiment), experiment.name)):
        for (measured, benchmark), paper in _printed_accuracies().items():
            if measured == name and experiment.trained_on in (None, benchmark):
                yield Cell(table, "", name, benchmark, "pass@1", paper, name, benchmark)


def _printed_accuracies() -> dict[tuple[str, str], float | None]:
    """(experiment, benchmark) → pass@1 as printed first."""
    found: dict[tuple[str, str], float | None] = {}
    for table in TABLES.values():
        for cell in table.cells:
            if cell.experiment is not None and cell.metric == "pass@1" and table.measured_with == "evaluation":
                found.setdefault((cell.experiment, cell.measured_on), cell.paper)
    return found


def _once(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    return tuple({cell.place: cell for cell in cells}.values())


def start_of(experiment: Experiment) -> str:
    """The experiment that measures the model before training; long completions have a start of their own."""
    model, *_ = experiment.name.split("/")
    longer = start_name(model, str(experiment.max_tokens))
    return longer if longer in EXPERIMENTS else start_name(model)


AS_MEASURED = {name: EVALUATION[name] for name in ("temperature", "top_p")}
LAST = ("checkpoints", "last")
"""Where a run keeps its last checkpoint."""
VOTING = "voting"
"""The metric of a number that says how far plain voting comes with the tokens that a run sampled."""


def with_controls(table: Table, controls: Sequence[str]) -> Table:
    """The table with a row for each control arm below every row of SCRL."""
    extra = []
    for cell in table.cells:
        experiment = EXPERIMENTS.get(cell.experiment or "")
        if experiment is None or experiment.method != "scrl" or experiment.credit or cell.metric == VOTING:
            continue
        extra += [(cell, _control_cell(cell, experiment, method)) for method in controls]
    return _with_rows(table, extra)


def _control_cell(cell: Cell, experiment: Experiment, method: str) -> Cell:
    name = _with_method(experiment.name, method)
    return replace(cell, row=_control_row(cell, name, method), paper=None, experiment=name, is_peak=False)


def _control_row(cell: Cell, name: str, method: str) -> str:
    if cell.row == cell.experiment:
        return name
    return cell.row.replace("SCRL", method) if "SCRL" in cell.row else f"{cell.row}, {method}"


def with_voting(table: Table) -> Table:
    """The table with a row below every start model: the same model voting with as many tokens as SCRL's run sampled."""
    starts = {
        (cell.section, cell.experiment, cell.column): cell
        for cell in table.cells
        if cell.metric == "pass@1" and cell.experiment in EXPERIMENTS and find(cell.experiment).method is None
    }
    extra = []
    for cell in table.cells:
        experiment = EXPERIMENTS.get(cell.experiment or "")
        if experiment is None or experiment.method != "scrl" or cell.metric != "pass@1" or experiment.credit:
            continue
        start = starts.get((cell.section, start_of(experiment), cell.column))
        if start is not None and experiment.trained_on == cell.measured_on:
            extra.append((start, replace(cell, row=f"{start.row}, voting", metric=VOTING, paper=None, is_peak=False)))
    return _with_rows(table, extra)


def _with_rows(table: Table, extra: Sequence[tuple[Cell, Cell]]) -> Table:
    """New cells, each in a row of its own below the row of another."""
    order: list[tuple[str, str]] = []
    for row in table.rows:
        below = dict.fromkeys((new.section, new.row) for old, new in extra if (old.section, old.row) == row)
        order += [row, *below]
    cells = sorted((*table.cells, *(new for _, new in extra)), key=lambda cell: order.index((cell.section, cell.row)))
    return replace(table, cells=tuple(cells))


def find(name: str) -> Experiment:
    """An experiment of the catalogue, or one with another method in place of SCRL."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    scrl, method = EXPERIMENTS[_with_method(name, "scrl")], name.split("/")[3]
    return replace(scrl, name=name, method=method, completions=most_completions(method, scrl.completions))


def _with_method(name: str, method: str) -> str:
    """An experiment's name with another method in it: MODEL/BENCHMARK/BUDGET/METHOD/…"""
    parts = name.split("/")
    return "/".join((*parts[:3], method, *parts[4:]))


def jobs(tables: Sequence[Table], scale: str) -> list[Job]:
    """Every experiment that the tables need, once at this scale, with all that is measured of it; starts come first."""
    found: dict[str, Job] = {}
    for table in tables:
        for cell in table.cells:
            if cell.experiment is None:
                continue
            experiment = find(cell.experiment)
            name = at_scale(experiment, scale).name
            job = found.get(name) or Job(experiment, name, (), ())
            found[name] = _with_cell(job, table, cell, scale)
    return sorted(found.values(), key=lambda job: job.is_run)


def _with_cell(job: Job, table: Table, cell: Cell, scale: str) -> Job:
    if cell.metric == VOTING:
        return replace(job, has_voting=True)
    if table.measured_with == "training" or not cell.metric.startswith(("pass@", "entropy_")):
        return job
    if table.measured_with == "rollouts":
        return replace(job, rollouts_on=_and(job.rollouts_on, cell.measured_on, scale))
    return replace(job, measured_on=_and(job.measured_on, cell.measured_on, scale))


def _and(known: tuple[str, ...], benchmark: str, scale: str) -> tuple[str, ...]:
    """One benchmark more, unless another that is the same at this scale is there already."""
    is_there = benchmark_at(benchmark, scale) in {benchmark_at(name, scale) for name in known}
    return known if is_there else (*known, benchmark)


REFUSED = {
    "seed": "use --seeds",
    "steps": "use --steps",
    "data_dir": "use --data-dir",
    "method": "the experiment decides it",
    "questions": "the experiment decides it; take some of them with limit",
    "lora": "checkpoints are measured, and an adapter is none that can be",
}
"""Settings that are not set for all runs at once, and why."""


def check(all_jobs: Sequence[Job], choices: Choices) -> None:
    """Refuse, before anything is done, settings that some run or evaluation would refuse later."""
    for name in choices.overrides or {}:
        if name in REFUSED:
            raise ConfigError(f"{name}: cannot be set in a reproduction; {REFUSED[name]}")
    models = sorted({at_scale(job.experiment, choices.scale).model for job in all_jobs})
    if "model" in (choices.overrides or {}) and len(models) > 1:
        raise ConfigError(f"model: one cannot stand for {', '.join(models)}; reproduce their experiments one by one")
    some_run = next(Job(each, each.name, (), ()) for each in EXPERIMENTS.values() if each.method == "scrl")
    for seed in choices.seeds:
        for job in (some_run, *all_jobs):  # start models alone have no settings of a run to check
            model = at_scale(job.experiment, choices.scale).model
            if job.is_run:
                _config(job, choices, seed)
            if job.measured_on:
                evaluation_settings(job, choices, seed, model)
            if job.rollouts_on:
                rollout_settings(job, choices, seed, model)


def check_questions(all_jobs: Sequence[Job], choices: Choices) -> None:
    """Refuse, before days of training, a benchmark that is not there and questions that some method cannot use."""
    data_dir = Path(choices.data_dir).expanduser() if choices.data_dir is not None else None
    limit = (choices.overrides or {}).get("limit")

    @cache
    def load(source: str) -> tuple[Question, ...]:
        return load_source(source, seed=choices.seeds[0], limit=limit, data_dir=data_dir).questions

    for job in all_jobs:
        for benchmark in (*job.measured_on, *job.rollouts_on):
            load(benchmark_at(benchmark, choices.scale))
        if job.is_run:
            config = _config(job, choices, choices.seeds[0])
            require_gold(config.rule(), load(config.questions), job.name)
            _require_rephrasings(config.rule(), load(config.questions), job.name)


def _require_rephrasings(rule: CreditRule, questions: Sequence[Question], name: str) -> None:
    try:
        asked(rule, questions)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def carry_out(all_jobs: Sequence[Job], choices: Choices, out: Path, observing: Observing) -> None:
    """Everything that is not done yet, seed by seed."""
    check_questions(all_jobs, choices)
    for seed in choices.seeds:
        for job in all_jobs:
            _carry_out(job, choices, seed, out / f"seed-{seed}", observing)


def _carry_out(job: Job, choices: Choices, seed: int, out: Path, observing: Observing) -> None:
    config = _config(job, choices, seed) if job.is_run else None
    model = str((choices.overrides or {}).get("model", at_scale(job.experiment, choices.scale).model))
    with observing(config.steps if config else 0, job.name) as observer:
        if config is not None:
            run = out / "runs" / job.name
            _train(config, run, observer)
            if job.has_voting:
                voting = voting_settings(job, choices, config, run)
                observer.note(f"the start model votes with {voting.samples} completions a question")
                _measure(voting, out / "voting" / job.name, observer)
            model = str(run.joinpath(*LAST))
        if job.measured_on:
            settings = evaluation_settings(job, choices, seed, model)
            _measure(settings, out / "evaluations" / job.name, observer)
        if job.rollouts_on:
            _measure(rollout_settings(job, choices, seed, model), out / "rollouts" / job.name, observer)


def _config(job: Job, choices: Choices, seed: int) -> RunConfig:
    config = config_at(job.experiment, choices.scale, seed=seed, steps=choices.steps)
    changes = merged({"data_dir": choices.data_dir}, choices.overrides or {})
    return build_config(merged(config.model_dump(mode="json"), changes))


def _train(config: RunConfig, folder: Path, observer: Observer) -> None:
    if not (folder / "config.yaml").is_file():
        train(config, folder, observer)
        return
    if RunFolder(folder).config() != config:
        raise _other_settings(folder)
    if not _is_finished(folder, config.steps):
        resume(folder, observer)


def _other_settings(folder: Path) -> ConfigError:
    return ConfigError(f"{folder}: was made with other settings; give another --out, or the same settings")


def _is_finished(folder: Path, steps: int) -> bool:
    state = folder.joinpath(*LAST, "trainer_state.json")
    try:
        done = json.loads(state.read_text(encoding="utf-8"))["step"] if state.is_file() else 0
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(state, "is not what a run wrote; delete the run's folder to train it again") from error
    return bool(done >= steps) and (folder / "report.html").is_file()


def evaluation_settings(job: Job, choices: Choices, seed: int, model: str) -> MeasurementSettings:
    """As the paper measures: 16 completions, temperature 0.6, top-p 0.95."""
    return _settings(job, choices, seed, model, job.measured_on, int(EVALUATION["samples"]), AS_MEASURED)


def rollout_settings(job: Job, choices: Choices, seed: int, model: str) -> MeasurementSettings:
    """As training samples: all N completions at its temperature, without top-p, unless the user sets others."""
    experiment, overrides = at_scale(job.experiment, choices.scale), choices.overrides or {}
    given = overrides.get("sampling", {})
    sampling = {"temperature": given.get("temperature", experiment.temperature), "top_p": given.get("top_p", 1.0)}
    completions = overrides.get("completions", experiment.completions)
    return _settings(job, choices, seed, model, job.rollouts_on, completions, sampling)


def voting_settings(job: Job, choices: Choices, config: RunConfig, run: Path) -> MeasurementSettings:
    """The start model with as many completions a question as the run's tokens would have bought."""
    lines = read_finished(run / "metrics.jsonl")
    completions = sum(line["tokens"] for line in lines) / lines[0]["length_mean"]  # as long as the start model's
    votes = max(1, round(completions / len(config.load_questions().questions)))
    benchmark = trained_benchmark(job.experiment)
    return _settings(job, choices, config.seed, config.model, (benchmark,), votes, AS_MEASURED)


def _settings(
    job: Job,
    choices: Choices,
    seed: int,
    model: str,
    benchmarks: Sequence[str],
    samples: int,
    sampling: Mapping[str, float],
) -> MeasurementSettings:
    experiment, overrides = at_scale(job.experiment, choices.scale), choices.overrides or {}
    max_tokens = overrides.get("sampling", {}).get("max_tokens", experiment.max_tokens)
    values = {
        "model": model,
        "benchmarks": [benchmark_at(benchmark, choices.scale) for benchmark in benchmarks],
        "samples": samples,
        "sampling": {**sampling, "max_tokens": max_tokens},
        "seed": seed,
        "data_dir": choices.data_dir,
        "prompt": prompt_at(job.experiment, choices.scale).model_dump(),
    }
    return build_settings(merged(values, {name: overrides[name] for name in SHARED if name in overrides}))


SHARED = ("prompt", "compute", "limit", "reader", "significant_digits", "trust_remote_code")
"""Settings of a run that hold for its evaluations too; and sampling.max_tokens."""


def _measure(settings: MeasurementSettings, folder: Path, listener: Listener) -> None:
    """Measure what was not measured before; benchmarks that another table asked for stay."""
    if (folder / "evaluation.yaml").is_file():
        before = read_settings(folder)
        model = before.model if _is_checkpoint(before.model) and _is_checkpoint(settings.model) else settings.model
        if before != settings.model_copy(update={"benchmarks": before.benchmarks, "model": model}):
            raise _other_settings(folder)
        both = tuple(dict.fromkeys((*before.benchmarks, *settings.benchmarks)))
        settings = settings.model_copy(update={"benchmarks": both})
        if set(both) <= _measured(folder):
            return
    measure(settings, folder, listener)


def _is_checkpoint(model: str) -> bool:
    """Whether a model is what a run of this folder left: it may lie elsewhere now, together with everything else."""
    return Path(model).parts[-2:] == LAST


def _measured(folder: Path) -> set[str]:
    """The benchmarks that an evaluation has done."""
    return {line["benchmark"] for line in read_finished(folder / "evaluations.jsonl")}
