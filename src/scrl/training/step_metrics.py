"""What happened in one step, as numbers and as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scrl.credit.group_metrics import group_metrics, has_signal, is_unanimous
from scrl.credit.method import Method
from scrl.evaluation.label_quality import Triple
from scrl.policy.policy import UpdateReport


def step_metrics(
    triples_B: Sequence[Triple], update: UpdateReport, labels_before: Mapping[str, str | None]
) -> dict[str, Any]:
    """One line of `metrics.jsonl` but for the seconds; `labels_before` holds each question's last positive label."""
    sampled_B, _, credit_B = zip(*triples_B, strict=True)
    metrics: dict[str, Any] = {
        "loss": update.loss,
        "learning_rate": update.learning_rate,
        "grad_norm": update.grad_norm,
        "kl": update.kl,
        "clipped_share": update.clipped_share,
    }
    known = {key: value for key, value in metrics.items() if value is not None}
    return known | group_metrics(sampled_B, credit_B, labels_before)


def describe(triples_B: Sequence[Triple], method: Method) -> str:
    """`5 of 8 questions had a label, 2 unanimous, 3 abstained; 1 without signal`; `8 questions, …` without labels."""
    credit_B = [credit for _, _, credit in triples_B]
    labelled = sum(credit.labels.positive is not None for credit in credit_B)
    silent = sum(not has_signal(credit) for credit in credit_B)
    what = "questions" if not any(sampled.question.is_rephrased for sampled, _, _ in triples_B) else "groups"
    unanimous = f"{sum(map(is_unanimous, credit_B))} unanimous"
    if not method.has_labels:
        return f"{len(credit_B)} {what}, {unanimous}; {silent} without signal"
    words = f"{labelled} of {len(credit_B)} {what} had a label, {unanimous}, "
    return words + f"{len(credit_B) - labelled} abstained; {silent} without signal"
