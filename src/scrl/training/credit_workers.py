"""Answers read and judged while other completions are still being sampled.

A sampler hands over the texts of a group as soon as it has them (`on_group`), a thread classifies them, and by the time
the last group is drawn most classes are known. A group may be handed over as it grows: the classes of some completions
are of no use, but the judge remembers the pairs it has seen, and is asked at last for those of the newest alone.

Threads are enough: what takes long is the judge, which runs in killable processes of its own, one a thread; reading and
comparing canonical forms takes the interpreter about 10 ms for 64 completions. The classes are those of the serial
path, but for pairs that a judge decides in time or not as the machine is busy and as they are spread over its calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import torch

from scrl.answers.classes import Classes
from scrl.config import RunConfig
from scrl.credit.rule import CreditRule
from scrl.records import Group, Sampled

Texts = tuple[str, ...]
WORKERS_ON_A_GPU = 2
"""Threads where it is not said how many: a GPU samples while they work; on a CPU they would take its cores away."""


def number_of_workers(config: RunConfig, device: torch.device) -> int:
    """Threads for a run on this device: as many as asked for, else two on a GPU whose completions nobody else reads."""
    if config.compute.credit_workers is not None:
        return config.compute.credit_workers
    return WORKERS_ON_A_GPU if device.type == "cuda" else 0


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


class _Begun(NamedTuple):
    """A classification that was asked for."""

    texts: tuple[Texts, ...]
    classes: Future[list[Classes]]


class BackgroundClasses:
    """The classes of some groups, on their way.

    Groups are classified one by one, or two by two where a method asks every question in other words too.
    """

    def __init__(self, rule: CreditRule, threads: ThreadPoolExecutor) -> None:
        self._rule = rule
        self._threads = threads
        self._size = 2 if "partner" in rule.needs else 1
        self._texts: dict[int, Texts] = {}
        self._begun: dict[int, _Begun] = {}

    def take(self, place: int, texts: Sequence[str]) -> None:
        """Hear that the group at this place is drawn, or has grown to these texts.

        While it is being classified with fewer of them nothing is begun: what came meanwhile comes up again.
        """
        self._texts[place] = tuple(texts)
        unit = place // self._size
        members = range(unit * self._size, (unit + 1) * self._size)
        if all(member in self._texts for member in members) and not self._is_under_way(unit):
            self._begin(unit, tuple(self._texts[member] for member in members))

    def classes(self, sampled_B: Sequence[Sampled]) -> list[Classes]:
        """Those of all groups; what was not handed over, or is not what was handed over, is classified now.

        A sampler that runs out of memory draws anew, and groups that are put together in parts are known only here.
        """
        texts_B = [tuple(sample.text for sample in sampled.samples_G) for sampled in sampled_B]
        units = range(len(texts_B) // self._size)
        for unit in sorted(units, key=self._is_under_way):  # those first for which nothing has to be waited for
            self._begin(unit, tuple(texts_B[unit * self._size : (unit + 1) * self._size]))
        return [classes for unit in units for classes in self._begun[unit].classes.result()]

    def _is_under_way(self, unit: int) -> bool:
        return unit in self._begun and self._begun[unit].classes.running()

    def _begin(self, unit: int, texts: tuple[Texts, ...]) -> None:
        """Classify these texts instead of those before.

        Those are called off, or waited for if they are under way: no pair is judged twice. What was wrong with them
        comes up again among all texts.
        """
        begun = self._begun.get(unit)
        if begun is not None and begun.texts == texts:
            return
        if begun is not None and not begun.classes.cancel():
            wait([begun.classes])
        groups = [Group.from_texts(each) for each in texts]
        self._begun[unit] = _Begun(texts, self._threads.submit(_classify, self._rule, groups))


def _classify(rule: CreditRule, groups: Sequence[Group]) -> list[Classes]:
    return [rule.classify(groups[0])] if len(groups) == 1 else rule.classify_together(groups)
