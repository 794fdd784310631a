"""checkpoint.json, in every checkpoint: its step, and a sum of every file that is read back from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from scrl.data.checksums import file_sum
from scrl.errors import InputError

NAME = "checkpoint.json"
UNCHECKED = {NAME, "README.md"}
"""Files without a sum: a card may be edited."""


def write_sums(folder: Path, step: int) -> None:
    """Sum up what a checkpoint of this step holds."""
    known: dict[str, Any] = {"step": step, "files": _sums(folder)}
    text = json.dumps(known | {"sum": _own_sum(known)}, indent=1)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def check_sums(folder: Path) -> int | None:
    """Refuse a damaged checkpoint; its step, or None for one of an earlier version, which has no sums."""
    known = read_checkpoint_file(folder)
    if known is None:
        return None
    found = _sums(folder)
    wrong = sorted(name for name in known["files"].keys() | found.keys() if known["files"].get(name) != found.get(name))
    if wrong:
        raise InputError(
            f"{folder / wrong[0]}: {_what_happened(wrong[0], known['files'], found)} since the checkpoint was written; "
            "restore it, or start the run anew"
        )
    return int(known["step"])


def read_checkpoint_file(folder: Path) -> dict[str, Any] | None:
    """What `write_sums` wrote, unchanged; None where there is no such file."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        own_sum = known.pop("sum")
        if own_sum != _own_sum(known):
            raise ValueError("its sum is not that of the rest")
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: is damaged: {error}; restore it, or start the run anew") from error
    return dict(known)


def _sums(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {name: file_sum(path) for path in files if (name := path.relative_to(folder).as_posix()) not in UNCHECKED}


def _own_sum(known: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(known, sort_keys=True).encode(), digest_size=16).hexdigest()


def _what_happened(name: str, before: dict[str, str], found: dict[str, str]) -> str:
    return "has appeared" if name not in before else "has gone" if name not in found else "has changed"
