"""Which questions a step trains on: every epoch visits each question once, in its own order.

With dynamic sampling, others take the places of questions whose completions all earn the same, which teach nothing.
DAPO (arXiv:2503.14476) keeps sampling until every group of a batch has right and wrong completions. Rewards from votes
and entropies are continuous, so hardly two are equal; here a group is flat when the rewards of its trained completions
differ by no more than FLAT, unless its method still pushes all of them one way. Each round samples as many other
questions as there are flat groups, and those that are not flat take the flat ones' places. What is still flat after the
last round is trained on as it is, so every step has as many updates as it would have anyway. Which other questions are
sampled depends on the seed, the step and the round alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

import numpy as np

from scrl.config import DynamicSamplingSettings
from scrl.credit.group_metrics import agreement
from scrl.credit.labels import SLACK
from scrl.credit.rule import CreditedGroup
from scrl.errors import ConfigError
from scrl.records import Credit, Question
from scrl.seeds import generator_for

FLAT = 0.01
"""Rewards that differ by no more than this teach nothing."""


@dataclass(frozen=True, slots=True)
class QuestionStream:
    """Batches of questions; a step's batch depends on the seed and the step alone."""

    questions: Sequence[Question]
    batch_size: int
    seed: int
    drop_last: bool = False
    is_even: bool = False
    """Whether the batches of an epoch differ by one question at most, instead of the last being the smallest."""

    def __post_init__(self) -> None:
        if self.steps_per_epoch == 0:
            raise ConfigError(
                f"questions_per_step: there are {len(self.questions)} questions, fewer than the {self.batch_size} of a "
                "batch, and drop_last leaves incomplete batches out. Lower questions_per_step."
            )

    @property
    def steps_per_epoch(self) -> int:
        """Batches until every question was visited."""
        whole, rest = divmod(len(self.questions), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def batch(self, step: int) -> list[Question]:
        """The questions of one step."""
        epoch, place = divmod(step, self.steps_per_epoch)
        order = generator_for(self.seed, "order", epoch).permutation(len(self.questions))
        chosen = order[place * self.batch_size : (place + 1) * self.batch_size]
        if self.is_even:
            chosen = np.array_split(order, self.steps_per_epoch)[place]
        return [self.questions[number] for number in chosen]

    def only(self, ids: Collection[str]) -> QuestionStream:
        """The questions with these ids alone, in batches of nearly equal size, none larger than before."""
        questions = [question for question in self.questions if question.id in ids]
        return replace(self, questions=questions, drop_last=False, is_even=True)

    def check_others(self, settings: DynamicSamplingSettings) -> None:
        """Refuse to draw other questions where every step asks them all."""
        if settings.rounds and len(self.questions) <= self.batch_size:
            raise ConfigError(
                f"dynamic_sampling.rounds: every step asks all {len(self.questions)} questions, so there are no "
                "others to draw. Lower questions_per_step, or leave it at 0."
            )

    def others(self, step: int, round_: int, number: int, seen: Collection[str]) -> list[Question]:
        """Up to `number` questions that a step has not asked yet, in a different order each round."""
        order = generator_for(self.seed, "others", step, round_).permutation(len(self.questions))
        unseen = (self.questions[place] for place in order if self.questions[place].id not in seen)
        return list(islice(unseen, number))

    def updates(self, steps: int, questions_per_update: int) -> int:
        """Optimizer steps in the first `steps` steps."""
        epochs, rest = divmod(steps, self.steps_per_epoch)
        sizes = [min(self.batch_size, len(self.questions) - n * self.batch_size) for n in range(self.steps_per_epoch)]
        updates = [ceil(size / questions_per_update) for size in sizes]
        return epochs * sum(updates) + sum(updates[:rest])


def replace_flat(
    groups_B: list[CreditedGroup],
    sample_and_credit: Callable[[Sequence[Question], Sequence[CreditedGroup]], list[CreditedGroup]],
    stream: QuestionStream,
    step: int,
    settings: DynamicSamplingSettings,
) -> tuple[list[CreditedGroup], dict[str, float], list[CreditedGroup]]:
    """The groups of a step with flat ones replaced as far as the rounds go, metrics of that, and the groups left out.

    `sample_and_credit` makes groups of questions, beside those of the step so far. The agreement is that of the
    questions sampled first: among those trained on, the unanimous ones have been replaced, and the best checkpoint is
    the one whose completions agree most.
    """
    questions = stream.batch(step)
    kept_B = list(groups_B)
    seen = {question.id for question in questions}
    left_out: list[CreditedGroup] = []
    replaced = rounds = 0
    while rounds < settings.rounds:
        flat = [place for place, group in enumerate(kept_B) if is_flat(group.credit)]
        others = stream.others(step, rounds, len(flat), seen)
        if not others:
            break
        rounds += 1
        seen |= {question.id for question in others}
        for group in sample_and_credit(others, [*left_out, *kept_B]):
            if is_flat(group.credit):
                left_out.append(group)
            else:
                place = flat.pop(0)
                left_out.append(kept_B[place])
                kept_B[place] = group
                replaced += 1
    metrics = {
        "agreement": agreement([group.credit for group in groups_B]),
        "resampled_share": replaced / len(kept_B),
        "resampling_rounds": float(rounds),
    }
    return kept_B, metrics, left_out


def is_flat(credit: Credit) -> bool:
    """max R − min R ≤ FLAT over the trained completions.

    Not where a method pushes a whole group up or down for what it has in common.
    """
    rows = list(credit.trained)
    advantages_M = credit.advantages[rows]
    is_one_way = bool((advantages_M > 0).all() or (advantages_M < 0).all())
    return float(np.ptp(credit.rewards[rows])) <= FLAT + SLACK and not is_one_way
