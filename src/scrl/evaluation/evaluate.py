"""A model on a set of questions: pass@k, maj@k, entropy.

Conventions, the same for every figure: a completion without an answer is wrong; a question without any answer is wrong
in pass@1, pass@k and maj@k alike; a question without gold counts in no figure that needs gold. Intervals are 95 %,
over questions. All evaluations of one run draw the same random numbers, so that two of them differ only by the weights.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scrl.answers.classes import Classes
from scrl.credit.labels import count_votes
from scrl.credit.rule import CreditRule
from scrl.evaluation.gold import right_class
from scrl.evaluation.statistics import bootstrap_interval, majority_at_k, pass_at_k
from scrl.records import Group, Question, Sampled, Tally
from scrl.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is measured, and how."""

    benchmark: str
    model: str
    sampling: SamplingSettings
    ks: tuple[int, ...]
    """The k of pass@k and maj@k, besides pass@1."""
    seed: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class AnsweredQuestion:
    """One question with what is measured of its completions; lengths are in tokens."""

    question: Question
    group: Group
    entropies_G: tuple[float, ...]
    lengths_G: tuple[int, ...]
    finished_G: tuple[bool, ...]

    @classmethod
    def of(cls, sampled: Sampled) -> AnsweredQuestion:
        """A question with the completions just sampled."""
        each_G = ((sample.entropy, len(sample.tokens_T), sample.is_finished) for sample in sampled.samples_G)
        entropies_G, lengths_G, finished_G = zip(*each_G, strict=True)
        return cls(sampled.question, sampled.group, entropies_G, lengths_G, finished_G)


def evaluate(answered_Q: Sequence[AnsweredQuestion], rule: CreditRule, conditions: Conditions) -> dict[str, Any]:
    """One line of `evaluations.jsonl`. Values that need gold are absent where no question has any."""
    grades_Q = [_grade(answered, rule, conditions) for answered in answered_Q]
    lengths = [length for answered in answered_Q for length in answered.lengths_G]
    record: dict[str, Any] = {
        "step": conditions.step,
        "model": conditions.model,
        "benchmark": conditions.benchmark,
        "questions": len(answered_Q),
        "questions_digest": questions_digest([answered.question for answered in answered_Q]),
        "samples": len(answered_Q[0].lengths_G),
        "temperature": conditions.sampling.temperature,
        "top_p": conditions.sampling.top_p,
        "max_tokens": conditions.sampling.max_tokens,
        "seed": conditions.seed,
        "significant_digits": rule.significant_digits,
        "agreement": float(np.mean([grade.agreement for grade in grades_Q])),
        "answered": float(np.mean([grade.answered for grade in grades_Q])),
        "truncated": float(np.mean([not finished for answered in answered_Q for finished in answered.finished_G])),
        "tokens": sum(lengths),
        "length_mean": float(np.mean(lengths)),
        "entropy_mean": float(np.mean([h for answered in answered_Q for h in answered.entropies_G])),
        "answers": {
            each.question.id: {"question": each.question.text, "votes": each.votes}
            | ({"cut": each.cut} if each.cut else {})
            for each in grades_Q
        },
    }
    return record | _gold_part([grade for grade in grades_Q if grade.has_gold], conditions.seed)


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of ids and texts, in any order: an id such as `mine-0` does not identify a question."""
    pairs = sorted((question.id, question.text) for question in questions)
    return hashlib.blake2b(json.dumps(pairs).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class _Grade:
    """One question, counted; the fields after `has_gold` mean nothing without gold."""

    question: Question
    votes: list[list[str | float]]
    """The two answers with most votes, in their most frequent spelling, with their shares."""
    cut: float
    """The share of all completions that give the first of them and were cut."""
    agreement: float
    answered: float
    has_gold: bool
    scores: dict[str, float]
    entropies: tuple[tuple[float, bool], ...]
    """(entropy, whether it is right) of each completion."""


def _grade(answered: AnsweredQuestion, rule: CreditRule, conditions: Conditions) -> _Grade:
    classes = rule.classify(answered.group)
    tally = count_votes(classes, answered.entropies_G)
    truth = right_class(classes, answered.question.gold)
    right = None if truth is None or truth.key is None else tally.keys_K.index(truth.key)
    num_answered = sum(tally.counts_K)
    num_correct = 0 if right is None else tally.counts_K[right]
    scores = {"pass@1": num_correct / tally.size}
    for k in sorted(set(conditions.ks)):
        scores[f"pass@{k}"] = pass_at_k(tally.size, num_correct, k)
        num_missing = tally.size - num_answered
        scores[f"maj@{k}"] = majority_at_k(tally.counts_K, right, num_missing, k, seed=conditions.seed)
    votes, first = _most_voted(classes, tally)
    cut = (not finished and j == first for finished, j in zip(answered.finished_G, tally.class_of_G, strict=True))
    return _Grade(
        question=answered.question,
        votes=votes,
        cut=sum(cut) / tally.size,
        agreement=max(tally.counts_K, default=0) / tally.size,
        answered=num_answered / tally.size,
        has_gold=truth is not None,
        scores=scores,
        entropies=tuple(zip(answered.entropies_G, (j == right for j in tally.class_of_G), strict=True)),
    )


def _most_voted(classes: Classes, tally: Tally) -> tuple[list[list[str | float]], int | None]:
    """The first two answers, and the class of the first; ties go to the smaller key."""
    votes: list[list[str | float]] = []
    ordered = sorted(range(len(tally.keys_K)), key=lambda j: (-tally.counts_K[j], tally.keys_K[j]))[:2]
    for j in ordered:
        answers = (a for a, own in zip(classes.answers_G, classes.class_of_G, strict=True) if own == j)
        spellings = Counter(answer for answer in answers if answer is not None)
        text = min(spellings, key=lambda text: (-spellings[text], text))
        votes.append([text, tally.counts_K[j] / tally.size])
    return votes, ordered[0] if ordered else None


def _gold_part(grades_Q: Sequence[_Grade], seed: int) -> dict[str, Any]:
    """The figures that need gold; those of right or wrong completions are absent where there are none."""
    if not grades_Q:
        return {}
    figures: dict[str, Any] = {}
    names = grades_Q[0].scores
    for name in names:
        figures |= _with_interval(name, [grade.scores[name] for grade in grades_Q], seed)
    figures["gold_questions"] = len(grades_Q)
    pairs = [pair for grade in grades_Q for pair in grade.entropies]
    right, wrong = ([h for h, is_right in pairs if is_right == wanted] for wanted in (True, False))
    if num_answered := sum(grade.answered * len(grade.entropies) for grade in grades_Q):
        figures["accuracy_given_answer"] = len(right) / num_answered
    figures |= {f"entropy_{name}": float(np.mean(of)) for name, of in (("correct", right), ("incorrect", wrong)) if of}
    for level in sorted({grade.question.level for grade in grades_Q if grade.question.level is not None}):
        part = [grade.scores["pass@1"] for grade in grades_Q if grade.question.level == level]
        row = {"questions": len(part), **_with_interval("pass@1", part, seed)}
        figures.setdefault("by_level", {})[level] = row
    by_question = {name: {grade.question.id: grade.scores[name] for grade in grades_Q} for name in names}
    return figures | {f"{name}_by_question": values for name, values in by_question.items()}


def _with_interval(name: str, values_Q: Sequence[float], seed: int) -> dict[str, float]:
    low, high = bootstrap_interval(values_Q, seed=seed)
    return {name: float(np.mean(values_Q)), f"{name}_low": low, f"{name}_high": high}
