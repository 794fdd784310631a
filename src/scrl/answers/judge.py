"""math-verify as a judge behind a door: in processes that can be killed, with time limits, from any thread.

The judge is asked only about pairs that canonical forms leave open. A pair that is not decided in time counts as
different and is reported as undecided. There is no SIGALRM and no fork here: workers are plain child processes that
speak JSON lines, so it works in threads, notebooks, scripts without a main guard, and on every system.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scrl.errors import JudgeError

Pair = tuple[str, str]
_WORKER = Path(__file__).with_name("judge_worker.py")
_START_SECONDS = 120.0
_RETIRE_SECONDS = 5.0
_MAX_STRIKES = 2
"""An answer that timed out this often in one group, and was never compared in time, is given up."""
_MAX_RESTARTS = 6
"""Most workers that one group may use up."""
_SUSPECT = re.compile(r"[\\^!]")
"""A computation that does not end has a command, a power or a factorial in it."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What the judge said about the open pairs of one group; each pair with its smaller text first."""

    equal: frozenset[Pair] = frozenset()
    undecided: frozenset[Pair] = frozenset()


class Judge(Protocol):
    """Decides pairs of answers that canonical forms leave open."""

    def compare(self, pairs: Iterable[Pair]) -> Verdicts:
        """Verdicts on the open pairs of one group."""


class NoJudge:
    """Leaves every open pair different: canonical forms alone."""

    def compare(self, pairs: Iterable[Pair]) -> Verdicts:  # noqa: ARG002 - the protocol's signature
        """Nothing is equal, nothing is undecided."""
        return Verdicts()


class MathVerifyJudge:
    """A few worker processes, started when first needed, replaced when killed."""

    def __init__(
        self,
        *,
        seconds_per_answer: float = 2.0,
        seconds_per_group: float = 6.0,
        workers: int = 2,
        memory: int = 1 << 16,
    ) -> None:
        """Limits are judging time; starting a worker (about a second) is not counted."""
        self.seconds_per_answer = seconds_per_answer
        self.seconds_per_group = seconds_per_group
        self.num_calls = 0
        self._memory = memory
        self._known: OrderedDict[Pair, bool | None] = OrderedDict()
        self._readable: OrderedDict[str, bool | None] = OrderedDict()
        self._lock = threading.Lock()
        self._slots: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._slots.put(None)
        weakref.finalize(self, _retire_idle, self._slots)
        _JUDGES.add(self)

    def compare(self, pairs: Iterable[Pair]) -> Verdicts:
        """Verdicts on the open pairs of one group, within the group's time limit."""
        wanted = sorted({(min(pair), max(pair)) for pair in pairs})
        with self._lock:
            verdicts = {pair: self._known[pair] for pair in wanted if pair in self._known}
        fresh = [pair for pair in wanted if pair not in verdicts]
        if fresh:
            verdicts |= self._judge(fresh)
        return Verdicts(
            equal=frozenset(pair for pair, verdict in verdicts.items() if verdict),
            undecided=frozenset(pair for pair, verdict in verdicts.items() if verdict is None),
        )

    def close(self) -> None:
        """End all idle workers; new ones start when they are needed."""
        _retire_idle(self._slots)

    def _judge(self, pairs: list[Pair]) -> dict[Pair, bool | None]:
        with self._lock:
            readable = {a: self._readable[a] for pair in pairs for a in pair if a in self._readable}
        slots = self._slots
        session = _Session(slots.get(), self.seconds_per_answer, self.seconds_per_group, readable)
        try:
            verdicts = session.judge(pairs)
        finally:
            slots.put(session.worker)
        with self._lock:
            self.num_calls += session.num_calls
            _remember(self._known, {pair: verdicts[pair] for pair in verdicts.keys() - session.skipped}, self._memory)
            _remember(self._readable, session.readable, self._memory)
        return verdicts

    def _start_afresh(self) -> None:
        """In a forked child: the parent's workers and locks are not ours."""
        self._lock = threading.Lock()
        inherited, self._slots = self._slots, queue.LifoQueue()
        for worker in list(inherited.queue):
            if worker is not None:
                worker.let_go()
            self._slots.put(None)


_JUDGES: weakref.WeakSet[MathVerifyJudge] = weakref.WeakSet()
_INHERITED: list[_Worker] = []
"""The parent's workers, kept in a forked child so that nothing ever tries to close their streams there."""


def _start_all_afresh() -> None:
    for judge in list(_JUDGES):
        judge._start_afresh()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_all_afresh)


def _retire_idle(slots: queue.LifoQueue[_Worker | None]) -> None:
    """End the workers that nobody is using, and leave their places free."""
    idle: list[_Worker | None] = []
    with contextlib.suppress(queue.Empty):
        while True:
            idle.append(slots.get_nowait())
    for _ in idle:
        slots.put(None)
    for worker in idle:
        if worker is not None:
            worker.retire()


