"""Files that appear under their name whole, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path, *, follows: bool = True) -> Iterator[IO[str]]:
    """A file to write to, which gets its name when it is complete; a pipe or a device is written to as it is.

    Without `follows` whatever has the name is replaced, a link or a pipe too: for folders that come from elsewhere.
    """
    if follows and path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    path = path.resolve() if follows else path.parent.resolve() / path.name
    # A name that nobody can foresee, and a file that was not there before: no link waits in its place.
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, text: str, *, follows: bool = True) -> None:
    """A file with this text."""
    with whole_file(path, follows=follows) as file:
        file.write(text)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """The same for all that lies in a folder, and for the folder itself."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
