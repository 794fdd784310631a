"""Run experiments of the paper: measure the start model, train, measure again; all in one folder, resumable.

    OUT/seed-10/runs/NAME/                  a training run
    OUT/seed-10/evaluations/NAME/           `scrl evaluate` of a start model, or of a run's last checkpoint
    OUT/seed-10/rollouts/NAME/              the same as training samples: for the table of entropies
    OUT/seed-10/voting/NAME/                the start model voting, with as many tokens as the run sampled

NAME is an experiment at the chosen scale; experiments that several tables share are run once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from scrl.config import RunConfig, with_settings
from scrl.data.prompts import filter_overlong
from scrl.data.sources import load_source
from scrl.engines.choice import check_engine, engine_of
from scrl.engines.requirements import check_machine
from scrl.engines.trl.settings import step_size
from scrl.errors import ConfigError, DataError
from scrl.evaluation.benchmark_run import measure
from scrl.evaluation.gold import require_gold
from scrl.evaluation.settings import MeasurementSettings, build_settings, read_settings
from scrl.files.folders import num_processes
from scrl.files.jsonl import read_json_lines
from scrl.listener import Listener
from scrl.policy.model import load_tokenizer
from scrl.recipes.catalogue import EXPERIMENTS, Experiment, Scale, at_scale, config_at, episodes_of, prompt_at
from scrl.recipes.jobs import Job
from scrl.recipes.paper import EVALUATION
from scrl.records import Question
from scrl.settings import merged
from scrl.training.export import step_of
from scrl.training.run_folder import RunFolder
from scrl.training.stream import QuestionStream

ShowProgress = Callable[[int, str], AbstractContextManager[Listener]]
"""(steps, name) → the listener of a run with this many steps."""


@dataclass(frozen=True, slots=True)
class Choices:
    scale: Scale = "paper"
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings on top of every run's, e.g. {"compute": {"sampler_rows": 1024}}; evaluations take those they share."""
    data_dir: str | None = None

    @property
    def engine(self) -> str:
        return str(self.overrides.get("engine", "local"))


AS_MEASURED = {name: EVALUATION[name] for name in ("temperature", "top_p")}
LAST = ("checkpoints", "last")
REFUSED = {
    "method": "the experiment decides it",
    "questions": "the experiment decides it; take some of them with limit",
}
"""Settings that cannot be set for all runs at once, and why."""


def check(all_jobs: Sequence[Job], choices: Choices) -> None:
    """Refuse, before anything is done, settings that some run or evaluation would refuse later."""
    for name in choices.overrides:
        if name in REFUSED:
            raise ConfigError(f"{name}: cannot be set in a reproduction; {REFUSED[name]}")
    if choices.steps is not None and choices.steps < 1:
        raise ConfigError(f"--steps: must be 1 or more; got {choices.steps}")
    if num_processes() > 1:
        raise ConfigError("scrl reproduce: is one process, which starts its runs itself; leave out torchrun")
    for job in all_jobs:
        if job.has_curve and choices.engine != "local":
            reason = f"{choices.engine} does not measure {job.name} on its way as the paper does"
            raise ConfigError(f"engine: {reason}; leave out the figure, or the engine")
    models = sorted({at_scale(job.experiment, choices.scale).model for job in all_jobs})
    if "model" in choices.overrides and len(models) > 1:
        raise ConfigError(f"model: one cannot stand for {', '.join(models)}; reproduce their experiments one by one")
    some_run = next(Job(each, each.name) for each in EXPERIMENTS.values() if each.method == "scrl")
    for seed, job in product(choices.seeds, (some_run, *all_jobs)):  # start models alone have no settings of a run
        model = at_scale(job.experiment, choices.scale).model
        if job.is_run:
            check_engine(settings_of(job.experiment, choices, seed))
        if job.measured_on:
            evaluation_settings(job, choices, seed, model)
        if job.rollouts_on:
            rollout_settings(job, choices, seed, model)


def check_questions(all_jobs: Sequence[Job], choices: Choices) -> None:
    """Refuse, before days of training, a missing benchmark and questions that some method cannot use."""
    data_dir = Path(choices.data_dir) if choices.data_dir is not None else None

    @cache
    def load(source: str) -> tuple[Question, ...]:
        limit = choices.overrides.get("limit")
        return load_source(source, seed=choices.seeds[0], limit=limit, data_dir=data_dir).questions

    for job in all_jobs:
        for benchmark in (*job.measured_on, *job.rollouts_on):
            load(benchmark)
        if job.is_run:
            config = settings_of(job.experiment, choices, choices.seeds[0])
            check_machine(config)
            if config.engine == "trl":
                step_size(config, len(load(config.questions)))
            require_gold(config.rule(), load(config.questions), job.name)


def carry_out(all_jobs: Sequence[Job], choices: Choices, out: Path, show_progress: ShowProgress) -> None:
    check_questions(all_jobs, choices)
    for seed, job in product(choices.seeds, all_jobs):
        folder = out / f"seed-{seed}"
        config = _with_its_steps(settings_of(job.experiment, choices, seed), job, choices) if job.is_run else None
        model = str(choices.overrides.get("model", at_scale(job.experiment, choices.scale).model))
        with show_progress(config.steps if config else 0, job.name) as listener:
            if config is not None:
                run = folder / "runs" / job.name
                train_or_resume(config, run, listener)
                if job.has_voting:
                    voting = voting_settings(job, choices, config, run)
                    listener.note(f"the start model votes with {voting.samples} completions per question")
                    _measure(voting, folder / "voting" / job.name, listener)
                model = str(run.joinpath(*LAST))
            if job.measured_on:
                _measure(evaluation_settings(job, choices, seed, model), folder / "evaluations" / job.name, listener)
            if job.rollouts_on:
                _measure(rollout_settings(job, choices, seed, model), folder / "rollouts" / job.name, listener)


