"""A model on a set of questions: pass@k, maj@k, entropy; gold answers are read here and go no further.

All evaluations of one run draw with the same random numbers, so that two of them differ by the weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from scrl.answers.classes import Classes, find_class
from scrl.answers.forms import canonical_form
from scrl.answers.judge import Judge
from scrl.credit.assign import CreditRule
from scrl.credit.tally import count_votes
from scrl.evaluation.label_quality import bare_gold
from scrl.evaluation.statistics import bootstrap_interval, majority_at_k, pass_at_k
from scrl.records import Sampled, Tally
from scrl.rollout.sampling import SamplingSettings


class EvaluationSettings(BaseModel):
    """When and on what a run is measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    every: int = Field(0, ge=0, description="Steps between evaluations; 0: before the first step and after the last.")
    completions: int = Field(16, ge=1, description="Completions a question.")
    k: int | None = Field(None, ge=1, description="The k of pass@k and maj@k; none: all completions.")
    questions: int | None = Field(None, ge=1, description="Measure on this many training questions; none: all.")
    held_out: str | None = Field(None, description="A second set of questions, never trained on.")
    temperature: float | None = Field(None, ge=0, description="None: as in training.")
    top_p: float | None = Field(None, gt=0, le=1, description="None: as in training.")
    is_off: bool = Field(False, description="No evaluation at all.")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What is measured on."""

    name: str
    step: int
    model: str
    sampling: SamplingSettings
    k: int


def evaluate(
    sampled_Q: Sequence[Sampled],
    rule: CreditRule,
    benchmark: Benchmark,
    *,
    seed: int,
    gold_judge: Judge | None = None,
) -> dict[str, Any]:
    """One line of `evaluations.jsonl`. Values that need gold are absent where no question has any."""
    graded_Q = [_grade(sampled, rule, benchmark.k, seed, gold_judge) for sampled in sampled_Q]
    samples = [sample for sampled in sampled_Q for sample in sampled.samples_G]
    record: dict[str, Any] = {
        "step": benchmark.step,
        "model": benchmark.model,
        "benchmark": benchmark.name,
        "questions": len(sampled_Q),
        "samples": len(sampled_Q[0].samples_G),
        "temperature": benchmark.sampling.temperature,
        "top_p": benchmark.sampling.top_p,
        "max_tokens": benchmark.sampling.max_tokens,
        "agreement": float(np.mean([graded.agreement for graded in graded_Q])),
        "answered": float(np.mean([graded.answered for graded in graded_Q])),
        "truncated": float(np.mean([not sample.is_finished for sample in samples])),
        "length_mean": float(np.mean([len(sample.tokens_T) for sample in samples])),
        "entropy_mean": float(np.mean([sample.entropy for sample in samples])),
    }
    return record | _gold_part([graded for graded in graded_Q if graded.is_gold], benchmark.k, seed)


@dataclass(frozen=True, slots=True)
class _Graded:
    """One question, counted; the last three need gold."""

    id: str
    agreement: float
    answered: float
    is_gold: bool
    pass_at_1: float
    pass_at_k: float
    majority_at_k: float
    entropies: tuple[tuple[float, bool], ...]


def _grade(sampled: Sampled, rule: CreditRule, k: int, seed: int, gold_judge: Judge | None) -> _Graded:
    classes = rule.classify(sampled.group)
    tally = count_votes(classes, [sample.entropy for sample in sampled.samples_G])
    gold = bare_gold(sampled.question.gold) if sampled.question.gold is not None else None
    is_gold = gold is not None and canonical_form(gold) is not None
    right = find_class(classes, gold or "", judge=gold_judge)[0] if is_gold else None
    correct = 0 if right is None else tally.counts_K[right]
    missing = tally.size - sum(tally.counts_K)
    return _Graded(
        id=sampled.question.id,
        agreement=max(tally.counts_K, default=0) / tally.size,
        answered=1 - missing / tally.size,
        is_gold=is_gold,
        pass_at_1=correct / tally.size,
        pass_at_k=pass_at_k(tally.size, correct, k),
        majority_at_k=majority_at_k(tally.counts_K, right, missing, k, seed=seed),
        entropies=_entropies(classes, tally, right),
    )


def _entropies(classes: Classes, tally: Tally, right: int | None) -> tuple[tuple[float, bool], ...]:
    pairs = zip(tally.entropies_G or (), classes.class_of_G, strict=True)
    return tuple((entropy, right is not None and number == right) for entropy, number in pairs)


def _gold_part(graded_Q: Sequence[_Graded], k: int, seed: int) -> dict[str, Any]:
    if not graded_Q:
        return {}
    pass_at_1_Q = [graded.pass_at_1 for graded in graded_Q]
    low, high = bootstrap_interval(pass_at_1_Q, seed=seed)
    pairs = [pair for graded in graded_Q for pair in graded.entropies]
    correct = [entropy for entropy, is_right in pairs if is_right]
    incorrect = [entropy for entropy, is_right in pairs if not is_right]
    return {
        "pass@1": float(np.mean(pass_at_1_Q)),
        "pass@1_low": low,
        "pass@1_high": high,
        f"pass@{k}": float(np.mean([graded.pass_at_k for graded in graded_Q])),
        f"maj@{k}": float(np.mean([graded.majority_at_k for graded in graded_Q])),
        **({"entropy_correct": float(np.mean(correct))} if correct else {}),
        **({"entropy_incorrect": float(np.mean(incorrect))} if incorrect else {}),
        "pass@1_by_question": {graded.id: graded.pass_at_1 for graded in graded_Q},
    }
