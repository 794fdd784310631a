"""Which completions are written side by side: rows wait, enter, grow by pages and leave. Nothing here touches a device.

A prompt's pages are shared by all rows that continue it. A row may hold fewer pages than its longest completion would
need, because most end before: when pages run out, the youngest row goes back to the queue with what it has written,
and is read again later as a prompt of its own.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scrl.records import Tokens

ENOUGH_FINISHED = 64
"""Completions that must have ended before their lengths say how long the next ones will be."""
ENTER_SHARE = 8
"""Prompts are read for waiting rows once one slot in so many is free: reading few at a time would hold up the rest."""
TYPICAL = 0.9
"""Rows are promised room for completions of this quantile of the lengths seen."""
RECENT = 512
"""Completions whose lengths are looked at: those that ended last."""


@dataclass(slots=True, eq=False)
class Source:
    """What rows start from: a prompt but for its last token."""

    tokens_P: Tokens
    users: int = 0
    """Rows that have not ended."""
    pages: list[int] = field(default_factory=list)
    place: int = -1
    """In the table of prompts, while it is read; −1: not read."""

    @property
    def is_read(self) -> bool:
        """Whether its keys and values are there."""
        return self.place >= 0


@dataclass(slots=True, eq=False)
class Row:
    """A completion, waiting or being written."""

    job: int
    source: Source
    token: int
    """The newest token when it enters: the prompt's last."""
    limit: int
    written: int = 0
    """Tokens it had when it entered."""
    steps: int = 0
    """Steps run since then: it has stored at most so many tokens."""
    pages: list[int] = field(default_factory=list)
    slot: int = -1

    @property
    def steps_left(self) -> int:
        """It has ended after so many more steps, whatever it writes."""
        return self.limit - self.written - self.steps


class RowPlan:
    """Slots and pages, handed out."""

    def __init__(self, slots: int, pages: int, page: int) -> None:
        """Page 0 and the first place in the table of prompts belong to nobody."""
        self.waiting: deque[Row] = deque()
        self.live: list[Row] = []
        self._slots = slots
        self._page = page
        self._free = list(range(pages - 1, 0, -1))
        self._places = list(range(slots + 1, 0, -1))
        self._lengths: dict[int, int] = {}
        """Of jobs that have ended, in the order in which that was heard."""
        self._typical = sys.maxsize

    def add(self, rows: Iterable[Row]) -> None:
        """Rows wait their turn."""
        for row in rows:
            row.source.users += 1
            self.waiting.append(row)

    def admit(self) -> list[Source]:
        """Let rows in while there are slots and pages; the prompts that must be read for them."""
        fresh: list[Source] = []
        if not self.live:
            self._forget_idle()
        room = len(self._free) - sum(max(0, self._promise(row) - len(row.pages)) for row in self.live)
        while self.waiting and len(self.live) < self._slots:
            row = self.waiting[0]
            needed = self._promise(row) + (0 if row.source.is_read else self._pages(len(row.source.tokens_P)))
            is_worth_it = row.source.is_read or fresh or (self._slots - len(self.live)) * ENTER_SHARE >= self._slots
            if self.live and (needed > room or not is_worth_it):
                break
            room -= needed
            self.live.append(self.waiting.popleft())
            if not row.source.is_read:
                row.source.pages = self._take(self._pages(len(row.source.tokens_P)))
                row.source.place = self._places.pop()
                fresh.append(row.source)
        return fresh

    def _promise(self, row: Row) -> int:
        """Pages a row will probably need; all it could need while nothing is known."""
        typical = max(self._typical - row.written, row.steps + self._page)
        return self._pages(min(row.limit - row.written, typical))

    def grow(self, steps: int) -> list[Row]:
        """Give every row the pages for so many more steps; the rows that had to go for it, which wait no more."""
        gone: list[Row] = []
        for row in list(self.live):
            needed = self._pages(row.steps + min(steps, row.steps_left))
            while row in self.live and len(row.pages) < needed:
                if not self._free:
                    self._forget_idle()
                if self._free:
                    row.pages.append(self._free.pop())
                else:
                    gone.append(self.live[-1])
                    self._drop(self.live[-1])
        return gone

    def come_back(self, row: Row, written_T: Tokens) -> None:
        """A row that had to go waits at the front, to be read again with what it has written since it entered."""
        if len(written_T):
            begun_P = np.concatenate((row.source.tokens_P, [row.token], written_T))
            row.source = Source(begun_P[:-1])
            row.token = int(begun_P[-1])
            row.written += len(written_T)
        row.steps, row.slot = 0, -1
        row.source.users += 1
        self.waiting.appendleft(row)

    def window(self, most: int) -> int:
        """Steps until half of the rows have reached their limits, `most` at most; a row at its limit just waits."""
        return min(most, sorted(row.steps_left for row in self.live)[len(self.live) // 2])

    def stepped(self, steps: int) -> None:
        """So many steps were run."""
        for row in self.live:
            row.steps += steps

    def leave(self, ended: Mapping[int, int]) -> None:
        """These jobs have ended, with so many tokens each; so have those at their limits.

        A job may be named again, when it has long left: it counts once, with the tokens that it had first.
        """
        self._count(ended)
        for row in [row for row in self.live if row.job in ended or row.steps_left <= 0]:
            self._drop(row)
        for row in [row for row in self.waiting if row.job in ended]:  # had to go before it was known to have ended
            self.waiting.remove(row)
            self._unused(row.source)

    def _count(self, ended: Mapping[int, int]) -> None:
        """Learn from completions how long the next ones will be."""
        fresh = {job: length for job, length in ended.items() if job not in self._lengths}
        self._lengths |= fresh
        if fresh and len(self._lengths) >= ENOUGH_FINISHED:
            self._typical = int(np.quantile(list(self._lengths.values())[-RECENT:], TYPICAL)) + 1

    def _drop(self, row: Row) -> None:
        self.live.remove(row)
        self._free += row.pages
        row.pages = []
        self._unused(row.source)

    def _unused(self, source: Source) -> None:
        """One row less needs it."""
        source.users -= 1
        if source.users == 0 and source.is_read:
            self._forget(source)

    def _forget_idle(self) -> None:
        """Prompts that nobody is continuing just now make room; they are read again when their turn comes."""
        continued = {id(row.source) for row in self.live}
        for row in self.waiting:
            if row.source.is_read and id(row.source) not in continued:
                self._forget(row.source)

    def _forget(self, source: Source) -> None:
        self._free += source.pages
        self._places.append(source.place)
        source.pages, source.place = [], -1

    def _take(self, number: int) -> list[int]:
        return [self._free.pop() for _ in range(number)]

    def _pages(self, tokens: int) -> int:
        return pages_for(tokens, self._page)


def pages_for(tokens: int, page: int) -> int:
    """Pages that hold so many tokens."""
    return -(-tokens // page)


def smallest_pool(rows: Iterable[Row], page: int) -> int:
    """Pages with which every row could be written alone, after an interruption too."""
    return 2 + max(pages_for(len(row.source.tokens_P), page) + pages_for(row.limit, page) for row in rows)


def whole_pool(rows: Sequence[Row], slots: int, page: int) -> int:
    """Pages with which no row is ever interrupted."""
    sources = {id(row.source): row.source for row in rows}.values()
    prompts = sum(pages_for(len(source.tokens_P), page) for source in sources)
    longest = sorted((pages_for(row.limit, page) for row in rows), reverse=True)[:slots]
    return max(1 + prompts + sum(longest), smallest_pool(rows, page))
