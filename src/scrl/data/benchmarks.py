"""The paper's benchmarks by name: one entry each, from a folder of files or from the hub.

    aime24              all of it
    math500:5           its questions of level 5
    math500:3-5         its questions of levels 3 to 5

A folder holds NAME.jsonl, one object a line: `id`, `question`, `answer`, `level` where there are levels, `rephrased`
where somebody wrote that. The hub's rows are brought into that form first, so from there on both go the same way. A
benchmark is read whole and counted: a file with a question too few is no benchmark. Ids are told apart by the
benchmark's name: `aime24-0`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from scrl.data.questions import Columns, LoadedQuestions, check_limit, limit_note, make_questions
from scrl.data.tables import HubError, Row, Table, read_hub, read_jsonl
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.records import Question
from scrl.seeds import generator_for

DATA_VARIABLE = "SCRL_DATA"
"""The environment variable that names the folder of benchmarks."""
OPTIONS_SEED = 0
"""The order of GPQA's options is drawn with it."""

Fields = Mapping[str, Any]

_EATEN = re.compile("\f(?=rac)|\b(?=oxed|egin|inom|eta)|\t(?=riangle|imes|heta|ext{)|\r(?=ight)")
_ESCAPES = {"\f": r"\f", "\b": r"\b", "\t": r"\t", "\r": r"\r"}


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """Where the questions of one benchmark are, and how they are read."""

    name: str
    title: str
    num_questions: int
    hub: str
    """owner/name on the hub."""
    split: str
    revision: str
    """The hub's commit; what is there later is not looked at."""
    question_column: str
    gold_column: str
    id_column: str | None
    """None: the hub has no ids, and rows are numbered from 0."""
    config: str | None = None
    """The hub's name for one part of several."""
    level_column: str | None = None
    levels: tuple[str, ...] = ()
    """The levels its questions are graded with, easiest first; empty where they are not."""
    reader: str = "boxed"
    """How answers to it are read."""
    shape: Callable[[Fields], Fields] | None = None
    """What has to be done to the hub's fields before its columns hold a question and its answer."""
    is_gated: bool = False
    """Whether the hub shows it only to those who accepted its terms."""


# The hub's fields → a question and its answer


def behind_hashes(fields: Fields) -> Fields:
    """GSM8K: a worked solution, and behind #### the answer."""
    _, hashes, answer = _cell(fields, "answer").rpartition("####")
    if not hashes:
        raise ValueError("field 'answer' has no #### in it")
    return {**fields, "answer": answer.strip()}


