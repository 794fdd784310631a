"""The scheduler: which rows wait, which run, and which pages they hold. Nothing here touches a device.

The pages of a prompt are shared by all rows that continue it. A row may hold fewer pages than its longest completion
would need, because most end earlier: when pages run out, the youngest row is preempted. It goes back to the queue with
what it has written, which is prefilled again later as part of its prompt.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scrl.records import Tokens

ENOUGH_LENGTHS = 64
"""Completions that must have ended before their lengths are used to predict those of others."""
ADMIT_SHARE = 8
"""Prompts are prefilled for waiting rows once 1 / this of the slots are free: prefilling few at a time is slow."""
QUANTILE = 0.9
"""Rows are admitted if there are pages for completions of this quantile of the recent lengths."""
RECENT = 512
"""The number of recent lengths."""


@dataclass(slots=True, eq=False)
class Prefix:
    """What rows continue: a prompt without its last token."""

    tokens_P: Tokens
    num_rows: int = 0
    """Rows that continue it and have not ended."""
    pages: list[int] = field(default_factory=list)
    table_row: int = -1
    """Its row in the table of prompt pages; −1 if it is not prefilled."""

    @property
    def is_prefilled(self) -> bool:
        """Whether its keys and values are stored."""
        return self.table_row >= 0


@dataclass(slots=True, eq=False)
class Row:
    """A completion, waiting or running."""

    completion: int
    prefix: Prefix
    token: int
    """Its newest token when it is admitted: the prompt's last."""
    limit: int
    start: int = 0
    """Tokens the completion had when the row was admitted."""
    steps: int = 0
    """Steps since then; an upper bound of the tokens in its own pages."""
    pages: list[int] = field(default_factory=list)
    slot: int = -1

    @property
    def steps_left(self) -> int:
        """Steps until it reaches its limit."""
        return self.limit - self.start - self.steps


