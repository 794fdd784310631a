"""How far to trust an answer, from the checked answers of a random subset of the same questions.

A question's *share* is the fraction of its completions that give the answer with most votes. `Calibration` turns shares
into chances of being right. `choose_threshold` answers as many of the unchecked questions as it can while their error
rate stays at most α with 95 % confidence, for the pool at hand or for the population it was drawn from:

* *Pool.* Above a threshold are N questions, n of them checked, k of those wrong, U = N − n unchecked. Given n, the
  checked ones are a random subset. If more than αU wrong answers are left, at least ⌊αU⌋ + 1 + k of the N are wrong;
  the threshold passes if so few as k of these among the checked are rare: P(X ≤ k) small, X hypergeometric. What was
  checked is not counted against the limit.
* *Population.* If the error rate above the threshold exceeds α, P(X ≤ k) is that of X binomial (n, α).
* *Sequence.* Thresholds come from the shares and from which were checked, never from what the checks say. They are
  tried in falling order, each at 4.5 %, until the first that fails. The sequence begins where one wrong answer among
  the checks would pass: above, a single mistake would end it, and more checks would only move its beginning up. Where
  that takes twice the checks, it begins where none would pass.

For a population this is fixed-sequence testing, and 4.5 % bounds the whole. Of a pool, how many wrong answers are left
depends on the draw itself, and thresholds add up: `benchmarks/trust.py --worst` looks for the places of wrong answers
that break the promise most often, and finds 4.7 %.

The tails are summed here because nothing else needs SciPy, which would be 100 MB for two sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate, groupby, islice
from operator import itemgetter
from typing import NamedTuple

MAX_THRESHOLDS = 20
ERROR_RATE = 0.05
TEST_LEVEL = 0.045
"""The level of each test, with which the whole stays at `ERROR_RATE`."""
_TOLERANCE = 1e-9
Check = tuple[float, bool]
"""The share of a checked answer, and whether it is right."""


class Step(NamedTuple):
    """Answers with at least this share are right at this rate."""

    share: float
    rate: float


class Chance(NamedTuple):
    """The chance that an answer is right, and its 95 % interval."""

    rate: float
    low: float
    high: float


class Calibration:
    """Shares → chances of being right, from checks.

    The rate is that of the rising step function closest to the checks. Its interval assumes only that p(x), the chance
    at share x, rises with x. None of the checks at or below x then has a chance above p(x), so the rate at which they
    are right bounds p(x) from below: `low` is the larger of two Clopper–Pearson bounds, from the nearest third of these
    checks and from all of them, each at 1.25 %. The checks at or above x bound p(x) from above in the same way.
    """

    def __init__(self, shares_n: Sequence[float], rights_n: Sequence[bool]) -> None:
        self._checks = sorted(zip(shares_n, rights_n, strict=True))
        self.steps = rising_steps(self._checks)
        self.chance = cache(self._chance)

    def _chance(self, share: float) -> Chance:
        """Of an answer with this share; below all checks the rate is the lowest step's, if anything too high."""
        rate = next((step.rate for step in reversed(self.steps) if share >= step.share), self.steps[0].rate)
        below = [check for check in reversed(self._checks) if check[0] <= share]
        above = [(each, not right) for each, right in self._checks if each >= share]
        return Chance(rate, min(lower_bound(below), rate), max(1 - lower_bound(above), rate))


def rising_steps(checks: Sequence[Check]) -> tuple[Step, ...]:
    """The rising step function closest to what was checked (pool adjacent violators); shares in rising order."""
    pools: list[tuple[float, int, int]] = []  # (lowest share, right, checked)
    for share, same in groupby(checks, key=itemgetter(0)):
        rights = [right for _, right in same]
        pools.append((share, sum(rights), len(rights)))
        while len(pools) > 1 and pools[-2][1] / pools[-2][2] >= pools[-1][1] / pools[-1][2]:
            (_, right_above, checked_above), (lowest, right, checked) = pools.pop(), pools.pop()
            pools.append((lowest, right + right_above, checked + checked_above))
    return tuple(Step(share, k / n) for share, k, n in pools)


