"""Chances and thresholds from checked answers: golden numbers, the guarantee by simulation."""

import math
import random
from fractions import Fraction
from itertools import accumulate

import pytest
import trust
from hypothesis import given
from hypothesis import strategies as st

from scrl.evaluation.trust import (
    Calibration,
    binomial_tail,
    choose_threshold,
    hypergeometric_tail,
    least_rate,
    lower_bound,
)


def test_tails_are_counted_exactly():
    # no wrong one among 5 drawn from 20 with 4 wrong: C(16,5)/C(20,5) = 4368/15504
    assert hypergeometric_tail(0, 5, 4, 20) == pytest.approx(4368 / 15504)
    # at most one: and C(4,1) C(16,4) = 4 · 1820 more
    assert hypergeometric_tail(1, 5, 4, 20) == pytest.approx((4368 + 7280) / 15504)
    assert hypergeometric_tail(5, 5, 4, 20) == 1
    # (4/5)^3 + 3 (1/5) (4/5)^2
    assert binomial_tail(1, 3, 0.2) == pytest.approx(0.512 + 0.384)


def exact_tails(n, rate, ks):
    """P(X ≤ k) for each k: the sum of C(n, j) a^j (b − a)^(n − j) in whole numbers, over b^n, with rate = a/b < 1."""
    a, b = rate.as_integer_ratio()
    ways = accumulate(range(n), lambda each, j: each * (n - j) * a // ((j + 1) * (b - a)), initial=(b - a) ** n)
    sums = list(accumulate(ways))
    return [float(Fraction(sums[k], b**n)) for k in ks]


@given(st.integers(1, 60), st.integers(0, 64))
def test_binomial_tails_are_those_of_exact_fractions(n, sixty_fourths):
    rate, ks = sixty_fourths / 64, range(n + 1)
    exact = exact_tails(n, Fraction(rate), ks) if rate < 1 else [0.0] * n + [1.0]
    assert [binomial_tail(k, n, rate) for k in ks] == pytest.approx(exact, rel=1e-12, abs=0)
    assert (binomial_tail(-1, n, rate), binomial_tail(n, n, rate)) == (0, 1)


@pytest.mark.parametrize(("n", "rate"), [(1_319, Fraction(1, 2)), (1_319, Fraction(1, 16)), (10_000, Fraction(1, 4))])
def test_binomial_tails_of_whole_benchmarks(n, rate):
    mean = int(n * rate)
    ks = (mean // 2, mean - 20, mean, mean + 20, (n + mean) // 2, n)
    assert [binomial_tail(k, n, float(rate)) for k in ks] == pytest.approx(exact_tails(n, rate, ks), rel=1e-11, abs=0)


def test_every_question_of_gsm8k_can_be_checked():
    # 660 of 1,319 are right; the normal approximation is 0.50038 ± 1.96 √(0.25/1319) = 0.50038 ± 0.02698
    calibration = Calibration([0.5] * 1_319, [place % 2 == 0 for place in range(1_319)])
    (step,), chance = calibration.steps, calibration.chance(0.5)
    assert step.rate == 660 / 1_319 == chance.rate
    assert (chance.low, chance.high) == pytest.approx((0.50038 - 0.02698, 0.50038 + 0.02698), abs=5e-4)
    # of 10,000 checked 100 are wrong: at a rate of 5 % there would be 500 ± 22
    choice = choose_threshold([1.0] * 20_000, {q: q % 100 > 0 for q in range(10_000)}, 0.05, is_pool=False)
    assert (choice.chosen.checked, choice.chosen.wrong) == (10_000, 100)


def test_bounds_are_clopper_and_pearsons():
    assert least_rate(0, 10, 0.025) == 0
    assert least_rate(10, 10, 0.025) == pytest.approx(0.025**0.1, abs=1e-8)  # p^10 = 0.025
    assert least_rate(5, 10, 0.025) == pytest.approx(0.187086, abs=1e-6)  # as in tables
    # the nearest 2 of 6, or all: the larger of 0.0125^(1/2) = 0.1118 and, with 4 of 6, 0.1839
    checks = [(0.9, True), (0.8, True), (0.7, False), (0.6, True), (0.5, False), (0.4, True)]
    assert lower_bound(checks) == pytest.approx(least_rate(4, 6, 0.0125))
    assert lower_bound([*checks[:2], *((share, False) for share, _ in checks[2:])]) == pytest.approx(0.0125**0.5)
    # three with the second's share go with it: 3 of 4
    assert lower_bound(
        [(0.9, True), (0.8, True), (0.8, True), (0.8, False), (0.5, False), (0.4, False)]
    ) == pytest.approx(least_rate(3, 4, 0.0125))
    assert lower_bound([]) == 0


def test_chances_rise_with_the_share():
    # 0.2: 0 of 1, 0.4: 1 of 1 and 0.6: 0 of 1 are out of order and pooled to 1 of 2, 0.8: 1 of 1
    calibration = Calibration([0.8, 0.4, 0.6, 0.2], [True, True, False, False])
    assert calibration.steps == ((0.2, 0), (0.4, 0.5), (0.8, 1))
    assert calibration.chance(0.7).rate == 0.5
    assert calibration.chance(0.1).rate == 0


@pytest.mark.parametrize("checks", [20, 100])
@pytest.mark.parametrize(
    "curve",
    [lambda x: 1 / (1 + math.exp(-12 * (x - 0.5))), lambda x: x * x, lambda x: 0.5, lambda x: 0.05 + 0.9 * (x > 0.5)],
)
def test_intervals_hold_for_every_rising_curve(curve, checks):
    """At each share, over 200 draws of the checks: at most 5 % may miss, and 19 of 200 would be a surprise."""
    rng, shares = random.Random(checks), [place / 16 for place in range(1, 17)]
    misses = dict.fromkeys(shares, 0)
    for _ in range(200):
        drawn = [rng.choice(shares) for _ in range(checks)]
        calibration = Calibration(drawn, [rng.random() < curve(share) for share in drawn])
        for share in shares[1::3]:
            _, low, high = calibration.chance(share)
            misses[share] += not low <= curve(share) <= high
    assert max(misses.values()) < 19


def test_answers_with_equal_shares_have_equal_chances():
    # right of checked: 0 of 6, 1 of 8, 2 of 4, 1 of 2; the last two are pooled to 3 of 6
    right_and_checked = {0.17: (0, 6), 0.33: (1, 8), 0.5: (2, 4), 0.67: (1, 2)}
    checks = [(share, place < k) for share, (k, n) in right_and_checked.items() for place in range(n)]
    steps = Calibration(*zip(*checks, strict=True)).steps
    assert list(steps) == [(0.17, 0), (0.33, 0.125), (0.5, 0.5)]


@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=40))
def test_calibration_is_isotonic_regression(checks):
    """By its other formula: at x the largest, over a ≤ x, of the smallest mean over a to b ≥ x."""
    calibration = Calibration([share / 8 for share, _ in checks], [right for _, right in checks])
    shares = sorted({share for share, _ in checks})

    def mean(a, b):
        rights = [right for share, right in checks if a <= share <= b]
        return sum(rights) / len(rights)

    for x in shares:
        wanted = max(min(mean(a, b) for b in shares if b >= x) for a in shares if a <= x)
        assert calibration.chance(x / 8).rate == pytest.approx(wanted)


