"""The votes that decide labels, where the step's own completions do not vote.

A share of the votes says how likely an answer is right only for a model that was not trained to agree. So labels, the
answers ruled out, p and p̄ may come from votes of their own, drawn separately from the completions they reward:

    present   the completions of the step vote themselves, as in the paper
    start     the start model's votes, drawn once before the first step
    round     drawn before each pass over the questions, for those without a label; a label once given is kept
    a file    completions of these questions, whoever wrote them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from scrl.credit.elsewhere import LastVotes
from scrl.credit.labels import with_votes
from scrl.errors import InputError
from scrl.records import Tally

WHOSE = ("present", "start", "round")
Votes = tuple[str | None, ...]
"""The key of the answer of each vote; None for no answer."""
NOBODY = Tally((), (), (), None, None, None)


@dataclass(frozen=True, eq=False)
class LabelVotes:
    """The votes of every question, and the labels they were given so far."""

    votes: Mapping[str, Votes] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    """The positive label of each question that has one; it stays."""

    def of(self, question_id: str) -> tuple[Votes, str | None]:
        """The votes on a question, and the label it was given; refused where nobody voted on it."""
        if question_id not in self.votes:
            raise InputError(f"label_votes: there are no votes on question {question_id!r}")
        return self.votes[question_id], self.labels.get(question_id)

    @cached_property
    def last_votes(self) -> LastVotes:
        """The same votes as what other questions are compared with: p̄."""
        return LastVotes().after((question, with_votes(NOBODY, votes)) for question, votes in self.votes.items())

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint stores it."""
        return {"votes": dict(self.votes), "labels": dict(self.labels)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Mapping[str, Any]]) -> LabelVotes:
        """What `to_json` wrote."""
        votes, labels = saved["votes"], saved["labels"]
        keys = {type(key) for each in votes.values() for key in each} | {type(key) for key in labels.values()}
        if not keys <= {str, type(None)}:
            raise ValueError("votes must be answers")
        return cls({question: tuple(each) for question, each in votes.items()}, dict(labels))
