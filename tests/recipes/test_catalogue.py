"""Every experiment becomes settings, and they are those of the paper's text and appendix, typed here once more."""

import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

from scrl.credit.methods import METHODS
from scrl.errors import ConfigError
from scrl.policy.settings import BETAS
from scrl.recipes.catalogue import EXPERIMENTS, FOLLOWED, config_of, episodes_of, find, prompt_of
from scrl.recipes.paper import HYPERPARAMETERS, NOT_IN_PAPER, TABLES, UNSTATED_EVERYWHERE
from scrl.records import Group

# 80 · ⌈30/8⌉, 80 · 4, 30 · ⌈83/8⌉ = 30 · 11, 10 · ⌈500/8⌉ = 10 · 63, 10 · ⌈272/8⌉ = 10 · 34, 10 · ⌈448/8⌉ = 10 · 56
STEPS = {"aime24": 320, "aime25": 320, "amc": 330, "math500": 630, "minerva": 340, "gpqa": 560}
MODELS = {
    "qwen2.5-3b": ("Qwen/Qwen2.5-3B", 0.6, "qwen"),
    "qwen2.5-math-7b": ("Qwen/Qwen2.5-Math-7B", 1.0, "qwen-math"),
    "qwen3-4b": ("Qwen/Qwen3-4B", 0.6, "qwen3-thinking"),
    "llama-3.2-1b-instruct": ("meta-llama/Llama-3.2-1B-Instruct", 0.6, "llama"),
    "llama-3.1-8b-instruct": ("meta-llama/Llama-3.1-8B-Instruct", 0.6, "llama"),
}
RUNS = [experiment for experiment in EXPERIMENTS.values() if experiment.trained_on]
STARTS = [experiment for experiment in EXPERIMENTS.values() if not experiment.trained_on]


@pytest.mark.parametrize("experiment", RUNS, ids=lambda e: e.name)
def test_the_settings_of_a_run_are_the_papers(experiment):
    config = config_of(experiment)
    model, benchmark, budget, method, *more = experiment.name.split("/")
    hub, temperature, style = MODELS[model]
    shorter = {("qwen2.5-3b", "math500", "32-16"): 252}  # 4 · 63
    assert (config.model, config.questions, config.method) == (hub, benchmark, method)
    assert config.steps == shorter.get((model, benchmark, budget), STEPS[benchmark])
    drawn = "60-32" if method == "etmr" else budget  # 12 roots of 5 leaves, the most that 64 allows
    assert f"{config.completions}-{config.trained}" == drawn
    assert budget in ("32-16", "64-32")
    assert config.sampling.temperature == temperature
    assert config.sampling.max_tokens == (int(more[0]) if model == "qwen3-4b" else 3072)
    assert (config.sampling.top_p, config.sampling.top_k) == (1, 0)
    assert (config.questions_per_step, config.questions_per_update) == (8, 1)
    optimizer = config.optimizer
    assert (optimizer.learning_rate, optimizer.warmup, optimizer.schedule) == (5e-7, 0.03, "cosine")
    assert (config.prompt.style, config.prompt.max_tokens, config.prompt.overlong) == (style, 512, "drop")
    assert config.reader == ("choice" if benchmark == "gpqa" else "boxed")
    assert (config.preset, config.lora, config.guard.mode) == ("paper", None, "observe")
    assert config.loss.kl_weight == 0


@pytest.mark.parametrize("experiment", RUNS, ids=lambda e: e.name)
def test_thresholds_are_the_usual_ones_but_for_those_in_the_name(experiment):
    settings = config_of(experiment).rule().settings.model_dump()
    usual = {"min_share": 0.375, "min_margin": 0.125, "max_negative_share": 0.125, "entropy_weight": 0.1}
    last = experiment.name.rpartition("/")[2]
    named = {n: float(v) for n, v in (part.split("=") for part in last.split(","))} if "=" in last else {}
    assert named == dict(experiment.credit)
    if experiment.method.startswith("scrl"):
        assert {name: settings[name] for name in usual} == usual | named


def test_runs_measure_nothing_on_the_way_but_for_the_starred_and_those_of_the_dynamics():
    watched = {e.name for e in RUNS if not config_of(e).evaluation.is_off}
    starred = {f"qwen2.5-math-7b/minerva/{budget}/ttrl" for budget in ("32-16", "64-32")}
    runs = product(("qwen2.5-3b", "qwen2.5-math-7b"), ("aime25", "amc", "minerva"), ("ttrl", "scrl"))
    drawn = {f"{model}/{benchmark}/32-16/{method}" for model, benchmark, method in runs}
    assert watched == FOLLOWED == starred | drawn
    for name in watched:
        evaluation = config_of(EXPERIMENTS[name]).evaluation
        found = (evaluation.every, evaluation.completions, evaluation.temperature, evaluation.top_p)
        assert found == (20, 16, 0.6, 0.95)


def test_every_method_has_the_shorter_schedule_where_the_paper_shortens_it():
    for method in ("ttrl", "scrl", "random", "etmr"):  # of 32 completions ETMR draws 30
        assert episodes_of(find(f"qwen2.5-3b/math500/32-16/{method}")) == 4
    assert episodes_of(find("qwen2.5-3b/math500/64-32/etmr")) == 10


