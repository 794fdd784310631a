"""Question files and hub data sets → rows of fields, whatever the fields mean."""

from __future__ import annotations

import csv
import difflib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import DataError, did_you_mean
from scrl.files.jsonl import MAX_LINE, kind, parse_json

SHAPE = 'Write each question as {"question": "What is 2 + 2?", "answer": "4"}; "answer" is optional.'
LINES = "Write one question per line."
_LIST_KEYS = ("data", "questions", "problems", "rows", "examples", "items")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?", re.ASCII)
_HEADING = re.compile(r"\s*#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[-*•+]|\(?\d{1,4}[.)]|Q\d{1,4}[.:)])\s+(?=\S)")
csv.field_size_limit(MAX_LINE)  # 131,072 characters else: a long completion has more
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""Delimiters of a .csv: Excel writes semicolons in countries that write 1,5."""


class RawRow(NamedTuple):
    source: str
    number: int
    """From 0, blank lines not counted."""
    line: int | None
    """From 1, if the source has lines."""
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        return f"row {self.number} (from 0)" if self.line is None else f"line {self.line}"

    def error(self, reason: str) -> DataError:
        return DataError(self.source, f"{self.place}: {reason}" if self.line is None else reason, self.line)


class RawTable(NamedTuple):
    rows: Iterable[RawRow]
    notes: tuple[str, ...] = ()
    delimiter: str | None = None
    """What separates the cells of a .csv or .tsv."""


class HubError(Exception):
    """A hub data set cannot be loaded; its text is a clause without a full stop, for the caller's message."""


def read_table(source: str | Path) -> tuple[RawTable, str]:
    """The rows of a file or of a hub data set (`owner/name[:split]`), and the stem of its questions' ids."""
    path = Path(source)
    if not os.path.exists(path):
        if isinstance(source, str) and is_hub_id(source):
            return _read_hub_source(source), source.partition(":")[0].partition("/")[2]
        reason = "there is no such file; give one, or a hub data set (owner/name[:split])"
        raise DataError(source, f"{reason}.{did_you_mean_file(path)}")
    suffix = path.suffix.lower()
    if path.is_dir():
        raise DataError(path, f"is a folder; give one file of questions.{did_you_mean_file(path / 'questions.jsonl')}")
    if not path.is_file():
        raise DataError(path, "is not a regular file; write the questions to a file first")
    if suffix not in _READERS:
        raise DataError(path, f"has an unknown suffix {path.suffix!r}. Save it as one of: {', '.join(_READERS)}")
    if path.stat().st_size == 0:
        raise DataError(path, "is empty")
    return _READERS[suffix](path), path.stem


def did_you_mean_file(path: Path, *more: str) -> str:
    """Files beside a missing one, of questions or with one of `more` suffixes, to end a message."""
    names = nearby_files(path, *more)
    return did_you_mean(path.name, names) if names else ""


