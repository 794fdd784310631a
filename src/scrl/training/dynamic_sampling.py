"""Questions whose completions all earn the same teach nothing: others take their places.

DAPO (arXiv:2503.14476) samples on until every group of a batch holds right and wrong completions. Rewards from votes
and entropies are continuous, so hardly two are equal; here a group is flat when the rewards of its trained completions
differ by no more than a tolerance, unless its method pushes all of them one way nevertheless. Each round samples as
many other questions as there are flat groups, and those that are not flat take the flat ones' places. What is still
flat after the last round is trained on as it is, so every step has as many updates as it would have anyway. Which other
questions are sampled depends on the seed, the step and the round alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scrl.config import DynamicSamplingSettings
from scrl.credit.group_metrics import agreement
from scrl.credit.labels import SLACK
from scrl.credit.rule import CreditedGroup
from scrl.errors import ConfigError
from scrl.records import Credit, Question
from scrl.training.stream import QuestionStream

SampleAndCredit = Callable[[Sequence[Question], Sequence[CreditedGroup]], list[CreditedGroup]]
"""(questions, groups of the step so far) → their groups."""


def replace_flat(
    groups_B: list[CreditedGroup],
    sample_and_credit: SampleAndCredit,
    stream: QuestionStream,
    step: int,
    settings: DynamicSamplingSettings,
) -> tuple[list[CreditedGroup], dict[str, float], int]:
    """The groups of a step with flat ones replaced as far as the rounds go, metrics of that, and tokens left out.

    The agreement is that of the questions sampled first: among those trained on, the unanimous ones have been replaced,
    and the best checkpoint is the one whose completions agree most.
    """
    questions = stream.batch(step)
    kept_Q = by_question(groups_B, len(questions))
    seen = {question.id for question in questions}
    left_out: list[CreditedGroup] = []
    replaced = rounds = 0
    while rounds < settings.rounds:
        flat = [place for place, groups in enumerate(kept_Q) if is_flat(groups, settings.tolerance)]
        others = stream.others(step, rounds, len(flat), seen)
        if not others:
            break
        rounds += 1
        so_far = [*left_out, *(group for groups in kept_Q for group in groups)]
        seen |= {question.id for question in others}
        for groups in by_question(sample_and_credit(others, so_far), len(others)):
            if is_flat(groups, settings.tolerance):
                left_out += groups
            else:
                left_out += kept_Q[flat[0]]
                kept_Q[flat.pop(0)] = groups
                replaced += 1
    metrics = {
        "agreement": agreement([group.credit for group in groups_B]),
        "resampled_share": replaced / len(kept_Q),
        "resampling_rounds": float(rounds),
    }
    tokens_left_out = sum(sample.tokens_drawn for group in left_out for sample in group.sampled.samples_G)
    return [group for groups in kept_Q for group in groups], metrics, tokens_left_out


def by_question(groups_B: Sequence[CreditedGroup], number: int) -> list[list[CreditedGroup]]:
    """The groups of each of `number` questions: one, or two where a method asks it in other words too."""
    size = len(groups_B) // number
    return [list(groups_B[first : first + size]) for first in range(0, len(groups_B), size)]


def is_flat(groups: Sequence[CreditedGroup], tolerance: float) -> bool:
    """max R − min R ≤ tolerance over the trained completions, in all groups of a question."""
    return all(_is_flat(group.credit, tolerance) for group in groups)


def _is_flat(credit: Credit, tolerance: float) -> bool:
    """Equal rewards teach nothing, except with methods that push a whole group up or down for what it has in common."""
    rows = list(credit.trained)
    advantages_M = credit.advantages[rows]
    is_one_way = bool((advantages_M > 0).all() or (advantages_M < 0).all())
    return float(np.ptp(credit.rewards[rows])) <= tolerance + SLACK and not is_one_way


def check_others(stream: QuestionStream, settings: DynamicSamplingSettings) -> None:
    """Refuse to draw other questions where every step asks them all."""
    if settings.rounds and len(stream.questions) <= stream.batch_size:
        raise ConfigError(
            f"dynamic_sampling.rounds: every step asks all {len(stream.questions)} questions, so there are no "
            "others to draw. Lower questions_per_step, or leave it at 0."
        )
