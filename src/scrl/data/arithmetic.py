"""Generated arithmetic questions with worked solutions: clean by construction, at a difficulty chosen by name.

    Compute (47+38)*6-129.          47+38=85
                                    85*6=510
                                    510-129=381
                                    \\boxed{381}

Three streams never share a question: `pretraining` (what the embedded model learned from), `train` and `held-out`. A
hash of the question decides which one it belongs to, so no seed can mix them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from scrl.errors import ConfigError, did_you_mean
from scrl.records import Question
from scrl.seeds import generator_for

Stream = Literal["pretraining", "train", "held-out"]


@dataclass(frozen=True, slots=True)
class Level:
    """How hard a question is."""

    operations: int
    largest: int = 99
    """Numbers are drawn from 2 to this."""
    largest_factor: int = 9
    """One factor of every product is at most this."""
    largest_result: int = 9_999
    """No intermediate result is larger, or negative."""


LEVELS: dict[str, Level] = {
    "easy": Level(operations=2),
    "medium": Level(operations=3),
    "hard": Level(operations=4),
    "very-hard": Level(operations=5, largest_factor=19),
}
SOURCE = "arithmetic"
"""Questions by name are written `arithmetic:LEVEL`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A question with its worked steps and its answer."""

    question: str
    steps: tuple[str, ...]
    answer: int

    @property
    def solution(self) -> str:
        """What a model should write."""
        return "\n".join((*self.steps, f"\\boxed{{{self.answer}}}"))

    @property
    def stream(self) -> Stream:
        """The one stream that may hold this question."""
        bucket = hashlib.blake2b(self.question.encode(), digest_size=1).digest()[0]
        return "train" if bucket < 4 else "held-out" if bucket < 8 else "pretraining"


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression, its value, the steps that lead there, and how tightly its outermost operation binds."""

    text: str
    value: int
    steps: tuple[str, ...] = ()
    binding: int = 3


_BINDING = {"+": 1, "-": 1, "*": 2}


def arithmetic_questions(level: str, number: int, *, stream: Stream = "train", seed: int = 0) -> tuple[Question, ...]:
    """The first `number` different questions of a stream; their gold is known and is there for measuring alone."""
    problems = islice(problem_stream(find_level(level), stream=stream, seed=seed), number)
    return tuple(
        Question(f"{level}-{stream}-{seed}-{place}", problem.question, str(problem.answer))
        for place, problem in enumerate(problems)
    )


def find_level(name: str) -> Level:
    """A level by name."""
    if name not in LEVELS:
        raise ConfigError(f"{SOURCE}:{name}: there is no such level.{did_you_mean(name, LEVELS)}")
    return LEVELS[name]


def problem_stream(level: Level, *, stream: Stream, seed: int) -> Iterator[Problem]:
    """Problems of one stream without repetition, endless."""
    rng = generator_for(seed, SOURCE, stream, level.operations)
    seen: set[str] = set()
    while True:
        problem = draw_problem(level, rng)
        if problem.stream == stream and problem.question not in seen:
            seen.add(problem.question)
            yield problem


def draw_problem(level: Level, rng: np.random.Generator) -> Problem:
    """One problem; expressions with a negative or too large intermediate result are drawn again."""
    while True:
        term = _draw_term(level, level.operations, rng)
        if term is not None:
            return Problem(f"Compute {term.text}.", term.steps, term.value)


def _draw_term(level: Level, operations: int, rng: np.random.Generator) -> _Term | None:
    if operations == 0:
        return _number(2, level.largest, rng)
    sign = "+-*"[int(rng.integers(0, 3))]
    on_the_left = operations - 1 if sign == "*" else int(rng.integers(0, operations))
    left = _draw_term(level, on_the_left, rng)
    right = (
        _number(2, level.largest_factor, rng) if sign == "*" else _draw_term(level, operations - 1 - on_the_left, rng)
    )
    if left is None or right is None:
        return None
    swapped = left.value < right.value if sign == "-" else sign == "*" and bool(rng.integers(0, 2))
    return _combine(right, sign, left, level) if swapped else _combine(left, sign, right, level)


def _number(smallest: int, largest: int, rng: np.random.Generator) -> _Term:
    number = int(rng.integers(smallest, largest + 1))
    return _Term(str(number), number)


def _combine(left: _Term, sign: str, right: _Term, level: Level) -> _Term | None:
    value = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}[sign]
    if value > level.largest_result:
        return None
    binding = _BINDING[sign]
    text = _wrapped(left, binding) + sign + _wrapped(right, binding + 1)
    step = f"{left.value}{sign}{right.value}={value}"
    return _Term(text, value, (*left.steps, *right.steps, step), binding)


def _wrapped(term: _Term, binding: int) -> str:
    """The term's text, in parentheses where it binds more loosely than its surroundings."""
    return f"({term.text})" if term.binding < binding else term.text
