"""Which questions the page shows, and a few of their completions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scrl.data.jsonl import parse_object
from scrl.errors import DataError
from scrl.reporting.rollout_votes import QuestionVotes, RolloutLine, Visit, parse_rollout

MAX_QUESTIONS = 40
QuestionKey = tuple[str, str]
"""(id, text): runs on other data may use the same ids."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion to look at."""

    rollout: RolloutLine
    is_majority: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a run as the page shows it."""

    votes: QuestionVotes
    samples: tuple[Sample, ...]
    """Of the first and of the last visit: one with the most frequent answer, one with another."""

    @property
    def key(self) -> QuestionKey:
        """What tells it from other questions, in this run or in others."""
        return (self.votes.id, self.votes.text)


def choose_questions(runs: Sequence[Mapping[str, QuestionVotes]], most: int = MAX_QUESTIONS) -> list[QuestionKey]:
    """First those that are wrong at the end or changed on the way in any of the runs, then all others; each by id."""
    is_dull: dict[QuestionKey, bool] = {}
    for question in (question for run in runs for question in run.values()):
        key = (question.id, question.text)
        dull = not (question.is_majority_wrong or question.has_changed)
        is_dull[key] = is_dull.get(key, True) and dull
    return sorted(is_dull, key=lambda key: (is_dull[key], natural_order(key[0]), key))[:most]


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key by which `q9` stands before `q10`."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split("([0-9]+)", name))
    return tuple((len(part) if place % 2 else 0, part) for place, part in enumerate(parts))


def load_questions(path: Path, votes: Mapping[str, QuestionVotes], keys: Iterable[QuestionKey]) -> tuple[Question, ...]:
    """The chosen questions of one run, with completions fetched from its rollouts."""
    chosen = [votes[name] for name, text in keys if name in votes and votes[name].text == text]
    try:
        with path.open("rb") as file:
            return tuple(Question(question, tuple(_samples(file, path, question))) for question in chosen)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _samples(file: IO[bytes], path: Path, question: QuestionVotes) -> list[Sample]:
    visits = question.visits
    samples = []
    for visit in visits[:1] if len(visits) == 1 else (visits[0], visits[-1]):
        keys: list[str | None] = [key for key, _ in visit.classes[:2]]
        if len(keys) < 2 and None in visit.votes:
            keys.append(None)
        for key in keys:
            rollout = _fetch(file, path, question.id, visit, key)
            samples.append(Sample(rollout, key is not None and key == visit.majority))
    return samples


def _fetch(file: IO[bytes], path: Path, question_id: str, visit: Visit, key: str | None) -> RolloutLine:
    file.seek(visit.votes[key].offset)
    try:
        rollout = parse_rollout(parse_object(file.readline(), path, 0), path, 0)
    except DataError as error:
        raise DataError(path, "has changed while it was read") from error
    if (str(rollout.question_id), rollout.step, rollout.answer_class) != (question_id, visit.step, key):
        raise DataError(path, "has changed while it was read")
    return rollout
