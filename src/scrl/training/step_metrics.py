"""What happened in one step, as numbers and as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scrl.evaluation.label_quality import Triple
from scrl.policy.policy import UpdateReport
from scrl.records import Credit
from scrl.training.crediting import REPHRASED


def step_metrics(
    triples_B: Sequence[Triple], update: UpdateReport, labels_before: Mapping[str, str | None]
) -> dict[str, Any]:
    """One line of `metrics.jsonl` but for the seconds; `labels_before` holds each question's last positive label."""
    credit_B = [credit for _, _, credit in triples_B]
    samples = [sample for sampled, _, _ in triples_B for sample in sampled.samples_G]
    metrics: dict[str, Any] = {
        "loss": update.loss,
        "learning_rate": update.learning_rate,
        "grad_norm": update.grad_norm,
        "kl": update.kl,
        "clipped_share": update.clipped_share,
        "reward_mean": _mean([credit.rewards.mean() for credit in credit_B]),
        "advantage_abs_mean": _mean([np.abs(credit.advantages[list(credit.trained)]).mean() for credit in credit_B]),
        "positive_share": _mean([credit.labels.positive is not None for credit in credit_B]),
        "unanimous_share": _mean([_is_unanimous(credit) for credit in credit_B]),
        "signal_share": _mean([_has_signal(credit) for credit in credit_B]),
        "agreement": agreement(credit_B),
        "distinct_answers": _mean([len(credit.tally.keys_K) for credit in credit_B]),
        "negative_answers": _mean([len(credit.labels.negatives) for credit in credit_B]),
        "no_answer_share": _mean([credit.tally.class_of_G.count(-1) / credit.tally.size for credit in credit_B]),
        "entropy_only_share": _mean([credit.is_entropy_only for credit in credit_B]),
        "label_flip_share": label_flip_share(triples_B, labels_before),
        "same_answer_share": same_answer_share(_first_forms(triples_B)),
        "entropy_mean": _mean([sample.entropy for sample in samples]),
        "length_mean": _mean([len(sample.tokens_T) for sample in samples]),
        "truncated_share": _mean([not sample.is_finished for sample in samples]),
        "undecided_pairs": sum(credit.undecided_pairs for credit in credit_B),
        "tokens": sum(sample.tokens_drawn for sample in samples),
    }
    return {key: value for key, value in metrics.items() if value is not None}


def describe(triples_B: Sequence[Triple]) -> str:
    """`5 of 8 questions had a label, 2 unanimous, 3 abstained; 1 without signal`."""
    credit_B = [credit for _, _, credit in triples_B]
    labelled = sum(credit.labels.positive is not None for credit in credit_B)
    silent = sum(not _has_signal(credit) for credit in credit_B)
    what = "questions" if len(credit_B) == len(_first_forms(triples_B)) else "groups"
    words = f"{labelled} of {len(credit_B)} {what} had a label, {sum(map(_is_unanimous, credit_B))} unanimous, "
    return words + f"{len(credit_B) - labelled} abstained; {silent} without signal"


def _first_forms(triples_B: Sequence[Triple]) -> list[Credit]:
    """The credit of every question as it is, without those in other words."""
    return [credit for sampled, _, credit in triples_B if not sampled.question.id.endswith(REPHRASED)]


def agreement(credit_B: Sequence[Credit]) -> float:
    """The share of completions that give the most frequent answer of their question."""
    return _mean([max(credit.tally.counts_K, default=0) / credit.tally.size for credit in credit_B])


def label_flip_share(triples_B: Sequence[Triple], labels_before: Mapping[str, str | None]) -> float | None:
    """Of the questions labelled now and at their last visit, the share whose label changed."""
    pairs = [(labels_before.get(sampled.question.id), credit.labels.positive) for sampled, _, credit in triples_B]
    both = [before != now for before, now in pairs if before is not None and now is not None]
    return _mean(both) if both else None


def same_answer_share(credit_B: Sequence[Credit]) -> float | None:
    """The share of questions whose most frequent answer is the one most questions have; None below four questions."""
    tops = [max(zip(c.tally.counts_K, c.tally.keys_K, strict=True))[1] for c in credit_B if c.tally.keys_K]
    return Counter(tops).most_common(1)[0][1] / len(tops) if len(tops) >= 4 else None


def _is_unanimous(credit: Credit) -> bool:
    return credit.tally.counts_K == (credit.tally.size,)


def _has_signal(credit: Credit) -> bool:
    return bool(np.any(credit.advantages[list(credit.trained)] != 0))


def _mean(values: Sequence[Any]) -> float:
    return float(np.mean(values))
