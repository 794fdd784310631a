"""Votes drawn apart from the completions they pay: golden numbers by hand, properties, and labels that stay."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.config import build_config
from scrl.credit.label_votes import LabelVotes
from scrl.credit.labels import count_votes, with_votes
from scrl.credit.methods import METHODS
from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.errors import ConfigError, InputError
from scrl.lab.label import label_file
from scrl.records import Elsewhere, Group
from scrl.training.crediting import with_drawn

VOTES = ("1", "1", "2", "1", None, "3", "1", "2")
"""p = 4/8, 2/8, 1/8 for the answers 1, 2 and 3."""
NOW = Group.from_answers(["1", "2", "4", "1"], [0.1, 0.3, 0.5, 0.1], question_id="q")
ANSWERS = st.lists(st.sampled_from(["1", "2", "3", "4", None]), min_size=2, max_size=8)


def test_votes_take_the_place_of_the_completions_own():
    rule = credit_rule("ttrl")
    tally = with_votes(count_votes(rule.classify(NOW), [0.1, 0.3, 0.5, 0.1]), VOTES)
    assert (tally.keys_K, tally.counts_K) == (("1", "2", "3", "4"), (4, 2, 1, 0))
    assert (tally.size, tally.num_missing, tally.num_completions) == (8, 1, 4)
    assert tally.class_of_G == (0, 1, 3, 0)
    assert tally.class_entropies_K[:2] == pytest.approx((0.1, 0.3))
    assert math.isnan(tally.class_entropies_K[2])  # nobody answers 3 now
    assert tally.group_entropy == pytest.approx(0.25)


def test_scrl_by_other_votes():
    """p₁ = 4/8 ≥ 0.375 leads by 2/8 > 0.125: 1 is the label. 4 has p = 0 and is uncertain: ruled out; 3 has 1/8."""
    credit = credit_rule("scrl").credit(NOW, votes=VOTES)
    assert credit.labels.positive == "1"
    assert credit.labels.negatives == {"4"}
    # p [a = y⁺] + (p − 0.125) [ruled out] − 0.1 (H̄_a − 0.25)
    assert credit.rewards == pytest.approx([0.5 + 0.015, -0.005, -0.125 - 0.025, 0.5 + 0.015])
    assert credit.tally.counts_K == (2, 1, 1)  # what is recorded are the completions' own


def test_contrast_by_other_votes():
    elsewhere = Elsewhere(9, {"2": 0.4})
    credit = credit_rule("contrast").credit(NOW, votes=VOTES, elsewhere=elsewhere)
    assert credit.rewards == pytest.approx([0.5, 0.25 - 1.5 * 0.4, 0.0, 0.5])


def test_a_label_that_no_completion_gives_pays_nobody():
    credit = credit_rule("ttrl").credit(NOW, votes=("7",) * 8)
    assert credit.labels.positive == "7"
    assert credit.advantages.tolist() == [0, 0, 0, 0]


def test_ties_go_to_the_vote_seen_first():
    for votes in (("2", "1"), ("1", "2")):
        assert credit_rule("ttrl", preset="official").credit(NOW, votes=votes).labels.positive == votes[0]


@pytest.mark.parametrize(("contrast", "label"), [(0.5, "1"), (0.4, "1"), (0.39, None)])
def test_contrast_label_needs_its_distance(contrast, label):
    elsewhere = Elsewhere(9, {"1": (0.5 - contrast) / 1.5})  # p − 1.5 p̄ = contrast
    credit = credit_rule("contrast-label").credit(NOW, votes=VOTES, elsewhere=elsewhere)
    assert credit.labels.positive == label
    assert credit.rewards.tolist() == ([1, 0, 0, 1] if label else [0, 0, 0, 0])


@given(ANSWERS, ANSWERS, st.permutations(["1", "2", "3", "4"]))
def test_a_renaming_of_answers_changes_nothing(answers, votes, names):
    """Keys order ties alone, so those are left out."""
    new = dict(zip(["1", "2", "3", "4"], names, strict=True)) | {None: None}
    rule = credit_rule("scrl-without-gate", entropy_weight=0)
    one, two = (
        rule.credit(Group.from_answers([name[a] for a in answers]), votes=[name[v] for v in votes])
        for name in ({key: key for key in new}, new)
    )
    assert one.rewards.tolist() == two.rewards.tolist()
    assert new[one.labels.positive] == two.labels.positive


@given(ANSWERS)
def test_the_completions_own_votes_given_again_change_nothing(answers):
    group = Group.from_answers(answers, np.linspace(0.1, 0.8, len(answers)).tolist())
    for name in ("scrl", "ttrl", "scrl-without-gate"):
        rule = credit_rule(name)
        one, two = rule.credit(group), rule.credit(group, votes=answers)
        assert one.labels == two.labels
        assert one.rewards.tolist() == two.rewards.tolist()
        assert np.array_equal(one.advantages, two.advantages, equal_nan=True)


def drawn(rule, answers_by_question):
    return [rule.evidence(Group.from_answers(a, question_id=q)) for q, a in answers_by_question.items()]


def test_a_label_once_given_is_kept_and_its_question_not_drawn_again():
    rule = credit_rule("contrast-label", elsewhere_weight=1.5, min_contrast=0.3)
    first = {f"q{n}": [str(n)] * 2 + ["x"] * 6 for n in range(9)} | {"sure": ["8", "8", "8", "y"]}
    votes = with_drawn(LabelVotes(), drawn(rule, first), rule)
    # sure: 3/4 − 1.5 · (2/8)/9 = 0.708; the others: 2/8 − small, or 6/8 − 1.5 · (8 · 6/8)/9 = −0.25
    assert votes.labels == {"sure": "8"}
    # then everybody says 8: p̄(8) = 1 would undo the label, but it stays, and so do its votes
    later = with_drawn(votes, drawn(rule, {f"q{n}": ["8"] * 8 for n in range(9)}), rule)
    assert later.labels == {"sure": "8"}
    assert later.votes["sure"] == ("8", "8", "8", "y")
    assert later.votes["q0"] == ("8",) * 8
    again = rule.evidence(Group.from_answers(["8", "z"], question_id="sure"), votes=later.votes["sure"])
    again = replace(again, elsewhere=later.last_votes.elsewhere("sure", again.tally.keys_K))
    assert rule.labels(again).positive is None
    assert rule.assign(replace(again, kept_label="8")).rewards.tolist() == [1, 0]


def test_votes_survive_a_checkpoint():
    votes = LabelVotes({"q": ("1", None, "2")}, {"q": "1"})
    back = LabelVotes.from_json(votes.to_json())
    assert (back.votes, back.labels) == (votes.votes, votes.labels)
    for damaged in (
        {},
        {"votes": {"q": [3]}, "labels": {}},
        {"votes": [], "labels": {}},
        {"votes": {}, "labels": {"q": 1}},
    ):
        with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
            LabelVotes.from_json(damaged)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].weighs_votes])
def test_methods_that_weigh_each_vote_refuse_others(name):
    with pytest.raises(ConfigError, match="label_votes"):
        build_config({"model": "embedded", "questions": "arithmetic:easy", "method": name, "label_votes": "start"})


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_silent_without_a_label_pays_all_the_same_there(name):
    rule = credit_rule(name)
    if not rule.is_silent_without_label or "truth" in rule.needs:
        return
    for votes in (("7", "8", "9", None), (None, None)):
        group = Group.from_texts([rf"\boxed{{{n}}}" for n in "1234"], [0.1, 0.2, 0.3, 0.4], question_id="q")
        evidence = rule.evidence(group, votes=votes, elsewhere=Elsewhere(9, {"7": 0.2, "8": 0.2, "9": 0.2}))
        if rule.labels(evidence).positive is None:
            assert not np.ptp(rule.assign(evidence).rewards)


def test_a_file_is_labelled_by_the_votes_of_another(tmp_path):
    def write(name, answers, step=0):
        rows = [{"question_id": q, "step": step, "sample": n, "completion": rf"\boxed{{{a}}}", "gold": "1"}
                for q in ("a", "b") for n, a in enumerate(answers)]  # fmt: skip
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return tmp_path / name

    now, start = write("now.jsonl", "2221"), write("start.jsonl", "1112")
    own, theirs = (label_file(replace(open_completions(now), label_votes=votes), credit_rule("ttrl"))
                   for votes in (None, open_completions(start)))  # fmt: skip
    assert (own["positive_accuracy"], theirs["positive_accuracy"]) == (0, 1)
    assert own["pass@1"] == theirs["pass@1"] == 0.25
    assert [(each["label"], each["share"]) for each in theirs["labels"]] == [("1", 0.75)] * 2  # of the votes
    start.write_text("\n".join(line for line in start.read_text().splitlines() if '"b"' not in line) + "\n")
    with pytest.raises(InputError, match=r"start.jsonl.*'b'"):
        label_file(replace(open_completions(now), label_votes=open_completions(start)), credit_rule("ttrl"))
    with pytest.raises(InputError, match="compass"):
        label_file(replace(open_completions(now), label_votes=open_completions(now)), credit_rule("compass"))
