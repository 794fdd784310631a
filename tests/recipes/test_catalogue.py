"""Every experiment becomes settings, and they are those of the paper's text and appendix, typed here once more."""

import subprocess
import sys
from dataclasses import replace
from itertools import product

import pytest

from scrl.credit.methods import METHODS
from scrl.errors import ConfigError
from scrl.metrics import STEP_METRICS
from scrl.recipes.catalogue import EXPERIMENTS, FOLLOWED, config_of, episodes_of, find, prompt_of
from scrl.recipes.paper import (
    GAIN,
    KNOWN_INCONSISTENCIES,
    NOT_IN_PAPER,
    PRINTED,
    SERIES,
    TABLES,
    UNSTATED_EVERYWHERE,
    Derived,
)
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


@pytest.mark.parametrize("experiment", STARTS, ids=lambda e: e.name)
def test_a_start_model_is_asked_as_its_runs_are_but_has_no_settings(experiment):
    with pytest.raises(ConfigError, match=experiment.name):
        config_of(experiment)
    assert experiment.method is None
    assert prompt_of(experiment)["style"] == MODELS[experiment.name.partition("/")[0]][2]


def test_the_catalogue_is_read_without_torch():
    code = "import sys, scrl.recipes.catalogue; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


# What the paper prints: complete, and consistent with its own arithmetic

ALL = [cell for table in TABLES.values() for cell in table.cells]


def with_derived(table, values):
    """Measured values, and the means and gains that follow from them."""
    filled = dict(values)
    for cell in table.cells:  # what a cell follows from stands before it
        value = cell.derived.value(filled) if cell.derived else None
        if value is not None:
            filled[cell.place] = value
    return filled


def test_a_row_is_measured_by_the_run_that_it_names():
    symbols = {"τ_pos": "min_share", "τ_neg": "max_negative_share", "τ_marg": "min_margin", "λ_H": "entropy_weight"}
    for cell in (cell for cell in ALL if cell.experiment):
        experiment = EXPERIMENTS[cell.experiment]
        assert experiment.trained_on in (None, cell.measured_on) or cell.table == "table-generalisation"
        if " + " in cell.row:
            assert cell.row.rpartition(" + ")[2].lower() == experiment.method
        if cell.table in ("table-thresholds", "table-margin-entropy"):
            settings = config_of(experiment).rule().settings
            for symbol, value in (part.split() for part in cell.row.split(", ")):
                assert getattr(settings, symbols[symbol]) == float(value)


def test_what_is_copied_or_a_peak_is_marked():
    starred = [(cell.experiment, cell.paper) for cell in ALL if cell.is_peak]
    assert starred == [("qwen2.5-math-7b/minerva/32-16/ttrl", 14.5), ("qwen2.5-math-7b/minerva/64-32/ttrl", 10.8)]
    assert {cell.table for cell in ALL if cell.copied_from} == {"table-llama"}
    for method in ("compass", "etmr", "restrain"):  # copied numbers have runs of our own beside them
        cells = [cell for cell in ALL if cell.row.endswith(f"+ {method.upper()}")]
        assert all(cell.copied_from for cell in cells)
        assert [cell.experiment and cell.experiment.endswith(f"/{method}") for cell in cells] == [True, True, None]


@pytest.mark.parametrize(("benchmark", "accuracy"), [("amc", 0.232), ("math500", 0.5), ("minerva", 0.214)])
def test_the_entropies_agree_with_the_accuracies_of_the_main_table(benchmark, accuracy):
    # overall = a · correct + (1 − a) · incorrect, each to ±0.0005: the accuracy a lies between these
    correct, incorrect, overall = (c.paper for c in TABLES["table-entropy"].cells if c.measured_on == benchmark)
    low = (incorrect - overall - 0.001) / (incorrect - correct + 0.001)
    high = (incorrect - overall + 0.001) / (incorrect - correct - 0.001)
    assert low < accuracy < high


def test_every_row_and_number_is_there():
    in_tables = [cell for cell in ALL if cell.table.startswith("table-")]
    assert len(in_tables) == 211  # 96 + 33 + 18 + 18 + 12 + 14 + 12 + 8
    assert all(cell.paper is not None for cell in in_tables)
    assert all(cell.paper is None for cell in ALL if cell.table.startswith("figure-"))
    for name, table in TABLES.items():
        assert len({cell.place for cell in table.cells}) == len(table.cells)
        assert {cell.table for cell in table.cells} == {name} == {table.name}
        assert {cell.measured_on for cell in table.cells} <= {*PRINTED, ""}


def test_figures_follow_metrics_that_a_run_writes():
    assert SERIES.keys() <= set(STEP_METRICS)
    for table in TABLES.values():
        others = {c.metric for c in table.cells if c.experiment} - set(table.series)
        assert all(m.startswith(("pass@", "entropy_")) for m in others)


# The paper's own arithmetic


def test_printed_means_and_gains_follow_from_the_printed_cells_but_for_the_known_ones():
    odd = {}
    for table in TABLES.values():
        measured = {cell.place: cell.paper for cell in table.cells if cell.derived is None}
        implied = with_derived(table, measured)
        for cell in table.cells:
            if cell.derived is not None and abs(cell.paper - implied[cell.place]) > 0.05 + 1e-9:
                odd[table.name, cell.place] = (cell.paper, round(implied[cell.place], 2))
    known = {(k.table, k.place): (k.printed, k.implied) for k in KNOWN_INCONSISTENCIES if k.place[3] == GAIN}
    assert odd == known
    assert len(known) == 3


def test_one_run_has_one_value_but_for_the_known_one():
    values = {}
    for cell in ALL:
        if cell.experiment is not None and cell.paper is not None:
            values.setdefault((cell.experiment, cell.measured_on, cell.metric), {})[cell.table] = cell.paper
    odd = {run: tables for run, tables in values.items() if len(set(tables.values())) > 1}
    printed = {"table-main": 68.5, "table-thresholds": 67.5, "table-margin-entropy": 68.5}
    assert odd == {("qwen2.5-math-7b/amc/64-32/scrl", "amc", "pass@1"): printed}
    failures = [cell.paper for cell in TABLES["failure-minerva"].cells if cell.metric == "pass@1"]
    assert failures == [31.6, 29.5, 33.5, 29.5]  # table-main's
    (known,) = (k for k in KNOWN_INCONSISTENCIES if k.place[3] != GAIN)
    assert (known.table, known.printed, known.implied) == ("table-thresholds", 67.5, 68.5)
    assert known.place in {cell.place for cell in TABLES[known.table].cells}


def test_what_lacks_a_part_is_not_derived():
    table = TABLES["table-llama"]
    ours = {cell.place: cell.paper for cell in table.cells if (cell.experiment or "").endswith(("start", "scrl"))}
    filled = with_derived(table, ours)
    assert ("Instruct models, 8B", "Llama-3.1-8B-Instruct + SCRL", "Average", "pass@1") in filled
    assert not any(place[3] == GAIN for place in filled)  # COMPASS and RESTRAIN were not run
    place = ("", "", "a", "pass@1")
    assert Derived("mean", (place,)).value({place: 2.0}) == 2.0
    assert Derived("difference", (place, place)).value({}) is None
