"""Ctrl-C and SIGTERM between two states that can be saved, never within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def stop_on_sigterm(pass_on: Callable[[], object] | None = None) -> Iterator[None]:
    """A cluster's SIGTERM ends a run as Ctrl-C does: it is saved. `pass_on` tells those who have not had it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if pass_on is not None:
            pass_on()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def finish_first(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Hold Ctrl-C and SIGTERM back until the block is done; weights in the middle of an update cannot be resumed.

    The block is given the list of those that came, so that a long one can end early. The third one is let through: the
    run then goes on from its last checkpoint.
    """
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        held.append(number)
        if len(held) == 1:
            say("finishing this step, then saving; three times Ctrl-C stops at once")
        if len(held) == 3:
            raise SystemExit(130)

    before: dict[int, Any] = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, hold)
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt
