"""What every method is made of: settings, what it needs from a group, a label rule and a reward.

A method is a value, not a class to inherit from: the trainer, the command line and the engines call these functions
and never learn which method runs. What a method needs beyond votes is declared, so that a missing input is refused
before anything is sampled. All names needed to write your own method can be imported from here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from scrl.answers.classes import Classes
from scrl.credit.labels import count_votes, majority_positive
from scrl.credit.rewards import spread
from scrl.errors import InputError
from scrl.records import FACTS, Elsewhere, Floats, Group, Labels, Tally, Truth
from scrl.seeds import generator_for
from scrl.settings import Settings, merged

__all__ = [
    "FACTS", "NEEDS", "CreditSettings", "Elsewhere", "Evidence", "Field", "Floats", "Group", "Labels", "Method",
    "Shaped", "SplitAdvantage", "Tally", "Tree", "Truth", "majority_positive", "needing", "no_labels", "spread",
]  # fmt: skip


class CreditSettings(Settings):
    """Settings that all methods share."""

    advantage: Literal["normalised", "centred", "leave-one-out"] = Field(
        "normalised", description="Â: (R − μ)/σ as in GRPO, R − μ as in Dr. GRPO, or R − mean of the others as in RLOO."
    )
    std: Literal["population", "sample"] = Field("population", description="σ in the advantage: over n, or over n − 1.")
    eps: float = Field(1e-6, ge=0, description="ε added to σ.")
    std_floor: float = Field(0.0, ge=0, description="s₀: σ is never taken smaller than this (0: off).")
    positive_weight: float = Field(
        1.0,
        ge=0,
        description="w: advantages above 0 count this much. Below 1, training says less of what is wrong rather than "
        "more of what is right.",
    )
    ties: Literal["smallest", "first-seen"] = Field(
        "smallest",
        description="Which of several largest classes a majority takes: the smallest key, or the first seen.",
    )
    which_trained: Literal["random", "first"] = Field(
        "random", description="Which M of the N completions are trained on: a random M, or the first."
    )

    @property
    def first_seen_wins(self) -> bool:
        """Whether ties go to the answer seen first."""
        return self.ties == "first-seen"


NEEDS: dict[str, str] = {
    "entropy": "an entropy for every completion",
    **{name: f"the fact {name!r} for every completion ({meaning})" for name, meaning in FACTS.items()},
    "text": "the text of every completion",
    "truth": "the right answer of every question",
    "reference_share": "the share of the most frequent answer among completions of the start model",
    "elsewhere": "the votes of other questions",
}
"""What a method may declare a need for, besides the votes."""
REMEDIES = {
    "entropy": "Record entropies while sampling, or use method 'ttrl'.",
    "truth": "Give every question a gold answer, or use a method that needs none.",
    "reference_share": "A run computes it; or use a method that needs none.",
    "elsewhere": "Give the groups of other questions (elsewhere=…), or use a method that needs none.",
}
"""What to do if a need is not met; the other needs have to be recorded while sampling."""
GROUP_NEEDS = frozenset({"truth", "reference_share", "elsewhere"})
"""Needs that a group meets as a whole, in a field of Evidence; the others are met by every completion."""


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """What a method may look at: the votes of one group, and what it declared a need for."""

    group: Group
    classes: Classes
    tally: Tally
    """The votes that decide: those of the group, or by `label_votes` those of the start model or of a round."""
    truth: Truth | None = None
    """The right answer."""
    reference_share: float | None = None
    """How far the start model agreed with itself on this question."""
    elsewhere: Elsewhere | None = None
    """What the other questions answered, by the votes that decide."""
    kept_label: str | None = None
    """The positive label that the question has been given, by `label_votes`; it stays."""
    seed: int = 0

    @property
    def present(self) -> Tally:
        """The votes of the group itself."""
        tally = self.tally
        return tally if tally.class_of_votes is None else count_votes(self.classes, tally.entropies_G)

    def generator(self) -> np.random.Generator:
        """Random numbers of this group, the same at every call."""
        return generator_for(self.seed, "credit", self.group.step, self.group.question_id)

    def fact(self, name: str) -> Floats:
        """One of FACTS for every completion."""
        return np.array([completion.facts[name] for completion in self.group.completions])

    def check(self, needs: Collection[str], method: str) -> None:
        """Refuse a group without what the method needs."""
        for need, reason in self.unmet(needs):
            remedy = REMEDIES.get(need, "Record it while sampling, or use method 'ttrl'.")
            raise InputError(
                f"question {self.group.question_id!r}: method {method!r} needs {NEEDS[need]}; {reason}. {remedy}"
            )

    def unmet(self, needs: Collection[str]) -> Iterator[tuple[str, str]]:
        """The needs that are not met, and how."""
        for need in sorted(needs):
            if need in GROUP_NEEDS:
                if getattr(self, need) is None:
                    yield need, "this one has none"
                continue
            for number, completion in enumerate(self.group.completions):
                value: object = completion.entropy if need == "entropy" else completion.facts.get(need)
                if need == "text":  # an answer without a text was read elsewhere; a text may well be empty
                    value = None if isinstance(completion.answer, str) and not completion.text else 0.0
                if not isinstance(value, int | float) or not math.isfinite(value):
                    yield need, f"completion {number} has {value}"


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """Rewards of one group."""

    rewards_G: Floats
    label_part_G: Floats | None = None
    """The part that labels and missing answers alone would give; None: all of it."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitAdvantage:
    """Advantages of the completions trained on, as a positive part P ≥ 0 and a negative part Q ≤ 0.

        objective = P · min(ρ, 1 + ε_high) + Q · max(ρ, 1 − ε_low)

    A single advantage Â is P = max(Â, 0), Q = min(Â, 0): the clipped objective of PPO.
    """

    positive_part_M: Floats
    negative_part_M: Floats