def with_options(fields: Fields) -> Fields:
    """GPQA: the right answer and three wrong ones become options A to D below the question.

        order = generator_for(OPTIONS_SEED, "gpqa", question).permutation(right, wrong 1, wrong 2, wrong 3)

    The order hangs on the question's text alone: not on the row's place, and not on the run's seed.
    """
    asked = _cell(fields, "Question")
    answers = [_cell(fields, name) for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
    order = generator_for(OPTIONS_SEED, "gpqa", asked).permutation(4).tolist()
    options = "\n".join(f"{letter}. {answers[i]}" for letter, i in zip("ABCD", order, strict=True))
    return {**fields, "Question": f"{asked}\n\n{options}", "Correct Answer": "ABCD"[order.index(0)]}


def with_backslashes(text: str) -> str:
    r"""`\frac` and the like, where somebody's escapes left a form feed and `rac` (copies of AIME 2025 have such)."""
    return _EATEN.sub(lambda eaten: _ESCAPES[eaten[0]], text)


def _cell(fields: Fields, column: str) -> str:
    text = str(fields.get(column) or "").strip()
    if not text:
        raise ValueError(f"field {column!r} is missing or empty; there is only: {', '.join(fields) or 'nothing'}")
    return text


# The table


_GPQA = BenchmarkSource(
    name="gpqa",
    title="GPQA",
    num_questions=448,
    hub="Idavidrein/gpqa",
    config="gpqa_main",
    split="train",
    revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
    question_column="Question",
    gold_column="Correct Answer",
    id_column="Record ID",
    reader="choice",
    shape=with_options,
    is_gated=True,
)

_ALL = (
    BenchmarkSource(
        name="aime24",
        title="AIME 2024",
        num_questions=30,
        hub="HuggingFaceH4/aime_2024",
        split="train",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        question_column="problem",
        gold_column="answer",
        id_column="id",
    ),
    BenchmarkSource(
        name="aime25",
        title="AIME 2025",
        num_questions=30,
        hub="math-ai/aime25",
        split="test",
        revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
        question_column="problem",
        gold_column="answer",
        id_column="id",
    ),
    BenchmarkSource(
        name="amc",
        title="AMC 12, 2022 and 2023",
        num_questions=83,
        hub="AI-MO/aimo-validation-amc",
        split="train",
        revision="69d78a4a2c840e82d69af6bc742bda09005f6316",
        question_column="problem",
        gold_column="answer",
        id_column="id",
    ),
    BenchmarkSource(
        name="math500",
        title="MATH-500",
        num_questions=500,
        hub="HuggingFaceH4/MATH-500",
        split="test",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        question_column="problem",
        gold_column="answer",
        id_column="unique_id",
        level_column="level",
        levels=("1", "2", "3", "4", "5"),
    ),
    BenchmarkSource(
        name="minerva",
        title="Minerva Math",
        num_questions=272,
        hub="math-ai/minervamath",
        split="test",
        revision="ee46ddc498933b1977577953250ca5c66be64f96",
        question_column="question",
        gold_column="answer",
        id_column=None,
    ),
    _GPQA,
    replace(_GPQA, name="gpqa_diamond", title="GPQA Diamond", num_questions=198, config="gpqa_diamond"),
    BenchmarkSource(
        name="gsm8k",
        title="GSM8K (test)",
        num_questions=1319,
        hub="openai/gsm8k",
        config="main",
        split="test",
        revision="740312add88f781978c0658806c59bc2815b9866",
        question_column="question",
        gold_column="answer",
        id_column=None,
        shape=behind_hashes,
    ),
)
BENCHMARKS: dict[str, BenchmarkSource] = {source.name: source for source in _ALL}


# Loading


def load_benchmark(name: str, *, data_dir: Path | None, limit: int | None = None) -> LoadedQuestions:
    """The questions of a benchmark, `NAME` or `NAME:LEVELS`.

    They come from `data_dir`, else from the folder that SCRL_DATA names, else from the hub. `limit` takes the first so
    many of the levels asked for.
    """
    stem, _, wanted = name.partition(":")
    source = find_benchmark(stem)
    levels = _find_levels(source, name, wanted)
    check_limit(limit)
    named = data_dir or _folder_named_outside()
    folder = named.expanduser() if named else None
    table = _read_folder(source, folder) if folder else _read_hub(source)
    found = list(table.rows)
    rows = [_repaired(row) for row in found]
    broken = sum(before is not after for before, after in zip(found, rows, strict=True))
    _refuse_other_size(source, rows, folder)
    every = _questions(source, rows)
    graded = [question for question in every if not levels or question.level in levels]
    chosen = tuple(islice(graded, limit))
    graded_note = f"{len(graded)} of them are of level {', '.join(levels)}."
    notes = (
        f"{source.title}: {len(every)} questions; gold answers are for measuring alone.",
        *table.notes,
        *((f"{broken} row(s) had lost backslashes, as in '\\frac'; they are put back.",) if broken else ()),
        *((graded_note,) if levels else ()),
        *limit_note(limit, len(chosen)),
    )
    return LoadedQuestions(chosen, notes)


def find_benchmark(name: str) -> BenchmarkSource:
    """A benchmark by name, without levels."""
    if name not in BENCHMARKS:
        raise ConfigError(f"{name}: there is no such benchmark.{did_you_mean(name.lower(), BENCHMARKS)}")
    return BENCHMARKS[name]


def _find_levels(source: BenchmarkSource, name: str, wanted: str) -> tuple[str, ...]:
    """The levels that `3` or `3-5` names; none named: no choice by level."""
    if ":" not in name:
        return ()
    if not source.levels:
        graded = ", ".join(other.name for other in BENCHMARKS.values() if other.levels)
        raise ConfigError(f"{name}: {source.name} has no levels; write {source.name}. With levels: {graded}.")
    first, _, last = wanted.partition("-")
    known = source.levels
    if first in known and (last or first) in known and not wanted.endswith("-"):
        chosen = known[known.index(first) : known.index(last or first) + 1]
        if chosen:
            return chosen
    raise ConfigError(
        f"{name}: there are no such levels. Write {source.name}:LEVEL or {source.name}:FROM-TO, "
        f"levels {known[0]} to {known[-1]}."
    )


def _folder_named_outside() -> Path | None:
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else None


def _read_folder(source: BenchmarkSource, folder: Path) -> Table:
    path = folder / f"{source.name}.jsonl"
    if not folder.is_dir():
        raise DataError(folder, f"there is no such folder of benchmarks. {_two_ways(source)}")
    if not path.is_file():
        others = [name for name in BENCHMARKS if (folder / f"{name}.jsonl").is_file()]
        reason = f"there is no such file; the benchmarks in that folder: {', '.join(others) or 'none'}"
        raise DataError(path, f"{reason}. {_two_ways(source)}")
    table = read_jsonl(path)
    return Table(table.rows, (f"Read from {path}.", *table.notes))


def _read_hub(source: BenchmarkSource) -> Table:
    try:
        table = read_hub(source.hub, split=source.split, config=source.config, revision=source.revision)
    except HubError as error:
        reason = f"no folder with its questions is named, and {error}"
        raise DataError(source.name, f"{reason}. {_two_ways(source)}") from error
    return Table([_in_file_form(source, row) for row in table.rows], table.notes)


def _two_ways(source: BenchmarkSource) -> str:
    """How to get at a benchmark."""
    gate = (
        f" It is gated: accept its terms at https://huggingface.co/datasets/{source.hub} and log in (hf auth login)."
        if source.is_gated
        else ""
    )
    return (
        f"Either name a folder with {source.name}.jsonl in it (--data-dir FOLDER, or the environment variable "
        f"{DATA_VARIABLE}); or name none, and it is loaded from the hub, {source.hub} (pip install 'scrl[hub]', "
        f"and a network).{gate}"
    )


def _in_file_form(source: BenchmarkSource, row: Row) -> Row:
    try:
        fields = source.shape(row.fields) if source.shape else row.fields
    except ValueError as error:
        raise row.error(str(error)) from error
    columns = {
        "id": source.id_column,
        "question": source.question_column,
        "answer": source.gold_column,
        "level": source.level_column,
    }
    return row._replace(
        fields={name: fields[column] for name, column in columns.items() if column and column in fields}
    )


def _repaired(row: Row) -> Row:
    fields = {name: with_backslashes(cell) if isinstance(cell, str) else cell for name, cell in row.fields.items()}
    return row if fields == row.fields else row._replace(fields=fields)


def _refuse_other_size(source: BenchmarkSource, rows: Sequence[Row], folder: Path | None) -> None:
    if len(rows) == source.num_questions:
        return
    place = folder / f"{source.name}.jsonl" if folder else f"{source.hub}, revision {source.revision}"
    raise DataError(
        place,
        f"has {len(rows)} questions, but {source.title} has {source.num_questions}: numbers on it would not compare. "
        "Put the whole benchmark there and take some of it with limit; a set of your own goes by its file's path.",
    )


def _questions(source: BenchmarkSource, rows: Sequence[Row]) -> tuple[Question, ...]:
    """Questions from rows in the form of the files."""
    numbered = [row._replace(fields={"id": row.number} | row.fields) for row in rows]
    level = "level" if source.levels else None
    rephrased = "rephrased" if any("rephrased" in row.fields for row in rows) else None
    columns = Columns("question", "answer", "id", level, rephrased)
    questions = make_questions(numbered, columns, source.name)
    for row, question in zip(rows, questions, strict=True):
        if question.gold is None:
            raise row.error("field 'answer' is missing or empty: every question of a benchmark has a gold answer")
        if source.levels and question.level not in source.levels:
            known = ", ".join(source.levels)
            raise row.error(f"field 'level' must be one of {known}, found {question.level or 'none'}")
    return tuple(replace(question, id=f"{source.name}-{question.id}") for question in questions)
