"""Questions whose completions all earn the same teach nothing: others take their places.

DAPO (arXiv:2503.14476) draws on until every group of a batch holds right and wrong completions. Rewards of votes and
entropies are continuous, so that hardly two are equal; here a group is flat when the rewards of its trained completions
differ by no more than a tolerance, unless its method pushes all of them one way nevertheless. Each round asks as many
other questions as there are flat groups, and those that are not flat take the flat ones' places. What is still flat
after the last round is trained on as it is, so that every step has as many updates as it would have anyway. Which
others are asked depends on the seed, the step and the round alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from scrl.credit.group_metrics import agreement
from scrl.credit.labels import SLACK
from scrl.errors import ConfigError
from scrl.evaluation.label_quality import Triple
from scrl.records import Credit, Question
from scrl.settings import Settings
from scrl.training.stream import QuestionStream

Asked = Sequence[Triple]
"""One question's groups: one, or two where a method asks it in other words too."""


class DynamicSamplingSettings(Settings):
    """When questions are replaced by others."""

    rounds: int = Field(0, ge=0, description="Extra draws a step at most (0: off; DAPO draws 10 times in all).")
    tolerance: float = Field(0.01, ge=0, description="Rewards that differ by no more than this are taken as equal.")


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The groups of a step."""

    triples_B: list[Triple]
    metrics: dict[str, float]
    """How often was drawn again, and what came of it; nothing where that is off.

    The agreement is that of the questions asked first: among those trained on, the unanimous ones have been replaced,
    and the best checkpoint is the one whose completions agree most.
    """
    tokens_left_out: int = 0
    """Tokens sampled for groups that are not trained on."""


def draw_step(
    draw: Callable[[Sequence[Question]], list[Triple]],
    stream: QuestionStream,
    step: int,
    settings: DynamicSamplingSettings,
) -> Drawn:
    """The groups of a step's questions, flat ones replaced as far as the rounds go."""
    questions = stream.batch(step)
    if not settings.rounds:
        return Drawn(draw(questions), {})
    first_B = draw(questions)
    kept_B = _by_question(first_B, len(questions))
    seen = {question.id for question in questions}
    left_out: list[Asked] = []
    replaced = rounds = 0
    while rounds < settings.rounds:
        flat = [place for place, asked in enumerate(kept_B) if is_flat(asked, settings.tolerance)]
        others = stream.others(step, rounds, len(flat), seen)
        if not others:
            break
        rounds += 1
        seen |= {question.id for question in others}
        for asked in _by_question(draw(others), len(others)):
            if is_flat(asked, settings.tolerance):
                left_out.append(asked)
                continue
            left_out.append(kept_B[flat[0]])
            kept_B[flat.pop(0)] = asked
            replaced += 1
    return Drawn(
        [triple for asked in kept_B for triple in asked],
        {
            "agreement": agreement([credit for _, _, credit in first_B]),
            "resampled_share": replaced / len(kept_B),
            "resampling_rounds": float(rounds),
        },
        sum(sample.tokens_drawn for asked in left_out for sampled, _, _ in asked for sample in sampled.samples_G),
    )


def is_flat(asked: Asked, tolerance: float) -> bool:
    """max R − min R ≤ tolerance over the trained completions, in all groups of a question."""
    return all(_is_flat(credit, tolerance) for _, _, credit in asked)


def _is_flat(credit: Credit, tolerance: float) -> bool:
    """Equal rewards teach nothing, but for methods that push a whole group up or down for what it has in common."""
    rows = list(credit.trained)
    advantages_M = credit.advantages[rows]
    is_one_way = bool((advantages_M > 0).all() or (advantages_M < 0).all())
    return float(np.ptp(credit.rewards[rows])) <= tolerance + SLACK and not is_one_way


def check_others(stream: QuestionStream, settings: DynamicSamplingSettings) -> None:
    """Refuse to draw other questions where every step asks them all."""
    if settings.rounds and len(stream.questions) <= stream.batch_size:
        raise ConfigError(
            f"dynamic_sampling.rounds: every step asks all {len(stream.questions)} questions, so that there are no "
            "others to draw. Lower questions_per_step, or leave it at 0."
        )


def _by_question(triples: Sequence[Triple], number: int) -> list[Asked]:
    """The groups of each of `number` questions."""
    size = len(triples) // number
    return [triples[first : first + size] for first in range(0, len(triples), size)]
