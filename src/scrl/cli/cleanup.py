"""What stays of a command that did not come to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console


@contextmanager
def kept_if_used(folder: Path, how_to_go_on: str, console: Console) -> Iterator[None]:
    """A folder that nothing was written to does not stay behind; what was begun can be gone on with."""
    try:
        yield
    except BaseException as error:
        with suppress(OSError):
            folder.rmdir()
        if isinstance(error, KeyboardInterrupt) and folder.is_dir():
            console.print(f"stopped; go on with: {how_to_go_on}", soft_wrap=True)
        raise
