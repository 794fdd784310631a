"""Rivals, control arms and contrast in runs of a step or two, and shaping of long completions."""

import collections

import numpy as np
import pytest
from line_files import read_lines, write_lines
from listeners import Listener
from runs import GOLD_METRICS, differences, do, go_on, metrics, no_reports, small, stop_after_a_step, weights

from scrl.credit.method import Tree
from scrl.credit.rule import CreditRule
from scrl.data.sources import load_source
from scrl.errors import InputError
from scrl.sampling.groups import sample_tree
from scrl.training.loop import train

pytestmark = pytest.mark.usefixtures("no_report")
TINY = (
    "questions=arithmetic:easy:train:4", "steps=1", "probe=0", "completions=8", "trained=4", "sampling.max_tokens=40",
    "evaluation.completions=0", "checkpoint_every=9",
)  # fmt: skip
METHODS = ("ttrl", "compass", "restrain")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run of each method."""
    with no_reports():
        found = {name: tmp_path_factory.mktemp("rivals") / name for name in METHODS}
        for name, folder in found.items():
            do(folder, f"method={name}", *TINY)
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
    for line in rollouts(folders["compass"]):
        assert 0 <= line["margin_std"] <= 0.5
        assert 0 <= line["decisiveness"] <= 1
        assert 0 <= line["reward"] <= 2
    assert all(0 <= line["reward"] <= 1 or line["reward"] == -1 for line in rollouts(folders["restrain"]))


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
    do(tmp_path / "run", *TINY, "steps=2", "method=etmr", "completions=10", *measured)
    assert [(step, tree) for step, tree, _ in grown] == [(0, Tree(2, 2, 2)), (1, Tree(2, 2, 2))]
    for step, (line, (_, _, tokens)) in enumerate(zip(metrics(tmp_path / "run"), grown, strict=True)):
        lengths = [each["num_tokens"] for each in rollouts(tmp_path / "run") if each["step"] == step]
        assert line["tokens"] == tokens < sum(lengths)
        assert len(lengths) == 2 * 10


# Control arms: the oracle is told gold and nobody else is

CONTROL = (
    "steps=1",
    "questions_per_step=2",
    "completions=6",
    "trained=6",
    "evaluation.completions=0",
    "checkpoint_every=9",
)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """The same questions with and without gold, and with gold that is wrong."""
    folder = tmp_path_factory.mktemp("questions")
    drawn = load_source("arithmetic:easy:train:4", seed=0).questions
    golds: dict[str, list[str | None]] = {
        "with": [q.gold for q in drawn], "wrong": ["-1"] * 4, "without": [None] * 4, "partly": ["1", None, "2", "3"],
    }  # fmt: skip
    for name, gold_Q in golds.items():
        pairs = zip(drawn, gold_Q, strict=True)
        rows = [{"id": q.id, "question": q.text} | ({"answer": gold} if gold else {}) for q, gold in pairs]
        write_lines(folder / f"{name}.jsonl", rows)
    return folder


def run(questions, which, method, out):
    do(out, f"questions={questions / which}.jsonl", f"method={method}", *CONTROL)
    return out


def without_gold(records):
    return [{k: v for k, v in each.items() if k not in GOLD_METRICS | {"gold", "correct"}} for each in records]


def test_gold_changes_nothing_for_a_method_that_is_not_told(questions, tmp_path):
    told, untold = (run(questions, which, "random", tmp_path / which) for which in ("wrong", "without"))
    assert all("gold" in line for line in read_lines(told / "rollouts.jsonl"))
    assert not any("gold" in line for line in read_lines(untold / "rollouts.jsonl"))
    assert without_gold(metrics(told)) == metrics(untold)
    assert without_gold(read_lines(told / "rollouts.jsonl")) == read_lines(untold / "rollouts.jsonl")
    assert weights(told) == weights(untold)


def test_the_oracle_rewards_what_is_right_and_gold_moves_its_weights(questions, tmp_path):
    told, misled = (run(questions, which, "oracle", tmp_path / which) for which in ("with", "wrong"))
    rollouts = read_lines(told / "rollouts.jsonl")
    assert [line["reward"] for line in rollouts] == [float(line["correct"]) for line in rollouts]
    assert any(line["reward"] for line in rollouts)
    assert not any(line["reward"] for line in read_lines(misled / "rollouts.jsonl"))
    # the mean reward of the oracle is the accuracy of what was sampled
    assert [line["reward_mean"] for line in metrics(told)] == pytest.approx([m["pass@1"] for m in metrics(told)])
    assert weights(told) != weights(misled)  # whose advantages are all 0


def test_random_rewards_are_coins_and_inverted_ones_push_the_majority_down(questions, tmp_path):
    drawn = read_lines(run(questions, "with", "random", tmp_path / "random") / "rollouts.jsonl")
    assert {line["reward"] for line in drawn} == {0.0, 1.0}
    assert {line["label"] for line in drawn} == {None}
    turned = read_lines(run(questions, "with", "inverted", tmp_path / "inverted") / "rollouts.jsonl")
    assert {line["reward"] for line in turned} <= {-1.0, 0.0}
    assert all((line["reward"] == -1) == (line["label"] == "negative") for line in turned)


@pytest.mark.parametrize("which", ["without", "partly"])
def test_the_oracle_without_gold_is_refused_before_anything_is_written(questions, tmp_path, which):
    config = small(f"questions={questions / which}.jsonl", "method=oracle", *CONTROL)
    with pytest.raises(InputError, match=r"'oracle'.* [14] of 4"):
        train(config, tmp_path / "run", None)
    assert not (tmp_path / "run").exists()


# Contrast: the votes of other questions

STREAM = (
    "method=contrast", "questions=arithmetic:easy:train:12", "questions_per_step=5", "steps=3", "completions=4",
    "sampling.max_tokens=40", "evaluation.completions=0",
)  # fmt: skip
FEW = "the other questions' votes (p̄, stock answers) count once 8 of them have been seen"


def shares(rows):
    votes = collections.Counter(row["answer_class"] for row in rows if row["answer_class"] is not None)
    return {answer: count / len(rows) for answer, count in votes.items()}


def expected_rewards(rollouts):
    """(step, question, sample) → R = p − 1.5 p̄, from the written votes alone."""
    steps = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rollouts:
        steps[row["step"]][row["question_id"]].append(row)
    last, found = {}, {}
    for step, groups in sorted(steps.items()):
        last |= {question: shares(rows) for question, rows in groups.items()}
        for question, rows in groups.items():
            others = [each for other, each in last.items() if other != question]
            weight = 1.5 / len(others) if len(others) >= 8 else 0.0
            worth = {a: p - weight * sum(each.get(a, 0) for each in others) for a, p in shares(rows).items()}
            worst = min(worth.values(), default=0.0) - 0.125
            found |= {(step, question, row["sample"]): worth.get(row["answer_class"], worst) for row in rows}
    return found


def test_rewards_are_the_shares_here_less_those_elsewhere_and_a_stopped_run_goes_on_exactly(tmp_path):
    _, listener = do(tmp_path / "whole", *STREAM)
    rollouts = read_lines(tmp_path / "whole" / "rollouts.jsonl")
    expected = expected_rewards(rollouts)
    assert len(expected) == (5 + 5 + 2) * 4
    for row in rollouts:
        key = (row["step"], row["question_id"], row["sample"])
        assert row["reward"] == pytest.approx(expected[key], abs=1e-9)
    found = metrics(tmp_path / "whole")
    assert ["push_stock" in line for line in found] == [False, True, True]  # 4 others, then 9 and more
    assert listener.notes.count(FEW) == 1
    stop_after_a_step(tmp_path / "run", *STREAM)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "whole", tmp_path / "run") == []


def test_a_small_stream_is_told_that_popularity_never_counts(tmp_path):
    _, listener = do(tmp_path / "run", *STREAM, "questions=arithmetic:easy:train:4", "steps=1")
    assert any(note.startswith(f"{FEW}; there are only 3") for note in listener.notes)


def test_one_question_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="'contrast'"):
        train(small(*STREAM, "questions=arithmetic:easy:train:1"), tmp_path / "run", Listener())
    assert not (tmp_path / "run").exists()