@dataclass(frozen=True, slots=True)
class Tree:
    """Rollouts that share beginnings: `roots` whole ones, and `branches` from each of `forks` places in each."""

    roots: int
    forks: int
    branches: int

    @property
    def leaves(self) -> int:
        """Completions per question."""
        return self.roots * (1 + self.forks * self.branches)


AS_PRINTED = {
    "completions": 32, "label_votes": "present", "sampling": {"temperature": 1.0}, "optimizer": {"learning_rate": 5e-7},
}  # fmt: skip
"""How the paper runs its methods."""


@dataclass(frozen=True, slots=True)
class Method:
    """One way to turn votes into credit: a label rule and a reward; the other parts are for methods that need more."""

    name: str
    idea: str
    """What it does, in one line."""
    equation: str
    paper: str
    """Where it comes from."""
    settings: type[CreditSettings]
    label: Callable[[Evidence, Any], Labels]
    reward: Callable[[Evidence, Labels, Any], Shaped]
    needs: Callable[[Any], frozenset[str]] = lambda settings: frozenset()  # noqa: ARG005 - given its settings
    """Which of NEEDS it requires, given its settings."""
    has_negatives: bool = True
    """Whether it can rule answers out."""
    is_silent_without_label: bool = False
    """Whether all completions of a question without a positive label earn the same."""
    weighs_votes: bool = False
    """Whether a vote weighs by facts of its own completion, so that no others can vote in its place (`label_votes`)."""
    advantage: Callable[[Evidence, Labels, Shaped, Sequence[int], Any], SplitAdvantage] | None = None
    """The advantages of the completions trained on; None: by `advantage`, from their rewards."""
    plan: Callable[[int, Any], Tree] | None = None
    """How the N completions are sampled, if they share beginnings (ETMR); None: independently."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Where a run that leaves them open differs from AS_PRINTED: completions, temperature, who votes, learning rate."""

    @property
    def run_settings(self) -> dict[str, Any]:
        """Settings of a run that it takes unless they are given."""
        return merged(AS_PRINTED, self.run)

    @property
    def has_labels(self) -> bool:
        """Whether it can call an answer right or wrong."""
        return self.label is not no_labels


def needing(*names: str) -> Callable[[Any], frozenset[str]]:
    """The same needs, whatever the settings."""
    needs = frozenset(names)
    return lambda settings: needs  # noqa: ARG005 - a method's signature


def no_labels(evidence: Evidence, settings: CreditSettings) -> Labels:  # noqa: ARG001 - a method's signature
    """For methods that call no answer right or wrong."""
    return Labels()
