"""Ctrl-C and SIGTERM between two states that can be saved, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


@contextmanager
def stop_on_sigterm(pass_on: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A cluster's SIGTERM ends a run as Ctrl-C does: it is saved. `pass_on` sends it to child processes."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        pass_on()
        raise KeyboardInterrupt

    with _handled_by(interrupt, signal.SIGTERM):
        yield


@contextmanager
def stop_once(say: Callable[[str], None]) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM raises KeyboardInterrupt in the block; the saving that follows is not interrupted.

    The second only prints a message, the third ends the process with exit code 130. After the first, no further one
    raises, so the block may save in its `except` and `finally`.
    """
    count = 0

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise KeyboardInterrupt
        if count == 2:
            say("saving first; once more stops at once")
        if count == 3:
            raise SystemExit(130)

    with _handled_by(interrupt, signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def finish_first(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Hold Ctrl-C and SIGTERM back until the block is done; weights in the middle of an update cannot be resumed.

    The block is given the list of signals received, so that a long one can end early. The third one ends the process;
    the run can then be resumed from its last checkpoint.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        if len(held) == 1:
            say("finishing this step, then saving; three times Ctrl-C stops at once")
        if len(held) == 3:
            raise SystemExit(130)

    with _handled_by(hold, signal.SIGINT, signal.SIGTERM) as before:
        yield held
    if held:
        for number in held if callable(before) else ():  # so that `stop_once` counts them too
            with suppress(KeyboardInterrupt):
                before(number, None)
        raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[Any]:
    """These signals go to this handler; the block is given the one that the first of them went to before.

    Signals reach the main thread alone; in others nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for each in signals:
            before[each] = signal.signal(each, handler)
        yield before[signals[0]]
    finally:
        for each, former in before.items():
            signal.signal(each, former)
