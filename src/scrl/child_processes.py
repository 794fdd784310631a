"""Commands run in a separate process, which ends with this one, however this one ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

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
