"""`rollouts.jsonl` → the votes of every question at every step it was visited.

The file may be larger than memory: texts are not kept, only where in the file to find one completion of each class.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from scrl.answers.classes import MISSING, Classes
from scrl.credit.labels import count_votes
from scrl.errors import DataError
from scrl.files.jsonl import OnCut, read_json_lines
from scrl.records import Tally

Label = Literal["positive", "negative"]


class RolloutLine(BaseModel):
    """One completion as a run wrote it; other fields are ignored."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)

    question_id: str | int
    question: str
    step: NonNegativeInt
    sample: NonNegativeInt
    completion: str
    answer_class: str | None
    """The key of its answer's class, None for a missing answer."""
    label: Label | None
    reward: float | None
    advantage: float | None
    """None when the completion was not trained on."""
    entropy: float | None = None
    num_tokens: NonNegativeInt | None = None
    finished: bool | None = None
    gold: str | None = None
    correct: bool | None = None
    """Whether the answer is right; None without gold."""


@dataclass(slots=True)
class Votes:
    """The completions of one visit that gave the same answer, or none."""

    label: Label | None
    is_right: bool | None
    offset: int
    """Where in the file the first of them is."""
    count: int = 0
    entropies: array[float] = field(default_factory=lambda: array("d"))
    """NaN where the file has none."""


@dataclass(slots=True)
class Visit:
    step: int
    votes: dict[str | None, Votes] = field(default_factory=dict)
    """By the key of the class; missing answers are under None."""
    samples: set[int] = field(default_factory=set)

    @property
    def size(self) -> int:
        return len(self.samples)

    @property
    def is_graded(self) -> bool:
        """Whether its completions were compared with a right answer."""
        return any(votes.is_right is not None for votes in self.votes.values())

    @property
    def classes(self) -> list[tuple[str, Votes]]:
        """The answers, most votes first, ties by key."""
        named = [(key, votes) for key, votes in self.votes.items() if key is not None]
        return sorted(named, key=lambda pair: (-pair[1].count, pair[0]))

    @property
    def majority(self) -> str | None:
        """The class with the most votes; None when no completion has an answer."""
        return next((key for key, _ in self.classes), None)

    @property
    def right(self) -> str | None:
        """The right answer, where some completion gave it and gold is known."""
        return next((key for key, votes in self.votes.items() if votes.is_right), None)

    @property
    def tally(self) -> Tally:
        """The votes as rules see them, with the completions of a class together."""
        keys_K = tuple(sorted(key for key in self.votes if key is not None))
        places = {key: place for place, key in enumerate(keys_K)} | {None: MISSING}
        class_of_G = tuple(places[key] for key, votes in self.votes.items() for _ in votes.entropies)
        entropies_G = [entropy for votes in self.votes.values() for entropy in votes.entropies]
        classes = Classes(keys_K, class_of_G, tuple(None if j == MISSING else keys_K[j] for j in class_of_G))
        return count_votes(classes, None if any(map(isnan, entropies_G)) else entropies_G)

    def count(self, key: str | None) -> int:
        return self.votes[key].count if key in self.votes else 0


@dataclass(slots=True)
class QuestionVotes:
    id: str
    text: str
    gold: str | None = None
    by_step: dict[int, Visit] = field(default_factory=dict)

    @property
    def visits(self) -> tuple[Visit, ...]:
        """In the order of their steps."""
        return tuple(self.by_step[step] for step in sorted(self.by_step))


def read_votes(path: Path, on_cut: OnCut) -> dict[str, QuestionVotes]:
    questions: dict[str, QuestionVotes] = {}
    for line in read_json_lines(path, on_cut):
        rollout = parse_rollout(line.fields, path, line.number)
        name = str(rollout.question_id)
        question = questions.setdefault(name, QuestionVotes(name, rollout.question, rollout.gold))
        pairs = {"question": (question.text, rollout.question), "gold": (question.gold, rollout.gold)}
        for key, (before, now) in pairs.items():
            if before != now:
                reason = f"field {key!r} of question {name!r} is {now!r}, but an earlier line has {before!r}"
                raise DataError(path, reason, line.number)
        visit = question.by_step.setdefault(rollout.step, Visit(rollout.step))
        if rollout.sample in visit.samples:
            reason = f"sample {rollout.sample} of question {name!r} at step {rollout.step} appears twice"
            raise DataError(path, reason, line.number)
        visit.samples.add(rollout.sample)
        votes = visit.votes.setdefault(rollout.answer_class, Votes(rollout.label, rollout.correct, line.offset))
        if (votes.label, votes.is_right) != (rollout.label, rollout.correct):
            reason = "'label' and 'correct' must be the same for all completions of an 'answer_class' and step"
            raise DataError(path, reason, line.number)
        votes.count += 1
        votes.entropies.append(nan if rollout.entropy is None else rollout.entropy)
    return questions


def parse_rollout(fields: dict[str, Any], path: Path, number: int) -> RolloutLine:
    try:
        return RolloutLine.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise DataError(path, f"field {str(first['loc'][0])!r}: {first['msg']}", number) from error
