"""Generated arithmetic questions with step-by-step solutions, at a difficulty chosen by name.

    Compute (47+38)*6-129.          47+38=85
                                    85*6=510
                                    510-129=381
                                    \\boxed{381}

The three streams `pretraining` (which the embedded model learned from), `train` and `held-out` never share a question:
a hash of the question's text assigns it to one of them, whatever the seed.
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
SOURCE = "arithmetic"
"""Questions are named `arithmetic:LEVEL`."""
_PRECEDENCE = {"+": 1, "-": 1, "*": 2}


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


LEVELS = {"easy": Level(operations=2), "medium": Level(operations=3), "hard": Level(operations=4)}


def compute(left: int, sign: str, right: int) -> int:
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


@dataclass(frozen=True, slots=True)
class Expression:
    """A number, or an operation on two of them."""

    text: str
    value: int
    precedence: int = 3
    """The precedence of the outermost operation: 1 for + and -, 2 for *, 3 for a number."""

    @property
    def question(self) -> str:
        return f"Compute {self.text}."

    @property
    def stream(self) -> Stream:
        bucket = hashlib.blake2b(self.question.encode(), digest_size=1).digest()[0]
        return "train" if bucket < 4 else "held-out" if bucket < 8 else "pretraining"


def combine(left: Expression, sign: str, right: Expression) -> Expression:
    """`left sign right`, with parentheses where they are needed."""
    precedence = _PRECEDENCE[sign]
    first = f"({left.text})" if left.precedence < precedence else left.text
    second = f"({right.text})" if right.precedence <= precedence else right.text
    return Expression(first + sign + second, compute(left.value, sign, right.value), precedence)


def arithmetic_questions(level: str, number: int, *, stream: Stream = "train", seed: int = 0) -> tuple[Question, ...]:
    """The first `number` different questions of a stream, with gold answers."""
    if level not in LEVELS:
        raise ConfigError(f"{SOURCE}:{level}: there is no such level.{did_you_mean(level, LEVELS)}")
    problems = islice(problem_stream(LEVELS[level], stream=stream, seed=seed), number)
    return tuple(
        Question(f"{level}-{stream}-{seed}-{place}", problem.question, str(problem.value))
        for place, problem in enumerate(problems)
    )


def problem_stream(level: Level, *, stream: Stream, seed: int) -> Iterator[Expression]:
    """An endless stream of different problems."""
    rng = generator_for(seed, SOURCE, stream, level.operations)
    seen: set[str] = set()
    while True:
        problem = draw_problem(level, rng)
        if problem.stream == stream and problem.question not in seen:
            seen.add(problem.question)
            yield problem


def draw_problem(level: Level, rng: np.random.Generator) -> Expression:
    """One problem; expressions with too large an intermediate result are drawn again."""
    while (expression := _draw(level, level.operations, rng)) is None:
        pass
    return expression


def _draw(level: Level, operations: int, rng: np.random.Generator) -> Expression | None:
    if operations == 0:
        return _draw_number(level.largest, rng)
    sign = "+-*"[int(rng.integers(0, 3))]
    left_operations = operations - 1 if sign == "*" else int(rng.integers(0, operations))
    left = _draw(level, left_operations, rng)
    is_product = sign == "*"
    right_operations = operations - 1 - left_operations
    right = _draw_number(level.largest_factor, rng) if is_product else _draw(level, right_operations, rng)
    if left is None or right is None:
        return None
    is_swapped = left.value < right.value if sign == "-" else sign == "*" and bool(rng.integers(0, 2))
    expression = combine(right, sign, left) if is_swapped else combine(left, sign, right)
    return expression if expression.value <= level.largest_result else None


def _draw_number(largest: int, rng: np.random.Generator) -> Expression:
    number = int(rng.integers(2, largest + 1))
    return Expression(str(number), number)
