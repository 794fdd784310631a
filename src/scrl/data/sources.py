"""Questions by name: a file or several, a hub data set, a benchmark, or generated arithmetic.

algebra.md,quiz.csv                     the questions of both files
math500:3-5                             a benchmark, or some of its levels
arithmetic:medium                       64 questions of the train stream, drawn with the run's seed
arithmetic:medium:held-out:128:3        128 of the held-out stream, drawn with seed 3
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field

from scrl.data.arithmetic import LEVELS, SOURCE, Stream, arithmetic_questions
from scrl.data.benchmarks import BENCHMARKS, BenchmarkSource, load_benchmark
from scrl.data.prompts import PromptSettings, asked_by
from scrl.data.questions import LoadedQuestions, limit_note, load_questions
from scrl.data.tables import SUFFIXES, is_hub_id, nearby_files
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.records import Question
from scrl.settings import Settings

DEFAULT_NUMBER = 64
MAX_NUMBER = 10_000


def _refuse_questions(model: str) -> str:
    """The name of a model unchanged; refused if it is a file of questions."""
    if Path(model).suffix.lower() in SUFFIXES and not Path(model).expanduser().is_dir():
        raise ConfigError(f"model: {model} looks like a file of questions; write --model FOLDER --questions {model}")
    return model


ModelName = Annotated[str, AfterValidator(_refuse_questions)]
"""A setting that names a model."""
Limit = Annotated[int | None, Field(ge=1, description="Only the first questions, this many.")]
DataDir = Annotated[str | None, Field(description="Folder of NAME.jsonl; none: the variable SCRL_DATA, else the hub.")]
QuestionColumn = Annotated[str | None, Field(description="Of a file: the column with the question; none: by its name.")]
GoldColumn = Annotated[str | None, Field(description="Of a file: the column with the right answer, to measure.")]
IdColumn = Annotated[str | None, Field(description="Of a file: the column with the question's id.")]
"""Settings of where questions are found."""


def whereabouts(settings: Settings) -> dict[str, Any]:
    """Where settings say that questions are found, as `load_source` takes it."""
    return {name: getattr(settings, name) for name in ("data_dir", "question_column", "gold_column", "id_column")}


def load_source(
    source: str,
    *,
    seed: int,
    limit: int | None = None,
    data_dir: str | Path | None = None,
    may_lack: bool = False,
    **columns: str | None,
) -> LoadedQuestions:
    """The questions of a source; `columns` and `may_lack` are those of `load_questions`, for files and the hub."""
    if is_generated(source):
        return _generate(source, seed, limit)
    if benchmark_of(source) is not None:
        return load_benchmark(source, data_dir=data_dir, limit=limit)
    is_bare_name = bool(source.strip()) and not Path(source).suffix and not is_hub_id(source)
    if is_bare_name and not os.path.exists(source):
        names = [*BENCHMARKS, *(f"{SOURCE}:{level}" for level in LEVELS), *nearby_files(Path(source))]
        reason = "there is no such file, benchmark or generated stream"
        fix = f"give one, or a hub data set (owner/name[:split]).{did_you_mean(source.lower(), names)}"
        raise DataError(source, f"{reason}; {fix}")
    files = source.split(",")
    if len(files) > 1 and not os.path.exists(source):
        loaded = [(file, load_questions(file, limit=None, may_lack=may_lack, **columns)) for file in files]
        return _joined(loaded, limit)
    return load_questions(source, limit=limit, may_lack=may_lack, **columns)


def _joined(files: Sequence[tuple[str, LoadedQuestions]], limit: int | None) -> LoadedQuestions:
    """The questions of several files, whose ids must differ."""
    questions: dict[str, Question] = {}
    for file, loaded in files:
        for question in loaded.questions:
            if questions.setdefault(question.id, question) is not question:
                fix = "Make ids unique; where questions are numbered, give the files different names"
                raise DataError(file, f"id {question.id!r} is that of another file's question too. {fix}.")
    kept = tuple(questions.values())[:limit]
    notes = [f"{file}: {note}" for file, loaded in files for note in loaded.notes]
    within = sum(len(loaded.questions) - len({each.text for each in loaded.questions}) for _, loaded in files)
    if repeats := len(questions) - len({question.text for question in questions.values()}) - within:
        notes.append(f"Questions that repeat the text of one in another file are kept: {repeats}.")
    return LoadedQuestions(kept, (*notes, *limit_note(limit, len(kept))))


def is_generated(source: str) -> bool:
    return source.partition(":")[0] == SOURCE


def benchmark_of(source: str) -> BenchmarkSource | None:
    """The benchmark that a source names, with or without levels."""
    return BENCHMARKS.get(source.partition(":")[0])


def reader_of(source: str) -> str:
    """The default reader for answers to its questions."""
    benchmark = benchmark_of(source)
    return "boxed" if benchmark is None else benchmark.reader


def prompt_defaults(source: str, reader: str) -> dict[str, str | None]:
    """What holds where it is not set: the reader decides what is asked for; generated questions have no instruction."""
    return {"asks_for": asked_by(reader), "instruction": "" if is_generated(source) else None}


def prompt_for(source: str, reader: str, prompt: PromptSettings) -> PromptSettings:
    """The settings of a prompt with their defaults filled in."""
    defaults = prompt_defaults(source, reader).items()
    return prompt.model_copy(update={name: value for name, value in defaults if getattr(prompt, name) is None})


def _generate(source: str, seed: int, limit: int | None) -> LoadedQuestions:
    _, level, stream, number, own_seed = [*source.split(":"), "", "", "", ""][:5]
    streams = get_args(Stream)
    if stream and stream not in streams:
        raise ConfigError(f"questions: {source}: there is no stream {stream!r}.{did_you_mean(stream, streams)}")
    if not all(text == "" or text.isdecimal() for text in (number, own_seed)) or source.count(":") > 4:
        raise ConfigError(f"questions: {source}: write {SOURCE}:LEVEL:STREAM:NUMBER:SEED")
    size = int(number or DEFAULT_NUMBER)
    if not 0 < size <= MAX_NUMBER:
        raise ConfigError(f"questions: {source}: asks for {size} questions; 1 to {MAX_NUMBER:,} are possible")
    name: Stream = stream or "train"  # type: ignore[assignment]
    seed = int(own_seed) if own_seed else seed
    questions = arithmetic_questions(level, min(size, limit or size), stream=name, seed=seed)
    note = f"{len(questions)} generated questions, level {level}, stream {name}; gold is used for measuring alone"
    return LoadedQuestions(questions, (note,))
