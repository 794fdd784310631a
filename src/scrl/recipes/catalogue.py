"""Every run behind the paper's numbers: experiments by name, and the settings of each.

    config = config_of(find("qwen2.5-3b/aime25/32-16/scrl"))

What the paper does not state is named in `not_in_paper`, with our choice and its reason in `paper.NOT_IN_PAPER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from scrl.config import RunConfig, build_config
from scrl.credit.methods import METHODS
from scrl.data.benchmarks import find_benchmark
from scrl.errors import ConfigError, did_you_mean
from scrl.recipes import paper
from scrl.recipes.paper import MODELS, TABLES, Cell, PaperTable
from scrl.settings import merged, tree_of


@dataclass(frozen=True, slots=True)
class Experiment:
    """One training run, or a start model alone."""

    name: str
    """MODEL/BENCHMARK/BUDGET/METHOD, or MODEL/start; then what it varies: a length, or thresholds by name."""
    model: str
    trained_on: str | None
    """A benchmark's name; None: the start model, no training."""
    method: str | None
    completions: int
    trained: int
    max_tokens: int
    temperature: float
    """The sampling of training; accuracies are measured with `paper.EVALUATION`."""
    credit: tuple[tuple[str, float], ...] = ()
    """Settings of the method that differ from its defaults."""
    not_in_paper: tuple[str, ...] = ()
    """What the paper does not state about this run, beyond UNSTATED_EVERYWHERE."""


def appendix(model: str) -> dict[str, Any]:
    """The appendix's settings for a model, by their names in a run's settings."""
    is_large = model == MODELS["qwen2.5-math-7b"]
    return {row.setting: row.large if is_large else row.small for row in paper.HYPERPARAMETERS if row.setting}


def most_completions(method: str | None, completions: int) -> int:
    """The most completions within a budget: a method that draws them as a tree cannot draw just any number."""
    if method is None or (plan := METHODS[method].plan) is None:
        return completions
    while True:
        try:
            return plan(completions, METHODS[method].settings()).leaves
        except ConfigError:
            completions -= 1


def _experiment(name: str) -> Experiment:
    """The experiment that a name spells out."""
    model, where, *rest = name.split("/")
    budget, method, more = ("32-16", None, rest) if where == "start" else (rest[0], rest[1], rest[2:])
    varied = more[0] if more else ""
    benchmark = None if where == "start" else where
    settings = appendix(MODELS[model])
    completions, trained = paper.BUDGETS[budget]
    thresholds = (part.split("=") for part in varied.split(",") if "=" in part)
    return Experiment(
        name=name,
        model=MODELS[model],
        trained_on=benchmark,
        method=method,
        completions=most_completions(method, completions),
        trained=trained,
        max_tokens=int(varied if varied.isdecimal() else settings["sampling.max_tokens"]),
        temperature=float(settings["sampling.temperature"]),
        credit=tuple((key, float(value)) for key, value in thresholds),
        not_in_paper=tuple(_unstated(model, benchmark, method)),
    )


def _unstated(model: str, benchmark: str | None, method: str | None) -> Iterator[str]:
    if method in paper.RIVALS:
        yield "rival"
    if benchmark == "gpqa":
        yield from ("episodes", "reader")
    if not model.startswith("qwen2.5"):
        yield "prompt"
    if not model.startswith("qwen2.5") and benchmark is not None:
        yield from ("prompt.max_tokens", "questions_per_step", "questions_per_update", "optimizer.warmup")
    if model == "qwen3-4b" and benchmark is not None:
        yield "budget"


_NAMES = dict.fromkeys(name for table in TABLES.values() for name in table.experiments)
EXPERIMENTS = {name: _experiment(name) for name in sorted(_NAMES, key=lambda name: "/start" not in name)}
"""Each experiment once, however many tables it serves: start models first, then in the order of the tables."""
FOLLOWED = frozenset(
    cell.experiment
    for table in TABLES.values()
    for cell in table.cells
    if cell.experiment is not None and (cell.is_peak or table.measured_with == "curve")
)
"""Runs that are also measured during training: the paper prints the best value, or draws the curve."""


