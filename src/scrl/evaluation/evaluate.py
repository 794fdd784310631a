"""A model on a set of questions: pass@k, maj@k, entropy.

Conventions, the same for every figure: a completion without an answer is wrong; a question without any answer is wrong
in pass@1, pass@k and maj@k alike; a question without gold counts in no figure that needs gold. Intervals are 95 %,
over questions. All evaluations of one run draw the same random numbers, so that two of them differ only by the weights.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scrl.answers.classes import Classes
from scrl.credit.labels import count_votes
from scrl.credit.rule import CreditRule
from scrl.data.prompts import PromptSettings
from scrl.evaluation.gold import gold_key, right_class
from scrl.evaluation.statistics import bootstrap_interval, majority_at_k, pass_at_k
from scrl.records import Group, Question, Tally
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
    reader: str
    prompt: PromptSettings
    step: int = 0


def evaluate(answered_Q: Sequence[tuple[Question, Group]], rule: CreditRule, conditions: Conditions) -> dict[str, Any]:
    """One line of `evaluations.jsonl`. Values that need gold are absent where no question has any."""
    grades_Q = [_grade(question, group, rule, conditions) for question, group in answered_Q]
    completions = [completion for _, group in answered_Q for completion in group.completions]
    lengths = [int(completion.facts["length"]) for completion in completions]
    record: dict[str, Any] = {
        "step": conditions.step,
        "model": conditions.model,
        "benchmark": conditions.benchmark,
        "questions": len(answered_Q),
        "questions_digest": digest((question.id, question.text) for question, _ in answered_Q),
        "samples": len(answered_Q[0][1].completions),
        "temperature": conditions.sampling.temperature,
        "top_p": conditions.sampling.top_p,
        "max_tokens": conditions.sampling.max_tokens,
        "seed": conditions.seed,
        "reader": conditions.reader,
        "prompt": conditions.prompt.model_dump(exclude={"max_tokens", "overlong"}, exclude_none=True),
        "significant_digits": rule.significant_digits,
        "agreement": float(np.mean([grade.agreement for grade in grades_Q])),
        "answered": float(np.mean([grade.answered for grade in grades_Q])),
        "truncated": float(np.mean([completion.is_cut for completion in completions])),
        "tokens": sum(lengths),
        "length_mean": float(np.mean(lengths)),
        "entropy_mean": float(np.mean([completion.entropy for completion in completions])),
        "answers": {each.question.id: {"question": each.question.text} | each.votes for each in grades_Q},
    }
    return record | _gold_part([grade for grade in grades_Q if grade.has_gold], conditions.seed)


def digest(pairs_Q: Iterable[tuple[str, str]]) -> str:
    """A hash of ids and texts, in any order: an id such as `mine-0` does not identify a question."""
    return hashlib.blake2b(json.dumps(sorted(pairs_Q)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class _Grade:
    """One question, counted; the fields after `has_gold` mean nothing without gold."""

    question: Question
    votes: dict[str, Any]
    agreement: float
    answered: float
    has_gold: bool
    scores: dict[str, float]
    entropies: tuple[tuple[float, bool], ...]
    """(entropy, whether it is right) of each completion."""


def _grade(question: Question, group: Group, rule: CreditRule, conditions: Conditions) -> _Grade:
    classes = rule.classify(group)
    entropies_G = [each.entropy for each in group.completions if each.entropy is not None]
    tally = count_votes(classes, entropies_G)
    truth = right_class(classes, question.gold)
    right = None if truth is None or truth.key is None else tally.keys_K.index(truth.key)
    num_answered = sum(tally.counts_K)
    num_correct = 0 if right is None else tally.counts_K[right]
    scores = {"pass@1": num_correct / tally.size}
    for k in sorted(set(conditions.ks)):
        scores[f"pass@{k}"] = pass_at_k(tally.size, num_correct, k)
        num_missing = tally.size - num_answered
        scores[f"maj@{k}"] = majority_at_k(tally.counts_K, right, num_missing, k, seed=conditions.seed)
    return _Grade(
        question=question,
        votes=most_voted(group, classes, tally),
        agreement=max(tally.counts_K, default=0) / tally.size,
        answered=num_answered / tally.size,
        has_gold=truth is not None,
        scores=scores,
        entropies=tuple(zip(entropies_G, (j == right for j in tally.class_of_G), strict=True)),
    )


def most_voted(group: Group, classes: Classes, tally: Tally) -> dict[str, Any]:
    """`votes`: the two answers with most votes, in their most frequent spelling, with their shares.

    Ties go to the smaller key. `cut`: the share of all completions that give the first of them and were cut, if any.
    """
    votes: list[list[str | float]] = []
    ordered = sorted(range(len(tally.keys_K)), key=lambda j: (-tally.counts_K[j], tally.keys_K[j]))[:2]
    for j in ordered:
        answers = (a for a, own in zip(classes.answers_G, classes.class_of_G, strict=True) if own == j)
        spellings = Counter(answer for answer in answers if answer is not None)
        text = min(spellings, key=lambda text: (-spellings[text], text))
        votes.append([text, tally.counts_K[j] / tally.size])
    given = zip(group.completions, tally.class_of_G, strict=True)
    cut = sum(each.is_cut and j == ordered[0] for each, j in given) if ordered else 0
    return {"votes": votes} | ({"cut": cut / tally.size} if cut else {})


def _gold_part(grades_Q: Sequence[_Grade], seed: int) -> dict[str, Any]:
    """The figures that need gold; those of right or wrong completions are absent where there are none."""
    if not grades_Q:
        return {}
    figures: dict[str, Any] = {}
    names = grades_Q[0].scores
    for name in names:
        figures |= _with_interval(name, [grade.scores[name] for grade in grades_Q], seed)
    figures["gold_questions"] = len(grades_Q)
    figures["gold_digest"] = digest((each.question.id, str(gold_key(str(each.question.gold)))) for each in grades_Q)
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
