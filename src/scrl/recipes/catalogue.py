"""Every run behind the paper's numbers: experiments by name, and the settings of each.

    config = config_of(find_experiment("qwen2.5-3b/aime25/32-16/scrl"))

What the paper does not state is named in `not_in_paper`, with our choice and its reason in NOT_IN_PAPER.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from scrl.credit.methods import METHODS
from scrl.data.benchmarks import find_benchmark
from scrl.errors import ConfigError, did_you_mean
from scrl.recipes.own_tables import OWN_TABLES
from scrl.recipes.paper import TABLES
from scrl.recipes.paper_cells import (
    ABLATION_BENCHMARKS,
    ABLATIONS,
    BUDGETS,
    EVALUATION,
    LENGTHS,
    LLAMA_BENCHMARKS,
    LLAMA_METHODS,
    MAIN_BENCHMARKS,
    MODELS,
    THRESHOLD_ROWS,
    THRESHOLD_TABLES,
    run_name,
    start_name,
    varied,
    varied_name,
)
from scrl.recipes.paper_records import Table

if TYPE_CHECKING:
    from scrl.config import RunConfig


@dataclass(frozen=True, slots=True)
class Experiment:
    """One training run, or a start model alone."""

    name: str
    model: str
    """Hub id."""
    trained_on: str | None
    """A benchmark's name; none: the start model, no training."""
    method: str | None
    completions: int
    trained: int
    max_tokens: int
    temperature: float
    """Of training; accuracies are measured with `paper.EVALUATION`."""
    credit: tuple[tuple[str, float], ...] = ()
    """Settings of the method that are not its defaults."""
    not_in_paper: tuple[str, ...] = ()
    """What the paper does not state about this run, beyond UNSTATED_EVERYWHERE."""


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """One row of the appendix's table of settings (tab:parameter)."""

    printed: str
    small: float | str
    """Of Qwen2.5-3B; and of all others, where the text does not say otherwise."""
    large: float | str
    """Of Qwen2.5-Math-7B."""
    setting: str | None = None
    """Its name in a run's settings."""
    note: str = ""
    """Why it has none."""


HYPERPARAMETERS = (
    Hyperparameter("Max Prompt Length", 512, 512, "prompt.max_tokens"),
    Hyperparameter("Max Response Length", 3072, 3072, "sampling.max_tokens"),
    Hyperparameter("Train Batch Size", 8, 8, "questions_per_step"),
    Hyperparameter("PPO Mini Batch Size", 1, 1, "questions_per_update"),
    Hyperparameter("PPO Micro Batch Size per GPU", 2, 2, note="changes no number"),
    Hyperparameter("N GPUs per Node", 4, 8, note="changes no number (the text says 8 for all)"),
    Hyperparameter("Learning Rate", 5e-7, 5e-7, "optimizer.learning_rate"),
    Hyperparameter("LR Warmup Steps Ratio", 0.03, 0.03, "optimizer.warmup"),
    Hyperparameter("Warmup Style", "cosine", "cosine", "optimizer.schedule"),
    Hyperparameter("Temperature", 0.6, 1.0, "sampling.temperature"),
    Hyperparameter("Optimizer", "AdamW", "AdamW", note="there is no other"),
)
EPISODES = {"aime24": 80, "aime25": 80, "amc": 30, "math500": 10, "minerva": 10, "gpqa": 10}
"""Passes over a benchmark."""
SHORTER = {("Qwen/Qwen2.5-3B", "math500", 32, 16): 4}
"""Where TTRL collapses in the usual number of passes; both methods get these."""
PROMPT_STYLES = {
    "qwen2.5-3b": "qwen",
    "qwen2.5-math-7b": "qwen-math",
    "qwen3-4b": "qwen3-thinking",
    "llama-3.2-1b-instruct": "llama",
    "llama-3.1-8b-instruct": "llama",
}
CHECKPOINT_EVERY = 20
RIVALS = ("compass", "etmr", "restrain")
"""Methods that the paper compares with and did not run."""