def test_the_threshold_goes_down_until_the_first_failure():
    shares = [0.9] * 100 + [0.5] * 100
    right_above = dict.fromkeys(range(0, 100, 2), True) | dict.fromkeys(range(100, 200, 2), False)
    choice = choose_threshold(shares, right_above, max_error=0.1)
    # above 0.9: 50 of 100 checked, none wrong, U = 50, so 6 could be left: P = C(94,50)/C(100,50) = 0.0132
    assert choice.chosen.threshold == 0.9
    assert choice.chosen.p_value == pytest.approx(0.0132, abs=2e-4)
    assert choice.chosen.total - choice.chosen.checked == 50
    assert [test.threshold for test in choice.tried] == [0.9, 0.5]
    # k = 1 of those checked is found: 6 could be left of 7, P(X ≤ 1) = (C(93,50) + 7 C(93,49))/C(100,50) = 0.0559
    wrong = choose_threshold(shares, right_above | {0: False}, max_error=0.1)
    assert wrong.chosen is None
    assert wrong.tried[0].p_value == pytest.approx(0.0559, abs=2e-4)


def test_a_sequence_begins_where_one_wrong_answer_would_pass():
    # 100 distinct shares, every second question checked, limit 20 %. Of the first 40 20 are checked: with none wrong
    # 5 could be left, C(35,20)/C(40,20) = 0.024. One wrong passes of 30 in 60 (0.026), not yet of 25 in 50 (0.049)
    shares = [1 - place / 100 for place in range(100)]
    checked = dict.fromkeys(range(0, 100, 2), True)
    choice = choose_threshold(shares, checked | {0: False}, max_error=0.2)
    assert (choice.tried[0].checked, choice.tried[0].wrong) == (30, 1)
    assert choice.chosen.total - choice.chosen.checked == 50


