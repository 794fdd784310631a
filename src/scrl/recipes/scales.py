"""The same experiments at another size: `demo` runs each of them on a laptop, through the same code.

Method, thresholds, completions and those trained on stay; model, questions, lengths and steps become those of the demo.
Experiments that are one and the same at that size have one and the same name, so that it is run once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from scrl.data.prompts import PromptSettings
from scrl.errors import ConfigError, did_you_mean
from scrl.recipes.catalogue import EXPERIMENTS, Experiment, config_of, prompt_of, trained_benchmark
from scrl.recipes.demo import demo_config
from scrl.recipes.paper import LENGTHS, MODELS, PRINTED, run_name, start_name, varied_name
from scrl.training.config import RunConfig, build_config, merged

SCALES = ("paper", "demo")
STEPS = 40
"""Of a run at demo scale, as `scrl demo` takes."""
SEED = 10
"""At demo scale; the demo's settings were chosen on seeds 0 to 4."""
LEVELS = {
    "aime24": "hard", "aime25": "hard", "amc": "medium", "gpqa": "medium", "math500": "easy", "minerva": "easy"
}  # fmt: skip
"""Which level of generated arithmetic stands for a benchmark."""
SHORT = {LENGTHS["10,240"]: 48}
"""Where length is what an experiment varies, the shorter one becomes this; everything else is as long as the demo."""


def at_scale(experiment: Experiment, scale: str) -> Experiment:
    """What stands for an experiment."""
    if _checked(scale) == "paper":
        return experiment
    demo = _demo(experiment)
    max_tokens = SHORT.get(experiment.max_tokens, demo.sampling.max_tokens)
    return replace(
        experiment,
        name=_demo_name(experiment, str(max_tokens) if max_tokens != demo.sampling.max_tokens else ""),
        model=demo.model,
        trained_on=experiment.trained_on and benchmark_at(experiment.trained_on, scale),
        max_tokens=max_tokens,
        temperature=demo.sampling.temperature,
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


def _questions(level: str) -> str:
    return f"arithmetic:{level}:train:64"


def config_at(experiment: Experiment, scale: str, *, seed: int | None = None, steps: int | None = None) -> RunConfig:
    """The settings of a run of the catalogue at a scale; seed and steps are the scale's own where none are given."""
    if _checked(scale) == "paper":
        config = config_of(experiment) if seed is None else config_of(experiment, seed=seed)
        return config if steps is None else build_config(config.model_dump(mode="json") | {"steps": steps})
    trained_benchmark(experiment)  # refuses a start model
    scaled = at_scale(experiment, scale)
    demo = _demo(scaled, seed=SEED if seed is None else seed, steps=STEPS if steps is None else steps)
    changes = {
        "questions": scaled.trained_on,
        "credit": dict(scaled.credit),
        "completions": scaled.completions,
        "trained": scaled.trained,
        "sampling": {"max_tokens": scaled.max_tokens},
        "evaluation": {"is_off": True, "held_out": None},
    }
    return build_config(merged(demo.model_dump(mode="json"), changes))


def prompt_at(experiment: Experiment, scale: str) -> PromptSettings:
    """How an experiment's model is asked at a scale."""
    if _checked(scale) == "paper":
        return PromptSettings.model_validate(prompt_of(experiment))
    return _demo(experiment).prompt


def _demo(experiment: Experiment, *, seed: int = SEED, steps: int = STEPS) -> RunConfig:
    """The demo's run with an experiment's method; of a start model only what all methods share is looked at."""
    return demo_config(experiment.method or "scrl", seed=seed, steps=steps)


def default_seed(scale: str) -> int:
    """Of a reproduction that names none."""
    return 0 if _checked(scale) == "paper" else SEED


def mapping(scale: str) -> Iterator[str]:
    """What stands for what, in lines."""
    if _checked(scale) == "paper":
        yield "models, questions and lengths are the paper's own"
        return
    demo = demo_config("scrl", seed=SEED, steps=STEPS)
    yield f"{', '.join(model.rpartition('/')[2] for model in MODELS.values())} → the {demo.model} model"
    for level in dict.fromkeys(LEVELS.values()):
        stand_for = ", ".join(PRINTED[name] for name, its in LEVELS.items() if its == level)
        yield f"{stand_for} → {_questions(level)}, trained and measured on"
    for printed, length in LENGTHS.items():
        yield f"at most {printed} tokens → {SHORT.get(length, demo.sampling.max_tokens)}"
    yield (
        f"all others: at most {demo.sampling.max_tokens} tokens, temperature {demo.sampling.temperature:g}, learning "
        f"rate {demo.optimizer.learning_rate:g}, std_floor {demo.credit['std_floor']:g} for all methods"
    )
    names = {at_scale(experiment, scale).name for experiment in EXPERIMENTS.values()}
    yield "method, thresholds, and how many completions vote and are trained on, stay"
    yield f"{len(EXPERIMENTS)} experiments become {len(names)}"


def _checked(scale: str) -> str:
    if scale not in SCALES:
        raise ConfigError(f"scale: there is no {scale!r}.{did_you_mean(scale, SCALES)}")
    return scale
