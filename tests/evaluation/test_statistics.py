"""pass@k, maj@k and intervals: golden numbers by hand, and what holds for every count."""

import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from scrl.evaluation.statistics import (
    bootstrap_interval,
    majority_at_k,
    mean_over_seeds,
    paired_difference,
    pass_at_k,
    sign_flip_p_value,
)
from scrl.seeds import generator_for

COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)
VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


# pass@k


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 2, 0.5),  # 1 − C(3,2)/C(4,2) = 1 − 3/6
        (5, 2, 2, 0.7),  # 1 − C(3,2)/C(5,2) = 1 − 3/10
        (10, 3, 4, 5 / 6),  # 1 − C(7,4)/C(10,4) = 1 − 35/210
        (4, 0, 4, 0.0),
        (4, 1, 4, 1.0),  # all four are drawn
        (4, 3, 2, 1.0),  # two of one wrong sample cannot be drawn
    ],
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


@given(st.integers(1, 300), st.data())
def test_pass_at_1_is_the_share_of_right_samples_and_pass_at_k_rises(n, data):
    c = data.draw(st.integers(0, n))
    assert pass_at_k(n, c, 1) == c / n
    k = data.draw(st.integers(1, n))
    assert 0 <= pass_at_k(n, c, 1) <= pass_at_k(n, c, k) <= pass_at_k(n, c, n) == float(c > 0)
    assert pass_at_k(n, c, max(1, k - 1)) <= pass_at_k(n, c, k)
    assert pass_at_k(2 * n, 2 * c, 1) == pass_at_k(n, c, 1)  # every sample twice


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_agrees_with_all_subsets(n):
    for c, k in product(range(n + 1), range(1, n + 1)):
        samples = [True] * c + [False] * (n - c)
        chosen = [any(subset) for subset in combinations(samples, k)]
        assert pass_at_k(n, c, k) == pytest.approx(sum(chosen) / len(chosen), abs=1e-15), (c, k)


# maj@k


@pytest.mark.parametrize(
    ("counts", "right", "missing", "expected"),
    [
        ([3, 1], 0, 0, 1.0),
        ([3, 1], 1, 0, 0.0),
        ([2, 2, 1], 1, 0, 1 / 2),  # a tie of two is shared
        ([1, 1, 1], 2, 5, 1 / 3),  # more missing than anything else, and missing never wins
        ([2, 1], None, 0, 0.0),  # nobody gave the right answer
        ([0], 0, 4, 0.0),  # all missing is wrong
        ([], None, 4, 0.0),
    ],
)
def test_majority_of_all_samples_is_exact(counts, right, missing, expected):
    assert majority_at_k(counts, right, missing, sum(counts) + missing, seed=0) == expected


def majority_by_enumeration(counts, right, missing, k):
    """Every choice of k of the n samples, ties shared."""
    samples = [j for j, count in enumerate(counts) for _ in range(count)] + [None] * missing
    wins = []
    for chosen in combinations(samples, k):
        votes = Counter(answer for answer in chosen if answer is not None)
        best = [answer for answer, count in votes.items() if count == max(votes.values())]
        wins.append((right in best) / max(1, len(best)))
    return sum(wins) / len(wins)


def test_majority_by_hand():
    # A A B, two drawn: AA (1 way) wins, AB (2 ways) is a tie: (1 + 2·½) / 3 = 2/3
    assert majority_by_enumeration([2, 1], 0, 0, 2) == pytest.approx(2 / 3)
    assert majority_at_k([2, 1], 0, 0, 2, seed=0) == pytest.approx(2 / 3, abs=0.03)
    # A A and one missing, one drawn: A is drawn 2 times of 3
    assert majority_at_k([2], 0, 1, 1, seed=0) == 2 / 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("counts", "right", "missing", "k"),
    [([5, 3, 2], 0, 2, 4), ([5, 3, 2], 1, 2, 5), ([4, 4, 1], 2, 0, 3), ([1, 1, 1, 1], 3, 4, 2), ([3, 6], 0, 3, 8)],
)
def test_majority_agrees_with_enumeration(counts, right, missing, k, seed):
    exact = majority_by_enumeration(counts, right, missing, k)
    error = 4 * np.sqrt(0.25 / 1_000)  # four standard errors of 1,000 draws
    assert majority_at_k(counts, right, missing, k, seed=seed) == pytest.approx(exact, abs=error)


@given(COUNTS, st.integers(0, 5), st.data())
@settings(max_examples=60)
def test_majority_is_a_chance_and_knows_no_order(counts, missing, data):
    n = sum(counts) + missing
    assume(n > 0)
    right = data.draw(st.none() | st.integers(0, len(counts) - 1))
    k = data.draw(st.integers(1, n))
    value = majority_at_k(counts, right, missing, k, seed=1)
    assert 0 <= value <= 1
    assert value == majority_at_k(counts, right, missing, k, seed=1)
    order = data.draw(st.permutations(range(len(counts))))
    place = None if right is None else list(order).index(right)
    assert value == majority_at_k([counts[j] for j in order], place, missing, k, seed=1)
    num_correct = 0 if right is None else counts[right]
    assert majority_at_k(counts, right, missing, 1, seed=0) == pass_at_k(n, num_correct, 1)


