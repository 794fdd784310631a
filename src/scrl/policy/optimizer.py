"""What an optimizer is.

A learning rate of 5e-7 moves a weight by less than bfloat16 can show, so the working weights (what is sampled and
differentiated, possibly bfloat16) are rounded copies of float32 masters. `MasterAdamW` keeps the masters whole,
`LowMemoryAdamW` in fewer bytes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from scrl.policy.settings import OptimizerSettings

OTHER_DTYPE = (
    "the checkpoint's trained weights have another dtype than here, as they do on another kind of device. Resume the "
    "run where it was started"
)


def learning_rate_factor(update: int, updates: int, settings: OptimizerSettings) -> float:
    """The share of the highest learning rate at one update: a linear rise, then half a cosine down to 0."""
    warmup = round(settings.warmup * updates)
    if update < warmup:
        return (update + 1) / warmup
    if settings.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (update - warmup) / max(1, updates - warmup))))


class Optimizer(ABC):
    """Gradients in, working weights out; counts updates and knows the learning rate of the next one.

    An update is `expect`, backward passes with `collect` after each, then `step`; `clear` gives it up.
    """

    def __init__(self, settings: OptimizerSettings, updates: int) -> None:
        """`updates` is the length of the whole run, which the schedule needs."""
        self._settings = settings
        self._updates = updates
        self.update = 0

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self._settings.learning_rate * learning_rate_factor(self.update, self._updates, self._settings)

    @abstractmethod
    def expect(self, micro_batches: int) -> None:
        """Called before the first backward pass with the number of passes that the gradient is the sum of."""

    @abstractmethod
    def expect_nothing(self) -> None:
        """Called if there is no backward pass: the gradient is 0, but momentum and decay continue."""

    @abstractmethod
    def collect(self) -> None:
        """Called after every backward pass."""

    @abstractmethod
    def clear(self) -> None:
        """Drop all gradients."""

    @abstractmethod
    def step(self) -> Tensor:
        """One update; the norm of the gradient before it was scaled down, without waiting for a GPU to compute it.

        If the norm turns out not to be finite, the update was counted but changed nothing.
        """

    @property
    def bytes_to_come(self) -> int:
        """Bytes of its state that the first step will allocate."""
        return 0

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of `state` after the first step."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs besides the working weights."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Resume from `state`; the working weights are as they were then."""