class Scheduler:
    """Assigns slots and pages to rows."""

    def __init__(self, slots: int, pages: int, page_size: int) -> None:
        """Page 0 and row 0 of the table of prompt pages stay unused."""
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []
        self._slots = slots
        self._page_size = page_size
        self._free_pages = list(range(pages - 1, 0, -1))
        self._free_table_rows = list(range(slots + 1, 0, -1))
        self._lengths: dict[int, int] = {}
        """Lengths of completions that have ended, in the order in which that was learned."""
        self._typical_length = sys.maxsize

    def add(self, rows: Iterable[Row]) -> None:
        """Queue rows."""
        for row in rows:
            row.prefix.num_rows += 1
            self.waiting.append(row)

    def admit(self) -> list[Prefix]:
        """Start rows while there are slots and pages; the prompts that must be prefilled for them."""
        prefixes: list[Prefix] = []
        if not self.running:
            self._evict_idle()
        room = len(self._free_pages) - sum(max(0, self._likely_pages(row) - len(row.pages)) for row in self.running)
        while self.waiting and len(self.running) < self._slots:
            row = self.waiting[0]
            prefix = row.prefix
            prompt_pages = 0 if prefix.is_prefilled else pages_for(len(prefix.tokens_P), self._page_size)
            needed = self._likely_pages(row) + prompt_pages
            has_many_slots = (self._slots - len(self.running)) * ADMIT_SHARE >= self._slots
            if self.running and (needed > room or not (prefix.is_prefilled or prefixes or has_many_slots)):
                break
            room -= needed
            self.running.append(self.waiting.popleft())
            if not prefix.is_prefilled:
                prefix.pages = [self._free_pages.pop() for _ in range(prompt_pages)]
                if not self._free_table_rows:
                    self._evict_idle()
                prefix.table_row = self._free_table_rows.pop()
                prefixes.append(prefix)
        return prefixes

    def _likely_pages(self, row: Row) -> int:
        """The pages a row will probably need; all it could need while lengths are unknown."""
        typical = max(self._typical_length - row.start, row.steps + self._page_size)
        return pages_for(min(row.limit - row.start, typical), self._page_size)

    def num_steps(self, most: int) -> int:
        """Steps until half of the rows have reached their limits, `most` at most; a row at its limit idles."""
        return min(most, sorted(row.steps_left for row in self.running)[len(self.running) // 2])

    def allocate(self, steps: int) -> list[Row]:
        """Give every running row the pages for this many steps; the rows that were preempted for it, youngest first."""
        preempted: list[Row] = []
        for row in list(self.running):
            needed = pages_for(row.steps + min(steps, row.steps_left), self._page_size)
            while row in self.running and len(row.pages) < needed:
                if not self._free_pages:
                    self._evict_idle()
                if self._free_pages:
                    row.pages.append(self._free_pages.pop())
                else:
                    preempted.append(self.running[-1])
                    self._remove(self.running[-1])
        return preempted

    def requeue(self, row: Row, written_T: Tokens) -> None:
        """Put a preempted row at the front of the queue, its prompt extended by the tokens written since it ran."""
        if len(written_T):
            tokens_P = np.concatenate((row.prefix.tokens_P, [row.token], written_T))
            row.prefix = Prefix(tokens_P[:-1])
            row.token = int(tokens_P[-1])
            row.start += len(written_T)
        row.steps, row.slot = 0, -1
        row.prefix.num_rows += 1
        self.waiting.appendleft(row)

    def advance(self, steps: int) -> None:
        """Count steps that were run."""
        for row in self.running:
            row.steps += steps

    def retire(self, lengths: Mapping[int, int]) -> None:
        """Remove the rows of completions that have ended, with these lengths, and rows at their limits.

        A completion may be named again after it has left: only its first length counts.
        """
        fresh = {completion: length for completion, length in lengths.items() if completion not in self._lengths}
        self._lengths |= fresh
        if fresh and len(self._lengths) >= ENOUGH_LENGTHS:
            self._typical_length = int(np.quantile(list(self._lengths.values())[-RECENT:], QUANTILE)) + 1
        for row in [row for row in self.running if row.completion in lengths or row.steps_left <= 0]:
            self._remove(row)
        for row in [row for row in self.waiting if row.completion in lengths]:  # preempted before its end was known
            self.waiting.remove(row)
            self._leave_prefix(row.prefix)

    def _remove(self, row: Row) -> None:
        self.running.remove(row)
        self._free_pages += row.pages
        row.pages = []
        self._leave_prefix(row.prefix)

    def _leave_prefix(self, prefix: Prefix) -> None:
        prefix.num_rows -= 1
        if prefix.num_rows == 0 and prefix.is_prefilled:
            self._evict(prefix)

    def _evict_idle(self) -> None:
        """Free the pages of prompts that no running row continues; they are prefilled again when needed."""
        in_use = {id(row.prefix) for row in self.running}
        for row in self.waiting:
            if row.prefix.is_prefilled and id(row.prefix) not in in_use:
                self._evict(row.prefix)

    def _evict(self, prefix: Prefix) -> None:
        self._free_pages += prefix.pages
        self._free_table_rows.append(prefix.table_row)
        prefix.pages, prefix.table_row = [], -1


def pages_for(tokens: int, page_size: int) -> int:
    """Pages that hold this many tokens."""
    return -(-tokens // page_size)


def min_pages(rows: Iterable[Row], page_size: int) -> int:
    """Pages with which every row could run alone, after a preemption too."""
    return 2 + max(pages_for(len(row.prefix.tokens_P), page_size) + pages_for(row.limit, page_size) for row in rows)


def max_pages(rows: Sequence[Row], slots: int, page_size: int) -> int:
    """Pages with which no row is ever preempted."""
    prefixes = {id(row.prefix): row.prefix for row in rows}.values()
    prompts = sum(pages_for(len(prefix.tokens_P), page_size) for prefix in prefixes)
    longest = sorted((pages_for(row.limit, page_size) for row in rows), reverse=True)[:slots]
    return max(1 + prompts + sum(longest), min_pages(rows, page_size))