@given(COUNTS.filter(any), st.integers(0, 5), st.data())
def test_the_classes_share_the_whole_win_and_doubling_all_votes_changes_nothing(counts, missing, data):
    n = sum(counts) + missing
    values = [majority_at_k(counts, j, missing, n, seed=0) for j in range(len(counts))]
    assert sum(values) == pytest.approx(1)
    right = data.draw(st.integers(0, len(counts) - 1))
    doubled = majority_at_k([2 * count for count in counts], right, 2 * missing, 2 * n, seed=0)
    assert doubled == values[right]


# Intervals


def test_interval_of_coin_flips():
    # 50 of 100 right: the mean has standard deviation √(0.25 / 100) = 0.05, so 0.5 ± 1.96 · 0.05 = [0.402, 0.598]
    low, high = bootstrap_interval([0.0, 1.0] * 50, seed=0)
    assert (low, high) == (pytest.approx(0.402, abs=0.011), pytest.approx(0.598, abs=0.011))


def test_interval_of_two_questions():
    # Means are 0, ½, 1 with chances ¼, ½, ¼: the 95 % interval is [0, 1], the 40 % one (quantiles 0.3 and 0.7) [½, ½]
    assert bootstrap_interval([0.0, 1.0], seed=0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("shape", "questions", "covered", "above"),  # of 4,000 sets: 91.0 and 8.0, 93.6 and 4.9, 93.1 and 4.6 in 100
    [((0.15, 1.35), 30, (86, 95), (4.5, 12)), ((0.15, 1.35), 83, (89.5, 97), (2, 8)), ((0.4, 0.8), 30, (89, 97), (2, 8))],
)  # fmt: skip
def test_how_often_an_interval_holds_the_mean(shape, questions, covered, above):
    """Of 400 sets of questions with 16 samples; the shares have a standard error of about 1.3 in 100."""
    generator, mean = generator_for(0, "coverage", *map(str, shape), questions), shape[0] / sum(shape)
    missed = {"below": 0, "above": 0}
    for number in range(400):
        values_Q = generator.binomial(16, generator.beta(shape[0], shape[1], questions)) / 16
        low, high = bootstrap_interval(values_Q, seed=number, draws=500)
        missed["below"] += mean < low
        missed["above"] += mean > high
    assert covered[0] < 100 - sum(missed.values()) / 4 < covered[1]
    assert above[0] < missed["above"] / 4 < above[1]


@given(VALUES, st.integers(0, 5), st.data())
@settings(max_examples=60)
def test_interval_lies_within_the_values_and_knows_no_order(values, seed, data):
    low, high = bootstrap_interval(values, seed=seed, draws=100)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12
    shuffled = data.draw(st.permutations(values))
    assert bootstrap_interval(shuffled, seed=seed, draws=100) == (low, high)
    equal = bootstrap_interval(values[:1] * len(values), seed=0, draws=50)
    assert equal == pytest.approx((values[0], values[0]), abs=1e-12)


# Differences


def test_pairing_takes_the_spread_between_questions_out():
    before = np.linspace(0, 0.9, 40)
    found = paired_difference(before, before + 0.1, seed=0)  # each question gains 0.1: no spread at all
    assert (found.mean, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1))
    assert found.is_clear


def test_difference_by_hand():
    # one question gains 1, three stay: mean ¼. A resample of four misses the gain with chance (3/4)⁴ = 0.32 > 2.5 %
    found = paired_difference([0, 0, 0, 0], [1, 0, 0, 0], seed=0)
    assert (found.mean, found.low, found.high) == (0.25, 0.0, 0.75)  # 4 of 4 gains: 1/256; 3 or more: 13/256 > 2.5 %
    assert not found.is_clear


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20), st.data())
@settings(max_examples=25)
def test_difference_knows_no_order(pairs, data):
    shuffled = data.draw(st.permutations(pairs))
    found = paired_difference(*zip(*pairs, strict=True), seed=3)
    assert found == paired_difference(*zip(*shuffled, strict=True), seed=3)
    assert found.low - 1e-12 <= found.mean <= found.high + 1e-12 or len(pairs) > 1  # one question: no width


# What is refused


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bootstrap_interval([], seed=0), "one or more questions"),
        (lambda: bootstrap_interval([[0.5]], seed=0), r"shape \(1, 1\)"),
        (lambda: bootstrap_interval([0.5, float("nan")], seed=0), "finite numbers"),
        (lambda: paired_difference([0.1, 0.2], [0.3], seed=0), "before_Q"),
        (lambda: paired_difference([0.1], [], seed=0), "after_Q"),
    ],
)
def test_values_are_checked(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# The sign-flip test, and the mean over seeds

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
def test_values_of_seeds_are_checked(function, values, words):
    with pytest.raises(ValueError, match=words):
        function(values, seed=0)
