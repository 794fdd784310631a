"""Where questions are, and how they are written: files and hub data sets → rows of fields.

What a field means is not decided here.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import DataError, did_you_mean

_LIST_KEYS = ("data", "questions", "problems", "rows", "examples", "items")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?", re.ASCII)
SHAPE = 'Write each question as {"question": "What is 2 + 2?", "answer": "4"}; "answer" is optional.'
LINES = "Write one question a line."
"""The same for a .txt."""


class Row(NamedTuple):
    """One question as it stands in the source."""

    source: str
    number: int
    """From 0, blank lines not counted."""
    line: int | None
    """From 1, where the source has lines."""
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        """Where the row stands, for a message."""
        return f"row {self.number} (from 0)" if self.line is None else f"line {self.line}"

    def error(self, reason: str) -> DataError:
        """What is wrong with this row."""
        return DataError(self.source, f"{self.place}: {reason}" if self.line is None else reason, self.line)


class Table(NamedTuple):
    """The rows of a source, and what there is to say about reading them."""

    rows: Iterable[Row]
    notes: tuple[str, ...] = ()


class HubError(Exception):
    """A hub data set cannot be had; the text is a clause without a full stop, for the caller's own message."""


def read_table(source: str | Path) -> tuple[Table, str]:
    """The rows of a file or of a hub data set (`owner/name[:split]`), and what its questions are called after."""
    path = Path(source)
    suffix = path.suffix.lower()
    if os.path.exists(path):
        _refuse_unreadable(path)
        return _READERS[suffix](path), path.stem
    if isinstance(source, str) and is_hub_id(source):
        return _read_hub(source), source.partition(":")[0].partition("/")[2]
    raise DataError(source, f"there is no such file; give one, or a hub data set (owner/name[:split]).{_near(path)}")


def is_hub_id(source: str) -> bool:
    """Whether a source is written `owner/name[:split]`, and not like a file."""
    return Path(source).suffix.lower() not in _READERS and _HUB_ID.fullmatch(source) is not None


def _refuse_unreadable(path: Path) -> None:
    if path.is_dir():
        raise DataError(path, f"is a folder; give one file of questions.{_near(path / 'questions.jsonl')}")
    if not path.is_file():
        raise DataError(path, "is not a regular file; write the questions to a file first")
    if path.suffix.lower() not in _READERS:
        raise DataError(path, f"has an unknown suffix {path.suffix!r}. Save it as one of: {', '.join(_READERS)}")
    if path.stat().st_size == 0:
        raise DataError(path, "is empty")


def _near(path: Path) -> str:
    near = nearby_files(path)
    return did_you_mean(path.name, near) if near else ""


def nearby_files(path: Path) -> list[str]:
    """The question files beside a missing one, the eight with the most similar names."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in _READERS]
    except (OSError, ValueError):
        return []
    return difflib.get_close_matches(path.name, names, n=8, cutoff=0)


def _read_hub(source: str) -> Table:
    name, _, split = source.partition(":")
    try:
        split = _choose_split(source, split, _ask_hub(lambda hub: hub.get_dataset_split_names(name)))
        return read_hub(name, split=split, source=source)
    except HubError as error:
        raise DataError(source, f"there is no such file, and {error}.{_near(Path(source))}") from error


def read_hub(
    name: str, *, split: str, config: str | None = None, revision: str | None = None, source: str | None = None
) -> Table:
    """One split of a hub data set; `source` is what messages call it. Without the hub: `HubError`."""
    wanted = {"name": config, "split": split, "revision": revision}
    options = {option: value for option, value in wanted.items() if value is not None}
    rows = _ask_hub(lambda hub: hub.load_dataset(name, **options))
    chosen = "".join(
        f", {option} {value!r}" for option, value in (("configuration", config), ("split", split)) if value
    )
    at = f", revision {revision}" if revision else ""
    return Table(_numbered(source or name, rows), (f"Hub data set {name}{chosen}{at}.",))


def _ask_hub(request: Callable[[Any], Any]) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HubError("to load it as a hub data set: pip install 'scrl[hub]'") from error
    try:
        return request(datasets)
    except Exception as error:  # the hub, the network and the data set's builder each raise their own
        raise HubError(f"as a hub data set it cannot be loaded: {error}") from error


def _choose_split(source: str, split: str, splits: Sequence[str]) -> str:
    if split and split not in splits:
        raise DataError(source, f"there is no split {split!r}.{did_you_mean(split, splits)}")
    if not split and len(splits) != 1:
        raise DataError(source, f"has several splits ({', '.join(splits)}); give one, as in {source}:{splits[-1]}")
    return split or splits[0]


# One reader a format


def _read_txt(path: Path) -> Table:
    lines, notes = _lines(path)
    rows = [Row(str(path), i, line, {"question": text}) for i, (line, text) in enumerate(lines)]
    return Table(rows, ("Each line is one question (column 'question').", *notes))


def read_jsonl(path: Path) -> Table:
    """One object, or one text, a line."""
    lines, notes = _lines(path)
    values = [(line, _parse(text, path, line)) for line, text in lines]
    return Table([_row(str(path), i, line, value) for i, (line, value) in enumerate(values)], notes)


def _read_json(path: Path) -> Table:
    values = _parse(_text(path), path, None)
    if isinstance(values, list):
        return Table(_numbered(str(path), values))
    if not isinstance(values, dict):
        raise DataError(path, f"must hold a list of questions, found {kind(values)}. {SHAPE}")
    found = [key for key, value in values.items() if key.lower() in _LIST_KEYS and isinstance(value, list)]
    if len(found) != 1:
        reason = f"must hold one list of questions, alone or under one of the keys {', '.join(_LIST_KEYS)}"
        raise DataError(path, f"{reason}; found the keys: {', '.join(values) or 'none'}. {SHAPE}")
    others = [key for key in values if key not in found]
    left_out = (f"Left out beside that list: {', '.join(others)}.",) if others else ()
    return Table(_numbered(str(path), values[found[0]]), (f"The list under {found[0]!r} is read.", *left_out))


def _read_cells(path: Path, *, delimiter: str) -> Table:
    records = _records(path, delimiter)
    filled = [(line, cells) for line, cells in records if any(cell.strip() for cell in cells)]
    if not filled:
        return Table([])
    first, header = filled[0]
    if len(set(header)) < len(header):
        raise DataError(path, f"two columns have the same name: {', '.join(header)}", first)
    for line, cells in filled:
        if len(cells) != len(header):
            reason = f"has {len(cells)} cells, but the header has {len(header)} ({', '.join(header)})"
            raise DataError(path, f"{reason}. Put double quotes around a cell with a separator in it.", line)
    rows = [
        Row(str(path), i, line, dict(zip(header, cells, strict=True))) for i, (line, cells) in enumerate(filled[1:])
    ]
    return Table(rows, _blank_note(len(records) - len(filled)))


def _records(path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Each record with the line it begins on: cells in quotes may hold line ends."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=delimiter, strict=True)
    records, line = [], 1
    try:
        for cells in reader:
            records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        fix = 'Put double quotes around cells with quotes in them, and write those as "".'
        raise DataError(path, f"is not a table: {error}. {fix}", line) from error
    return records


def _read_csv(path: Path) -> Table:
    """Cells between commas, or between semicolons or tabs, which is then said."""
    delimiter = _delimiter(_text(path))
    table = _read_cells(path, delimiter=delimiter)
    said = () if delimiter == "," else (f"Cells are separated by {_DELIMITERS[delimiter]}.",)
    return Table(table.rows, (*said, *table.notes))


_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""In a .csv: Excel writes semicolons in countries that write 1,5."""


