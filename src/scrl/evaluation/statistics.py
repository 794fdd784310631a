"""From counts of right answers to numbers with an interval.

Q questions, n samples of each, c of them right. Intervals are over questions: they cover the choice of questions, not
the randomness of the samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scrl.metrics import PASS_OR_MAJ
from scrl.records import Floats
from scrl.seeds import generator_for

CONFIDENCE = 0.95
MAJORITY_DRAWS = 1_000
CLUSTERED_DRAWS = 2_000
SIGN_DRAWS = 10_000
MOST_EXACT_SIGNS = 20
_CELLS_AT_A_TIME = 1_000_000


@dataclass(frozen=True, slots=True)
class Difference:
    """after − before: its mean over questions and the interval of that mean."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        return self.low > 0 or self.high < 0


class SeedMean(NamedTuple):
    """The mean of the means of several seeds, and their spread."""

    mean: float
    low: float
    high: float
    """The interval of the mean over questions, with these seeds."""
    least: float
    most: float
    """The means of the lowest and of the highest seed."""


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that at least one of k samples drawn without replacement is right: 1 − C(n−c, k) / C(n, k)."""
    ways = math.comb(num_samples, k)
    return (ways - math.comb(num_samples - num_correct, k)) / ways


def majority_at_k(counts_K: Sequence[int], right: int | None, num_missing: int, k: int, *, seed: int) -> float:
    """The chance that the most frequent answer among k samples drawn without replacement is the right one.

        E[ 1{v_right = max v > 0} / #{j : v_j = max v} ],   (v_1 … v_K, missing) ~ hypergeometric(counts, k)

    Classes that tie share the win; missing answers never win, and k missing answers are wrong. Exact for k = n, and for
    k = 1, where it is pass@1; between them the mean of 1,000 seeded draws, within ±0.03 (95 %). `right` is None if
    no sample is right.
    """
    if right is None:
        return 0.0
    wrong = sorted(count for j, count in enumerate(counts_K) if j != right)  # their order must not matter
    pool = [counts_K[right], *wrong, num_missing]
    if k == 1:
        return pool[0] / sum(pool)
    if k == sum(pool):
        draws = np.array([pool], dtype=np.int64)
    else:
        draws = generator_for(seed, "majority", k, *pool).multivariate_hypergeometric(pool, k, size=MAJORITY_DRAWS)
    votes = draws[:, :-1]  # of each draw, by class, the right one first
    most = votes.max(axis=1)
    num_tied = (votes == most[:, None]).sum(axis=1)
    has_won = (votes[:, 0] == most) & (most > 0)
    return float((has_won / num_tied).mean())


def bootstrap_interval(values_Q: Sequence[float] | Floats, *, seed: int, draws: int = 10_000) -> tuple[float, float]:
    """The 95 % percentile bootstrap of the mean over questions.

        (low, high) = quantiles (1 ∓ 0.95) / 2 of { mean(values[q_1], …, values[q_Q]) },   q_i uniform over questions

    The order of the questions changes no bit. Equal values, or a single question, give an interval of width 0, which
    says nothing about other questions.
    """
    sorted_Q = np.sort(_one_per_question(values_Q, "values_Q"))
    size, generator = len(sorted_Q), generator_for(seed, "bootstrap")
    means = _in_chunks(draws, size, lambda number: sorted_Q[generator.integers(size, size=(number, size))].mean(axis=1))
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def clustered_interval(values: Mapping[str, Sequence[float]], *, seed: int) -> tuple[float, float]:
    """The 95 % percentile bootstrap of the mean of all values, where each question has some, or none at all.

        Σ_i Σ values[q_i] / Σ_i #values[q_i],   q_i uniform over the Q questions, i = 1 … Q

    A question's values are drawn together, since its visits are alike.
    """
    sums_Q = np.array([math.fsum(values[name]) for name in sorted(values)])
    counts_Q = np.array([len(values[name]) for name in sorted(values)], dtype=np.float64)
    size, generator = len(counts_Q), generator_for(seed, "clustered")

    def ratios(number: int) -> Floats:
        rows = generator.integers(size, size=(number, size))
        counts = counts_Q[rows].sum(axis=1)
        return np.asarray(sums_Q[rows].sum(axis=1)[counts > 0] / counts[counts > 0])

    low, high = np.quantile(_in_chunks(CLUSTERED_DRAWS, size, ratios), [0.025, 0.975])
    return float(low), float(high)


def paired_difference(
    before_Q: Sequence[float] | Floats, after_Q: Sequence[float] | Floats, *, seed: int
) -> Difference:
    """mean(after − before) with its 95 % interval: value q of both is question q, and they are resampled together."""
    before, after = _one_per_question(before_Q, "before_Q"), _one_per_question(after_Q, "after_Q")
    if len(before) != len(after):
        raise ValueError(f"before_Q has {len(before)} questions, after_Q has {len(after)}: give both the same ones")
    differences_Q = after - before
    low, high = bootstrap_interval(differences_Q, seed=seed)
    return Difference(math.fsum(differences_Q) / len(differences_Q), low, high)


def sign_flip_p_value(differences_Q: Sequence[float] | Floats, *, seed: int) -> float:
    """The two-sided p-value of a mean difference of 0: how often random signs take it this far from 0.

        p = P( |Σ_q s_q |d_q|| ≥ |Σ_q d_q| ),   s_q = ±1 with chance ½ each

    Exact over all 2^n sign vectors for up to 20 differences that are not 0; beyond that 10,000 seeded draws, counted as
    (1 + hits) / (1 + draws), so that it is never 0. No differences at all give 1. Neither the order of the questions
    nor a swap of the two sides changes a bit.
    """
    differences = _one_per_question(differences_Q, "differences_Q")
    sizes = np.sort(np.abs(differences[differences != 0]))
    if not sizes.size:
        return 1.0
    slack = 1e-12 * math.fsum(sizes)  # sums that are equal on paper count as equal
    reached = abs(math.fsum(differences)) - slack
    if len(sizes) <= MOST_EXACT_SIGNS:
        sums = sizes[:1]  # with the first sign +; by symmetry, − gives the same absolute sums
        for size in sizes[1:]:
            sums = np.concatenate([sums + size, sums - size])
        return float((np.abs(sums) >= reached).mean())
    width, generator = len(sizes), generator_for(seed, "sign-flip")
    sums = _in_chunks(SIGN_DRAWS, width, lambda number: (2.0 * generator.integers(2, size=(number, width)) - 1) @ sizes)
    return (1 + int((np.abs(sums) >= reached).sum())) / (1 + SIGN_DRAWS)


def _in_chunks(draws: int, width: int, draw: Callable[[int], Floats]) -> Floats:
    """`draw(number)` repeated until there are `draws` values, each of which needs `width` cells of memory."""
    chunk = max(1, _CELLS_AT_A_TIME // width)
    return np.concatenate([draw(min(chunk, draws - start)) for start in range(0, draws, chunk)])


def mean_over_seeds(by_seed: Sequence[Mapping[str, float]], *, seed: int) -> SeedMean:
    """The mean of the seeds' means, with its 95 % interval clustered by question, and the spread over seeds.

    The interval resamples questions (`question_means`) and covers their choice. It does NOT cover the choice of seeds:
    for that see `least` and `most`, as a handful of seeds allows no more.
    """
    arrays = [_one_per_question(list(values.values()), "by_seed") for values in by_seed]
    if not arrays:
        raise ValueError("by_seed must hold the values of one or more seeds")
    means = [math.fsum(values_Q) / len(values_Q) for values_Q in arrays]
    low, high = bootstrap_interval(list(question_means(by_seed).values()), seed=seed)
    return SeedMean(math.fsum(means) / len(means), low, high, min(means), max(means))


def question_means(by_seed: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A value of each question of any seed, such that their mean is the mean of the seeds' means.

        z_q = (Q / S) Σ_s value_s(q) / n_s,   mean = Σ_q z_q / Q

    over the Q questions of any seed, of which seed s has n_s. If all S seeds have the same questions, z_q is the
    question's mean over seeds; if each has different ones, equally many, it is the question's value.
    """
    questions = sorted({name for values in by_seed for name in values})
    scale = len(questions) / len(by_seed)
    return {
        name: scale * math.fsum(values[name] / len(values) for values in by_seed if name in values)
        for name in questions
    }


def _one_per_question(values_Q: Sequence[float] | Floats, name: str) -> Floats:
    array_Q = np.asarray(values_Q, dtype=np.float64)
    if array_Q.ndim != 1 or array_Q.size == 0:
        raise ValueError(f"{name} must hold one value for each of one or more questions, found shape {array_Q.shape}")
    if not np.isfinite(array_Q).all():
        raise ValueError(f"{name} must hold finite numbers; leave out questions without a value")
    return array_Q


TRANSITIONS = {"learned": (False, True), "kept": (True, True), "lost": (True, False), "never right": (False, False)}
"""Whether the majority was right before and after."""
TIES = "a tie of two counts as right here, as half in maj@k"
"""How `majority_transitions` counts, for readers who see its numbers beside maj@k."""


def majority_transitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int] | None:
    """How many questions were learned, kept, lost and never right, by maj@k with the largest k that both have, if any.

    Values are chances that the majority is right: a tie of two counts as right, one of three does not.
    """
    names = [key.removesuffix("_by_question") for key in before if key.endswith("_by_question") and key in after]
    votes = [(int(match[2]), name) for name in names if (match := PASS_OR_MAJ.fullmatch(name)) and match[1] == "maj"]
    if not votes:
        return None
    key = f"{max(votes)[1]}_by_question"
    pairs = [(value, after[key][name]) for name, value in before[key].items() if name in after[key]]
    changes = Counter((first >= 0.5, last >= 0.5) for first, last in pairs)
    return {name: changes[change] for name, change in TRANSITIONS.items()}
