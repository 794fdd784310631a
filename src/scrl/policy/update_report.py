"""What an update counts beside its gradient, and what a step reports of its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from scrl.policy.batching import TrainingRow

Sums = dict[str, Tensor | int]
"""Over the tokens of a micro-batch; a GPU may still be computing them."""
SUMS = ("loss", "clipped", "trained", "kl", "tokens")
"""The loss, tokens trained on that were clipped, tokens trained on (those with a weight), KL, all tokens."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What the updates of one step did."""

    loss: float
    grad_norm: float
    clipped_share: float
    learning_rate: float
    kl: float | None
    notes: tuple[str, ...] = ()


def sums_without_signal(rows: Sequence[TrainingRow]) -> Sums:
    """What the passes would have counted: a loss of 0, nothing clipped."""
    trained = sum(int((row.weights_T > 0).sum()) for row in rows)
    return {"clipped": 0, "trained": trained, "tokens": sum(len(row.tokens_T) for row in rows), "loss": 0}


def totals(sums: Sequence[Sums]) -> dict[str, float]:
    """Over all micro-batches."""
    return {key: sum(float(each.get(key, 0)) for each in sums) for key in SUMS}
