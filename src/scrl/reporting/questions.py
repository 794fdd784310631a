"""The questions of a run as the page shows them: their votes, and two completions of each to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scrl.data.jsonl import parse_object
from scrl.errors import DataError
from scrl.reporting.rollout_votes import QuestionVotes, RolloutLine, Visit, parse_rollout
from scrl.reporting.text import plain, shorten, signed

NUM_EXCERPTS = 2
MOST_CHARACTERS = 2_000_000
"""Of all excerpts of a page together; with many questions each is shorter."""
LABEL_WORDS = {"positive": "positive label", "negative": "ruled out", None: "no label"}


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One completion to read."""

    answer: str | None
    """The key of its answer's class; None for a missing answer."""
    text: str
    facts: str = ""
    """What is known about it."""


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a run or file, and completions of its last visit: with the most frequent answer, and another."""

    votes: QuestionVotes
    excerpts: tuple[Excerpt, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other questions: runs on other data may use the same ids."""
        return (self.votes.id, self.votes.text)


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key by which `q9` stands before `q10`."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split("([0-9]+)", name))
    return tuple((len(part) if place % 2 else 0, part) for place, part in enumerate(parts))


def excerpt(text: str, num_questions: int) -> str:
    """The beginning and the end of a completion, as much as there is room for."""
    room = max(200, min(2000, MOST_CHARACTERS // (NUM_EXCERPTS * max(1, num_questions))))
    return shorten(text, room // 2, room - room // 2)


def classes_to_read(visit: Visit) -> list[str | None]:
    """The two most frequent answers, or the only one and a missing answer."""
    keys: list[str | None] = [key for key, _ in visit.classes[:NUM_EXCERPTS]]
    return [*keys, None] if len(keys) < NUM_EXCERPTS and None in visit.votes else keys


def load_questions(path: Path, votes: Mapping[str, QuestionVotes]) -> tuple[Question, ...]:
    """All questions of a run by their ids, with completions fetched from its rollouts."""
    chosen = sorted(votes.values(), key=lambda question: (natural_order(question.id), question.id))
    try:
        with path.open("rb") as file:
            return tuple(Question(each, tuple(_excerpts(file, path, each, len(votes)))) for each in chosen)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _excerpts(file: IO[bytes], path: Path, question: QuestionVotes, num_questions: int) -> Iterator[Excerpt]:
    """Fetched from where the last visit's votes stand in the file."""
    last = question.visits[-1]
    for key in classes_to_read(last):
        file.seek(last.votes[key].offset)
        try:
            rollout = parse_rollout(parse_object(file.readline(), path, 0), path, 0)
        except DataError as error:
            raise DataError(path, "has changed while it was read") from error
        if (str(rollout.question_id), rollout.step, rollout.answer_class) != (question.id, last.step, key):
            raise DataError(path, "has changed while it was read")
        yield Excerpt(rollout.answer_class, excerpt(rollout.completion, num_questions), _facts(rollout))


def _facts(rollout: RolloutLine) -> str:
    facts = {
        f"step {rollout.step}": True,
        "right" if rollout.correct else "wrong": rollout.correct is not None,
        LABEL_WORDS[rollout.label]: True,
        f"reward {signed(rollout.reward or 0, 3)}": rollout.reward is not None,
        "not trained on": rollout.advantage is None,
        f"advantage {signed(rollout.advantage or 0, 2)}": rollout.advantage is not None,
        f"entropy {plain(rollout.entropy or 0)}": rollout.entropy is not None,
        f"{rollout.num_tokens or 0:,} tokens": rollout.num_tokens is not None,
        "cut at the most tokens allowed": rollout.finished is False,
    }
    return " · ".join(words for words, holds in facts.items() if holds)