def _remember(memory: OrderedDict[Any, bool | None], news: dict[Any, bool | None], limit: int) -> None:
    memory.update(news)
    while len(memory) > limit:
        memory.popitem(last=False)


class _Skipped(Exception):  # noqa: N818 - control flow inside a session
    """This question was not put to the judge, or not for its full time."""


class _Session:
    """One group before the judge: its clock, its strikes, and the worker it holds."""

    def __init__(
        self,
        worker: _Worker | None,
        seconds_per_answer: float,
        seconds_per_group: float,
        readable: dict[str, bool | None],
    ) -> None:
        self.worker = worker
        self.readable = readable
        self.skipped: set[Pair] = set()
        """Pairs that did not get their full time; they may be tried again in another group."""
        self.num_calls = 0
        self._limit = seconds_per_answer
        self._left = seconds_per_group
        self._restarts = 0
        self._strikes: Counter[str] = Counter()
        self._sound: set[str] = set()
        """Answers that were compared in time: whatever timed out, it was not their fault."""

    def judge(self, pairs: list[Pair]) -> dict[Pair, bool | None]:
        """All pairs, those without a suspect first; an answer that stands in many of them is read first."""
        degree = Counter(answer for pair in pairs for answer in pair)
        verdicts: dict[Pair, bool | None] = {}
        waiting = list(pairs)
        while waiting:
            pair = min(waiting, key=lambda pair: self._strikes[pair[0]] + self._strikes[pair[1]])
            waiting.remove(pair)
            try:
                verdicts[pair] = self._verdict(*sorted(pair, key=lambda answer: -degree[answer]))
            except _Skipped:
                verdicts[pair] = None
                self.skipped.add(pair)
        return verdicts

    def _verdict(self, first: str, second: str) -> bool | None:
        """True, False, or None for undecided."""
        for answer in (first, second):
            if answer not in self.readable:
                self.readable[answer] = self._ask(answer)
            if not self.readable[answer]:
                return self.readable[answer]
        verdict = self._ask(first, second)
        if verdict is not None:
            self._sound |= {first, second}
        return verdict

    def _ask(self, *answers: str) -> bool | None:
        seconds = min(self._limit, self._left)
        if seconds <= 0 or any(self._is_given_up(answer) for answer in answers):
            raise _Skipped
        worker, self.worker = self._living_worker(), None
        start = time.monotonic()
        try:
            verdict = worker.ask(list(answers), seconds)
        except (
            BaseException
        ):  # an interrupt between question and answer: this worker's next reply would be the wrong one
            worker.kill()
            raise
        self._left -= time.monotonic() - start
        self.num_calls += 1
        if verdict is not None:
            self.worker = worker
            return verdict
        worker.kill()
        if seconds < self._limit:
            raise _Skipped
        self._strike(answers)
        return None

    def _is_given_up(self, answer: str) -> bool:
        return self._strikes[answer] >= _MAX_STRIKES and answer not in self._sound

    def _strike(self, answers: tuple[str, ...]) -> None:
        suspects = [answer for answer in answers if _SUSPECT.search(answer) and answer not in self._sound]
        self._strikes.update(suspects or answers)

    def _living_worker(self) -> _Worker:
        if self.worker is not None and self.worker.is_alive():
            return self.worker
        if self.worker is not None:
            self.worker.kill()
        if self._restarts >= _MAX_RESTARTS:
            self.worker = None
            raise _Skipped
        self._restarts += 1
        return _Worker()


class _Worker:
    """One child process and the thread that reads its replies."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
        )
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if self._reply(_START_SECONDS) != "ready":
            self._errors.seek(0)
            reason = self._errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
            self.kill()
            raise JudgeError(
                f"the math-verify judge did not start: {reason[0]}. "
                "Check that math-verify is installed for this Python, or go without it (judge 'none')."
            )

    def is_alive(self) -> bool:
        """The process is still there."""
        return self._process.poll() is None

    def ask(self, request: list[str], seconds: float) -> bool | None:
        """The verdict, or None when it does not come in time or the process dies over it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            return None
        reply = self._reply(seconds)
        return reply if isinstance(reply, bool) else None

    def retire(self) -> None:
        """Let an idle process end by itself; it does when nobody can ask it any more."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_RETIRE_SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process whatever it is doing."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):  # a request that was never read may be left in the pipe
                    stream.close()

    def let_go(self) -> None:
        """In a forked child: release the pipe without a lock that a thread of the parent may have held."""
        assert self._process.stdin is not None
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, self._process.stdin.fileno())
        os.close(null)
        _INHERITED.append(self)

    def _reply(self, seconds: float) -> object:
        try:
            line = self._replies.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None
        return json.loads(line) if line.endswith("\n") else None

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")