def _delimiter(text: str) -> str:
    """What stands between the header's cells; of several, the first with which most rows are as long as the header."""

    def rows_like_the_header(delimiter: str) -> int:
        lengths = _row_lengths(text, delimiter)
        header = next(lengths, 0)
        return 1 + sum(length == header for length in lengths) if header > 1 else 0

    return max(_DELIMITERS, key=rows_like_the_header)


def _row_lengths(text: str, delimiter: str) -> Iterator[int]:
    """How many cells each row has that is not blank, as far as the text is a table."""
    with suppress(csv.Error):
        for cells in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True):
            if any(cell.strip() for cell in cells):
                yield len(cells)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(path, "to read parquet files: pip install pyarrow") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return Table(_numbered(str(path), file.read().to_pylist()))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(path, f"cannot be read as parquet: {error}") from error


_READERS: dict[str, Callable[[Path], Table]] = {
    ".jsonl": read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": partial(_read_cells, delimiter="\t"),
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}

SUFFIXES = tuple(_READERS)
"""Of the files that can be read."""


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        if b"\0" in raw:
            reason = "has NUL bytes: it is a binary file or UTF-16. Save it as UTF-8 text."
            raise DataError(path, reason, raw.count(b"\n", 0, raw.index(b"\0")) + 1)
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DataError(path, f"is not UTF-8 text ({error.reason}). Save it as UTF-8.", line) from error


def _lines(path: Path) -> tuple[list[tuple[int, str]], tuple[str, ...]]:
    """The lines that are not blank, numbered from 1, and a note on the blank ones."""
    lines = list(enumerate(io.StringIO(_text(path), newline=None), start=1))
    filled = [(line, text.strip()) for line, text in lines if text.strip()]
    return filled, _blank_note(len(lines) - len(filled))


def fault_in_json(error: json.JSONDecodeError) -> str:
    """What is wrong, and where; some of json's own messages end in "at"."""
    return f"is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}"


def _parse(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fix = "A file with one object a line is named .jsonl." if line is None else "A list over many lines is a .json."
        raise DataError(
            path,
            f"{fault_in_json(error)}. {fix} {SHAPE}",
            line or error.lineno,
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"is not JSON: {error}", line) from error


def _numbered(source: str, values: Iterable[Any]) -> Iterator[Row]:
    return (_row(source, i, None, value) for i, value in enumerate(values))


def _row(source: str, number: int, line: int | None, value: Any) -> Row:
    row = Row(source, number, line, {"question": value} if isinstance(value, str) else value)
    if not isinstance(row.fields, dict):
        raise row.error(f"must be an object or a text, found {kind(value)}. {SHAPE}")
    return row


def kind(value: object) -> str:
    """What a value is, for a message."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", type(None): "null"}
    return f"{value}" if isinstance(value, float | Decimal) else names.get(type(value), type(value).__name__)


def _blank_note(blanks: int) -> tuple[str, ...]:
    return (f"{blanks} blank line(s) skipped.",) if blanks else ()
