"""The paper's benchmarks by name, from a folder of files or from the hub.

    aime24              all of it
    math500:5           its questions of level 5
    math500:3-5         its questions of levels 3 to 5

A folder holds NAME.jsonl with one object per line: `id`, `question`, `answer`, and optionally `level`.
Rows of the hub are converted to that form first. A benchmark must be complete: a file with another number of questions
is refused. Ids are prefixed with the benchmark's name: `aime24-0`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from scrl.data.questions import LoadedQuestions, QuestionColumns, limit_note, make_questions, with_backslashes
from scrl.data.tables import HubError, RawRow, RawTable, read_hub, read_jsonl
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.records import Question
from scrl.seeds import generator_for

DATA_VARIABLE = "SCRL_DATA"
OPTIONS_SEED = 0
"""Seed for the order of GPQA's options."""

Fields = Mapping[str, Any]


# Fields of the hub → a question and its answer


def behind_hashes(fields: Fields) -> Fields:
    """GSM8K: a worked solution, then #### and the answer."""
    _, hashes, answer = _cell(fields, "answer").rpartition("####")
    if not hashes:
        raise ValueError("field 'answer' has no #### in it")
    return {**fields, "answer": answer.strip()}


def with_options(fields: Fields) -> Fields:
    """GPQA: the right answer and three wrong ones become options A to D below the question.

        order = generator_for(OPTIONS_SEED, "gpqa", question).permutation(right, wrong 1, wrong 2, wrong 3)

    The order depends only on the question's text: not on the row number, and not on the run's seed.
    """
    question = _cell(fields, "Question")
    answers = [_cell(fields, name) for name in ("Correct Answer", *(f"Incorrect Answer {i}" for i in (1, 2, 3)))]
    order = generator_for(OPTIONS_SEED, "gpqa", question).permutation(4).tolist()
    options = "\n".join(f"{letter}. {answers[i]}" for letter, i in zip("ABCD", order, strict=True))
    return {**fields, "Question": f"{question}\n\n{options}", "Correct Answer": "ABCD"[order.index(0)]}


def _cell(fields: Fields, column: str) -> str:
    text = str(fields.get(column) or "").strip()
    if not text:
        raise ValueError(f"field {column!r} is missing or empty; there is only: {', '.join(fields) or 'nothing'}")
    return text


# The table


class HubTable(NamedTuple):
    name: str
    split: str
    revision: str
    config: str | None = None


@dataclass(frozen=True, slots=True)
class BenchmarkSource:
    """Where the questions of a benchmark are, and how they are read."""

    name: str
    title: str
    num_questions: int
    hub: HubTable
    question_column: str = "problem"
    gold_column: str = "answer"
    id_column: str | None = "id"
    """None: rows are numbered from 0."""
    levels: tuple[str, ...] = ()
    """Levels of difficulty, easiest first; empty if its questions have none."""
    reader: str = "boxed"
    shape: Callable[[Fields], Fields] | None = None
    """Converts the hub's fields so that the columns hold a question and its answer."""
    is_gated: bool = False
    """Whether the hub's terms must be accepted first."""