def test_too_few_checks_are_told_how_many_could_do():
    shares = [0.9] * 100
    few = choose_threshold(shares, dict.fromkeys(range(5), True), max_error=0.1)
    assert (few.chosen, few.tried) == (None, ())
    needed = few.checks_needed
    assert choose_threshold(shares, dict.fromkeys(range(needed - 1), True), max_error=0.1).chosen is None
    assert choose_threshold(shares, dict.fromkeys(range(needed), True), max_error=0.1).chosen is not None
    # of a population more can be checked than the questions at hand: (1 − 0.2)^14 = 0.044
    few = [0.9] * 4
    assert choose_threshold(few, dict.fromkeys(range(2), True), max_error=0.2).checks_needed is None
    assert choose_threshold(few, dict.fromkeys(range(2), True), max_error=0.2, is_pool=False).checks_needed == 14


def test_more_checks_answer_more_on_stored_pools():
    """The bound is kept, and the chance that anything qualifies rises (benchmarks/trust.py has all of it)."""
    shares, right = trust.pools()["math500-1.5b"]
    few, more, most = (trust.draws(shares, right, checks, limit=0.3, number=40) for checks in (50, 100, 400))
    assert few.commits < more.commits < most.commits == 1
    assert max(few.broken, more.broken, most.broken) <= 0.1  # 4 of 40; 5 % are allowed
    # answers that are right 95 % of the time, whatever their share
    flat = [place / 500 for place in range(500)]
    few, more = (trust.draws(flat, [q % 20 > 0 for q in range(500)], checks, 0.2, 40) for checks in (20, 100))
    assert few.commits < more.commits


@pytest.mark.parametrize("is_pool", [True, False])
def test_the_error_is_larger_than_promised_in_at_most_one_run_of_twenty(is_pool):
    """100 pools of 400 questions whose errors fall with the share, 150 checked at random, at most 20 % wrong."""
    rng = random.Random(0)
    broken = answered = 0
    for _ in range(100):
        shares = [rng.randrange(1, 17) / 16 for _ in range(400)]
        right = [rng.random() < 0.4 + 0.55 * share for share in shares]
        checked = {q: right[q] for q in rng.sample(range(400), 150)}
        chosen = choose_threshold(shares, checked, 0.2, is_pool=is_pool).chosen
        if chosen is None:
            continue
        above = [q for q, share in enumerate(shares) if share >= chosen.threshold and q not in checked]
        answered += len(above)
        if is_pool:
            broken += sum(not right[q] for q in above) > 0.2 * len(above)
        else:
            rates = [0.6 - 0.55 * step / 16 for step in range(1, 17) if step / 16 >= chosen.threshold]
            broken += sum(rates) / len(rates) > 0.2
    assert broken <= 100 * 0.05 + 3 * (100 * 0.05 * 0.95) ** 0.5  # three standard deviations of a fair 5 %
    assert answered > 100 * 10
