"""Classes of answers and entropies → Tally: counts and mean entropies; and the same with the votes of others.

Sums are exactly rounded (`math.fsum`), so that the order of the completions changes no bit of any result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import fsum, nan

from scrl.answers.classes import MISSING, Classes
from scrl.records import Tally


def count_votes(classes: Classes, entropies_G: Sequence[float] | None) -> Tally:
    """n_j, H̄_j = (1/n_j) Σ_{i: a_i = a_j} h_i and H̄ = (1/N) Σ_i h_i.                         (paper, eq. 7)"""
    members_K: list[list[int]] = [[] for _ in classes.keys_K]
    for i, j in enumerate(classes.class_of_G):
        if j != MISSING:
            members_K[j].append(i)
    return Tally(
        keys_K=classes.keys_K,
        counts_K=tuple(map(len, members_K)),
        class_of_G=classes.class_of_G,
        entropies_G=None if entropies_G is None else tuple(entropies_G),
        class_entropies_K=None if entropies_G is None else tuple(mean_at(entropies_G, at) for at in members_K),
        group_entropy=None if entropies_G is None else fsum(entropies_G) / len(entropies_G),
    )


def with_votes(tally: Tally, votes: Sequence[str | None]) -> Tally:
    """The same completions, with other votes than their own: n_j counts these, an answer without any has n_j = 0.

    `votes` are keys of answers, None for no answer. Entropies stay those of the completions.
    """
    keys_K = tuple(sorted({*tally.keys_K, *(key for key in votes if key is not None)}))
    place, counts = {key: j for j, key in enumerate(keys_K)}, Counter(votes)
    entropies_K = tally.class_entropies_K
    if entropies_K is not None:
        known = dict(zip(tally.keys_K, entropies_K, strict=True))
        entropies_K = tuple(known.get(key, nan) for key in keys_K)
    return replace(
        tally,
        keys_K=keys_K,
        counts_K=tuple(counts[key] for key in keys_K),
        class_of_G=tuple(MISSING if j == MISSING else place[tally.keys_K[j]] for j in tally.class_of_G),
        class_entropies_K=entropies_K,
        class_of_votes=tuple(MISSING if key is None else place[key] for key in votes),
    )


def mean_at(values_G: Sequence[float], members: Sequence[int]) -> float:
    """The mean of the values at these indices, exactly rounded."""
    return fsum([values_G[i] for i in members]) / len(members)
