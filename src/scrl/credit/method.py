"""What every method is made of: settings, what it needs from a group, a label rule and a reward.

A method is a value, not a class to inherit from: the trainer, the command line and the engines call these functions
and never learn which method runs. What a method needs beyond votes is declared, so that a missing input is refused
before anything is sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from scrl.records import Floats, Labels, Tally, Truth
from scrl.seeds import generator_for


class CreditSettings(BaseModel):
    """Settings that all methods share."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    advantage: Literal["normalised", "centred", "leave-one-out"] = Field(
        "normalised", description="Â: (R − μ)/σ as in GRPO, R − μ as in Dr. GRPO, or R − mean of the others as in RLOO."
    )
    std: Literal["population", "sample"] = Field("population", description="σ in the advantage: over n, or over n − 1.")
    eps: float = Field(1e-6, ge=0, description="ε added to σ.")
    std_floor: float = Field(0.0, ge=0, description="s₀: σ is never taken smaller than this (0: off).")
    ties: Literal["smallest", "first-seen"] = Field(
        "smallest",
        description="Which of several largest classes a majority takes: the smallest key, or the first seen.",
    )
    which_trained: Literal["random", "first"] = Field(
        "random", description="Which M of the N completions are trained on: a random M, or the first."
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a method may look at: the votes of one group, and what it declared a need for."""

    tally: Tally
    truth: Truth | None = None
    """The right answer, for a method that `needs_truth`."""
    seed: int = 0
    group: tuple[int, str] = (0, "")
    """Step and question: with the seed, what tells this group's random numbers from another's."""

    def generator(self) -> np.random.Generator:
        """Random numbers of this group, the same at every call."""
        return generator_for(self.seed, "credit", *self.group)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rewards of one group, with the part that labels and missing answers alone would give."""

    rewards_G: Floats
    label_part_G: Floats


@dataclass(frozen=True, slots=True)
class Method:
    """One way to turn votes into rewards."""

    name: str
    idea: str
    """What it does, in a line."""
    settings: type[CreditSettings]
    needs_entropy: Callable[[Any], bool]
    """Whether it needs an entropy for each completion, given its settings."""
    label: Callable[[Evidence, Any], Labels]
    reward: Callable[[Evidence, Labels, Any], Shaped]
    has_negatives: bool = True
    """Whether it can rule answers out."""
    needs_truth: bool = False
    """Whether it is told the right answers: a yardstick, not a way to learn without labels."""
