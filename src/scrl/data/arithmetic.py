"""Generated arithmetic questions with worked solutions: clean by construction, at a difficulty chosen by name.

    Compute (47+38)*6-129.          47+38=85
                                    85*6=510
                                    510-129=381
                                    \\boxed{381}

Three streams never share a question: `pretraining` (what the embedded model learned from), `train` and `held-out`. A
hash of its text decides which one a question belongs to, so no seed can mix them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
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
}
SOURCE = "arithmetic"
"""Questions by name are written `arithmetic:LEVEL`."""


Operate = Callable[[int, str, int], int]
"""(left, sign, right) → what somebody makes of it."""


def compute(left: int, sign: str, right: int) -> int:
    """The right result."""
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


@dataclass(frozen=True, slots=True)
class Expression:
    """A number, or an operation on two expressions."""

    text: str
    value: int
    binding: int = 3
    """How tightly its outermost operation binds."""
    left: Expression | None = None
    sign: str = ""
    right: Expression | None = None

    def worked(self, operate: Operate = compute) -> tuple[int, tuple[str, ...]]:
        """The result and the steps to it, each by `operate`: an early slip is carried on."""
        if self.left is None or self.right is None:
            return self.value, ()
        left, left_steps = self.left.worked(operate)
        right, right_steps = self.right.worked(operate)
        result = operate(left, self.sign, right)
        return result, (*left_steps, *right_steps, f"{left}{self.sign}{right}={result}")


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, and how to work it out."""

    expression: Expression

    @property
    def question(self) -> str:
        """What is asked."""
        return f"Compute {self.expression.text}."

    @property
    def rephrased(self) -> str:
        """The same in other words: terms and factors change places, as far as that changes nothing."""
        mirrored = _mirrored(self.expression)
        if mirrored == self.expression.text and self.expression.left is not None and self.expression.right is not None:
            binding = self.expression.binding + 1  # differences alone: parentheses that say what holds anyway
            mirrored = f"({self.expression.left.text}){self.expression.sign}{_wrapped(self.expression.right, binding)}"
        return f"Compute {mirrored}."

    @property
    def answer(self) -> int:
        """The right answer."""
        return self.expression.value

    def solution(self, operate: Operate = compute) -> str:
        """Worked steps and a boxed answer, as a model should write them."""
        result, steps = self.expression.worked(operate)
        return "\n".join((*steps, f"\\boxed{{{result}}}"))

    @property
    def stream(self) -> Stream:
        """The one stream that may hold this question."""
        bucket = hashlib.blake2b(self.question.encode(), digest_size=1).digest()[0]
        return "train" if bucket < 4 else "held-out" if bucket < 8 else "pretraining"


_BINDING = {"+": 1, "-": 1, "*": 2}


def arithmetic_questions(level: str, number: int, *, stream: Stream = "train", seed: int = 0) -> tuple[Question, ...]:
    """The first `number` different questions of a stream; their gold is known and is there for measuring alone."""
    problems = islice(problem_stream(find_level(level), stream=stream, seed=seed), number)
    return tuple(
        Question(f"{level}-{stream}-{seed}-{place}", problem.question, str(problem.answer), rephrased=problem.rephrased)
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
    """One problem; expressions with too large an intermediate result are drawn again."""
    while True:
        expression = _draw(level, level.operations, rng)
        if expression is not None:
            return Problem(expression)


def _draw(level: Level, operations: int, rng: np.random.Generator) -> Expression | None:
    if operations == 0:
        return _number(level.largest, rng)
    sign = "+-*"[int(rng.integers(0, 3))]
    on_the_left = operations - 1 if sign == "*" else int(rng.integers(0, operations))
    left = _draw(level, on_the_left, rng)
    right = _number(level.largest_factor, rng) if sign == "*" else _draw(level, operations - 1 - on_the_left, rng)
    if left is None or right is None:
        return None
    swapped = left.value < right.value if sign == "-" else sign == "*" and bool(rng.integers(0, 2))
    return _combined(right, sign, left, level) if swapped else _combined(left, sign, right, level)


def _number(largest: int, rng: np.random.Generator) -> Expression:
    number = int(rng.integers(2, largest + 1))
    return Expression(str(number), number)


def _combined(left: Expression, sign: str, right: Expression, level: Level) -> Expression | None:
    value = compute(left.value, sign, right.value)
    if value > level.largest_result:
        return None
    binding = _BINDING[sign]
    text = _wrapped(left, binding) + sign + _wrapped(right, binding + 1)
    return Expression(text, value, binding, left, sign, right)


def _mirrored(term: Expression) -> str:
    """The text of an expression with the operands of every sum and product exchanged."""
    if term.left is None or term.right is None:
        return term.text
    first, second = (term.left, term.right) if term.sign == "-" else (term.right, term.left)
    texts = [
        f"({_mirrored(part)})" if part.binding < binding else _mirrored(part)
        for part, binding in ((first, term.binding), (second, term.binding + 1))
    ]
    return term.sign.join(texts)


def _wrapped(term: Expression, binding: int) -> str:
    """The term's text, in parentheses where it binds more loosely than its surroundings."""
    return f"({term.text})" if term.binding < binding else term.text
