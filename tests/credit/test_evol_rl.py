"""EVOL-RL by hand: the majority selects, novelty within a class varies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrl.credit.methods.related import evol_rl
from scrl.credit.methods.related.evol_rl import BITS, compared_text, cosines, trigram_counts
from scrl.credit.rule import credit_rule
from scrl.errors import InputError
from scrl.records import Completion, Group

VECTORS = {"east": (1, 0), "north": (0, 1), "between": (0.6, 0.8), "nearer": (0.8, 0.6), "west": (-1, 0)}
PLAIN = credit_rule("evol-rl")


def group_of(*pairs):
    """(answer, text) pairs."""
    return Group(tuple(Completion(text, answer=answer) for answer, text in pairs), question_id="q")


def rewards(*pairs):
    """With VECTORS in place of trigrams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evol_rl, "trigram_counts", lambda text: np.array(VECTORS[text], dtype=np.float64))
        return PLAIN.credit(group_of(*pairs)).rewards.tolist()


def test_the_worked_example():
    # similarities: east·north 0, east·between 0.6, north·between 0.8; everyone meets a twin in another class, so max = 1
    # s(east)    = 1 − (½·(0 + 0.6)/2   + ½·1) = 0.35 → (0.35 − 0.15)/0.2 = 1
    # s(north)   = 1 − (½·(0 + 0.8)/2   + ½·1) = 0.30 → (0.30 − 0.15)/0.2 = 0.75
    # s(between) = 1 − (½·(0.6 + 0.8)/2 + ½·1) = 0.15 → 0
    found = rewards(
        ("1", "east"), ("1", "north"), ("1", "between"), ("2", "east"), ("2", "north"), ("3", "between"), (None, "west")
    )
    assert found[:3] == pytest.approx([0.5 + 0.5, 0.5 + 0.375, 0.5])
    # "2": both s = 1 − (½·0 + ½·1) = ½: equal, so ŝ = ½ and −1 + ¼; "3" is alone: ŝ = 1; no answer: −1
    assert found[3:] == pytest.approx([-0.75, -0.75, -0.5, -1.0])


def test_what_is_nearest_counts_whatever_its_answer():
    # s(east) = 1 − (½·0.6 + ½·0.8) = 0.3, s(between) = 1 − (½·0.6 + ½·0.96) = 0.22: nearer is nearer to between
    assert rewards(("1", "east"), ("1", "between"), ("2", "nearer")) == pytest.approx([1.0, 0.5, -0.5])
    # and a completion without an answer is one of the others: without it both are at 0.6 from each other alone
    assert rewards(("1", "east"), ("1", "between"), (None, "nearer")) == pytest.approx([1.0, 0.5, -1.0])
    assert rewards(("1", "east"), ("1", "between")) == pytest.approx([0.75, 0.75])


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("1", "east")], [1.0]),
        ([(None, "east")], [-1.0]),
        ([(None, "east"), (None, "west")], [-1.0, -1.0]),
        ([("1", "east"), ("1", "east")], [0.75, 0.75]),
        ([("1", "east"), ("2", "east")], [1.0, -0.5]),  # a tie: the smallest key, each alone in its class
    ],
)
def test_odd_groups(pairs, expected):
    assert rewards(*pairs) == expected


def test_the_label_is_the_majority_and_nothing_is_ruled_out():
    credit = PLAIN.credit(group_of(("7", "a"), ("7", "b"), ("8", "c")))
    assert (credit.labels.positive, credit.labels.negatives, credit.is_entropy_only) == ("7", frozenset(), False)


# Trigrams


def test_trigrams_are_counted_in_buckets_that_never_change():
    # "  ab  " has "  a", " ab", "ab ", "b  ", each packed into 63 bits, multiplied, and cut to its highest bits
    expected = sorted(
        ((ord(x) << 42 | ord(y) << 21 | ord(z)) * 0x9E3779B97F4A7C15 % 2**64) >> (64 - BITS)
        for x, y, z in ("  a", " ab", "ab ", "b  ")
    )
    counts = trigram_counts("ab")
    assert np.flatnonzero(counts).tolist() == expected
    assert counts.sum() == 4
    assert not trigram_counts("").any()
    assert trigram_counts("\ud800 \U0010ffff").sum() == 5  # any text at all


def test_cosines_of_trigrams():
    # "aa" and "ab" have four trigrams each and share "  a": 1/√(4·4)
    similar = cosines(np.array([trigram_counts(text) for text in ("aa", "ab", "aa", "")]))
    assert similar[0].tolist() == [1, 0.25, 1, 0]
    assert similar[3].tolist() == [0, 0, 0, 0]


def test_copies_are_the_least_novel():
    found = PLAIN.credit(group_of(("1", "2+2=4"), ("1", "2+2=4"), ("1", "four, since two and two"))).rewards
    assert found[2] == 1.0
    assert found[0] == found[1] == 0.5


def test_what_was_thought_is_not_compared():
    assert compared_text("<think>long</think>so 4") == "so 4"
    assert compared_text("so 4") == "so 4"
    same = PLAIN.credit(group_of(("1", "<think>a</think>x"), ("1", "<think>bc</think>x"))).rewards
    assert same.tolist() == [0.75, 0.75]


ANSWERS = st.sampled_from(["1", "2", "3", None])


@given(st.lists(st.tuples(ANSWERS, st.text("ab ", min_size=1, max_size=6)), min_size=1, max_size=12))
def test_rewards_lie_where_their_class_puts_them(pairs):
    credit = PLAIN.credit(group_of(*pairs))
    by_class = {}
    for answer, value in zip(credit.answers, credit.rewards.tolist(), strict=True):
        low = 0.5 if answer is not None and answer == credit.labels.positive else -1.0
        assert low <= value <= low + 0.5
        assert answer is not None or value == -1
        by_class.setdefault(answer, []).append(value - low)
    for answer, values in by_class.items():
        spans = {(0.0, 0.5)} if len(values) > 1 else {(0.5, 0.5)}
        assert answer is None or (min(values), max(values)) in spans | {(0.25, 0.25)}


# What it needs


def test_texts_are_needed_and_an_empty_one_is_a_text():
    with pytest.raises(InputError, match=r"'q'.*'evol-rl'.*completion 1"):
        PLAIN.credit(Group((Completion("x", answer="1"), Completion(answer="1")), question_id="q"))
    read_elsewhere = PLAIN.credit(group_of(("1", "x"), (None, "")))
    assert read_elsewhere.rewards.tolist() == [1.0, -1.0]
    assert PLAIN.credit(Group.from_texts(["\\boxed{1}", ""])).rewards.tolist() == [1.0, -1.0]
