"""The same experiments at another size: `demo` runs each of them on a laptop, through the same code.

Method, thresholds, completions and those trained on stay; model, questions, lengths and steps become those of the demo.
Experiments that are one and the same at that size have one and the same name, so that it is run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scrl.config import RunConfig, build_config
from scrl.data.prompts import PromptSettings
from scrl.errors import ConfigError, did_you_mean
from scrl.recipes.catalogue import EXPERIMENTS, Experiment, config_of, prompt_of, trained_benchmark
from scrl.recipes.demo import SEED, STEPS, demo_config
from scrl.recipes.paper_cells import LENGTHS, MODELS, PRINTED, run_name, start_name, varied_name

SCALES = ("paper", "demo")
LEVELS = {
    "aime24": "hard", "aime25": "hard", "amc": "medium", "gpqa": "medium", "math500": "easy", "minerva": "easy"
}  # fmt: skip
"""Which level of generated arithmetic stands for a benchmark."""
SHORT = {LENGTHS["10,240"]: 48}
"""Where length is what an experiment varies, the shorter one becomes this; everything else is as long as the demo."""


SMALL_REWARDS = ("rent", "intuitor")
"""Methods whose rewards are entropies and the like: the demo's std_floor would silence them, so they have none."""
_DEMO = demo_config("scrl", seed=SEED, steps=STEPS)
"""What all methods share at demo scale."""


def at_scale(experiment: Experiment, scale: str) -> Experiment:
    """What stands for an experiment."""
    if _checked(scale) == "paper":
        return experiment
    max_tokens = length_at(experiment.max_tokens, scale)
    return replace(
        experiment,
        name=_demo_name(experiment, str(max_tokens) if max_tokens != _DEMO.sampling.max_tokens else ""),
        model=_DEMO.model,
        trained_on=experiment.trained_on and benchmark_at(experiment.trained_on, scale),
        max_tokens=max_tokens,
        temperature=_DEMO.sampling.temperature,
        not_in_paper=(),
    )


def _demo_name(experiment: Experiment, length: str) -> str:
    more = (*varied_name(experiment.credit), *([length] if length else ()))
    if experiment.trained_on is None or experiment.method is None:
        return start_name("embedded", *more)
    budget = f"{experiment.completions}-{experiment.trained}"
    return run_name("embedded", LEVELS[experiment.trained_on], budget, experiment.method, *more)


def benchmark_at(benchmark: str, scale: str) -> str:
    """The questions that stand for a benchmark: the very ones a run is trained on, as in the paper."""
    return benchmark if _checked(scale) == "paper" else _questions(LEVELS[benchmark])


def length_at(max_tokens: int, scale: str) -> int:
    """The most tokens of a completion that stand for the paper's."""
    return max_tokens if _checked(scale) == "paper" else SHORT.get(max_tokens, _DEMO.sampling.max_tokens)


def _questions(level: str) -> str:
    return f"arithmetic:{level}:train:64"


def config_at(experiment: Experiment, scale: str, *, seed: int | None = None, steps: int | None = None) -> RunConfig:
    """The settings of a run of the catalogue at a scale; seed and steps are the scale's own where none are given."""
    if _checked(scale) == "paper":
        config = config_of(experiment) if seed is None else config_of(experiment, seed=seed)
        return config if steps is None else build_config(config.model_dump(mode="json") | {"steps": steps})
    trained_benchmark(experiment)  # refuses a start model
    scaled = at_scale(experiment, scale)
    changes = {
        "questions": scaled.trained_on,
        "credit": {"std_floor": 0.0} if scaled.method in SMALL_REWARDS else dict(scaled.credit),
        "completions": scaled.completions,
        "trained": scaled.trained,
        "sampling": {"max_tokens": scaled.max_tokens},
        "evaluation": {"is_off": True, "held_out": None},
    }
    seed, steps = SEED if seed is None else seed, STEPS if steps is None else steps
    return demo_config(scaled.method or "scrl", seed=seed, steps=steps, changes=changes)


def prompt_at(experiment: Experiment, scale: str) -> PromptSettings:
    """How an experiment's model is asked at a scale."""
    if _checked(scale) == "paper":
        return PromptSettings.model_validate(prompt_of(experiment))
    return _DEMO.prompt


def default_seed(scale: str) -> int:
    """Of a reproduction that names none."""
    return 0 if _checked(scale) == "paper" else SEED


def mapping(scale: str) -> Iterator[str]:
    """What stands for what, in lines."""
    if _checked(scale) == "paper":
        yield "models, questions and lengths are the paper's own"
        return
    yield f"{', '.join(model.rpartition('/')[2] for model in MODELS.values())} → the {_DEMO.model} model"
    for level in dict.fromkeys(LEVELS.values()):
        stand_for = ", ".join(PRINTED[name] for name, its in LEVELS.items() if its == level)
        yield f"{stand_for} → {_questions(level)}, trained and measured on"
    for printed, length in LENGTHS.items():
        yield f"at most {printed} tokens → {length_at(length, scale)}"
    yield (
        f"all others: at most {_DEMO.sampling.max_tokens} tokens, temperature {_DEMO.sampling.temperature:g}, learning "
        f"rate {_DEMO.optimizer.learning_rate:g}, std_floor {_DEMO.credit['std_floor']:g} for all methods but "
        f"{' and '.join(SMALL_REWARDS)}"
    )
    names = {at_scale(experiment, scale).name for experiment in EXPERIMENTS.values()}
    yield "method, thresholds, and how many completions vote and are trained on, stay"
    yield f"{len(EXPERIMENTS)} experiments become {len(names)}"


def _checked(scale: str) -> str:
    if scale not in SCALES:
        raise ConfigError(f"scale: there is no {scale!r}.{did_you_mean(scale, SCALES)}")
    return scale