_TAB_PARAMETER = "tab:parameter has Qwen2.5 alone; the same for Llama and Qwen3"
NOT_IN_PAPER = {
    "episodes": "GPQA's: 10, as for MATH-500 and Minerva, the other benchmarks of hundreds of questions",
    "reader": "how GPQA's answers are asked for and read: options A to D, and the letter that is boxed or named",
    "prompt": "of Llama and Qwen3: the model's own chat template, with Qwen2.5's instruction after the question",
    "prompt.max_tokens": _TAB_PARAMETER,
    "questions_per_step": _TAB_PARAMETER,
    "questions_per_update": _TAB_PARAMETER,
    "optimizer.warmup": _TAB_PARAMETER,
    "budget": "how many completions vote and are trained on: 32/16, the smaller of the paper's two budgets",
    "ablation budget": "32/16, because the row of the whole SCRL prints what table-main has at 32/16",
    "rollout completions": "of the initial rollouts: those of 32/16, at the training temperature and without top-p",
    "curves": "the pictures are not in the source; the curves are those that captions and text name",
    "rival": "everything about its run: the number was copied; the settings are SCRL's and the method's own defaults",
    "seed": "0; the paper does not say how many seeds are behind a number",
    "drop_last": "the last, smaller batch of an episode is trained on (the authors' code drops it)",
    "loss.clip": "ε is ±0.2, as in the authors' code",
    "optimizer": "betas 0.9 and 0.999, weight decay 0.01, gradients cut at norm 1, as in the authors' code",
    "sampling.top_p": "of training: 1",
    "credit.which_trained": "a random M of the N",
    "credit.std": "σ over n, plus 1e-6",
    "credit.missing_reward": "a missing answer earns what a negative label of share 0 does",
    "prompt.overlong": "a question whose prompt is longer than the most tokens allowed is left out",
    "guard": "observes and never stops a run, so that all methods take all their steps",
}
"""What the paper does not state, and our choice."""
UNSTATED_EVERYWHERE = (
    "seed", "drop_last", "loss.clip", "optimizer", "sampling.top_p", "credit.which_trained", "credit.std",
    "credit.missing_reward", "prompt.overlong", "guard",
)  # fmt: skip
"""What holds for every run, and is not repeated with each."""


def appendix(model: str) -> dict[str, Any]:
    """The appendix's settings for a model, by their names in a run's settings."""
    is_large = model == MODELS["qwen2.5-math-7b"]
    return {row.setting: row.large if is_large else row.small for row in HYPERPARAMETERS if row.setting is not None}


def most_completions(method: str | None, completions: int) -> int:
    """As many as a budget allows: a method that draws completions as a tree cannot have every number of them."""
    plan = METHODS[method].plan if method is not None else None
    while plan is not None:
        try:
            return plan(completions, METHODS[method or ""].settings()).leaves
        except ConfigError:
            completions -= 1
    return completions


def _unstated(model: str, benchmark: str | None, method: str | None) -> Iterator[str]:
    if method in RIVALS:
        yield "rival"
    if benchmark == "gpqa":
        yield from ("episodes", "reader")
    if not model.startswith("qwen2.5"):
        yield "prompt"
    if not model.startswith("qwen2.5") and benchmark is not None:
        yield from ("prompt.max_tokens", "questions_per_step", "questions_per_update", "optimizer.warmup")
    if model == "qwen3-4b" and benchmark is not None:
        yield "budget"


def _experiment(
    name: str,
    *,
    benchmark: str | None = None,
    method: str | None = None,
    budget: str = "32-16",
    max_tokens: int | None = None,
    credit: tuple[tuple[str, float], ...] = (),
) -> Experiment:
    model = name.partition("/")[0]
    settings = appendix(MODELS[model])
    completions, trained = BUDGETS[budget]
    completions = most_completions(method, completions)
    return Experiment(
        name=name,
        model=MODELS[model],
        trained_on=benchmark,
        method=method,
        completions=completions,
        trained=trained,
        max_tokens=max_tokens or int(settings["sampling.max_tokens"]),
        temperature=float(settings["sampling.temperature"]),
        credit=credit,
        not_in_paper=tuple(_unstated(model, benchmark, method)),
    )


def _run(model: str, benchmark: str, budget: str, method: str) -> Experiment:
    name = run_name(model, benchmark, budget, method)
    return _experiment(name, benchmark=benchmark, method=method, budget=budget)


def _starts() -> Iterator[Experiment]:
    for model in MODELS:
        if model != "qwen3-4b":
            yield _experiment(start_name(model))
    for length in LENGTHS.values():
        yield _experiment(start_name("qwen3-4b", str(length)), max_tokens=length)


def _main() -> Iterator[Experiment]:
    for model in ("qwen2.5-3b", "qwen2.5-math-7b"):
        for budget in BUDGETS:
            for benchmark in MAIN_BENCHMARKS:
                yield from (_run(model, benchmark, budget, method) for method in ("ttrl", "scrl"))


def _llama() -> Iterator[Experiment]:
    """Runs of our own for all methods, where the paper took the values of all but SCRL from elsewhere."""
    for model, benchmarks in LLAMA_BENCHMARKS.items():
        for benchmark in benchmarks:
            yield from (_run(model, benchmark, "64-32", method) for method in LLAMA_METHODS[model])


def _ablations() -> Iterator[Experiment]:
    for benchmark in ABLATION_BENCHMARKS:
        yield from (_run("qwen2.5-3b", benchmark, "32-16", method) for method in ABLATIONS)


