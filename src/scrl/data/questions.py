"""Question files and hub data sets → questions.

Only the question's text is required; a gold answer is only for measuring. `notes` say which column was taken as what.
Anything ambiguous or unreadable raises `DataError` with file, line, reason and fix.
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

from scrl.data.tables import LINES, SHAPE, RawRow, read_table
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.files.jsonl import kind
from scrl.records import Question

COLUMN_NAMES = {
    "question_column": ("question problem", "prompt query instruction input text", "messages conversations"),
    "gold_column": (
        "gold answer gold_answer final_answer correct_answer expected_answer reference_answer ground_truth groundtruth",
        "target label reference",
        "solution",  # often worked prose
    ),
    "id_column": ("id question_id uid unique_id qid problem_id", "index idx"),
}
"""Well-known column names per option, best first; two of the same rank are ambiguous."""
MAX_LENGTH = 1_000_000
"""Characters of a question, an id or an answer: longer than any model reads."""
UNKNOWN = re.compile(
    r"(?:i )?(?:do not|don[’']?t) know|idk|unknown|unclear|unsure|not sure|n/?a|nan|null|tbd|[-–]|[?]+", re.IGNORECASE
)
"""What people write in place of a right answer that they do not know."""
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_OPTION = re.compile(r"(?:(?:option|choice|answer)[_ -]?)?[a-j]|(?:option|choice)[_ -]?[0-9]", re.I)
"""A column that holds one option of a choice; a single letter may be anything."""
_ALL_OPTIONS = ("options", "choices")


@dataclass(frozen=True, slots=True)
class LoadedQuestions:
    questions: tuple[Question, ...]
    notes: tuple[str, ...]
    """For the user: which column was taken as what, and what was skipped or left out."""


class QuestionColumns(NamedTuple):
    """Which column is what; None if there is none."""

    question: str
    gold: str | None
    id: str | None
    level: str | None = None


def load_questions(
    source: str | Path,
    *,
    question_column: str | None = None,
    gold_column: str | None = None,
    id_column: str | None = None,
    limit: int | None = None,
    may_lack: bool = False,
) -> LoadedQuestions:
    """The questions of a file (.jsonl .json .csv .tsv .parquet .txt .md) or of a hub data set (`owner/name[:split]`).

    Columns are found by well-known names unless given. `may_lack`: those given are another file's, and if this one
    lacks them, its own are found by name. White space around texts is dropped. Without ids, question i (from 0) of
    `amc.csv` is `amc-i`. `limit` keeps only the first questions.
    """
    if not str(source).strip():
        raise ConfigError("the source of questions is empty: give a file or a hub data set (owner/name)")
    options = (question_column, gold_column, id_column)
    names = [name for name in options if name is not None]
    if len(set(names)) < len(names):
        raise ConfigError(f"{', '.join(COLUMN_NAMES)} must be different columns, found {', '.join(names)}")
    table, stem = read_table(source)
    rows = list(islice(table.rows, limit))
    if not rows:
        fix = LINES if Path(source).suffix.lower() in (".txt", ".md") else SHAPE
        raise DataError(source, f"there are no questions in it. {fix}")
    columns = _find_columns(rows, options, may_lack)
    questions = make_questions(rows, columns, stem)
    lacked = [f"No column {name!r} here: the usual names are looked for." for name in names if name not in columns]
    notes = (*table.notes, *lacked, *_notes(rows, columns, stem, questions), *limit_note(limit, len(questions)))
    return LoadedQuestions(questions, notes)


def make_questions(rows: Sequence[RawRow], columns: QuestionColumns, stem: str) -> tuple[Question, ...]:
    """One question per row, with unique ids; without an id column they are numbered from `stem-0`."""
    questions = []
    first: dict[str, RawRow] = {}
    for row in rows:
        text, system = _asked(row, columns.question)
        question = Question(
            id=f"{stem}-{row.number}" if columns.id is None else _id(row, columns.id),
            text=text,
            system=system,
            gold=None if columns.gold is None else _gold(row, columns.gold),
            level=None if columns.level is None else _text_or_number(row, columns.level),
        )
        if first.setdefault(question.id, row) is not row:
            reason = f"id {question.id!r} appears twice, first on {first[question.id].place}"
            raise row.error(f"{reason}. Make ids unique, or rename the column to have the questions numbered.")
        questions.append(question)
    return tuple(questions)


def limit_note(limit: int | None, taken: int) -> tuple[str, ...]:
    first = "The first question is" if limit == 1 else f"The first {limit} questions are"
    return (f"{first} taken (limit).",) if limit == taken else ()


# Which column is what


def _find_columns(rows: Sequence[RawRow], options: Sequence[str | None], may_lack: bool) -> QuestionColumns:
    """`options` are the columns that the user named, in the order of COLUMN_NAMES."""
    source = rows[0].source
    names = list(dict.fromkeys(name for row in rows for name in row.fields))
    for option, name in zip(COLUMN_NAMES, options, strict=True):
        if name is not None and name not in names and not may_lack:
            raise DataError(source, f"there is no column {name!r}, given as {option}.{did_you_mean(name, names)}")
    free = [name for name in names if name not in options]
    question, gold, id_ = (
        name if name in names else _detect(source, option, free, may_lack)
        for option, name in zip(COLUMN_NAMES, options, strict=True)
    )
    if question is None:
        reason = f"no column looks like the question. Columns: {', '.join(names) or 'none'}."
        fix = "Rename one to 'question'" if may_lack else "Say which one it is with question_column (--question-column)"
        raise DataError(source, f"{reason} {fix}.")
    return QuestionColumns(question, gold, id_)


def _detect(source: str, option: str, names: Sequence[str], may_lack: bool) -> str | None:
    for rank in COLUMN_NAMES[option]:
        matches = [name for name in names if re.sub(r"[\s-]+", "_", name.strip().lower()) in rank.split()]
        if len(matches) > 1:
            fix = "rename all but one" if may_lack else f"say which one with {option}"
            reason = f"the columns {' and '.join(map(repr, matches))} could each be it: {fix}"
            raise DataError(source, f"{reason}. Columns: {', '.join(names)}.")
        if matches:
            return matches[0]
    return None


# One cell → text


def _id(row: RawRow, column: str) -> str:
    text = _text_or_number(row, column)
    if text is None:
        raise row.error(f"field {column!r} is empty. Give every question an id, or rename the column to number them.")
    return text


def _asked(row: RawRow, column: str) -> tuple[str, str | None]:
    """The question and its system message: a text has none; of a chat, the last user message is the question."""
    if column not in row.fields:
        raise row.error(f"field {column!r} is missing; there is only: {', '.join(row.fields) or 'nothing'}")
    text, systems = _chat(row.fields[column]), []
    if isinstance(text, list):
        if not all(isinstance(message, dict) and {"role", "content"} <= set(message) for message in text):
            raise row.error(f'field {column!r} is a list, but not of chat messages {{"role": "user", "content": "…"}}')
        from_user, systems = ([m["content"] for m in text if m["role"] == role] for role in ("user", "system"))
        if not from_user:
            raise row.error(f"field {column!r} has chat messages, but none of role 'user'")
        text = from_user[-1]
    if text is None or text == "" or (isinstance(text, str) and text.isspace()):
        raise row.error(f"field {column!r} is empty. Write the question there, or remove this row.")
    if not isinstance(text, str):
        raise row.error(f"field {column!r} must be text or chat messages, found {kind(text)}")
    if len(systems) > 1 or not all(system is None or isinstance(system, str) for system in systems):
        raise row.error(f"field {column!r} must have one system message at most, and that must be text")
    system = systems[0] if systems else None
    return _clean(row, column, text), _clean(row, column, system) or None if system else None


def _chat(messages: Any) -> Any:
    """ShareGPT's messages, {"from": "human", "value": "…"}, with OpenAI's names; anything else as it is."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) and {"from", "value"} <= set(m) for m in messages):
        return messages
    return [{"role": {"human": "user"}.get(m["from"], m["from"]), "content": m["value"]} for m in messages]