def settings_of(experiment: Experiment, choices: Choices, seed: int) -> RunConfig:
    """All settings of a run, with the user's on top of the recipe's."""
    config = config_at(experiment, choices.scale, seed=seed, steps=choices.steps)
    own: dict[str, Any] = {"data_dir": choices.data_dir}
    if choices.engine != "local":  # the others sample as in training; what they train is measured afterwards
        own["evaluation"] = {"completions": 0}
    return with_settings(config, merged(own, choices.overrides))


def _with_its_steps(config: RunConfig, job: Job, choices: Choices) -> RunConfig:
    """The settings with the paper's number of passes over the questions that are trained on."""
    if choices.scale != "paper" or choices.steps is not None:
        return config
    stream = QuestionStream(_questions(config), config.questions_per_step, config.seed, config.drop_last)
    return config.model_copy(update={"steps": episodes_of(job.experiment) * stream.steps_per_epoch})


def _questions(config: RunConfig) -> list[Question]:
    tokenizer = load_tokenizer(config.model, trust_remote_code=config.trust_remote_code)
    return filter_overlong(config.load_questions().questions, tokenizer, config.prompt)[0]


def train_or_resume(config: RunConfig, folder: Path, listener: Listener) -> None:
    """Train a run that has not begun, resume one that is not finished, leave a finished one alone."""
    if not (folder / "config.yaml").is_file():
        engine_of(config).train(config, folder, listener)
        return
    if RunFolder(folder).config().resolved() != config.resolved():
        raise _other_settings(folder)
    if not ((step_of(folder.joinpath(*LAST)) or 0) >= config.steps and (folder / "report.html").is_file()):
        engine_of(config).resume(folder, listener)


def _other_settings(folder: Path) -> ConfigError:
    return ConfigError(f"{folder}: was made with other settings; give another --out, or the same settings")


def evaluation_settings(job: Job, choices: Choices, seed: int, model: str) -> MeasurementSettings:
    """As the paper measures: 16 completions, temperature 0.6, top-p 0.95."""
    samples = int(EVALUATION["samples"])
    return _settings(job, choices, job.measured_on, AS_MEASURED, samples=samples, seed=seed, model=model)


def rollout_settings(job: Job, choices: Choices, seed: int, model: str) -> MeasurementSettings:
    """As training samples: all N completions at its temperature, without top-p, unless the user sets others."""
    experiment, overrides = at_scale(job.experiment, choices.scale), choices.overrides
    own = overrides.get("sampling", {})
    sampling = {"temperature": own.get("temperature", experiment.temperature), "top_p": own.get("top_p", 1.0)}
    completions = overrides.get("completions", experiment.completions)
    return _settings(job, choices, job.rollouts_on, sampling, samples=completions, seed=seed, model=model)


def voting_settings(job: Job, choices: Choices, config: RunConfig, run: Path) -> MeasurementSettings:
    """The start model with as many completions per question as the run's tokens would have bought."""
    lines = read_finished(run / "metrics.jsonl")
    tokens = sum(line["tokens"] + line.get("tokens_votes", 0) for line in lines)
    completions = tokens / lines[0]["length_mean"]  # as long as the start model's
    votes = max(1, round(completions / len(_questions(config))))
    return _settings(job, choices, [config.questions], AS_MEASURED, samples=votes, seed=config.seed, model=config.model)


SHARED = ("prompt", "compute", "limit", "reader", "significant_digits", "trust_remote_code")
"""Settings of a run that apply to its evaluations too; and sampling.max_tokens."""


def _settings(
    job: Job, choices: Choices, benchmarks: Sequence[str], sampling: Mapping[str, float], **more: object
) -> MeasurementSettings:
    overrides = choices.overrides
    max_tokens = at_scale(job.experiment, choices.scale).max_tokens
    values = {
        "benchmarks": benchmarks,
        "sampling": {**sampling, "max_tokens": overrides.get("sampling", {}).get("max_tokens", max_tokens)},
        "data_dir": choices.data_dir,
        "prompt": prompt_at(job.experiment, choices.scale).model_dump(),
        **more,
    }
    return build_settings(merged(values, {name: overrides[name] for name in SHARED if name in overrides}))


def _measure(settings: MeasurementSettings, folder: Path, listener: Listener) -> None:
    """Measure what was not measured before; benchmarks of other tables stay."""
    if (folder / "evaluation.yaml").is_file():
        before = read_settings(folder)
        is_checkpoint = all(Path(model).parts[-2:] == LAST for model in (before.model, settings.model))
        model = before.model if is_checkpoint else settings.model  # the whole folder may have been moved since then
        if before != settings.model_copy(update={"benchmarks": before.benchmarks, "model": model}):
            raise _other_settings(folder)
        both = tuple(dict.fromkeys((*before.benchmarks, *settings.benchmarks)))
        settings = settings.model_copy(update={"benchmarks": both})
        if set(both) <= {line["benchmark"] for line in read_finished(folder / "evaluations.jsonl")}:
            return
    measure(settings, folder, listener)


def read_finished(path: Path) -> list[dict[str, Any]]:
    """All lines of a file that is no longer written to; a missing file has none."""

    def refuse(_message: str) -> None:
        raise DataError(path, "ends in half a line; delete its folder, and what is missing is made again")

    return [line.fields for line in read_json_lines(path, refuse)] if path.is_file() else []
