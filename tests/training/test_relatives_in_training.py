"""Rivals and relatives in runs of a step or two, and shaping of long completions."""

import numpy as np
import pytest
from line_files import read_lines
from runs import do, go_on, metrics, no_reports, small, weights

from scrl.credit.method import Tree
from scrl.credit.rule import CreditRule
from scrl.errors import ConfigError
from scrl.sampling.tree import sample_tree

pytestmark = pytest.mark.usefixtures("no_report")
TINY = (
    "questions=arithmetic:easy:train:4", "steps=1", "probe=0", "completions=8", "trained=4", "sampling.max_tokens=40",
    "evaluation.completions=0", "checkpoint_every=9",
)  # fmt: skip
EVOL_RL = ("loss.entropy_bonus=0.003", "loss.clip_high=0.28")  # as its authors run it
METHODS = dict.fromkeys(("ttrl", "rent", "intuitor", "empo", "ddrl", "spine", "dare", "compass", "restrain"), ())
METHODS |= {"evol-rl": EVOL_RL}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run of each method."""
    with no_reports():
        found = {name: tmp_path_factory.mktemp("relatives") / name for name in METHODS}
        for name, folder in found.items():
            do(folder, f"method={name}", *TINY, *METHODS[name])
    return found


def rollouts(folder):
    return read_lines(folder / "rollouts.jsonl")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains(folders, method):
    (found,) = metrics(folders[method])
    assert np.isfinite(found["loss"])
    assert found["grad_norm"] > 0
    assert len(rollouts(folders[method])) == 2 * 8
    assert len({str(weights(folder)) for folder in folders.values()}) == len(METHODS)  # no two train alike


def test_rewards_are_what_the_methods_say(folders):
    assert all(line["reward"] == -line["entropy"] for line in rollouts(folders["rent"]))
    assert all(line["reward"] == line["certainty"] for line in rollouts(folders["intuitor"]))
    assert {line["advantage"] for line in rollouts(folders["ddrl"])} <= {1.0, -1.0, None}
    assert {line["reward"] for line in rollouts(folders["spine"])} <= {0.0, 1.0}
    assert all(0 <= line["reward"] <= 1 for line in rollouts(folders["empo"]))
    for line in rollouts(folders["compass"]):
        assert 0 <= line["margin_std"] <= 0.5
        assert 0 <= line["decisiveness"] <= 1
        assert 0 <= line["reward"] <= 2
    assert all(0 <= line["reward"] <= 1 or line["reward"] == -1 for line in rollouts(folders["restrain"]))


def test_spine_sees_the_first_completions_of_ttrl_and_trains_on_fewer_tokens(folders):
    assert rollouts(folders["ttrl"]) == rollouts(folders["spine"])
    assert weights(folders["ttrl"]) != weights(folders["spine"])


def test_long_completions_lose_reward_where_the_run_says_so(folders, tmp_path):
    do(tmp_path / "run", "method=ttrl", *TINY, "credit.overlong_buffer=30")
    plain, shaped = rollouts(folders["ttrl"]), rollouts(tmp_path / "run")
    assert any(line["num_tokens"] > 10 for line in plain)
    for before, after in zip(plain, shaped, strict=True):
        lost = max(0, before["num_tokens"] - 10) / 30
        assert after["reward"] == pytest.approx(before["reward"] - lost)


def test_a_buffer_longer_than_a_completion_is_refused():
    with pytest.raises(ConfigError, match=r"overlong_buffer: 41 tokens .* more than the 40 of a completion"):
        small(*TINY, "credit.overlong_buffer=41")


def test_restrain_stopped_while_the_start_model_is_asked_asks_it_again(folders, tmp_path, monkeypatch):
    seen = []

    def stop_at_the_third(self, group):
        seen.append(group)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return classify(self, group)

    classify = CreditRule.classify
    with monkeypatch.context() as patch:
        patch.setattr(CreditRule, "classify", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            do(tmp_path / "run", "method=restrain", *TINY)
    go_on(tmp_path / "run")
    assert rollouts(tmp_path / "run") == rollouts(folders["restrain"])


def test_etmr_samples_trees_for_training_alone(tmp_path, monkeypatch):
    grown = []

    def watched(sampler, prompts_B, settings, tree, *, seed, step):
        leaves_B = sample_tree(sampler, prompts_B, settings, tree, seed=seed, step=step)
        grown.append((step, tree, sum(leaf.tokens_drawn for leaves in leaves_B for leaf in leaves)))
        return leaves_B

    monkeypatch.setattr("scrl.sampling.groups.sample_tree", watched)
    # evaluated before and after, with three completions per question, which no tree has: those are drawn on their own
    measured = ("evaluation.completions=3",)
    do(tmp_path / "run", *TINY, "steps=2", "method=etmr", "completions=10", "credit.reshape=residual", *measured)
    assert [(step, tree) for step, tree, _ in grown] == [(0, Tree(2, 2, 2)), (1, Tree(2, 2, 2))]
    for step, (line, (_, _, tokens)) in enumerate(zip(metrics(tmp_path / "run"), grown, strict=True)):
        lengths = [each["num_tokens"] for each in rollouts(tmp_path / "run") if each["step"] == step]
        assert line["tokens"] == tokens < sum(lengths)
        assert len(lengths) == 2 * 10
