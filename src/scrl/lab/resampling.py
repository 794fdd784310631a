"""Labels under other draws of the same completions: how much of a label is luck?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scrl.answers.classes import MISSING
from scrl.lab.stored_groups import StoredGroup
from scrl.seeds import generator_for

Counts = NDArray[np.int64]


class TopVotes(NamedTuple):
    """The votes of groups, as far as a label looks at them: arrays of one shape."""

    winner: Counts
    """The class with the most votes, ties going to the smallest key; MISSING without an answer."""
    first: Counts
    second: Counts
    """The two largest counts."""


def top_votes(groups: Sequence[StoredGroup]) -> TopVotes:
    """The votes as they were given: arrays of one number per group."""
    tops = [_top(np.array([stored.tally.counts_K], dtype=np.int64)) for stored in groups]
    return TopVotes(*(np.concatenate(arrays) for arrays in zip(*tops, strict=True)))


def resampled_votes(groups: Sequence[StoredGroup], draws: int, *, seed: int) -> TopVotes:
    """N of N completions drawn with replacement, [draws, groups]: what another sample of the model may look like."""
    tops = []
    for stored in groups:
        pool = np.array([*stored.tally.counts_K, stored.tally.num_missing], dtype=np.int64)
        generator = generator_for(seed, "resampled", stored.group.step, stored.question_id)
        tops.append(_top(generator.multinomial(pool.sum(), pool / pool.sum(), draws)[:, :-1]))
    return TopVotes(*(np.stack(arrays, axis=1) for arrays in zip(*tops, strict=True)))


def _top(counts_nK: Counts) -> TopVotes:
    """The votes of each row of counts; classes are in the order of their keys, so of several largest the first wins."""
    padded = np.concatenate([counts_nK, np.zeros((len(counts_nK), 2), dtype=np.int64)], axis=1)
    ordered = np.sort(padded, axis=1)
    first = ordered[:, -1]
    return TopVotes(np.where(first > 0, padded.argmax(axis=1), MISSING), first, ordered[:, -2])
