"""From counts of right answers to numbers with an interval.

Q questions, n samples of each, c of them right. Intervals are over questions: they say how far the number could move
had other questions of the same kind been asked, not how far it moves from one draw of the samples to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scrl.errors import ConfigError
from scrl.records import Floats
from scrl.seeds import generator_for

MAJORITY_DRAWS = 1_000
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
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class SeedMean:
    """The same thing done with several seeds: the mean of their means, and how far they lie apart."""

    mean: float
    low: float
    high: float
    """The interval of the mean over questions, with these seeds."""
    least: float
    most: float
    """The means of the lowest and of the highest seed."""


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """The chance that at least one of k samples drawn without replacement is right: 1 − C(n−c, k) / C(n, k)."""
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct must be between 0 and num_samples = {num_samples}, found {num_correct}")
    _check_k(k, num_samples)
    ways = math.comb(num_samples, k)
    return (ways - math.comb(num_samples - num_correct, k)) / ways


def majority_at_k(counts_K: Sequence[int], right: int | None, num_missing: int, k: int, *, seed: int) -> float:
    """The chance that the most frequent answer among k samples drawn without replacement is the right one.

        E[ 1{v_right = max v > 0} / #{j : v_j = max v} ],   (v_1 … v_K, missing) ~ hypergeometric(counts, k)

    Classes that tie share the win; missing answers never win, and k missing answers are wrong. Exact for k = n, and for
    k = 1, where it is pass@1; between them the mean of 1,000 seeded draws, within ±0.03 (95 %). `right` is None when
    nobody gave the right answer.
    """
    _check_votes(counts_K, right, num_missing)
    _check_k(k, sum(counts_K) + num_missing)
    if right is None:
        return 0.0
    wrong = sorted(count for j, count in enumerate(counts_K) if j != right)  # their order must not matter
    pool = [counts_K[right], *wrong, num_missing]
    if k == 1:
        return pool[0] / sum(pool)
    if k == sum(pool):
        return _share_won(np.array([pool], dtype=np.int64))
    generator = generator_for(seed, "majority", k, *pool)
    return _share_won(generator.multivariate_hypergeometric(pool, k, size=MAJORITY_DRAWS))


def _share_won(drawn_DK: NDArray[np.int64]) -> float:
    """Mean over draws of the first class's share of the win; the last column counts missing answers."""
    votes_DK = drawn_DK[:, :-1]
    most_D = votes_DK.max(axis=1)
    tied_D = (votes_DK == most_D[:, None]).sum(axis=1)
    won_D = (votes_DK[:, 0] == most_D) & (most_D > 0)
    return float((won_D / tied_D).mean())


def bootstrap_interval(
    values_Q: Sequence[float] | Floats, *, seed: int, draws: int = 10_000, level: float = 0.95
) -> tuple[float, float]:
    """The percentile bootstrap of the mean over questions.

        (low, high) = quantiles (1 ∓ level) / 2 of { mean(values[q_1], …, values[q_Q]) },   q_i uniform over questions

    The order of the questions changes no bit. Equal values, and so one question alone, give an interval without width:
    then it says nothing about other questions.
    """
    if draws < 1:
        raise ConfigError(f"draws must be 1 or more, found {draws}")
    if not 0 < level < 1:
        raise ConfigError(f"level must lie between 0 and 1, such as 0.95, found {level}")
    means_D = _resampled_means(np.sort(_one_per_question(values_Q, "values_Q")), seed, draws)
    low, high = np.quantile(means_D, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _resampled_means(values_Q: Floats, seed: int, draws: int) -> Floats:
    generator = generator_for(seed, "bootstrap")
    size = len(values_Q)
    chunk = max(1, _CELLS_AT_A_TIME // size)
    chunks = [
        values_Q[generator.integers(size, size=(min(chunk, draws - start), size))].mean(axis=1)
        for start in range(0, draws, chunk)
    ]
    return np.concatenate(chunks)


def paired_difference(
    before_Q: Sequence[float] | Floats, after_Q: Sequence[float] | Floats, *, seed: int
) -> Difference:
    """mean(after − before) with its 95 % interval: value q of both is question q, and they are resampled together."""
    before = _one_per_question(before_Q, "before_Q")
    after = _one_per_question(after_Q, "after_Q")
    if len(before) != len(after):
        raise ValueError(f"before_Q has {len(before)} questions, after_Q has {len(after)}: give both the same ones")
    differences_Q = after - before
    low, high = bootstrap_interval(differences_Q, seed=seed)
    return Difference(math.fsum(differences_Q) / len(differences_Q), low, high)


def sign_flip_p_value(differences_Q: Sequence[float] | Floats, *, seed: int) -> float:
    """The two-sided p-value of a mean difference of 0: how often would random signs take it this far from 0?

        p = P( |Σ_q s_q |d_q|| ≥ |Σ_q d_q| ),   s_q = ±1 with chance ½ each

    Exact over all 2^n sign vectors for up to 20 differences that are not 0; beyond that 10,000 seeded draws, counted as
    (1 + hits) / (1 + draws), so that it is never 0. No differences at all give 1. Neither the order of the questions
    nor a swap of the two sides changes a bit.
    """
    differences = _one_per_question(differences_Q, "differences_Q")
    sizes_N = np.sort(np.abs(differences[differences != 0]))
    if not sizes_N.size:
        return 1.0
    slack = 1e-12 * math.fsum(sizes_N)  # sums that are equal on paper count as equal
    reached = abs(math.fsum(differences)) - slack
    if len(sizes_N) <= MOST_EXACT_SIGNS:
        return float((np.abs(_signed_sums(sizes_N)) >= reached).mean())
    hits = int((np.abs(_drawn_sums(sizes_N, seed)) >= reached).sum())
    return (1 + hits) / (1 + SIGN_DRAWS)


def _signed_sums(sizes_N: Floats) -> Floats:
    """The sums of all sign vectors whose first sign is +; those with − are the same with the sign turned."""
    sums = sizes_N[:1]
    for size in sizes_N[1:]:
        sums = np.concatenate([sums + size, sums - size])
    return sums


def _drawn_sums(sizes_N: Floats, seed: int) -> Floats:
    generator = generator_for(seed, "sign-flip")
    chunk = max(1, _CELLS_AT_A_TIME // len(sizes_N))
    chunks = [
        (2.0 * generator.integers(2, size=(min(chunk, SIGN_DRAWS - start), len(sizes_N))) - 1) @ sizes_N
        for start in range(0, SIGN_DRAWS, chunk)
    ]
    return np.concatenate(chunks)


def mean_over_seeds(by_question_S: Sequence[Mapping[str, float]], *, seed: int) -> SeedMean:
    """The mean of the seeds' means, with its 95 % interval clustered by question, and the spread over seeds.

        z_q = (Q / S) Σ_s value_s(q) / n_s,   mean = Σ_q z_q / Q

    over the Q questions of any seed, of which seed s has n_s. Where all S seeds have the same questions, z_q is the
    question's mean over seeds; where each has questions of its own, it is the question's value. The interval resamples
    questions: it covers that other questions could have been asked. It does NOT cover that other seeds could have been
    run: that is what `least` and `most` are for, and a handful of seeds allows no more than to look at them.
    """
    values_S = [_one_per_question(list(values.values()), "by_question_S") for values in by_question_S]
    if not values_S:
        raise ValueError("by_question_S must hold the values of one or more seeds")
    questions = sorted({name for values in by_question_S for name in values})
    scale = len(questions) / len(by_question_S)
    shares_Q = [
        scale * math.fsum(values[name] / len(values) for values in by_question_S if name in values)
        for name in questions
    ]
    means_S = [math.fsum(values) / len(values) for values in values_S]
    low, high = bootstrap_interval(shares_Q, seed=seed)
    return SeedMean(math.fsum(means_S) / len(means_S), low, high, min(means_S), max(means_S))


def _check_k(k: int, num_samples: int) -> None:
    if not 1 <= k <= num_samples:
        raise ConfigError(
            f"k must be between 1 and the number of samples ({num_samples}), found {k}: draw more samples"
        )


def _check_votes(counts_K: Sequence[int], right: int | None, num_missing: int) -> None:
    if num_missing < 0 or any(count < 0 for count in counts_K):
        raise ValueError(f"counts must be 0 or more, found {list(counts_K)} and {num_missing} missing")
    if right is not None and not 0 <= right < len(counts_K):
        raise ValueError(f"right must be None or the index of one of {len(counts_K)} classes, found {right}")


def _one_per_question(values_Q: Sequence[float] | Floats, name: str) -> Floats:
    array_Q = np.asarray(values_Q, dtype=np.float64)
    if array_Q.ndim != 1 or array_Q.size == 0:
        raise ValueError(f"{name} must hold one value for each of one or more questions, found shape {array_Q.shape}")
    if not np.isfinite(array_Q).all():
        raise ValueError(f"{name} must hold finite numbers; leave out questions without a value")
    return array_Q
