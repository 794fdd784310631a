"""Variants: copies of a question in which every whole number is another of its size.

Few questions are soon learned by heart, wrong labels among them; a variant is one more question of the same kind.
It has no answer and needs none: it is voted on like the others, and one that makes no sense gets no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from scrl.records import Question
from scrl.seeds import generator_for

NUMBER = re.compile(
    r"(?<![\w.,/\\^_{])\d{1,3}(?:,\d{3})+(?![\d/])"  # 1,200
    r"|(?<![\w.,/\\^_{])\d{1,15}(?![\d,.]*\d|/|\w)",  # 12, but no part of 1.2, 1/2, 2nd, x_2 or 3x
    re.ASCII,
)


def with_variants(questions: Sequence[Question], copies: int, seed: int) -> Iterator[Question]:
    """The questions, then their variants; those without a number have none. A variant is named ID~1, ID~2, …"""
    yield from questions
    for copy in range(1, copies + 1):
        for question in questions:
            text = _varied(question.text, generator_for(seed, "variant", question.id, copy))
            if text != question.text:
                yield replace(question, id=f"{question.id}~{copy}", text=text, gold=None, varies=question.id)


def _varied(text: str, rng: np.random.Generator) -> str:
    """The text with other numbers; one that stands in it twice is replaced by the same one twice."""
    chosen: dict[int, int] = {}

    def replaced(found: re.Match[str]) -> str:
        number = int(found[0].replace(",", ""))
        if number not in chosen:
            chosen[number] = _another(number, rng)
        return f"{chosen[number]:,}" if "," in found[0] else str(chosen[number])

    return NUMBER.sub(replaced, text)


def _another(number: int, rng: np.random.Generator) -> int:
    """A number of the same size and roundness: 37 may become 29, 40 may become 30; 0 and 1 stay."""
    if number < 2:
        return number
    unit = 1
    while number % (unit * 10) == 0:
        unit *= 10
    if unit == 1 and number % 5 == 0 and number > 5:
        unit = 5
    units = number // unit
    low = max(2 if unit == 1 else 1, -(-units * 2 // 3))  # from two thirds …
    high = max(units * 3 // 2, units + 2)  # … to half as much again
    other = int(rng.integers(low, high))
    return unit * (other + (other >= units))
