"""One writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from scrl.errors import InputError


@contextmanager
def only_writer(lock_file: Path, busy: str) -> Iterator[None]:
    """Hold the lock; another process that tries is refused with the words `busy`."""
    lock = FileLock(lock_file, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"{busy}; wait until it has ended, or stop it") from None
    try:
        yield
    finally:
        with suppress(OSError):
            lock_file.unlink()
        lock.release()
