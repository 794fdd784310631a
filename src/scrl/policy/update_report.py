"""What an update counts beside its gradient, and what a step reports of its updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from scrl.errors import TrainingError
from scrl.policy.batching import TrainingRow

Sums = dict[str, Tensor | int]
"""Sums over the tokens of a micro-batch; a GPU may still be computing them."""
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


class QueuedUpdate(NamedTuple):
    """An optimizer step that a GPU may still be computing."""

    sums: Sequence[Sums]
    """The sums of its micro-batches."""
    grad_norm: Tensor
    learning_rate: float

    def read(self) -> dict[str, float]:
        """Its sums, once it is computed; refused if they are not finite."""
        sums, grad_norm = totals(self.sums), float(self.grad_norm)
        if not (math.isfinite(sums["loss"]) and math.isfinite(grad_norm)):
            raise TrainingError(
                f"the loss is {sums['loss']} and the gradient's norm {grad_norm}: training cannot continue. Lower "
                "optimizer.learning_rate, or compute in float32 (compute.dtype)."
            )
        return sums | {"grad_norm": grad_norm, "learning_rate": self.learning_rate}


def sums_without_signal(rows: Sequence[TrainingRow]) -> Sums:
    """What the passes would have counted: a loss of 0, nothing clipped."""
    trained = sum(int((row.weights_T > 0).sum()) for row in rows)
    return {"clipped": 0, "trained": trained, "tokens": sum(len(row.tokens_T) for row in rows), "loss": 0}


def totals(sums: Sequence[Sums]) -> dict[str, float]:
    """The sums over all micro-batches."""
    return {key: sum(float(each.get(key, 0)) for each in sums) for key in SUMS}
