"""The same experiments at the size of the demo."""

from itertools import product

import pytest

from scrl.errors import ConfigError
from scrl.recipes.catalogue import EXPERIMENTS, at_scale, benchmark_at, config_at, config_of, prompt_at
from scrl.recipes.demo import demo_config

LEVELS = {"aime24": "hard", "aime25": "hard", "amc": "medium", "gpqa": "medium", "math500": "easy", "minerva": "easy"}
RUNS = [experiment for experiment in EXPERIMENTS.values() if experiment.trained_on]


@pytest.mark.parametrize("experiment", RUNS, ids=lambda e: e.name)
def test_a_run_at_demo_scale_keeps_its_method_and_takes_the_rest_from_the_demo(experiment):
    config = config_at(experiment, "demo")
    demo = demo_config("scrl", seed=10, steps=40, model="embedded")
    assert (config.model, config.questions) == ("embedded", f"arithmetic:{LEVELS[experiment.trained_on]}:train:64")
    kept = (experiment.method, experiment.completions, experiment.trained)
    assert (config.method, config.completions, config.trained) == kept
    assert config.credit == {"std_floor": 0.18} | dict(experiment.credit)  # std_floor for all methods alike
    assert (config.steps, config.seed) == (40, 10)
    assert config.sampling.max_tokens == 72
    drawn = {f"embedded/{level}/32-16/{method}" for level in ("hard", "medium", "easy") for method in ("ttrl", "scrl")}
    is_followed = at_scale(experiment, "demo").name in drawn | {"embedded/easy/64-32/ttrl"}  # in figures, or starred
    assert config.evaluation.is_off is not is_followed
    assert config.evaluation.held_out is None
    same = ("optimizer", "prompt", "loss", "guard", "checkpoint_every", "preset", "reader")
    assert all(getattr(config, name) == getattr(demo, name) for name in same)


def test_seed_and_steps_can_be_given_and_start_models_have_a_prompt():
    config = config_at(RUNS[0], "demo", seed=0, steps=3)
    assert (config.seed, config.steps) == (0, 3)
    start = EXPERIMENTS["qwen2.5-math-7b/start"]
    assert prompt_at(start, "paper").style == "qwen-math"
    assert prompt_at(start, "demo").instruction == ""


def test_at_the_papers_scale_nothing_changes():
    for experiment in EXPERIMENTS.values():
        assert at_scale(experiment, "paper") == experiment
    assert config_at(RUNS[0], "paper") == config_of(RUNS[0])
    assert config_at(RUNS[0], "paper", seed=2, steps=5) == config_of(RUNS[0], seed=2).model_copy(update={"steps": 5})
    assert benchmark_at("amc", "paper") == "amc"


def test_experiments_that_become_equal_have_equal_names_and_no_others():
    scaled = [at_scale(experiment, "demo") for experiment in EXPERIMENTS.values()]
    assert all((a == b) == (a.name == b.name) for a, b in product(scaled, scaled))
    by_name = {experiment.name: at_scale(experiment, "demo").name for experiment in EXPERIMENTS.values()}
    assert by_name["qwen2.5-3b/aime25/32-16/scrl"] == "embedded/hard/32-16/scrl"
    assert by_name["qwen2.5-math-7b/aime25/32-16/scrl"] == "embedded/hard/32-16/scrl"
    assert by_name["qwen3-4b/aime25/32-16/scrl/15360"] == "embedded/hard/32-16/scrl"
    assert by_name["qwen3-4b/aime25/32-16/scrl/10240"] == "embedded/hard/32-16/scrl"
    assert by_name["qwen3-4b/start/10240"] == "embedded/start"
    assert by_name["llama-3.1-8b-instruct/start"] == "embedded/start"
    varied = "min_share=0.25,max_negative_share=0.0625"
    assert by_name[f"qwen2.5-math-7b/math500/64-32/scrl/{varied}"] == f"embedded/easy/64-32/scrl/{varied}"
    configs = {}
    for experiment in RUNS:
        config = config_at(experiment, "demo")
        assert configs.setdefault(by_name[experiment.name], config) == config


def test_start_models_are_refused():
    for scale in ("paper", "demo"):
        with pytest.raises(ConfigError, match="start"):
            config_at(EXPERIMENTS["qwen2.5-3b/start"], scale)
