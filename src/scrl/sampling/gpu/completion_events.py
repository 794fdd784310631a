"""Completions that are told of as they end, while others are still being written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scrl.device_copy import HostCopy, host_copy
from scrl.records import Tokens
from scrl.sampling.gpu.kv_cache import Arena
from scrl.sampling.sampler import OnGroup

OnEnded = Callable[[int, Tokens], None]
"""(job, its tokens): a completion has ended, and others may not have."""

TOLD_AT = (1 / 2, 3 / 4, 7 / 8)
"""Shares of a group's completions at whose ends it is told of. Nearly every group has one that is written to the limit,
so whole groups come too late to be read meanwhile. What is left is halved each time: an eighth is new at last, and a
completion that ends early is read four times."""


class Endings:
    """Tells of each completion that has ended, once, and does not wait for the device on the way."""

    def __init__(self, arena: Arena, on_ended: OnEnded | None) -> None:
        """Where nobody listens nothing is done."""
        self._arena = arena
        self._on_ended = on_ended
        self._seen: set[int] = set()
        self._lengths: dict[int, int] = {}
        self._tokens_RT: HostCopy | None = None

    def look(self, lengths: Mapping[int, int]) -> None:
        """Ask for the tokens of jobs that have ended, so many each; tell of those that were asked for last time."""
        if self._on_ended is None:
            return
        self._tell(self._on_ended)
        self._lengths = {job: length for job, length in lengths.items() if job not in self._seen}
        self._seen |= self._lengths.keys()
        if self._lengths:
            longest = max(self._lengths.values())
            self._tokens_RT = host_copy(self._arena.tokens_of(list(self._lengths), longest))

    def _tell(self, on_ended: OnEnded) -> None:
        if self._tokens_RT is None:
            return
        tokens_RT = self._tokens_RT.get().numpy().astype(np.int64)
        for (job, length), tokens_T in zip(self._lengths.items(), tokens_RT, strict=True):
            on_ended(job, tokens_T[:length])
        self._tokens_RT = None


class GrowingGroups:
    """The texts of completions that have ended, and a listener who hears of groups as they grow."""

    def __init__(self, groups: int, size: int, on_group: OnGroup) -> None:
        """Completions are numbered through all groups, `size` of them each."""
        self.texts: dict[int, str] = {}
        self._ended_B = [0] * groups
        self._size = size
        self._told_at = {*(math.ceil(share * size) for share in TOLD_AT), size}
        self._on_group = on_group

    def add(self, job: int, text: str) -> None:
        """A completion has ended."""
        self.texts[job] = text
        place = job // self._size
        self._ended_B[place] += 1
        if self._ended_B[place] in self._told_at:
            self._on_group(place, [self.texts[job] for job in self._jobs(place) if job in self.texts])

    def finish(self, texts: Sequence[str]) -> None:
        """All are written: tell of the groups that were never whole."""
        for place, ended in enumerate(self._ended_B):
            if ended < self._size:
                self._on_group(place, [texts[job] for job in self._jobs(place)])

    def _jobs(self, place: int) -> range:
        return range(place * self._size, (place + 1) * self._size)
