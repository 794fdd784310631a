"""checkpoint.json, in every checkpoint: its run, its step, and a checksum of every file that is read back from it.

Checkpoints of many gigabytes are saved often, so checksums are those of XXH3, which is as fast as memory. They guard
against damage, not against people.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from scrl.errors import InputError
from scrl.files.jsonl import read_object

NAME = "checkpoint.json"
HASH = "xxh3-128"
UNCHECKED = {NAME, "README.md"}
"""Files without a checksum: a card may be edited."""
_BYTES_PER_READ = 2**22


def file_sum(path: Path, length: int | None = None) -> str:
    """The checksum of a file, or of its first `length` bytes."""
    left = path.stat().st_size if length is None else length
    digest, buffer = xxhash.xxh3_128(), memoryview(bytearray(_BYTES_PER_READ))
    with path.open("rb") as file:
        while left and (read := file.readinto(buffer[:left])):
            left -= read
            digest.update(buffer[:read])
    return digest.hexdigest()


def write_sums(folder: Path, step: int, run: str) -> None:
    """Write the checksums of a checkpoint of this step; `run` is the same in all checkpoints of a run."""
    content: dict[str, Any] = {"hash": HASH, "run": run, "step": step, "files": _sums(folder)}
    text = json.dumps(content | {"sum": own_sum(content)}, indent=1)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def check_sums(folder: Path) -> int:
    """Refuse a damaged checkpoint; returns its step."""
    content = read_checkpoint_file(folder)
    if content is None:
        raise InputError(f"{folder / NAME}: is missing; restore it, or start the run anew")
    if content.get("hash") != HASH:
        raise InputError(f"{folder / NAME}: its checksums are not {HASH}: use the scrl that wrote it, or start anew")
    before, now = content["files"], _sums(folder)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            change = "has appeared" if name not in before else "has gone" if name not in now else "has changed"
            raise InputError(f"{folder / name}: {change} since the checkpoint; restore it, or start the run anew")
    refuse_foreign(folder)
    return int(content["step"])


def refuse_foreign(folder: Path) -> None:
    """Refuse `best` beside a `last` of another run; where either is damaged, nothing is known."""
    last = folder.with_name("last")
    try:
        runs = {about["run"] for place in (folder, last) if (about := read_checkpoint_file(place)) and about.get("run")}
    except InputError:
        return
    if len(runs) > 1:
        raise InputError(f"{folder}: belongs to another run than {last}; put back that of its own run, or use {last}")


def check_if_checkpoint(folder: Path) -> None:
    """Refuse a damaged checkpoint among other folders of models; one of an earlier scrl has no sums to compare."""
    content = read_checkpoint_file(folder)
    if content is not None and content.get("hash") == HASH:
        check_sums(folder)


def read_checkpoint_file(folder: Path) -> dict[str, Any] | None:
    """What `write_sums` wrote, unchanged; None if there is no such file."""
    path = folder / NAME
    if not path.is_file():
        return None
    match content := read_object(path):
        case {"sum": str(own), "step": int(step), "files": dict(files)}:
            del content["sum"]
            if own == own_sum(content) and step >= 0 and all(isinstance(each, str) for each in files.values()):
                return content
    raise InputError(f"{path}: is damaged: it is not what was written; restore it, or start the run anew")


def _sums(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {name: file_sum(path) for path in files if (name := path.relative_to(folder).as_posix()) not in UNCHECKED}


def own_sum(content: Mapping[str, Any]) -> str:
    """The checksum of an object, to be kept in it."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
