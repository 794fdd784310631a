"""Question files and hub data sets → questions.

Only the question's text is required. A gold answer is for measuring alone. What was taken as what is said in `notes`,
and whatever cannot be read without guessing raises `DataError` with file, line, reason and fix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from scrl.data.tables import LINES, SHAPE, Row, kind, read_table
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.records import Question

COLUMN_NAMES = {
    "question_column": ("question problem", "prompt query instruction input text"),
    "gold_column": (
        "gold answer gold_answer final_answer correct_answer expected_answer reference_answer ground_truth groundtruth",
        "target label reference",
        "solution",  # often worked prose
    ),
    "id_column": ("id question_id uid unique_id qid problem_id", "index idx"),
    "rephrased_column": ("rephrased rephrased_question", "paraphrase"),
}
"""Well-known names of columns by the option that names another, best first; two of one rank are ambiguous."""
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_EATEN_BACKSLASH = re.compile("\b(?:oxed|egin|inom|eta|ar)|\frac")


@dataclass(frozen=True, slots=True)
class LoadedQuestions:
    """Questions, and how they were read."""

    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    """For people: which column was taken as what, and what was skipped or left out."""


class Columns(NamedTuple):
    """Which column is what; None where there is none."""

    question: str
    gold: str | None
    id: str | None
    level: str | None = None
    rephrased: str | None = None


def load_questions(
    source: str | Path,
    *,
    question_column: str | None = None,
    gold_column: str | None = None,
    id_column: str | None = None,
    rephrased_column: str | None = None,
    limit: int | None = None,
) -> LoadedQuestions:
    """The questions of a file (.jsonl .json .csv .tsv .parquet .txt) or of a hub data set (`owner/name[:split]`).

    Columns are found by well-known names unless given. White space around texts is dropped. Without ids, question i
    (from 0) of `amc.csv` is `amc-i`. `limit` takes the first so many.
    """
    given = (question_column, gold_column, id_column, rephrased_column)
    _check_options(source, given, limit)
    table, stem = read_table(source)
    rows = list(islice(table.rows, limit))
    if not rows:
        fix = LINES if Path(source).suffix.lower() == ".txt" else SHAPE
        raise DataError(source, f"there are no questions in it. {fix}")
    columns = _find_columns(rows, given)
    questions = make_questions(rows, columns, stem)
    notes = (*table.notes, *_column_notes(rows, columns, stem), *_question_notes(questions, limit))
    return LoadedQuestions(questions, notes)


def make_questions(rows: Sequence[Row], columns: Columns, stem: str) -> tuple[Question, ...]:
    """One question a row, with ids that differ; without a column of ids they are numbered, `stem-0` first."""
    questions = tuple(
        Question(
            id=_id(row, columns.id, stem),
            text=_asked(row, columns.question),
            gold=_gold(row, columns.gold),
            level=_level(row, columns.level),
            rephrased=_rephrased(row, columns.rephrased),
        )
        for row in rows
    )
    _refuse_repeated_ids(rows, questions)
    return questions


def check_limit(limit: int | None) -> None:
    """A limit takes at least one question."""
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be 1 or more, found {limit}; leave it out to take all questions")


def _check_options(source: str | Path, given: Sequence[str | None], limit: int | None) -> None:
    if not str(source).strip():
        raise ConfigError("the source of questions is empty: give a file or a hub data set (owner/name)")
    check_limit(limit)
    columns = [column for column in given if column is not None]
    if len(set(columns)) < len(columns):
        raise ConfigError(f"{', '.join(COLUMN_NAMES)} must be different columns, found {', '.join(columns)}")


# Which column is what


def _find_columns(rows: Sequence[Row], given: Sequence[str | None]) -> Columns:
    source = rows[0].source
    names = list(dict.fromkeys(name for row in rows for name in row.fields))
    for option, wanted in zip(COLUMN_NAMES, given, strict=True):
        if wanted is not None and wanted not in names:
            raise DataError(source, f"there is no column {wanted!r}, given as {option}.{did_you_mean(wanted, names)}")
    free = [name for name in names if name not in given]
    question, gold, id_, rephrased = (
        _detect(source, option, free) if wanted is None else wanted
        for option, wanted in zip(COLUMN_NAMES, given, strict=True)
    )
    if question is None:
        reason = f"no column looks like the question. Columns: {', '.join(names) or 'none'}."
        raise DataError(source, f"{reason} Say which one it is with question_column (--question-column).")
    return Columns(question, gold, id_, rephrased=rephrased)


def _detect(source: str, option: str, names: Sequence[str]) -> str | None:
    for rank in COLUMN_NAMES[option]:
        found = [name for name in names if re.sub(r"[\s-]+", "_", name.strip().lower()) in rank.split()]
        if len(found) > 1:
            reason = f"the columns {' and '.join(map(repr, found))} could each be it: say which one with {option}"
            raise DataError(source, f"{reason}. Columns: {', '.join(names)}.")
        if found:
            return found[0]
    return None


# One cell → text


def _id(row: Row, column: str | None, stem: str) -> str:
    if column is None:
        return f"{stem}-{row.number}"
    value = row.fields.get(column)
    if value is None or not str(value).strip():
        raise row.error(f"field {column!r} is empty. Give every question an id, or rename the column to number them.")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise row.error(f"field {column!r} must be text or a whole number, found {kind(value)}")
    return _checked(row, column, str(value))


def _asked(row: Row, column: str) -> str:
    if column not in row.fields:
        raise row.error(f"field {column!r} is missing; there is only: {', '.join(row.fields) or 'nothing'}")
    text = _message(row, column)
    if text is None:
        raise row.error(f"field {column!r} is empty. Write the question there, or remove this row.")
    return text


def _rephrased(row: Row, column: str | None) -> str | None:
    """The question in other words, where this row has it."""
    return None if column is None else _message(row, column)


def _message(row: Row, column: str) -> str | None:
    """What is said to the model: text or chat messages; None where nothing is."""
    value = row.fields.get(column)
    text = _last_user_message(row, column, value) if isinstance(value, list) else value
    if text is None or text == "" or (isinstance(text, str) and text.isspace()):
        return None
    if not isinstance(text, str):
        raise row.error(f"field {column!r} must be text or chat messages, found {kind(text)}")
    return _checked(row, column, text)


def _last_user_message(row: Row, column: str, messages: list[Any]) -> Any:
    if not all(isinstance(message, dict) and {"role", "content"} <= set(message) for message in messages):
        raise row.error(f'field {column!r} is a list, but not of chat messages {{"role": "user", "content": "…"}}')
    asked = [message["content"] for message in messages if message["role"] == "user"]
    if not asked:
        raise row.error(f"field {column!r} has chat messages, but none of role 'user'")
    return asked[-1]


def _gold(row: Row, column: str | None) -> str | None:
    value = None if column is None else row.fields.get(column)
    if column is None or value is None:
        return None
    is_finite = isinstance(value, float | Decimal) and math.isfinite(value)
    if not is_finite and type(value) not in (str, int):
        reason = f"field {column!r}, taken as the gold answer, must be text, a number or null, found {kind(value)}"
        raise row.error(f"{reason}. Say which column holds it with gold_column, or rename this one.")
    return _checked(row, column, str(value)) or None


def _level(row: Row, column: str | None) -> str | None:
    value = None if column is None else row.fields.get(column)
    if column is None or value is None:
        return None
    if type(value) not in (str, int):
        raise row.error(f"field {column!r} must be text or a whole number, found {kind(value)}")
    return _checked(row, column, str(value)) or None


def _checked(row: Row, column: str, text: str) -> str:
    """The text without white space around it, if it can be written to a file and was not garbled by JSON escapes."""
    if _UNWRITABLE.search(text):
        raise row.error(f"field {column!r} has a NUL or half a surrogate pair in it: remove it")
    if _EATEN_BACKSLASH.search(text):
        raise row.error(f"field {column!r} has lost a backslash, as in '\\frac': in JSON it is written '\\\\frac'")
    return text.strip()


# What was done


def _refuse_repeated_ids(rows: Sequence[Row], questions: Sequence[Question]) -> None:
    first: dict[str, Row] = {}
    for row, question in zip(rows, questions, strict=True):
        if first.setdefault(question.id, row) is not row:
            reason = f"id {question.id!r} stands here again, first on {first[question.id].place}"
            raise row.error(f"{reason}. Make ids unique, or rename the column to have the questions numbered.")


def _column_notes(rows: Sequence[Row], columns: Columns, stem: str) -> Iterator[str]:
    yield f"Question: column {columns.question!r}."
    if any(isinstance(row.fields[columns.question], list) for row in rows):
        yield "Chat messages: the last user message is the question; system messages and earlier turns are left out."
    if columns.gold is None:
        yield "Gold answer: no column; accuracy is not measured."
    else:
        yield f"Gold answer: column {columns.gold!r}, for measuring alone."
    yield f"Id: {f'column {columns.id!r}' if columns.id else f'numbered, from {stem}-0 on'}."
    if columns.rephrased is not None:
        yield f"Rephrased question: column {columns.rephrased!r}, for methods that ask both."
    others = dict.fromkeys(name for row in rows for name in row.fields if name not in columns)
    if others:
        yield f"Columns left out: {', '.join(others)}."


def _question_notes(questions: Sequence[Question], limit: int | None) -> Iterator[str]:
    golden = sum(question.gold is not None for question in questions)
    if 0 < golden < len(questions):
        yield f"{golden} of {len(questions)} questions have a gold answer."
    rephrased = sum(question.rephrased is not None for question in questions)
    if 0 < rephrased < len(questions):
        yield f"{rephrased} of {len(questions)} questions have a rephrasing."
    repeated = len(questions) - len({question.text for question in questions})
    if repeated:
        yield f"{repeated} question(s) repeat the text of an earlier one; they are kept."
    yield from limit_note(limit, len(questions))


def limit_note(limit: int | None, taken: int) -> tuple[str, ...]:
    """A note where a limit was met."""
    return (f"The first {limit} question(s) are taken (limit).",) if limit == taken else ()
