"""Files that appear under their name whole or not at all, and that one process writes at a time."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from scrl.errors import InputError

SETTINGS_OF_A_RUN = ("config.yaml", "evaluation.yaml")
"""One of these is in the folder of every run and evaluation."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A file to write to, which gets its name when it is complete; a pipe or a device is written to directly.

    In the folder of a run or an evaluation, which may come from elsewhere, whatever has the name is replaced, even a
    link or a pipe.
    """
    follows = not any((path.parent / name).exists() for name in SETTINGS_OF_A_RUN)
    if follows and path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    path = Path(os.path.realpath(path if follows else path.parent)) / ("" if follows else path.name)
    # An unpredictable name, and a file that did not exist before: no link can wait in its place.
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        file = draft.open("x", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; choose another place with --out") from error
    try:
        with file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    with whole_file(path) as file:
        file.write(text)


def give_usual_mode(folder: Path) -> None:
    """Make every file of a folder as readable as a new file here: safetensors writes for the owner alone."""
    new = folder / f".{secrets.token_hex(8)}.part"
    new.touch(exist_ok=False)
    usual = stat.S_IMODE(new.stat().st_mode)
    new.unlink()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) | usual)


@contextmanager
def only_writer(lock_file: Path, busy: str) -> Iterator[None]:
    """Hold a lock; another process that wants it is refused with the message `busy`."""
    from filelock import FileLock, Timeout  # only runs need it

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


def refuse_links(paths: Iterable[Path]) -> None:
    """Refuse links in a folder that is written to: what they point to would be changed or deleted."""
    for path in paths:
        if path.is_symlink():
            raise InputError(f"{path}: is a link, and what it points to would be changed; put the file itself there")


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """`sync` for a folder and everything in it."""
    for path in (*folder.rglob("*"), folder):
        sync(path)
