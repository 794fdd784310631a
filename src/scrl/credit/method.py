"""What every method is made of: settings, what it needs from a group, a label rule and a reward.

A method is a value, not a class to inherit from: the trainer, the command line and the engines call these functions
and never learn which method runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from scrl.records import Floats, Labels, Tally


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
    label: Callable[[Tally, Any], Labels]
    reward: Callable[[Tally, Labels, Any], Shaped]
    has_negatives: bool = True
    """Whether it can rule answers out."""
