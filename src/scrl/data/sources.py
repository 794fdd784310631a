"""Questions by whatever name a user has for them: a file, a hub data set, a benchmark, or a generated stream.

math500:3-5                             a benchmark, or some levels of it
arithmetic:medium                       64 questions of the train stream, drawn with the run's seed
arithmetic:medium:held-out:128:3        128 of the held-out stream, drawn with seed 3
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

from scrl.data.arithmetic import LEVELS, SOURCE, Stream, arithmetic_questions
from scrl.data.benchmarks import BENCHMARKS, BenchmarkSource, load_benchmark
from scrl.data.questions import LoadedQuestions, load_questions
from scrl.data.tables import is_hub_id, nearby_files
from scrl.errors import ConfigError, DataError, did_you_mean

DEFAULT_NUMBER = 64
MOST = 10_000


def load_source(
    source: str, *, seed: int, limit: int | None = None, data_dir: Path | None = None, **columns: str | None
) -> LoadedQuestions:
    """The questions of a source.

    `columns` are those of `load_questions`, for files and hub data sets of one's own; `data_dir` is the folder of
    benchmarks.
    """
    if is_generated(source):
        return _generated(source, seed, limit)
    if benchmark_of(source) is not None:
        return load_benchmark(source, data_dir=data_dir, limit=limit)
    if _is_bare_name(source):
        names = [*BENCHMARKS, *(f"{SOURCE}:{level}" for level in LEVELS), *nearby_files(Path(source))]
        reason = (
            "there is no such file, benchmark or generated stream; give one, or a hub data set (owner/name[:split])"
        )
        raise DataError(source, f"{reason}.{did_you_mean(source.lower(), names)}")
    return load_questions(source, limit=limit, **columns)


def is_generated(source: str) -> bool:
    """Whether a source names a stream of generated arithmetic."""
    return source.partition(":")[0] == SOURCE


def benchmark_of(source: str) -> BenchmarkSource | None:
    """The benchmark that a source names, with or without levels."""
    return BENCHMARKS.get(source.partition(":")[0])


def reader_of(source: str) -> str:
    """How answers to its questions are read, where nobody says otherwise."""
    benchmark = benchmark_of(source)
    return "boxed" if benchmark is None else benchmark.reader


def _is_bare_name(source: str) -> bool:
    """Whether a source looks neither like a file nor like a hub data set."""
    is_name = bool(source.strip()) and not Path(source).suffix and not is_hub_id(source)
    return is_name and not os.path.exists(source)


def _generated(source: str, seed: int, limit: int | None) -> LoadedQuestions:
    _, level, stream, number, own_seed = [*source.split(":"), "", "", "", ""][:5]
    streams = get_args(Stream)
    if stream and stream not in streams:
        raise ConfigError(f"questions: {source}: there is no stream {stream!r}.{did_you_mean(stream, streams)}")
    if not all(text == "" or text.isdecimal() for text in (number, own_seed)) or source.count(":") > 4:
        raise ConfigError(f"questions: {source}: write {SOURCE}:LEVEL:STREAM:NUMBER:SEED")
    wanted = int(number or DEFAULT_NUMBER)
    if not 0 < wanted <= MOST:
        raise ConfigError(f"questions: {source}: asks for {wanted} questions; 1 to {MOST:,} are possible")
    chosen: Stream = stream or "train"  # type: ignore[assignment]
    drawn = arithmetic_questions(
        level, min(wanted, limit or wanted), stream=chosen, seed=int(own_seed) if own_seed else seed
    )
    note = f"{len(drawn)} generated questions, level {level}, stream {chosen}; gold is used for measuring alone"
    return LoadedQuestions(drawn, (note,))
