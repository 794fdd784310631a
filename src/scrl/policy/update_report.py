"""What an update counts beside its gradient, and what a step reports of its updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

from scrl.errors import TrainingError
from scrl.policy.batching import TrainingRow

Number_co = TypeVar("Number_co", covariant=True)
Queued = Tensor | float
"""A number that a GPU may still be computing."""


class Sums(NamedTuple, Generic[Number_co]):
    """Sums over the tokens of a micro-batch, or of all micro-batches of an update."""

    loss: Number_co
    clipped: Number_co
    tokens: Number_co
    kl: Number_co


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What the updates of one step did."""

    loss: float
    grad_norm: float
    clipped_share: float
    learning_rate: float
    kl: float | None
    notes: tuple[str, ...] = ()


class Update(NamedTuple):
    """An optimizer step that is computed."""

    sums: Sums[float]
    grad_norm: float
    learning_rate: float


class QueuedUpdate(NamedTuple):
    """An optimizer step that a GPU may still be computing."""

    sums: Sequence[Sums[Queued]]
    """The sums of its micro-batches."""
    grad_norm: Tensor
    learning_rate: float

    def read(self) -> Update:
        """Its numbers, once they are computed; refused if they are not finite."""
        sums, grad_norm = total(self.sums), float(self.grad_norm)
        if not (math.isfinite(sums.loss) and math.isfinite(grad_norm)):
            raise TrainingError(
                f"the loss is {sums.loss} and the gradient's norm {grad_norm}: training cannot continue. Lower "
                "optimizer.learning_rate, or compute in float32 (compute.dtype)."
            )
        return Update(sums, grad_norm, self.learning_rate)


def sums_without_signal(rows: Sequence[TrainingRow]) -> Sums[Queued]:
    """What the passes would have counted: a loss of 0, nothing clipped."""
    return Sums(loss=0, clipped=0, tokens=sum(len(row.tokens_T) for row in rows), kl=0)


def total(sums: Sequence[Sums[Queued]]) -> Sums[float]:
    """The sums over all micro-batches, once they are computed."""
    return Sums(*(sum(float(getattr(each, name)) for each in sums) for name in Sums._fields))
