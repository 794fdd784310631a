"""Answers read and judged while other groups are still being sampled.

A sampler hands over the texts of a group as soon as it has them (`on_group`), a thread classifies them, and by the time
the last group is drawn most classes are known. Threads are enough: what takes long is the judge, which runs in killable
processes of its own, one a thread; reading and comparing canonical forms takes the interpreter about 10 ms for 64
completions. The classes are those of the serial path, but for pairs that a busier machine does not decide in time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from scrl.answers.classes import Classes
from scrl.credit.assign import CreditRule
from scrl.records import Group, Sampled

Texts = tuple[str, ...]


class CreditWorkers:
    """Threads that classify, for the length of a run."""

    def __init__(self, rule: CreditRule, workers: int) -> None:
        """`rule` has a judge with a process for every worker."""
        self._rule = rule
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="credit")

    def begin(self) -> BackgroundClasses:
        """For the groups of one draw."""
        return BackgroundClasses(self._rule, self._threads)

    def close(self) -> None:
        """Start nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class BackgroundClasses:
    """The classes of some groups, on their way.

    Groups are classified one by one, or two by two where a method asks every question in other words too.
    """

    def __init__(self, rule: CreditRule, threads: ThreadPoolExecutor) -> None:
        self._rule = rule
        self._threads = threads
        self._size = 2 if "partner" in rule.needs else 1
        self._texts: dict[int, Texts] = {}
        self._begun: dict[int, tuple[tuple[Texts, ...], Future[list[Classes]]]] = {}

    def take(self, place: int, texts: Sequence[str]) -> None:
        """Hear that the group at this place is drawn."""
        self._texts[place] = tuple(texts)
        unit = place // self._size
        members = range(unit * self._size, (unit + 1) * self._size)
        if all(member in self._texts for member in members):
            self._begin(unit, tuple(self._texts[member] for member in members))

    def classes(self, sampled_B: Sequence[Sampled]) -> list[Classes]:
        """Those of all groups; what was not handed over, or is not what was handed over, is classified now.

        A sampler that runs out of memory draws anew, and groups that are put together in parts are known only here.
        """
        texts_B = [tuple(sample.text for sample in sampled.samples_G) for sampled in sampled_B]
        for unit, first in enumerate(range(0, len(texts_B), self._size)):
            wanted = tuple(texts_B[first : first + self._size])
            if unit not in self._begun or self._begun[unit][0] != wanted:
                self._begin(unit, wanted)
        return [classes for unit in range(len(texts_B) // self._size) for classes in self._begun[unit][1].result()]

    def _begin(self, unit: int, texts: tuple[Texts, ...]) -> None:
        groups = [Group.from_texts(each) for each in texts]
        self._begun[unit] = texts, self._threads.submit(_classify, self._rule, groups)


def _classify(rule: CreditRule, groups: Sequence[Group]) -> list[Classes]:
    return [rule.classify(groups[0])] if len(groups) == 1 else rule.classify_together(groups)
