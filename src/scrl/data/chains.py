"""Chains: of two questions with labels a harder one, whose label is known.

    X is the answer to this question: Q₁          X = y₁, or "X is 3 more than the answer …" where X = y₁ + 3
    Now answer this: Q₂, with X for a number n    n = X, so the answer is y₂

A question with a sharp consensus is one that the model can do already; it teaches it little but to agree. A chain needs
both answers in a row, so fewer completions are right, and its label is as sure as those of its two parts together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scrl.records import Question
from scrl.seeds import generator_for

NUMBER = re.compile(r"(?<![\w.,/\\^_{])\d{1,9}(?![\d,.]*\d|/|\w)", re.ASCII)
"""A whole number in a text: no part of 1.2, 1,200, 1/2, 2nd, x_2 or 3x."""
WHOLE = re.compile(r"\d{1,9}", re.ASCII)
LETTERS = "XYZWVUTSRQPNMLKJHGFEDCBA"
AT_MOST = 256
"""This many questions are looked at for the first part of a chain."""


def chains(questions: Sequence[Question], labels: Mapping[str, str], per_question: int, seed: int) -> list[Question]:
    """For each labelled question up to this many chains that end with it; whole numbers as labels begin one.

    The numbers in its text and the labels of the others are paired by closeness, so that X is mostly the answer itself.
    """
    found = []
    firsts = [question for question in questions if WHOLE.fullmatch(labels.get(question.id, ""))]
    for last in (question for question in questions if question.id in labels):
        numbers = {int(number) for number in NUMBER.findall(last.text)} - {0, 1}
        rng = generator_for(seed, "chain", last.id)
        pairs: list[tuple[int, int, Question, int]] = []
        for place in rng.permutation(len(firsts))[:AT_MOST]:
            first = firsts[place]
            answer = int(labels[first.id])
            if numbers and first.id != last.id:
                number = min(numbers, key=lambda number: (abs(number - answer), number))
                pairs.append((abs(number - answer), len(pairs), first, number))
        for _, _, first, number in sorted(pairs)[:per_question]:
            text = joined(first.text, last.text, number, number - int(labels[first.id]))
            found.append(replace(last, id=f"{first.id}>{last.id}", text=text, gold=None, label=labels[last.id]))
    return found


def longest_chain(questions: Sequence[Question]) -> Question:
    """One of the two longest questions, to see whether a model can be asked chains before any question has a label."""
    first, last = sorted(questions, key=lambda question: len(question.text))[-2:]
    return replace(last, id=f"{first.id}>{last.id}", text=joined(first.text, last.text, 0, 1))


def joined(first: str, last: str, number: int, more: int) -> str:
    """The text of a chain; X, `more` than the answer to the first question, stands for a number of the last."""
    name = next((letter for letter in LETTERS if letter not in first + last), "X")
    than = f"{abs(more)} {'more' if more > 0 else 'less'} than " if more else ""
    asked = NUMBER.sub(lambda found: name if int(found[0]) == number else found[0], last)
    return f"{name} is {than}the answer to this question: {first}\n\nNow answer this: {asked}"