def nearby_files(path: Path, *more: str) -> list[str]:
    """The eight with the most similar names."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in (*_READERS, *more)]
    except (OSError, ValueError):
        return []
    return difflib.get_close_matches(path.name, names, n=8, cutoff=0)


# The hub


def is_hub_id(source: str) -> bool:
    """Whether a source is written `owner/name[:split]`, and not like a file."""
    return Path(source).suffix.lower() not in _READERS and _HUB_ID.fullmatch(source) is not None


def _read_hub_source(source: str) -> RawTable:
    name, _, split = source.partition(":")
    try:
        splits = _ask_hub(lambda hub: hub.get_dataset_split_names(name))
        if split and split not in splits:
            raise DataError(source, f"there is no split {split!r}.{did_you_mean(split, splits)}")
        if not split and len(splits) != 1:
            raise DataError(source, f"has several splits ({', '.join(splits)}); give one, as in {source}:{splits[-1]}")
        return read_hub(name, split=split or splits[0], source=source)
    except HubError as error:
        raise DataError(source, f"there is no such file, and {error}.{did_you_mean_file(Path(source))}") from error


def read_hub(
    name: str, *, split: str, config: str | None = None, revision: str | None = None, source: str | None = None
) -> RawTable:
    """One split of a hub data set; `source` is its name in messages. Without the hub: `HubError`."""
    named = {"configuration": config, "split": split, "revision": revision}
    options = {"name": config, "split": split, "revision": revision}
    rows = _ask_hub(lambda hub: hub.load_dataset(name, **{option: value for option, value in options.items() if value}))
    about = ", ".join((f"Hub data set {name}", *(f"{words} {value!r}" for words, value in named.items() if value)))
    return RawTable(_numbered(source or name, rows), (f"{about}.",))


def _ask_hub(request: Callable[[Any], Any]) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HubError("to load it as a hub data set: pip install 'scrl[hub]'") from error
    try:
        return request(datasets)
    except Exception as error:  # the hub, the network and the data set's builder each raise their own
        raise HubError(f"as a hub data set it cannot be loaded: {error}") from error


# One reader per format


def _read_txt(path: Path) -> RawTable:
    """One question per line, without the numbers or bullets of a list, and without headings."""
    lines, notes = _lines(path)
    asked = [(line, text) for line, text in lines if not _HEADING.match(text)]
    if len(asked) < len(lines):
        notes = (*notes, f"Headings (#) are not questions: {len(lines) - len(asked)} left out.")
    if asked and all(_ITEM.match(text) for _, text in asked):
        asked = [(line, _ITEM.sub("", text, count=1)) for line, text in asked]
        notes = (*notes, "The numbers or bullets of the list are left out.")
    elif any(_ITEM.match(text) for _, text in asked):
        line, text = next((line, text) for line, text in asked if not _ITEM.match(text))
        others = f"the other lines count as questions too, first line {line}: {text[:40]!r}"
        notes = (*notes, f"Some lines are items of a list; {others}.")
    rows = [RawRow(str(path), i, line, {"question": text}) for i, (line, text) in enumerate(asked)]
    return RawTable(rows, ("Each line is one question.", *notes))


def read_jsonl(path: Path) -> RawTable:
    """One object, or one text, per line."""
    lines, notes = _lines(path)
    hint = f"A list over many lines is a .json. {SHAPE}"
    values = [(line, parse_json(text, path, line, hint=hint)) for line, text in lines]
    return RawTable([_row(str(path), i, line, value) for i, (line, value) in enumerate(values)], notes)


def _read_json(path: Path) -> RawTable:
    values = parse_json(_text(path), path, hint=f"A file with one object per line is named .jsonl. {SHAPE}")
    if isinstance(values, list):
        return RawTable(_numbered(str(path), values))
    if not isinstance(values, dict):
        raise DataError(path, f"must hold a list of questions, found {kind(values)}. {SHAPE}")
    keys = [key for key, value in values.items() if key.lower() in _LIST_KEYS and isinstance(value, list)]
    if len(keys) != 1:
        reason = f"must hold one list of questions, alone or under one of the keys {', '.join(_LIST_KEYS)}"
        raise DataError(path, f"{reason}; found the keys: {', '.join(values) or 'none'}. {SHAPE}")
    notes = [f"The list under {keys[0]!r} is read."]
    if len(values) > 1:
        notes.append(f"Left out beside that list: {', '.join(key for key in values if key not in keys)}.")
    return RawTable(_numbered(str(path), values[keys[0]]), tuple(notes))


def _read_csv(path: Path, delimiter: str | None = None) -> RawTable:
    """Cells between commas, semicolons or tabs: the delimiter that gives most rows the length of the header."""
    text = _text(path)

    def rows_like_the_header(delimiter: str) -> int:
        lengths: list[int] = []
        with suppress(csv.Error):
            lengths.extend(len(cells) for cells in _csv_reader(text, delimiter) if not _is_blank(cells))
        return lengths.count(lengths[0]) if lengths and lengths[0] > 1 else 0

    used = delimiter or max(_DELIMITERS, key=rows_like_the_header)
    notes = () if used in (delimiter, ",") else (f"Cells are separated by {_DELIMITERS[used]}.",)
    reader, records, line = _csv_reader(text, used), [], 1  # quoted cells may contain line ends
    try:
        for cells in reader:
            records.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        fix = 'Put double quotes around cells with quotes in them, and write those as "".'
        raise DataError(path, f"is not a table: {error}. {fix}", line) from error
    nonblank = [(line, cells) for line, cells in records if not _is_blank(cells)]
    if not nonblank:
        return RawTable([], notes, used)
    first, header = nonblank[0]
    if len(set(header)) < len(header):
        raise DataError(path, f"two columns have the same name: {', '.join(header)}", first)
    for line, cells in nonblank:
        if len(cells) != len(header):
            reason = f"has {len(cells)} cells, but the header has {len(header)} ({', '.join(header)})"
            raise DataError(path, f"{reason}. Put double quotes around a cell with a separator in it.", line)
    fields = [(line, dict(zip(header, cells, strict=True))) for line, cells in nonblank[1:]]
    rows = [RawRow(str(path), i, line, cells) for i, (line, cells) in enumerate(fields)]
    return RawTable(rows, (*notes, *_blank_note(len(records) - len(nonblank))), used)


def _csv_reader(text: str, delimiter: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _is_blank(cells: list[str]) -> bool:
    return not any(cell.strip() for cell in cells)


def _read_parquet(path: Path) -> RawTable:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(path, "to read parquet files: pip install pyarrow") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return RawTable(_numbered(str(path), file.read().to_pylist()))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(path, f"cannot be read as parquet: {error}") from error


_READERS: dict[str, Callable[[Path], RawTable]] = {
    ".jsonl": read_jsonl,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".parquet": _read_parquet,
    ".txt": _read_txt,
    ".md": _read_txt,
}

SUFFIXES = tuple(_READERS)


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
    nonblank = [(line, text.strip()) for line, text in lines if text.strip()]
    return nonblank, _blank_note(len(lines) - len(nonblank))


def _numbered(source: str, values: Iterable[Any]) -> Iterator[RawRow]:
    return (_row(source, i, None, value) for i, value in enumerate(values))


def _row(source: str, number: int, line: int | None, value: Any) -> RawRow:
    row = RawRow(source, number, line, {"question": value} if isinstance(value, str) else value)
    if not isinstance(row.fields, dict):
        raise row.error(f"must be an object or a text, found {kind(value)}. {SHAPE}")
    return row


def _blank_note(blanks: int) -> tuple[str, ...]:
    return (f"{blanks} blank line{'s' * (blanks > 1)} skipped.",) if blanks else ()
