"""Files of JSON: one object per line, read as a stream, or one in all. Errors are `DataError`s with file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import DataError

MAX_LINE = 2**26
"""Bytes; a small .gz can hold a line of many gigabytes."""
MAX_OBJECT, MAX_DEPTH = 2**28, 40
"""Bytes and levels of a file with one object."""
OnCut = Callable[[str], None]
"""Receives a message when the end of a file was left out."""


class JsonLine(NamedTuple):
    number: int
    offset: int
    """The byte at which the line begins."""
    fields: dict[str, Any]


def read_json_lines(path: Path, on_cut: OnCut | None = None, *, hint: str = "") -> Iterator[JsonLine]:
    """The objects of a file, plain or .gz, one by one; blank lines are skipped.

    A run that is still going, or was killed, may leave half a line at the end. With `on_cut`, that line is skipped and
    reported; without, it is an error like any other broken line. `hint` ends the message about a broken line.
    """
    number, offset = 0, 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            for number, raw in enumerate(iter(lambda: file.readline(MAX_LINE + 1), b""), start=1):
                if len(raw) > MAX_LINE:
                    raise DataError(path, f"the line has more than {MAX_LINE:,} bytes", number)
                if on_cut is not None and _is_cut(raw):
                    on_cut(f"{path.name}: line {number}, the last one, is incomplete and was left out")
                elif raw.strip():
                    yield JsonLine(number, offset, parse_object(raw, path, number, hint=hint))
                offset += len(raw)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(path, f"cannot be read: {reason}", number + 1 if number else None) from error


def read_object(path: Path) -> dict[str, Any]:
    """The one object of a file that may come from elsewhere: a plain file, of limited size and depth."""
    try:
        if not path.is_file():
            raise DataError(path, "is missing, or is not a file")
        if path.stat().st_size > MAX_OBJECT:
            raise DataError(path, f"has more than {MAX_OBJECT:,} bytes")
        fields = parse_object(path.read_bytes(), path)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        lists = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [inner for each in lists for inner in each]
    if level:
        raise DataError(path, f"has more than {MAX_DEPTH} levels")
    return fields


def parse_object(raw: bytes, path: Path, number: int | None = None, *, hint: str = "") -> dict[str, Any]:
    fields = parse_json(raw, path, number, hint=hint)
    if not isinstance(fields, dict):
        ending = f". {hint}" if hint else ""
        raise DataError(path, f"must be a JSON object, found {kind(fields)}{ending}", number)
    return fields


def parse_json(text: bytes | str, path: Path, number: int | None = None, *, hint: str = "") -> Any:
    """One line, or without `number` a whole file, as any JSON value."""
    try:
        return json.loads(text.decode("utf-8-sig" if number == 1 else "utf-8") if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 text: {error.reason} at byte {error.start}. Save it as UTF-8"
        raise DataError(path, reason, number) from error
    except json.JSONDecodeError as error:
        fault = f"is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"  # json's may end in "at"
        raise DataError(path, f"{fault}. {hint}" if hint else fault, number or error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"is not JSON: {error}", number) from error


def kind(value: object) -> str:
    """What a value is, for a message."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", type(None): "null"}
    return f"{value}" if isinstance(value, float | Decimal) else names.get(type(value), type(value).__name__)


def _is_cut(raw: bytes) -> bool:
    """Whether this is half a line: no line end, and no JSON. The beginning of an object is never JSON itself."""
    if raw.endswith(b"\n") or not raw.strip():
        return False
    try:
        json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return True
    return False
