"""Questions by whatever name a user has for them: a file, a hub data set, or a generated stream.

arithmetic:medium                       64 questions of the train stream, drawn with the run's seed
arithmetic:medium:held-out:128:3        128 of the held-out stream, drawn with seed 3
"""

from __future__ import annotations

from typing import get_args

from scrl.data.arithmetic import SOURCE, Stream, arithmetic_questions
from scrl.data.questions import LoadedQuestions, load_questions
from scrl.errors import ConfigError, did_you_mean

DEFAULT_NUMBER = 64
MOST = 10_000


def load_source(source: str, *, seed: int, limit: int | None = None, **columns: str | None) -> LoadedQuestions:
    """The questions of a source; `columns` are those of `load_questions`."""
    if source.partition(":")[0] == SOURCE:
        return _generated(source, seed, limit)
    return load_questions(source, limit=limit, **columns)


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