_COLUMNS = {"pass@1": "pass@1", "pass@16": "pass@16", "labels right": "positive_accuracy", "tokens a step": "tokens"}
_ROWS = {"start": "qwen2.5-3b/start"} | {method: f"qwen2.5-3b/amc/32-16/{method}" for method in METHODS}
OWN_TABLES = {
    "methods": PaperTable(
        "methods",
        "Every method on the same questions",
        "not in the paper",
        "pass@1 and pass@16 in % after training; how right positive labels were and what was sampled, over all steps.",
        tuple(
            Cell("methods", "", row, column, metric, None, name, "amc")
            for row, name in _ROWS.items()
            for column, metric in _COLUMNS.items()
            if row != "start" or metric.startswith("pass@")
        ),
        ("positive_accuracy", "tokens"),
    )
}
"""Tables beyond the paper: every method that scrl has, on the same questions with the same settings."""


def find(name: str) -> Experiment:
    """An experiment behind the tables, or one with another method in place of SCRL."""
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    method, scrl = "".join(name.split("/")[3:4]), EXPERIMENTS.get(with_method(name, "scrl"))
    if scrl is None or method not in METHODS:
        nearest = did_you_mean(name, EXPERIMENTS).partition(" Known:")[0]
        raise ConfigError(f"experiment: there is no {name!r}.{nearest} `scrl reproduce` lists all {len(EXPERIMENTS)}.")
    return replace(scrl, name=name, method=method, completions=most_completions(method, scrl.completions))


def with_method(name: str, method: str) -> str:
    """An experiment's name with another method in it: MODEL/BENCHMARK/BUDGET/METHOD/…"""
    parts = name.split("/")
    return "/".join((*parts[:3], method, *parts[4:]))


def episodes_of(experiment: Experiment) -> int:
    model, benchmark, budget, *_ = experiment.name.split("/")
    return paper.SHORTER.get(f"{model}/{benchmark}/{budget}", paper.EPISODES[trained_benchmark(experiment)])


def trained_benchmark(experiment: Experiment) -> str:
    """The benchmark of a run; a start model has none."""
    if experiment.trained_on is None:
        raise ConfigError(f"{experiment.name}: a start model is measured as it is; there is no run to configure")
    return experiment.trained_on


def config_of(experiment: Experiment, *, seed: int = 0) -> RunConfig:
    """All settings of a run, at the paper's scale."""
    benchmark = find_benchmark(trained_benchmark(experiment))
    settings = appendix(experiment.model) | {
        "model": experiment.model,
        "questions": experiment.trained_on,
        "method": experiment.method,
        "credit": dict(experiment.credit),
        "reader": benchmark.reader,
        "seed": seed,
        "completions": experiment.completions,
        "trained": experiment.trained,
        "prompt": prompt_of(experiment),
        "sampling.max_tokens": experiment.max_tokens,
        "evaluation": evaluation_of(experiment.name in FOLLOWED),
        "guard.mode": "observe",
        "checkpoint_every": 20,
    }
    settings["steps"] = episodes_of(experiment) * ceil(benchmark.num_questions / settings["questions_per_step"])
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        tree = merged(tree, tree_of(name, value))
    return build_config(tree)


def prompt_of(experiment: Experiment) -> dict[str, Any]:
    """How an experiment's model is prompted, in training and in evaluations."""
    longest = appendix(experiment.model)["prompt.max_tokens"]
    return {"style": paper.PROMPT_STYLES[experiment.model], "max_tokens": longest, "overlong": "drop"}


def evaluation_of(is_followed: bool) -> dict[str, Any]:
    """The evaluations during a run, which only a followed run has; `scrl reproduce` measures the rest."""
    if not is_followed:
        return {"completions": 0}
    sampling = {name: paper.EVALUATION[name] for name in ("temperature", "top_p")}
    return {"every": 20, "completions": paper.EVALUATION["samples"], **sampling}
