"""Code from elsewhere, such as a model's chat template, run with a limit on time and memory."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def bounded(seconds: float, memory: int) -> Iterator[None]:
    """Raise TimeoutError after this many seconds of computing, MemoryError for more than this many bytes.

    Time is limited on the main thread only, and not on Windows; memory on Linux.
    """
    with ExitStack() as stack:
        if sys.platform == "linux":
            stack.enter_context(_memory_limit(memory))
        if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
            stack.enter_context(_time_limit(seconds))
        yield


class _TimeIsUpError(BaseException):
    """Not an Exception, which Jinja's optimizer would swallow."""


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(_number: int, _frame: Any) -> None:
        raise _TimeIsUpError

    before = signal.signal(signal.SIGVTALRM, stop)  # counts the time of this process: a busy machine stops nothing
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except _TimeIsUpError:
        raise TimeoutError(f"stopped after {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _memory_limit(memory: int) -> Iterator[None]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