def _thresholds() -> Iterator[Experiment]:
    for table, (names, benchmarks) in THRESHOLD_TABLES.items():
        for values in THRESHOLD_ROWS[table]:
            credit = varied(dict(zip(names, values, strict=True)))
            for benchmark in benchmarks if credit else ():
                name = run_name("qwen2.5-math-7b", benchmark, "64-32", "scrl", *varied_name(credit))
                yield _experiment(name, benchmark=benchmark, method="scrl", budget="64-32", credit=credit)


def _reasoning() -> Iterator[Experiment]:
    for length in LENGTHS.values():
        for method in ("ttrl", "scrl"):
            name = run_name("qwen3-4b", "aime25", "32-16", method, str(length))
            yield _experiment(name, benchmark="aime25", method=method, max_tokens=length)


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for family in (_starts, _main, _llama, _ablations, _thresholds, _reasoning)
    for experiment in family()
}
"""Each once, however many tables it serves."""
PEAKS = frozenset(cell.experiment for table in TABLES.values() for cell in table.cells if cell.is_peak)
"""Runs of which the paper prints the best value on the way, not the last."""


def find_experiment(name: str) -> Experiment:
    """An experiment by name."""
    if name not in EXPERIMENTS:
        nearest = did_you_mean(name, EXPERIMENTS).partition(" Known:")[0]
        raise ConfigError(f"experiment: there is no {name!r}.{nearest} `scrl recipes` lists all {len(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def find_table(name: str) -> Table:
    """A table or figure of the paper by name."""
    if name in OWN_TABLES:
        raise ConfigError(f"table: {name!r} is not in the paper; see scrl reproduce {name} --scale demo --dry-run")
    if name not in TABLES:
        raise ConfigError(f"table: there is no {name!r}.{did_you_mean(name, TABLES)}")
    return TABLES[name]


def episodes_of(experiment: Experiment) -> int:
    """Passes over its benchmark."""
    where = (experiment.model, trained_benchmark(experiment), experiment.completions, experiment.trained)
    return SHORTER.get(where, EPISODES[where[1]])


def steps_an_episode(experiment: Experiment) -> int:
    """⌈questions / questions a step⌉."""
    questions_per_step = int(appendix(experiment.model)["questions_per_step"])
    return ceil(find_benchmark(trained_benchmark(experiment)).num_questions / questions_per_step)


def trained_benchmark(experiment: Experiment) -> str:
    """The benchmark of a run; a start model has none."""
    if experiment.trained_on is None:
        raise ConfigError(f"{experiment.name}: a start model is measured as it is; there is no run to configure")
    return experiment.trained_on


def config_of(experiment: Experiment, *, seed: int = 0) -> RunConfig:
    """The whole settings of a run, at the paper's scale."""
    from scrl.config import build_config  # torch comes with it, which a list of recipes does not need

    benchmark = trained_benchmark(experiment)
    settings = appendix(experiment.model) | {
        "model": experiment.model,
        "questions": benchmark,
        "method": experiment.method,
        "credit": dict(experiment.credit),
        "reader": find_benchmark(benchmark).reader,
        "seed": seed,
        "steps": episodes_of(experiment) * steps_an_episode(experiment),
        "completions": experiment.completions,
        "trained": experiment.trained,
        "prompt": prompt_of(experiment),
        "sampling.max_tokens": experiment.max_tokens,
        "sampling.temperature": experiment.temperature,
        "guard.mode": "observe",
        "checkpoint_every": CHECKPOINT_EVERY,
    }
    return build_config(_tree(settings | _evaluation(experiment)))


def prompt_of(experiment: Experiment) -> dict[str, Any]:
    """How an experiment's model is asked, before and after training too."""
    style = next(PROMPT_STYLES[name] for name, model in MODELS.items() if model == experiment.model)
    return {"style": style, "max_tokens": appendix(experiment.model)["prompt.max_tokens"], "overlong": "drop"}


def _evaluation(experiment: Experiment) -> dict[str, Any]:
    """Models are measured before and after a run; within it only where the paper prints a peak, once an episode."""
    if experiment.name not in PEAKS:
        return {"evaluation.is_off": True}
    return {
        "evaluation.every": steps_an_episode(experiment),
        "evaluation.completions": EVALUATION["samples"],
        "evaluation.temperature": EVALUATION["temperature"],
        "evaluation.top_p": EVALUATION["top_p"],
    }


def _tree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"prompt.max_tokens": 512} → {"prompt": {"max_tokens": 512}}."""
    tree: dict[str, Any] = {}
    for name, value in settings.items():
        group, _, key = name.rpartition(".")
        (tree.setdefault(group, {}) if group else tree)[key] = value
    return tree
