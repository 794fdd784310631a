"""Every run behind the paper's numbers: experiments by name, and the settings of each, at two scales.

    config = config_of(find("qwen2.5-3b/aime25/32-16/scrl"))

What the paper does not state is named in `not_in_paper`, with our choice and its reason in `paper.NOT_IN_PAPER`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal

from scrl.config import RunConfig, build_config
from scrl.credit.methods import METHODS
from scrl.data.benchmarks import find_benchmark
from scrl.data.prompts import PromptSettings
from scrl.errors import ConfigError, did_you_mean
from scrl.policy.model_paths import EMBEDDED
from scrl.recipes import paper
from scrl.recipes.demo import SEED, TOY_STEPS, demo_config
from scrl.recipes.paper import LENGTHS, MODELS, PRINTED, TABLES, CellPlace, PaperCell, PaperTable
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
    not_in_paper: tuple[str, ...] = ()
    """What the paper does not state about this run, beyond UNSTATED_EVERYWHERE."""


def appendix(model: str) -> dict[str, Any]:
    """The appendix's settings for a model, by their names in a run's settings."""
    is_large = model == MODELS["qwen2.5-math-7b"]
    return {setting: values[is_large] for setting, values in paper.HYPERPARAMETERS.items()}


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
            PaperCell("methods", "", row, column, metric, None, name, "amc")
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


# Scales: `demo` runs every experiment on a laptop, through the same code. Method, thresholds, completions and those
# trained on stay; model, questions, lengths and steps become the demo's. What becomes the same is run once.

Scale = Literal["paper", "demo"]
SEEDS: dict[Scale, int] = {"paper": 0, "demo": SEED}
LEVELS = {
    "aime24": "hard", "aime25": "hard", "amc": "medium", "gpqa": "medium", "math500": "easy", "minerva": "easy"
}  # fmt: skip
"""The level of generated arithmetic that represents a benchmark."""
_DEMO = demo_config("scrl", seed=SEED, steps=TOY_STEPS, model=EMBEDDED)
SUBSTITUTES = {
    **{model.rpartition("/")[2]: _DEMO.model for model in MODELS.values()},
    **dict.fromkeys(MODELS, _DEMO.model),
    "MATH / AMC": f"{LEVELS['math500']} / {LEVELS['amc']}",
    **{PRINTED[name]: level for name, level in LEVELS.items()},
    **LEVELS,
    **dict.fromkeys(LENGTHS, f"{_DEMO.sampling.max_tokens} tokens"),
}
"""What replaces the names of models, benchmarks and lengths in the headings of a table."""


def at_scale(experiment: Experiment, scale: Scale) -> Experiment:
    if scale == "paper":
        return experiment
    varied = ",".join(f"{name}={value:g}" for name, value in experiment.credit)
    what = "start"
    if experiment.trained_on is not None:
        budget = f"{experiment.completions}-{experiment.trained}"
        what = f"{LEVELS[experiment.trained_on]}/{budget}/{experiment.method}"
    return replace(
        experiment,
        name="/".join(filter(None, (_DEMO.model, what, varied))),
        model=_DEMO.model,
        trained_on=experiment.trained_on and benchmark_at(experiment.trained_on, scale),
        max_tokens=_DEMO.sampling.max_tokens,
        temperature=_DEMO.sampling.temperature,
        not_in_paper=(),
    )


def benchmark_at(benchmark: str, scale: Scale) -> str:
    """The questions that represent a benchmark: those a run is trained on, as in the paper."""
    return benchmark if scale == "paper" else f"arithmetic:{LEVELS[benchmark]}:train:64"


def config_at(experiment: Experiment, scale: Scale, *, seed: int | None = None, steps: int | None = None) -> RunConfig:
    """The settings of a run at a scale; seed and steps are the scale's where none are given."""
    seed = SEEDS[scale] if seed is None else seed
    if scale == "paper":
        config = config_of(experiment, seed=seed)
        return config if steps is None else build_config(config.model_dump(mode="json") | {"steps": steps})
    trained_benchmark(experiment)  # refuses a start model
    scaled = at_scale(experiment, scale)
    followed = {at_scale(EXPERIMENTS[name], scale).name for name in FOLLOWED}
    changes = {
        "questions": scaled.trained_on,
        "credit": dict(scaled.credit),
        "completions": scaled.completions,
        "trained": scaled.trained,
        "sampling": {"temperature": scaled.temperature},
        "evaluation": {"held_out": None} | evaluation_of(scaled.name in followed),
    }
    steps = TOY_STEPS if steps is None else steps
    return demo_config(str(scaled.method), seed=seed, steps=steps, model=EMBEDDED, more=changes)


def prompt_at(experiment: Experiment, scale: Scale) -> PromptSettings:
    return PromptSettings.model_validate(prompt_of(experiment)) if scale == "paper" else _DEMO.prompt


def mapping(scale: Scale) -> Iterator[str]:
    """What represents what, line by line."""
    if scale == "paper":
        yield "models, questions and lengths are the paper's own"
        return
    yield f"every model → the {_DEMO.model} model"
    for level in dict.fromkeys(LEVELS.values()):
        names = [name for name, own in LEVELS.items() if own == level]
        printed = ", ".join(PRINTED[name] for name in names)
        yield f"{printed} → {benchmark_at(names[0], scale)}, trained and measured on"
    yield f"every length → at most {_DEMO.sampling.max_tokens} tokens"
    rate, floor = _DEMO.optimizer.learning_rate, _DEMO.credit["std_floor"]
    yield f"temperature {_DEMO.sampling.temperature:g}, learning rate {rate:g}, std_floor {floor:g}"
    scaled = {at_scale(experiment, scale).name for experiment in EXPERIMENTS.values()}
    yield f"method, thresholds, N and M stay; {len(EXPERIMENTS)} experiments become {len(scaled)}"


def table_at(table: PaperTable, scale: Scale) -> PaperTable:
    """The table of what represents its models, benchmarks and experiments; cells that become the same are one."""
    if scale == "paper":
        return table
    cells: dict[CellPlace, PaperCell] = {}
    for cell in table.cells:
        of = dict.fromkeys(map(_substituted, cell.derived.of)) if cell.derived else ()
        section, row, column, _ = place = _substituted(cell.place)
        substitute = replace(
            cell,
            section=section,
            row=row,
            column=column,
            paper=None,
            experiment=cell.experiment and at_scale(find(cell.experiment), scale).name,
            measured_on=cell.measured_on and benchmark_at(cell.measured_on, scale),
            derived=cell.derived and replace(cell.derived, of=tuple(of)),
        )
        cells.setdefault(place, substitute)
    return replace(table, cells=tuple(cells.values()))


def _substituted(place: CellPlace) -> CellPlace:
    section, row, column, metric = place
    for old, new in SUBSTITUTES.items():
        section, row, column = (text.replace(old, new) for text in (section, row, column))
    return section, row, column, metric
