"""Question files and hub data sets → questions.

Only the question's text is required. A gold answer is for measuring alone. What was taken as what is said in `notes`,
and whatever cannot be read without guessing raises `DataError` with file, line, reason and fix.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.records import Question

# Well-known names of columns by the option that names another, best first; two of one rank are ambiguous.
_NAMES = {
    "question_column": ("question problem", "prompt query instruction input text"),
    "gold_column": (
        "gold answer gold_answer final_answer correct_answer expected_answer reference_answer ground_truth groundtruth",
        "target label reference",
        "solution",  # often worked prose
    ),
    "id_column": ("id question_id uid unique_id qid problem_id", "index idx"),
}
_LIST_KEYS = ("data", "questions", "problems", "rows", "examples", "items")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?", re.ASCII)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_EATEN_BACKSLASH = re.compile("\b(?:oxed|egin|inom|eta|ar)|\frac")
_SHAPE = 'Write each question as {"question": "What is 2 + 2?", "answer": "4"}; "answer" is optional.'


@dataclass(frozen=True, slots=True)
class LoadedQuestions:
    """Questions, and how they were read."""

    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    """For people: which column was taken as what, and what was skipped or left out."""


class _Row(NamedTuple):
    """One question as it stands in the source."""

    source: str
    number: int
    """From 0, blank lines not counted."""
    line: int | None
    """From 1, where the source has lines."""
    fields: dict[str, Any]

    @property
    def place(self) -> str:
        return f"row {self.number} (from 0)" if self.line is None else f"line {self.line}"

    def error(self, reason: str) -> DataError:
        return DataError(self.source, f"{self.place}: {reason}" if self.line is None else reason, self.line)


class _Table(NamedTuple):
    rows: Iterable[_Row]
    notes: tuple[str, ...] = ()


class _Columns(NamedTuple):
    question: str
    gold: str | None
    id: str | None


def load_questions(
    source: str | Path,
    *,
    question_column: str | None = None,
    gold_column: str | None = None,
    id_column: str | None = None,
    limit: int | None = None,
) -> LoadedQuestions:
    """The questions of a file (.jsonl .json .csv .tsv .parquet .txt) or of a hub data set (`owner/name[:split]`).

    Columns are found by well-known names unless given. White space around texts is dropped. Without ids, question i
    (from 0) of `amc.csv` is `amc-i`. `limit` takes the first so many.
    """
    given = (question_column, gold_column, id_column)
    _check_options(source, given, limit)
    table, stem = _read(source)
    rows = list(islice(table.rows, limit))
    if not rows:
        raise DataError(source, f"there are no questions in it. {_SHAPE}")
    columns = _find_columns(rows, given)
    questions = tuple(
        Question(_id(row, columns.id, stem), _asked(row, columns.question), _gold(row, columns.gold)) for row in rows
    )
    _refuse_repeated_ids(rows, questions)
    notes = (*table.notes, *_column_notes(rows, columns, stem), *_question_notes(questions, limit))
    return LoadedQuestions(questions, notes)


def _check_options(source: str | Path, given: Sequence[str | None], limit: int | None) -> None:
    if not str(source).strip():
        raise ConfigError("the source of questions is empty: give a file or a hub data set (owner/name)")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be 1 or more, found {limit}; leave it out to take all questions")
    columns = [column for column in given if column is not None]
    if len(set(columns)) < len(columns):
        raise ConfigError(
            f"question_column, gold_column and id_column must be different columns, found {', '.join(columns)}"
        )


# Where the questions are


def _read(source: str | Path) -> tuple[_Table, str]:
    path = Path(source)
    suffix = path.suffix.lower()
    if os.path.exists(path):
        _refuse_unreadable(path)
        return _READERS[suffix](path), path.stem
    if isinstance(source, str) and suffix not in _READERS and _HUB_ID.fullmatch(source):
        return _read_hub(source), source.partition(":")[0].partition("/")[2]
    raise DataError(source, f"there is no such file; give one, or a hub data set (owner/name[:split]).{_near(path)}")


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
    """The question files beside a missing one."""
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix.lower() in _READERS]
    except (OSError, ValueError):
        return ""
    return did_you_mean(path.name, difflib.get_close_matches(path.name, names, n=8, cutoff=0)) if names else ""


def _read_hub(source: str) -> _Table:
    name, _, split = source.partition(":")
    try:
        import datasets
    except ImportError as error:
        reason = "there is no such file, and to load it as a hub data set: pip install 'scrl[hub]'."
        raise DataError(source, reason + _near(Path(source))) from error
    try:
        split = _choose_split(source, split, datasets.get_dataset_split_names(name))
        rows = datasets.load_dataset(name, split=split)
    except DataError:
        raise
    except Exception as error:  # the hub, the network and the data set's builder each raise their own
        reason = f"there is no such file, and as a hub data set it cannot be loaded: {error}."
        raise DataError(source, reason + _near(Path(source))) from error
    return _Table(_numbered(source, rows), (f"Hub data set {name}, split {split!r}.",))


def _choose_split(source: str, split: str, splits: Sequence[str]) -> str:
    if split and split not in splits:
        raise DataError(source, f"there is no split {split!r}.{did_you_mean(split, splits)}")
    if not split and len(splits) != 1:
        raise DataError(source, f"has several splits ({', '.join(splits)}); give one, as in {source}:{splits[-1]}")
    return split or splits[0]


# One reader a format


def _read_txt(path: Path) -> _Table:
    lines, notes = _lines(path)
    rows = [_Row(str(path), i, line, {"question": text}) for i, (line, text) in enumerate(lines)]
    return _Table(rows, ("Each line is one question (column 'question').", *notes))


def _read_jsonl(path: Path) -> _Table:
    lines, notes = _lines(path)
    values = [(line, _parse(text, path, line)) for line, text in lines]
    return _Table([_row(str(path), i, line, value) for i, (line, value) in enumerate(values)], notes)


def _read_json(path: Path) -> _Table:
    values = _parse(_text(path), path, None)
    if isinstance(values, list):
        return _Table(_numbered(str(path), values))
    if not isinstance(values, dict):
        raise DataError(path, f"must hold a list of questions, found {_kind(values)}. {_SHAPE}")
    found = [key for key, value in values.items() if key.lower() in _LIST_KEYS and isinstance(value, list)]
    if len(found) != 1:
        reason = f"must hold one list of questions, alone or under one of the keys {', '.join(_LIST_KEYS)}"
        raise DataError(path, f"{reason}; found the keys: {', '.join(values) or 'none'}. {_SHAPE}")
    others = [key for key in values if key not in found]
    left_out = (f"Left out beside that list: {', '.join(others)}.",) if others else ()
    return _Table(_numbered(str(path), values[found[0]]), (f"The list under {found[0]!r} is read.", *left_out))


def _read_cells(path: Path, *, delimiter: str) -> _Table:
    records = _records(path, delimiter)
    filled = [(line, cells) for line, cells in records if any(cell.strip() for cell in cells)]
    if not filled:
        return _Table([])
    first, header = filled[0]
    if len(set(header)) < len(header):
        raise DataError(path, f"two columns have the same name: {', '.join(header)}", first)
    for line, cells in filled:
        if len(cells) != len(header):
            reason = f"has {len(cells)} cells, but the header has {len(header)} ({', '.join(header)})"
            raise DataError(path, f"{reason}. Put double quotes around a cell with a separator in it.", line)
    rows = [
        _Row(str(path), i, line, dict(zip(header, cells, strict=True))) for i, (line, cells) in enumerate(filled[1:])
    ]
    return _Table(rows, _blank_note(len(records) - len(filled)))


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


def _read_parquet(path: Path) -> _Table:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(path, "to read parquet files: pip install pyarrow") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return _Table(_numbered(str(path), file.read().to_pylist()))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(path, f"cannot be read as parquet: {error}") from error


_READERS: dict[str, Callable[[Path], _Table]] = {
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".csv": partial(_read_cells, delimiter=","),
    ".tsv": partial(_read_cells, delimiter="\t"),
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}


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


def _parse(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        fix = "A file with one object a line is named .jsonl." if line is None else "A list over many lines is a .json."
        raise DataError(
            path, f"is not JSON: {error.msg} at column {error.colno}. {fix} {_SHAPE}", line or error.lineno
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"is not JSON: {error}", line) from error


def _numbered(source: str, values: Iterable[Any]) -> Iterator[_Row]:
    return (_row(source, i, None, value) for i, value in enumerate(values))


def _row(source: str, number: int, line: int | None, value: Any) -> _Row:
    row = _Row(source, number, line, {"question": value} if isinstance(value, str) else value)
    if not isinstance(row.fields, dict):
        raise row.error(f"must be an object or a text, found {_kind(value)}. {_SHAPE}")
    return row


# Which column is what


def _find_columns(rows: Sequence[_Row], given: Sequence[str | None]) -> _Columns:
    source = rows[0].source
    names = list(dict.fromkeys(name for row in rows for name in row.fields))
    for option, wanted in zip(_NAMES, given, strict=True):
        if wanted is not None and wanted not in names:
            raise DataError(source, f"there is no column {wanted!r}, given as {option}.{did_you_mean(wanted, names)}")
    free = [name for name in names if name not in given]
    question, gold, id_ = (
        _detect(source, option, free) if wanted is None else wanted
        for option, wanted in zip(_NAMES, given, strict=True)
    )
    if question is None:
        reason = f"no column looks like the question. Columns: {', '.join(names) or 'none'}."
        raise DataError(source, f"{reason} Say which one it is with question_column.")
    return _Columns(question, gold, id_)


def _detect(source: str, option: str, names: Sequence[str]) -> str | None:
    for rank in _NAMES[option]:
        found = [name for name in names if re.sub(r"[\s-]+", "_", name.strip().lower()) in rank.split()]
        if len(found) > 1:
            reason = f"the columns {' and '.join(map(repr, found))} could each be it: say which one with {option}"
            raise DataError(source, f"{reason}. Columns: {', '.join(names)}.")
        if found:
            return found[0]
    return None


# One cell → text


def _id(row: _Row, column: str | None, stem: str) -> str:
    if column is None:
        return f"{stem}-{row.number}"
    value = row.fields.get(column)
    if value is None or not str(value).strip():
        raise row.error(f"field {column!r} is empty. Give every question an id, or rename the column to number them.")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(f"field {column!r} must be text or a whole number, found {_kind(value)}")
    return _checked(row, column, str(value))


def _asked(row: _Row, column: str) -> str:
    if column not in row.fields:
        raise row.error(f"field {column!r} is missing; there is only: {', '.join(row.fields) or 'nothing'}")
    value = row.fields[column]
    text = _last_user_message(row, column, value) if isinstance(value, list) else value
    if text is None or text == "" or (isinstance(text, str) and text.isspace()):
        raise row.error(f"field {column!r} is empty. Write the question there, or remove this row.")
    if not isinstance(text, str):
        raise row.error(f"field {column!r} must be text or chat messages, found {_kind(text)}")
    return _checked(row, column, text)


def _last_user_message(row: _Row, column: str, messages: list[Any]) -> Any:
    if not all(isinstance(message, dict) and {"role", "content"} <= set(message) for message in messages):
        raise row.error(f'field {column!r} is a list, but not of chat messages {{"role": "user", "content": "…"}}')
    asked = [message["content"] for message in messages if message["role"] == "user"]
    if not asked:
        raise row.error(f"field {column!r} has chat messages, but none of role 'user'")
    return asked[-1]


def _gold(row: _Row, column: str | None) -> str | None:
    value = None if column is None else row.fields.get(column)
    if column is None or value is None:
        return None
    is_finite = isinstance(value, float | Decimal) and math.isfinite(value)
    if not is_finite and type(value) not in (str, int):
        reason = f"field {column!r}, taken as the gold answer, must be text, a number or null, found {_kind(value)}"
        raise row.error(f"{reason}. Say which column holds it with gold_column, or rename this one.")
    return _checked(row, column, str(value)) or None


def _checked(row: _Row, column: str, text: str) -> str:
    """The text without white space around it, if it can be written to a file and was not garbled by JSON escapes."""
    if _UNWRITABLE.search(text):
        raise row.error(f"field {column!r} has a NUL or half a surrogate pair in it: remove it")
    if _EATEN_BACKSLASH.search(text):
        raise row.error(f"field {column!r} has lost a backslash, as in '\\frac': in JSON it is written '\\\\frac'")
    return text.strip()


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", type(None): "null"}
    return f"{value}" if isinstance(value, float | Decimal) else names.get(type(value), type(value).__name__)


# What was done


def _refuse_repeated_ids(rows: Sequence[_Row], questions: Sequence[Question]) -> None:
    first: dict[str, _Row] = {}
    for row, question in zip(rows, questions, strict=True):
        if first.setdefault(question.id, row) is not row:
            reason = f"id {question.id!r} stands here again, first on {first[question.id].place}"
            raise row.error(f"{reason}. Make ids unique, or rename the column to have the questions numbered.")


def _column_notes(rows: Sequence[_Row], columns: _Columns, stem: str) -> Iterator[str]:
    yield f"Question: column {columns.question!r}."
    if any(isinstance(row.fields[columns.question], list) for row in rows):
        yield "Chat messages: the last user message is the question; system messages and earlier turns are left out."
    if columns.gold is None:
        yield "Gold answer: no column; accuracy is not measured."
    else:
        yield f"Gold answer: column {columns.gold!r}, for measuring alone."
    yield f"Id: {f'column {columns.id!r}' if columns.id else f'numbered, from {stem}-0 on'}."
    others = dict.fromkeys(name for row in rows for name in row.fields if name not in columns)
    if others:
        yield f"Columns left out: {', '.join(others)}."


def _question_notes(questions: Sequence[Question], limit: int | None) -> Iterator[str]:
    golden = sum(question.gold is not None for question in questions)
    if 0 < golden < len(questions):
        yield f"{golden} of {len(questions)} questions have a gold answer."
    repeated = len(questions) - len({question.text for question in questions})
    if repeated:
        yield f"{repeated} question(s) repeat the text of an earlier one; they are kept."
    if limit == len(questions):
        yield f"The first {limit} question(s) are taken (limit)."


def _blank_note(blanks: int) -> tuple[str, ...]:
    return (f"{blanks} blank line(s) skipped.",) if blanks else ()
