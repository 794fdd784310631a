"""Early verdicts against every way in which the completions to come could turn out."""

from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.answers.classes import classify
from scrl.answers.judge import Verdicts
from scrl.credit.assign import credit_rule
from scrl.credit.labels import majority_positive, selective_positive
from scrl.credit.methods import METHODS
from scrl.credit.tally import count_votes
from scrl.credit.verdicts import OpenVote, majority_is_decided, selective_is_decided

DEFAULT = {"min_share": 0.375, "min_margin": 0.125}


def vote(*counts, total, missing=0):
    """Votes for classes that cannot be split."""
    drawn = sum(counts) + missing
    return OpenVote(counts, counts, drawn, total - drawn)


# By hand


@pytest.mark.parametrize(
    ("counts", "total", "decided"),
    [
        ((5, 2), 10, False),  # r = 3: 5 = 2 + 3, the second can come level
        ((6, 2), 10, True),  # r = 2: 6 > 2 + 2
        ((33,), 64, True),  # r = 31: 33 > 0 + 31, whatever class the 31 make
        ((32,), 64, False),  # r = 32: a class not yet seen can come level
        ((4, 4), 8, True),  # r = 0: all is said, by the rule for ties
        ((), 8, False),
        ((), 0, True),
    ],
)
def test_a_majority_by_hand(counts, total, decided):
    assert majority_is_decided(vote(*counts, total=total)) is decided


@pytest.mark.parametrize(
    ("counts", "missing", "decided"),
    [  # N = 32: a label needs 12 votes and a lead of more than 4
        ((19,), 0, True),  # r = 13: 19 ≥ 12 and 19 − (0 + 13) = 6 > 4
        ((18,), 0, False),  # r = 14: 18 − (0 + 14) = 4 is not more than 4
        ((2, 2, 2), 15, False),  # r = 11: 2 + 11 = 13 ≥ 12 and 13 − 2 = 11 > 4, one of them can still win
        ((8, 8), 8, False),  # r = 8: 8 + 8 = 16 ≥ 12 and 16 − 8 = 8 > 4, and so can one of these
    ],
)
def test_a_selective_label_by_hand(counts, missing, decided):
    assert selective_is_decided(vote(*counts, total=32, missing=missing), **DEFAULT) is decided


def test_abstentions_by_hand():
    # N = 32. r = 8, nobody has more than 3: 3 + 8 = 11 < 12 votes.
    assert selective_is_decided(vote(3, 3, 3, total=32, missing=15), **DEFAULT)
    # r = 4 and 13 to 13: 13 + 4 − 13 = 4 is not more than 4; a fifth vote would do.
    assert selective_is_decided(vote(13, 13, total=32, missing=2), **DEFAULT)
    assert not selective_is_decided(vote(13, 13, total=32, missing=1), **DEFAULT)


# Against all ways to go on


def futures(counts, missing, total):
    """Every (counts, missing) that the completions to come can lead to: any class, up to r new ones, or no answer."""
    remaining = total - sum(counts) - missing
    size = len(counts)
    for joined in combinations_with_replacement(range(-1, size + remaining), remaining):
        grown = [*counts, *[0] * remaining]
        for j in joined:
            if j >= 0:
                grown[j] += 1
        yield grown, missing + joined.count(-1)


def tally(counts, missing):
    answers = [f"{j + 1}" for j, count in enumerate(counts) for _ in range(count)]
    return count_votes(classify([*answers, *[None] * missing]), None)


small_votes = st.tuples(
    st.lists(st.integers(1, 6), max_size=3), st.integers(0, 3), st.integers(0, 4)
)  # counts of classes, missing answers, completions to come


@given(small_votes)
def test_a_decided_majority_never_changes_and_an_open_one_can(given_votes):
    counts, missing, remaining = given_votes
    total = sum(counts) + missing + remaining
    now = majority_positive(tally(counts, missing), first_seen_wins=False)
    ends = [tally(*future) for future in futures(counts, missing, total)]
    winners = {majority_positive(end, first_seen_wins=rule) for end in ends for rule in (False, True)}
    if majority_is_decided(vote(*counts, total=total, missing=missing)):
        assert remaining == 0 or winners == {now}
    else:  # somebody else can win, or come level
        assert len(winners) > 1 or any(sorted(end.counts_K)[-2:-1] == [max(end.counts_K)] for end in ends if end.keys_K)


@given(small_votes, st.sampled_from([0.0, 0.25, 0.375, 0.5, 1.0]), st.sampled_from([0.0, 0.125, 0.25, 0.5]))
def test_a_decided_selective_label_never_changes_and_an_open_one_can(given_votes, min_share, min_margin):
    counts, missing, remaining = given_votes
    total = sum(counts) + missing + remaining
    if total == 0:
        return
    limits = {"min_share": min_share, "min_margin": min_margin}
    labels = {selective_positive(tally(*future), **limits) for future in futures(counts, missing, total)}
    decided = selective_is_decided(vote(*counts, total=total, missing=missing), **limits)
    assert decided == (len(labels) == 1)
    if decided and sum(counts) + missing:  # what the drawn ones alone say, by shares of n, is what all N will say
        assert {selective_positive(tally(counts, missing), **limits)} == labels


