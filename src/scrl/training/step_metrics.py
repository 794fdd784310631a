"""What happened in one step, as numbers and as a sentence; and where its seconds went."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from scrl.credit.group_metrics import group_metrics, has_signal, is_unanimous
from scrl.credit.method import Method
from scrl.credit.rule import CreditedGroup
from scrl.policy.policy import UpdateReport


class Stopwatch:
    """Adds up seconds under the names of what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the time inside as spent on `name`."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def step_metrics(
    groups_B: Sequence[CreditedGroup], update: UpdateReport, labels_before: Mapping[str, str | None]
) -> dict[str, Any]:
    """One line of `metrics.jsonl` without the seconds; `labels_before` holds each question's last positive label."""
    metrics: dict[str, Any] = {
        "loss": update.loss,
        "learning_rate": update.learning_rate,
        "grad_norm": update.grad_norm,
        "kl": update.kl,
        "clipped_share": update.clipped_share,
    }
    known = {key: value for key, value in metrics.items() if value is not None}
    sampled_B, credit_B = [group.sampled for group in groups_B], [group.credit for group in groups_B]
    return known | group_metrics(sampled_B, credit_B, labels_before)


def describe(groups_B: Sequence[CreditedGroup], method: Method) -> str:
    """`5 of 8 questions had a label, 2 unanimous, 3 abstained; 1 without signal`; `8 questions, …` without labels."""
    credit_B = [group.credit for group in groups_B]
    labelled = sum(credit.labels.positive is not None for credit in credit_B)
    silent = sum(not has_signal(credit) for credit in credit_B)
    what = "questions" if not any(group.sampled.question.is_rephrased for group in groups_B) else "groups"
    unanimous = f"{sum(map(is_unanimous, credit_B))} unanimous"
    if not method.has_labels:
        return f"{len(credit_B)} {what}, {unanimous}; {silent} without signal"
    words = f"{labelled} of {len(credit_B)} {what} had a label, {unanimous}, "
    return words + f"{len(credit_B) - labelled} abstained; {silent} without signal"