def _gold(row: RawRow, column: str) -> str | None:
    value = row.fields.get(column)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        value = str(value)
    if value is not None and type(value) not in (str, int):
        reason = f"field {column!r}, taken as the gold answer, must be text, a number or null, found {kind(value)}"
        raise row.error(f"{reason}. Say which column holds it with gold_column, or rename this one.")
    gold = None if value is None else _clean(row, column, str(value))
    if gold is not None and UNKNOWN.fullmatch(gold):
        raise row.error(f"field {column!r} is {gold!r}, which counts as an answer; leave it empty if none is known")
    return gold or None


def _text_or_number(row: RawRow, column: str) -> str | None:
    value = row.fields.get(column)
    if value is not None and type(value) not in (str, int):
        raise row.error(f"field {column!r} must be text or a whole number, found {kind(value)}")
    return None if value is None else _clean(row, column, str(value)) or None


def _clean(row: RawRow, column: str, text: str) -> str:
    """The text without surrounding white space; refused if JSON escapes have garbled it."""
    if len(text) > MAX_LENGTH:
        raise row.error(f"field {column!r} has {len(text):,} characters; at most {MAX_LENGTH:,} are read")
    if _UNWRITABLE.search(text):
        raise row.error(f"field {column!r} has a NUL or half a surrogate pair in it: remove it")
    if command := lost_command(text):
        reason = f"field {column!r} has lost a backslash, that of '{command}'"
        raise row.error(f"{reason}: in JSON it is written '\\{command}'")
    return text.strip()