# Classes that a later answer can split


OPEN = tuple(rf"\foo_{{{number}}}(3)" for number in range(6))
"""Answers that only a judge could call equal."""


class Likes:
    """Calls these pairs equal and no others: not transitive, as a judge may be."""

    def __init__(self, *pairs):
        self.pairs = {tuple(sorted(pair)) for pair in pairs}

    def compare(self, pairs):
        return Verdicts(equal=frozenset(pair for pair in pairs if tuple(sorted(pair)) in self.pairs))


def test_a_class_of_one_key_is_firm_and_a_merged_one_only_as_far_as_its_largest_key():
    f, g = OPEN[:2]
    classes = classify([f] * 4 + [g] * 2 + ["7"] * 3 + [None], judge=Likes((f, g)))
    votes = OpenVote.of(classes, 12)
    assert sorted(zip(votes.counts_K, votes.firm_K, strict=True)) == [(3, 3), (6, 4)]
    assert (votes.drawn, votes.remaining, votes.total) == (10, 2, 12)


def test_a_leader_that_can_be_split_decides_nothing():
    f, g, h = OPEN[:3]
    judge = Likes((f, g), (f, h))
    drawn = [f] * 3 + [g] * 3 + ["7"]
    assert OpenVote.of(classify(drawn, judge=judge), 8) == OpenVote((1, 6), (1, 3), 7, 1)
    assert not majority_is_decided(OpenVote.of(classify(drawn, judge=judge), 8))
    assert max(count_votes(classify([*drawn, h], judge=judge), None).counts_K) == 3  # as one more answer shows


def believed(answers, judge, label, first):
    """Which of the first completions have the label's answer, and whether there is a label."""
    classes = classify(answers, judge=judge)
    key = label(count_votes(classes, None))
    chosen = [j >= 0 and classes.keys_K[j] == key for j in classes.class_of_G[:first]]
    return key is not None, tuple(chosen)


@given(
    st.lists(st.sampled_from((*OPEN[:4], None)), min_size=1, max_size=7),
    st.integers(1, 2),
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))),
)
def test_whatever_the_judge_says_a_decided_label_never_changes(drawn, remaining, edges):
    judge = Likes(*((OPEN[i], OPEN[j]) for i, j in edges if i != j))
    total = len(drawn) + remaining
    votes = OpenVote.of(classify(drawn, judge=judge), total)
    rules = [
        (majority_is_decided(votes), lambda tally: majority_positive(tally, first_seen_wins=False)),
        (selective_is_decided(votes, **DEFAULT), lambda tally: selective_positive(tally, **DEFAULT)),
    ]
    for more in combinations_with_replacement((*OPEN[:5], None), remaining):
        for is_decided, label in rules:
            if is_decided:
                now = believed(drawn, judge, label, len(drawn))
                assert believed([*drawn, *more], judge, label, len(drawn)) == now


def test_a_second_that_can_be_split_does_not_make_an_abstention_sure():
    # N = 32, r = 2: 14 to 12, of which 6 are firm. 14 + 2 − 12 = 4 would be an abstention; 14 + 2 − 6 = 10 is a label.
    split = OpenVote((14, 12), (14, 6), 30, 2)
    whole = OpenVote((14, 12), (14, 12), 30, 2)
    assert selective_is_decided(whole, **DEFAULT)
    assert not selective_is_decided(split, **DEFAULT)


# Who may be early


def test_methods_that_need_all_completions_say_why():
    reasons = {name: credit_rule(name).why_all_are_needed for name in METHODS}
    assert {name for name, reason in reasons.items() if reason is None} == {"ttrl", "inverted"}
    assert reasons["scrl"] == "its negative labels are"
    assert reasons["scrl-without-negative"] == "H̄, the mean entropy, is"
    assert credit_rule("scrl-without-negative", entropy_weight=0).why_all_are_needed is None
    assert reasons["empo"] == "its credit is"


def test_overlong_shaping_is_about_each_completion_alone():
    assert credit_rule("ttrl", overlong_buffer=4, max_tokens=16).why_all_are_needed is None


def test_a_rule_decides_by_its_own_method():
    drawn = classify(["1"] * 19)
    assert credit_rule("ttrl").is_decided(drawn, 32)
    assert credit_rule("scrl-without-negative", entropy_weight=0).is_decided(drawn, 32)
    assert not credit_rule("scrl-without-negative", entropy_weight=0, min_margin=0.5).is_decided(drawn, 32)