def lower_bound(checks: Sequence[Check]) -> float:
    """A bound, at 97.5 %, for a rate that no check exceeds; the nearest come first, and equal shares stay together."""
    nearest = -(-len(checks) // 3)
    while 0 < nearest < len(checks) and checks[nearest][0] == checks[nearest - 1][0]:
        nearest += 1
    sizes = {nearest, len(checks)}
    return max(least_rate(sum(right for _, right in checks[:n]), n, ERROR_RATE / 2 / len(sizes)) for n in sizes)


@cache
def least_rate(k: int, n: int, level: float) -> float:
    """Clopper–Pearson: the rate at which k or more of n are as rare as `level`; 0 if k is."""
    low, high = 0.0, 1.0 if k else 0.0
    while high - low > _TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - binomial_tail(k - 1, n, middle) < level else (low, middle)
    return (low + high) / 2


def binomial_tail(k: int, n: int, rate: float) -> float:
    """P(X ≤ k), X binomial (n, rate).

        P(X = j + 1) / P(X = j) = (n − j) / (j + 1) · rate / (1 − rate)

    So each chance is known relative to the largest, and all of them sum to 1; C(n, j) itself overflows for n > 1,029.
    """
    mode = min(n, math.floor((n + 1) * rate))
    below = accumulate(range(mode, 0, -1), lambda p, j: p * j * (1 - rate) / ((n - j + 1) * rate), initial=1.0)
    above = accumulate(range(mode, n), lambda p, j: p * (n - j) * rate / ((j + 1) * (1 - rate)), initial=1.0)
    relative = [*reversed(list(below)), *islice(above, 1, None)]
    return math.fsum(relative[: k + 1]) / math.fsum(relative)


@cache
def hypergeometric_tail(k: int, n: int, wrong: int, total: int) -> float:
    """P(X ≤ k), X the number of wrong answers among n drawn from `total`, of which `wrong` are."""
    ways = sum(math.comb(wrong, j) * math.comb(total - wrong, n - j) for j in range(min(k, n) + 1))
    return float(Fraction(ways, math.comb(total, n)))


@dataclass(frozen=True, slots=True)
class Test:
    """One threshold: what is above it, and how surprising so few wrong answers would be under the hypothesis."""

    threshold: float
    total: int
    checked: int
    wrong: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The lowest threshold that holds, with all that were tried; None: no threshold does."""

    chosen: Test | None
    tried: tuple[Test, ...]
    checks_needed: int | None
    """Where nothing can be tried: the fewest checks with which something could; None if not within the pool."""


def choose_threshold(
    shares_Q: Sequence[float], checked: Mapping[int, bool], max_error: float, *, is_pool: bool = True
) -> Choice:
    """The largest set of unchecked questions whose error rate is at most `max_error`; `checked`: question → right."""
    tests = []
    for threshold in _thresholds(shares_Q):
        above = [q for q, share in enumerate(shares_Q) if share >= threshold]
        rights = [checked[q] for q in above if q in checked]
        total, n, wrong = len(above), len(rights), rights.count(False)
        tests.append(Test(threshold, total, n, wrong, _p_value(total, n, wrong, max_error, is_pool)))
    begin = _begin([(test.total, test.checked) for test in tests], max_error, is_pool)
    if begin is None:
        return Choice(None, (), _checks_needed(tests, len(checked), len(shares_Q), max_error, is_pool))
    last = next((place for place in range(begin, len(tests)) if tests[place].p_value > TEST_LEVEL), len(tests))
    return Choice(tests[last - 1] if last > begin else None, tuple(tests[begin : last + 1]), None)


def _begin(sizes: Sequence[tuple[int, int]], max_error: float, is_pool: bool) -> int | None:
    """The threshold with which to begin; `sizes`: the questions above each, and how many of them are checked."""

    def first_that_passes(wrong: int) -> int | None:
        passing = (_p_value(total, n, wrong, max_error, is_pool) <= TEST_LEVEL for total, n in sizes)
        return next((place for place, passes in enumerate(passing) if passes), None)

    none, one = first_that_passes(0), first_that_passes(1)
    return one if none is not None and one is not None and sizes[one][1] < 2 * sizes[none][1] else none


def _checks_needed(tests: Sequence[Test], checks: int, questions: int, max_error: float, is_pool: bool) -> int | None:
    """The fewest checks with which a sequence could begin; more cannot be promised, since nobody knows the errors."""
    for more in range(checks + 1, questions if is_pool else 1_000):
        if _begin([(t.total, round(more * t.total / questions)) for t in tests], max_error, is_pool) is not None:
            return more
    return None


def _thresholds(shares_Q: Sequence[float]) -> list[float]:
    """At most twenty shares, falling, with about as many questions between each two; they depend on no label."""
    ordered = sorted(shares_Q, reverse=True)
    places = (math.ceil(len(ordered) * step / MAX_THRESHOLDS) - 1 for step in range(1, MAX_THRESHOLDS + 1))
    return sorted({ordered[place] for place in places if place >= 0}, reverse=True)


def _p_value(total: int, checked: int, wrong: int, max_error: float, is_pool: bool) -> float:
    if wrong > checked or (is_pool and checked == total):  # there are none to look at, or none left to answer
        return 1.0
    if not is_pool:
        return binomial_tail(wrong, checked, max_error)
    left = math.floor(max_error * (total - checked) + _TOLERANCE) + 1
    return hypergeometric_tail(wrong, checked, left + wrong, total)