def _notes(rows: Sequence[RawRow], columns: QuestionColumns, stem: str, questions: Sequence[Question]) -> Iterator[str]:
    if any(row.fields.keys() != {"question"} for row in rows):
        yield f"Question: column {columns.question!r}."
    if any(isinstance(row.fields[columns.question], list) for row in rows):
        yield "Chat messages: the last user message is the question; a system message is kept, earlier turns are not."
    if columns.gold is None:
        yield "Gold answer: no column; accuracy is not measured."
    else:
        yield f"Gold answer: column {columns.gold!r}, for measuring alone."
    yield f"Id: {f'column {columns.id!r}' if columns.id else f'numbered, from {stem}-0 on'}."
    others = dict.fromkeys(name for row in rows for name in row.fields if name not in columns)
    if others:
        yield f"Columns left out: {', '.join(others)}."
    one_each = [name for name in others if _OPTION.fullmatch(name.strip())]
    options = [name for name in others if name.strip().lower() in _ALL_OPTIONS] + one_each * (len(one_each) > 1)
    if options:
        fix = "the model does not see them. Write them into the question's text."
        yield f"WARNING: {', '.join(options)} look like the options of a choice, and {fix}"
    total = len(questions)
    num_gold = sum(question.gold is not None for question in questions)
    if 0 < num_gold < total:
        yield f"{num_gold} of {total} questions have a gold answer."
    num_repeats = total - len({question.text for question in questions})
    if num_repeats:
        yield f"Questions that repeat the text of an earlier one are kept: {num_repeats}."


# Backslashes that JSON or Python has taken for an escape: `\times` is then a tab and `imes`. Only what hardly occurs in
# ordinary text is taken for one: a lost `\nu`, `\not`, `\to` or `\tan x` is not noticed.

_LOST = re.compile(
    "\b(?=[a-z])"
    "|\f(?=rac|orall)"
    "|\t(?=imes|heta|herefore|riangle|ext(?:bf|it|rm)?{|ilde{|frac[0-9{]|anh?[(^]|au[$_^}])"
    "|\n(?=(?:abla|otin)(?![A-Za-z])|eq ?(?:[-0-9]|[A-Za-z][$]))"
    "|\r(?=ight|ho[$_^}])"
)
_ESCAPES = {"\b": r"\b", "\f": r"\f", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def lost_command(text: str) -> str | None:
    r"""The first command without its backslash, as it should be: `\times`; None if there is none."""
    lost = _LOST.search(text)
    if lost is None:
        return None
    letters, *_ = re.split("[^A-Za-z]", text[lost.end() :], maxsplit=1)
    return _ESCAPES[lost[0]] + letters


def with_backslashes(text: str) -> str:
    """The text with every lost backslash put back."""
    return _LOST.sub(lambda lost: _ESCAPES[lost[0]], text)
