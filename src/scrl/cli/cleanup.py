"""The folder of a command that fails or is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """After an error, remove the folder if nothing was written to it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


@contextmanager
def resumable(folder: Path, command: str, console: Console) -> Iterator[None]:
    """The same; after Ctrl-C, say with which command to resume."""
    try:
        with removed_if_empty(folder):
            yield
    except KeyboardInterrupt:
        if folder.is_dir():
            console.print(f"stopped; go on with: {command}", soft_wrap=True)
        raise