_GPQA = BenchmarkSource(
    "gpqa", "GPQA", 448,
    HubTable("Idavidrein/gpqa", "train", "633f5ee89ab8ad4522a9f850766b73f62147ffdd", "gpqa_main"),
    question_column="Question", gold_column="Correct Answer", id_column="Record ID",
    reader="choice", shape=with_options, is_gated=True,
)  # fmt: skip
_AIME24 = HubTable("HuggingFaceH4/aime_2024", "train", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a")
_AIME25 = HubTable("math-ai/aime25", "test", "563bb8404243c5f09de6ec262f2db674fe5bce9b")
_AMC = HubTable("AI-MO/aimo-validation-amc", "train", "69d78a4a2c840e82d69af6bc742bda09005f6316")
_MATH = HubTable("HuggingFaceH4/MATH-500", "test", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be")
_MINERVA = HubTable("math-ai/minervamath", "test", "ee46ddc498933b1977577953250ca5c66be64f96")
_GSM8K = HubTable("openai/gsm8k", "test", "740312add88f781978c0658806c59bc2815b9866", "main")
_DIAMOND = _GPQA.hub._replace(config="gpqa_diamond")
_SOURCES = (
    BenchmarkSource("aime24", "AIME 2024", 30, _AIME24),
    BenchmarkSource("aime25", "AIME 2025", 30, _AIME25),
    BenchmarkSource("amc", "AMC 12, 2022 and 2023", 83, _AMC),
    BenchmarkSource("math500", "MATH-500", 500, _MATH, id_column="unique_id", levels=tuple("12345")),
    BenchmarkSource("minerva", "Minerva Math", 272, _MINERVA, question_column="question", id_column=None),
    _GPQA,
    replace(_GPQA, name="gpqa_diamond", title="GPQA Diamond", num_questions=198, hub=_DIAMOND),
    BenchmarkSource("gsm8k", "GSM8K (test)", 1319, _GSM8K, "question", id_column=None, shape=behind_hashes),
)
BENCHMARKS: dict[str, BenchmarkSource] = {source.name: source for source in _SOURCES}


# Loading


def load_benchmark(name: str, *, data_dir: str | Path | None, limit: int | None = None) -> LoadedQuestions:
    """The questions of a benchmark, `NAME` or `NAME:LEVELS`.

    They come from `data_dir`, else from the folder that SCRL_DATA names, else from the hub. `limit` keeps only the
    first questions of the chosen levels.
    """
    stem, _, level_range = name.partition(":")
    source = find_benchmark(stem)
    levels = _find_levels(source, name, level_range)
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    table, place = _read_folder(source, Path(folder).expanduser()) if folder else _read_hub(source)
    original = list(table.rows)
    rows = [
        row._replace(fields={name: with_backslashes(c) if isinstance(c, str) else c for name, c in row.fields.items()})
        for row in original
    ]
    num_repaired = sum(before != after for before, after in zip(original, rows, strict=True))
    if len(rows) != source.num_questions:
        reason = f"has {len(rows)} questions, but {source.title} has {source.num_questions}"
        raise DataError(place, f"{reason}. Take some of them with limit; give a set of your own by its file's path.")
    questions = _make_questions(source, rows)
    of_levels = [question for question in questions if not levels or question.level in levels]
    selection = tuple(islice(of_levels, limit))
    notes = [f"{source.title}: {len(questions)} questions; gold answers are for measuring alone.", *table.notes]
    if num_repaired:
        notes.append(f"Lost backslashes, as in '\\frac', are put back: {num_repaired} rows.")
    if levels:
        notes.append(f"{len(of_levels)} of them are of level {', '.join(levels)}.")
    return LoadedQuestions(selection, (*notes, *limit_note(limit, len(selection))))


def find_benchmark(name: str) -> BenchmarkSource:
    if name not in BENCHMARKS:
        raise ConfigError(f"{name}: there is no such benchmark.{did_you_mean(name.lower(), BENCHMARKS)}")
    return BENCHMARKS[name]


def _find_levels(source: BenchmarkSource, name: str, level_range: str) -> tuple[str, ...]:
    """The levels that `3` or `3-5` names; none if no level is named."""
    if ":" not in name:
        return ()
    if not source.levels:
        others = ", ".join(other.name for other in BENCHMARKS.values() if other.levels)
        raise ConfigError(f"{name}: {source.name} has no levels; write {source.name}. With levels: {others}.")
    first, dash, last = level_range.partition("-")
    chosen = [level for level in source.levels if first <= level <= (last if dash else first)]
    if chosen and chosen[0] == first and chosen[-1] == (last if dash else first):
        return tuple(chosen)
    fix = f"Write {source.name}:LEVEL or {source.name}:FROM-TO, levels {source.levels[0]} to {source.levels[-1]}."
    raise ConfigError(f"{name}: there are no such levels. {fix}")


def _read_folder(source: BenchmarkSource, folder: Path) -> tuple[RawTable, str]:
    """The rows of a benchmark's file, and where they are for error messages."""
    path = folder / f"{source.name}.jsonl"
    if not folder.is_dir():
        raise DataError(folder, f"there is no such folder of benchmarks. {_how_to_get(source)}")
    if not path.is_file():
        others = [name for name in BENCHMARKS if (folder / f"{name}.jsonl").is_file()]
        reason = f"there is no such file; the benchmarks in that folder: {', '.join(others) or 'none'}"
        raise DataError(path, f"{reason}. {_how_to_get(source)}")
    table = read_jsonl(path)
    return RawTable(table.rows, (f"Read from {path}.", *table.notes)), str(path)


def _read_hub(source: BenchmarkSource) -> tuple[RawTable, str]:
    """Like `_read_folder`, but from the hub, with its rows in the form of the files."""
    try:
        table = read_hub(**source.hub._asdict())
    except HubError as error:
        reason = f"no folder with its questions is named, and {error}"
        raise DataError(source.name, f"{reason}. {_how_to_get(source)}") from error
    columns = {"question": source.question_column, "answer": source.gold_column, "level": "level"}
    columns |= {} if source.id_column is None else {"id": source.id_column}
    rows = []
    for row in table.rows:
        try:
            fields = source.shape(row.fields) if source.shape else row.fields
        except ValueError as error:
            raise row.error(str(error)) from error
        in_file_form = {name: fields[column] for name, column in columns.items() if column in fields}
        rows.append(row._replace(fields=in_file_form))
    return RawTable(rows, table.notes), f"{source.hub.name}, revision {source.hub.revision}"


def _how_to_get(source: BenchmarkSource) -> str:
    ways = f"Name a folder with {source.name}.jsonl (--data-dir FOLDER, or the variable {DATA_VARIABLE}), or none "
    ways += f"for the hub's {source.hub.name} (pip install 'scrl[hub]', and a network)."
    page = f"https://huggingface.co/datasets/{source.hub.name}"
    return f"{ways} It is gated: accept its terms at {page} (hf auth login)." if source.is_gated else ways


def _make_questions(source: BenchmarkSource, rows: Sequence[RawRow]) -> tuple[Question, ...]:
    numbered = [row._replace(fields={"id": row.number} | row.fields) for row in rows]
    level = "level" if source.levels else None
    questions = make_questions(numbered, QuestionColumns("question", "answer", "id", level), source.name)
    for row, question in zip(rows, questions, strict=True):
        if question.gold is None:
            raise row.error("field 'answer' is missing or empty: every question of a benchmark has a gold answer")
        if source.levels and question.level not in source.levels:
            levels = ", ".join(source.levels)
            raise row.error(f"field 'level' must be one of {levels}, found {question.level or 'none'}")
    return tuple(replace(question, id=f"{source.name}-{question.id}") for question in questions)
