"""Events for completions that end while others are still being decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scrl.device_copy import HostCopy, copy_to_host
from scrl.records import Tokens
from scrl.sampling.gpu.kv_cache import KVCache
from scrl.sampling.sampler import OnGroup

OnCompletion = Callable[[int, Tokens], None]
"""(index of the completion, its tokens): it has ended."""

REPORT_AT = (1 / 2, 3 / 4, 7 / 8)
"""A group is reported when these shares of its completions have ended. Nearly every group has one that reaches the
limit, so whole groups come too late to be read meanwhile. The rest is halved each time: only an eighth is new at the
end, and a completion that ends early is reported four times."""


class CompletionEvents:
    """Reports each completion that has ended, once, without waiting for the device."""

    def __init__(self, cache: KVCache, on_completion: OnCompletion | None) -> None:
        """Without a listener nothing is done."""
        self._cache = cache
        self._on_completion = on_completion
        self._seen: set[int] = set()
        self._lengths: dict[int, int] = {}
        self._tokens_RT: HostCopy | None = None

    def update(self, lengths: Mapping[int, int]) -> None:
        """Report the completions of the last call, and start to copy the tokens of these, which have ended."""
        if self._on_completion is None:
            return
        if self._tokens_RT is not None:
            tokens_RT = self._tokens_RT.wait().numpy().astype(np.int64)
            for (completion, length), tokens_T in zip(self._lengths.items(), tokens_RT, strict=True):
                self._on_completion(completion, tokens_T[:length])
            self._tokens_RT = None
        self._lengths = {completion: length for completion, length in lengths.items() if completion not in self._seen}
        self._seen |= self._lengths.keys()
        if self._lengths:
            longest = max(self._lengths.values())
            self._tokens_RT = copy_to_host(self._cache.first_tokens(list(self._lengths), longest))


class GroupProgress:
    """Collects the texts of completions that have ended, and reports groups as they grow."""

    def __init__(self, groups: int, size: int, on_group: OnGroup) -> None:
        """Completions are numbered through all groups, `size` per group."""
        self.texts: dict[int, str] = {}
        self._counts_B = [0] * groups
        self._size = size
        self._report_at = {*(math.ceil(share * size) for share in REPORT_AT), size}
        self._on_group = on_group

    def add(self, completion: int, text: str) -> None:
        """A completion has ended."""
        self.texts[completion] = text
        group = completion // self._size
        self._counts_B[group] += 1
        if self._counts_B[group] in self._report_at:
            self._on_group(group, [self.texts[number] for number in self._members(group) if number in self.texts])

    def finish(self, texts: Sequence[str]) -> None:
        """All have ended: report the groups that have not been reported as complete."""
        for group, count in enumerate(self._counts_B):
            if count < self._size:
                self._on_group(group, [texts[number] for number in self._members(group)])

    def _members(self, group: int) -> range:
        return range(group * self._size, (group + 1) * self._size)