def test_what_a_missing_answer_earns_is_what_the_reason_says():
    def missing(name):
        rule = replace(config_of(find(name)).rule(), num_trained=None)
        group = Group.from_texts([r"\boxed{1}", r"\boxed{1}", r"\boxed{2}", "?"], [0.5] * 4)
        return rule.credit(group).rewards[-1]

    assert missing("qwen2.5-3b/amc/32-16/scrl") == -0.125
    assert missing("qwen2.5-math-7b/amc/64-32/scrl/max_negative_share=0.0625") == -0.0625
    assert missing("qwen2.5-3b/amc/32-16/scrl-without-negative") == -0.125
    assert missing("qwen2.5-3b/amc/32-16/scrl-without-shaping") == -1
    for number in ("−0.125", "−0.0625", "−1"):
        assert number in NOT_IN_PAPER["credit.missing_reward"]


def test_every_experiment_serves_a_table_and_every_cell_has_its_experiment():
    named = {name for table in TABLES.values() for name in table.experiments}
    assert named == set(EXPERIMENTS)
    # 6 starts, 2 models · 5 benchmarks · 2 budgets · 2 methods, 2 Llamas · 2 · 2, 4 ablations · 2, 3 threshold rows · 3,
    # 6 margin rows · 2, Qwen3 at 2 lengths · 2
    assert len(EXPERIMENTS) == 6 + 40 + 14 + 8 + 9 + 12 + 4 == 93
    assert len(STARTS) == 6
    assert {experiment.method for experiment in RUNS} <= METHODS.keys()
    assert all(name == experiment.name for name, experiment in EXPERIMENTS.items())


def test_what_the_paper_does_not_state_is_marked_and_has_a_reason():
    def unstated(name):
        return EXPERIMENTS[name].not_in_paper

    batch = ("prompt.max_tokens", "questions_per_step", "questions_per_update", "optimizer.warmup")
    assert unstated("qwen2.5-3b/aime25/32-16/scrl") == ()
    assert unstated("qwen2.5-math-7b/gpqa/64-32/ttrl") == ("episodes", "reader")
    assert unstated("llama-3.1-8b-instruct/amc/64-32/scrl") == ("prompt", *batch)
    assert unstated("qwen3-4b/aime25/32-16/scrl/10240") == ("prompt", *batch, "budget")
    assert unstated("llama-3.2-1b-instruct/start") == ("prompt",)
    used = {key for e in EXPERIMENTS.values() for key in e.not_in_paper}
    used |= {key for table in TABLES.values() for key in table.not_in_paper}
    assert used | set(UNSTATED_EVERYWHERE) == set(NOT_IN_PAPER)
    assert not used & set(UNSTATED_EVERYWHERE)
    open_budgets = {t.name for t in TABLES.values() if "budget" in t.not_in_paper}
    assert open_budgets == {"table-generalisation", "figure-labels", "figure-dynamics-3b", "figure-dynamics-7b"}


def test_our_choices_are_what_the_reasons_say():
    config = config_of(EXPERIMENTS["qwen2.5-3b/amc/32-16/scrl"])
    settings = config.rule().settings
    assert (config.seed, config.drop_last) == (0, False)
    assert (config.loss.clip_low, config.loss.clip_high) == (0.2, 0.2)
    assert (BETAS, config.optimizer.weight_decay) == ((0.9, 0.999), 0.01)
    assert config.optimizer.max_grad_norm == 1
    assert (settings.which_trained, settings.std, settings.eps) == ("random", "population", 1e-6)
    assert settings.model_dump()["missing_reward"] == "negative"
    assert config_of(EXPERIMENTS["qwen2.5-3b/amc/32-16/scrl"], seed=3).seed == 3


def test_the_appendix_table():
    assert [(row.printed, row.small, row.large) for row in HYPERPARAMETERS] == [
        ("Max Prompt Length", 512, 512), ("Max Response Length", 3072, 3072), ("Train Batch Size", 8, 8),
        ("PPO Mini Batch Size", 1, 1), ("PPO Micro Batch Size per GPU", 2, 2), ("N GPUs per Node", 4, 8),
        ("Learning Rate", 5e-7, 5e-7), ("LR Warmup Steps Ratio", 0.03, 0.03), ("Warmup Style", "cosine", "cosine"),
        ("Temperature", 0.6, 1.0), ("Optimizer", "AdamW", "AdamW"),
    ]  # fmt: skip
    assert all(row.setting or row.note for row in HYPERPARAMETERS)


@pytest.mark.parametrize("experiment", STARTS, ids=lambda e: e.name)
def test_a_start_model_is_asked_as_its_runs_are_but_has_no_settings(experiment):
    with pytest.raises(ConfigError, match=f"{experiment.name}: a start model is measured as it is"):
        config_of(experiment)
    assert experiment.method is None
    assert prompt_of(experiment)["style"] == MODELS[experiment.name.partition("/")[0]][2]


def test_the_catalogue_is_read_without_torch():
    code = "import sys, scrl.recipes.catalogue; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
