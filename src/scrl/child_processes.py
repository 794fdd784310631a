"""Separate processes: commands, which end with this one, however this one ends, and work that may never end."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

Result = TypeVar("Result")
_PATIENCE = 20
"""A fork is waited for this many times as long as it may compute: the machine may be busy."""
_is_fork = False

_WATCH = """
import contextlib, os, sys
pid = sys.stdin.readline()
if pid and not sys.stdin.read():
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid), 9)
"""
"""Waits at the end of a pipe: the writer either says that all is done, or is gone."""


@contextmanager
def child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command, running; it is killed when the block ends, and by another process when this one is killed."""
    watch = [sys.executable, "-ISc", _WATCH]
    with (
        subprocess.Popen(watch, stdin=subprocess.PIPE, start_new_session=True) as watcher,  # Ctrl-C does not reach it
        subprocess.Popen(command, **options) as process,
    ):
        assert watcher.stdin is not None
        try:
            watcher.stdin.write(f"{process.pid}\n".encode())
            watcher.stdin.flush()
            yield process
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()
            watcher.communicate(b"done")


def forked(work: Callable[[], Result], seconds: float, memory: int) -> Result:
    """Do `work` in a copy of this process, limited to `seconds` of computing and `memory` more bytes.

    A call into C or Rust cannot be stopped otherwise. Returns or raises what `work` does; beyond its limits it is ended
    with TimeoutError or MemoryError. Elsewhere than on Linux it is done here, without limits.
    """
    if sys.platform != "linux" or _is_fork:
        return work()
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about other threads, none of which is waited for
        pid = os.fork()
    if pid == 0:
        _do(work, writer, seconds, memory)
    os.close(writer)
    answer, is_over = bytearray(), False
    ready = select.poll()  # select() takes no file beyond the first 1,024
    ready.register(reader, select.POLLIN)
    try:
        while not is_over and ready.poll(1_000 * _PATIENCE * seconds):
            part = os.read(reader, 2**20)
            answer += part
            is_over = not part
    finally:
        if not is_over:
            os.kill(pid, signal.SIGKILL)
        os.close(reader)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code in (-signal.SIGPROF, -signal.SIGKILL):
        raise TimeoutError(f"it takes more than {seconds:g} s")
    if code:
        raise MemoryError(f"it crashes or takes more than {memory / 2**30:g} GiB of memory (exit code {code})")
    is_done, result = pickle.loads(answer)  # noqa: S301 - from a copy of this process
    if not is_done:
        raise result
    return result  # type: ignore[no-any-return]


def _do(work: Callable[[], object], writer: int, seconds: float, memory: int) -> NoReturn:
    """In the copy: send what the work returns or raises, then exit without any clean-up."""
    import resource

    global _is_fork
    _is_fork = True
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # the parent decides
        gc.freeze()  # nothing of the parent's is collected here, such as memory of a GPU
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limits = (each for each in (size + memory, soft) if each != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (min(limits), hard))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = _answer(work)
        with open(writer, "wb") as file:
            file.write(answer)
        os._exit(0)
    finally:
        os._exit(1)


def _answer(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, work()))
    except BaseException as error:
        try:
            answer = pickle.dumps((False, error))
            pickle.loads(answer)  # noqa: S301
        except Exception:  # some errors cannot be sent
            return pickle.dumps((False, ValueError(str(error))))
        return answer
