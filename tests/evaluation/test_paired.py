"""The sign-flip test and the mean over seeds: against enumeration, by hand, and what holds always."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrl.evaluation.statistics import bootstrap_interval, mean_over_seeds, sign_flip_p_value

# Eighths, so that sums are exact and ties are real
EIGHTHS = st.lists(st.integers(-8, 8).map(lambda number: number / 8), min_size=1, max_size=9)


def p_by_enumeration(differences):
    reached = abs(sum(differences))
    signs = list(product((1, -1), repeat=len(differences)))
    hits = sum(abs(sum(s * d for s, d in zip(row, differences, strict=True))) >= reached - 1e-9 for row in signs)
    return hits / len(signs)


@pytest.mark.parametrize(("differences", "expected"), [
    ([0.5], 1.0),  # one question: either sign goes as far
    ([0.5, 0.25], 0.5),  # 0.75 is reached by ++ and −−, 2 of 4
    ([0.5, -0.25], 1.0),  # every sign vector goes 0.25 or further
    ([0.1] * 5, 2 / 32),  # only all + and all −
    ([0.1] * 5 + [0.0] * 50, 2 / 32),  # what did not change says nothing
    ([0.2, 0.1, 0.1], 2 / 8),  # 0.4 is reached by +++ and −−−
    ([0.0, 0.0], 1.0),
])  # fmt: skip
def test_p_value_by_hand(differences, expected):
    assert sign_flip_p_value(differences, seed=0) == expected


@given(EIGHTHS)
def test_p_value_agrees_with_all_sign_vectors(differences):
    assert sign_flip_p_value(differences, seed=0) == p_by_enumeration(differences)


def test_sums_that_tie_on_paper_tie_in_floating_point():
    # With + before 0.7 the others make 0.6, 0.4, 0.2, 0, 0, −0.2, −0.4, −0.6, and 0.7 is reached by those that are not
    # negative: 5 of 8. In floating point 0.1 + 0.2 − 0.3 is 5.6e-17 and 0.3 − 0.1 − 0.2 is negative.
    assert sign_flip_p_value([0.1, 0.2, -0.3, 0.7], seed=0) == 5 / 8


def test_twenty_questions_are_still_exact_and_more_are_drawn():
    sizes = np.linspace(0.05, 1, 21)
    differences = np.where(np.arange(21) % 3 == 0, -1, 1) * sizes
    exact = sign_flip_p_value(differences[:20], seed=0)
    assert exact == sign_flip_p_value(differences[:20], seed=1)
    assert exact * 2**20 == round(exact * 2**20)
    drawn = [sign_flip_p_value(differences, seed=seed) for seed in range(3)]
    # 21 by enumeration: fix one sign by symmetry, then 2²⁰ sums
    sums = np.array([sizes[0]])
    for size in sizes[1:]:
        sums = np.concatenate([sums + size, sums - size])
    whole = (np.abs(sums) >= abs(differences.sum()) - 1e-9).mean()
    assert drawn == pytest.approx([whole] * 3, abs=4 * math.sqrt(whole * (1 - whole) / 10_000))
    assert len(set(drawn)) > 1


def test_a_p_value_of_draws_is_never_zero():
    assert sign_flip_p_value([1.0] * 100, seed=0) == 1 / 10_001  # no draw in 2⁹⁹ goes as far


def test_many_questions_are_drawn_in_chunks(monkeypatch):
    monkeypatch.setattr("scrl.evaluation.statistics._CELLS_AT_A_TIME", 30_000)  # 999 draws of 30 at a time, and 10
    assert sign_flip_p_value([0.5, -0.5] * 15, seed=0) == 1.0  # the sum is 0, which every draw reaches


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.data())
@settings(max_examples=60)
def test_p_value_knows_no_order_and_no_side(differences, data):
    p_value = sign_flip_p_value(differences, seed=3)
    assert 0 < p_value <= 1
    assert p_value == sign_flip_p_value(data.draw(st.permutations(differences)), seed=3)
    assert p_value == sign_flip_p_value([-difference for difference in differences], seed=3)


def test_p_values_of_pure_chance_are_spread_evenly():
    rng = np.random.default_rng(0)
    found = np.array([sign_flip_p_value(rng.normal(size=12), seed=0) for _ in range(400)])
    # P(p ≤ 0.05) ≤ 0.05; four standard errors of 400 trials: 4 · √(0.05 · 0.95 / 400) = 0.044
    assert (found <= 0.05).mean() < 0.05 + 0.044
    assert found.mean() == pytest.approx(0.5, abs=0.06)


# Several seeds


def test_seeds_with_the_same_questions_are_clustered_by_question():
    # q1: (0 + 1)/2 = ½, q2: (½ + ½)/2 = ½: every question has ½, so no choice of questions moves the mean
    found = mean_over_seeds([{"q1": 0.0, "q2": 0.5}, {"q2": 0.5, "q1": 1.0}], seed=0)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    assert (found.least, found.most) == (0.25, 0.75)  # (0 + ½)/2 and (1 + ½)/2: what the interval does not cover


def test_seeds_with_questions_of_their_own_are_put_together():
    first, second = {f"a{n}": n / 10 for n in range(8)}, {f"b{n}": n / 20 for n in range(8)}
    found = mean_over_seeds([first, second], seed=5)
    assert found.mean == pytest.approx((0.35 + 0.175) / 2)  # (0 + … + 7)/80 and half of it
    together = bootstrap_interval([*first.values(), *second.values()], seed=5)
    assert (found.low, found.high) == pytest.approx(together, abs=1e-12)


def test_questions_that_only_some_seeds_have_keep_the_mean_of_the_means():
    found = mean_over_seeds([{"q1": 0.0, "q2": 1.0}, {"q2": 0.5}], seed=0)
    assert found.mean == 0.5  # (½ + ½) / 2
    assert (found.least, found.most) == (0.5, 0.5)
    # z₁ = (2/2)(0/2) = 0, z₂ = (2/2)(1/2 + 0.5/1) = 1: mean ½
    assert (found.low, found.high) == (0.0, 1.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10), st.integers(1, 4))
@settings(max_examples=40)
def test_the_same_values_again_narrow_nothing(values, times):
    by_question = {str(number): value for number, value in enumerate(values)}
    found = mean_over_seeds([by_question] * times, seed=0)
    assert (found.low, found.high) == pytest.approx(bootstrap_interval(values, seed=0), abs=1e-12)
    assert found.least == found.most == pytest.approx(found.mean, abs=1e-12)


@pytest.mark.parametrize(("function", "values", "words"), [
    (sign_flip_p_value, [], "one or more questions"), (sign_flip_p_value, [float("nan")], "finite"),
    (mean_over_seeds, [], "one or more seeds"), (mean_over_seeds, [{}], "one or more questions"),
])  # fmt: skip
def test_values_are_checked(function, values, words):
    with pytest.raises(ValueError, match=words):
        function(values, seed=0)
