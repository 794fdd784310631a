"""The files of a run that have one JSON object a line, read as a stream.

A run that is still going, or was killed, may leave half a line at the end: that one is passed over and told to
`on_cut`. Anything else that is broken is a `DataError` with file and line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import DataError

OnCut = Callable[[str], None]
"""Hears, in words, that the end of a file was left out."""


class JsonLine(NamedTuple):
    """One line of a file."""

    number: int
    offset: int
    """The byte at which the line begins."""
    fields: dict[str, Any]


def read_json_lines(path: Path, on_cut: OnCut) -> Iterator[JsonLine]:
    """The objects of a file, one by one; lines of nothing but blanks are no objects."""
    number, offset = 0, 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if raw.strip() and not _is_cut(raw):
                    yield JsonLine(number, offset, parse_object(raw, path, number))
                elif raw.strip():
                    on_cut(f"{path.name}: line {number}, the last one, is incomplete and was left out")
                offset += len(raw)
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(path, f"cannot be read: {reason}", number + 1 if number else None) from error


def read_finished(path: Path) -> list[dict[str, Any]]:
    """All objects of a file that nobody writes to any more; a file that is not there has none."""

    def refuse(_words: str) -> None:
        raise DataError(path, "ends in half a line; delete the folder it lies in, and what is missing is made again")

    return [line.fields for line in read_json_lines(path, refuse)] if path.is_file() else []


def parse_object(raw: bytes, path: Path, number: int) -> dict[str, Any]:
    """One line as an object."""
    try:
        fields = _loads(raw)
    except UnicodeDecodeError as error:
        raise DataError(path, f"is not UTF-8 text: {error.reason} at byte {error.start}", number) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"is not JSON: {error}", number) from error
    if not isinstance(fields, dict):
        raise DataError(path, f"must be a JSON object, found {type(fields).__name__}", number)
    return fields


def _is_cut(raw: bytes) -> bool:
    """No line end, and not whole: the beginning of an object is never an object itself."""
    if raw.endswith(b"\n"):
        return False
    try:
        _loads(raw)
    except (ValueError, RecursionError):
        return True
    return False


def _loads(raw: bytes) -> Any:
    return json.loads(raw.decode("utf-8"))
