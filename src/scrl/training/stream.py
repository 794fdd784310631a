"""Which questions a step trains on: every epoch visits each question once, in its own order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil
from typing import Any

import numpy as np

from scrl.errors import ConfigError
from scrl.records import Question
from scrl.seeds import generator_for


@dataclass(frozen=True, slots=True)
class QuestionStream:
    """Batches of questions; a step's batch depends on the seed and the step alone."""

    questions: Sequence[Question]
    batch_size: int
    seed: int
    drop_last: bool = False
    is_even: bool = False
    """Whether the batches of an epoch differ by one question at most, instead of the last being the smallest."""
    first_step: int = 0
    """The step with which its first epoch begins."""

    def __post_init__(self) -> None:
        if self.steps_per_epoch == 0:
            reason = f"there are {len(self.questions)} questions, not {self.batch_size}, and drop_last leaves them out"
            raise ConfigError(f"questions_per_step: {reason}. Lower questions_per_step.")

    @property
    def steps_per_epoch(self) -> int:
        """Batches until every question was visited."""
        whole, rest = divmod(len(self.questions), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def batch(self, step: int) -> list[Question]:
        """The questions of one step."""
        epoch, place = divmod(step - self.first_step, self.steps_per_epoch)
        order = generator_for(self.seed, "order", self.first_step + epoch).permutation(len(self.questions))
        return [self.questions[number] for number in self._batches(order)[place]]

    def _batches(self, order: Any) -> list[Any]:
        if self.is_even:
            return np.array_split(order, self.steps_per_epoch)
        return [order[step * self.batch_size :][: self.batch_size] for step in range(self.steps_per_epoch)]

    def filled(self, step: int, size: int, others: Iterable[Question]) -> list[Question]:
        """This many different questions, where steps are of one size: of this step, of the next ones, then others."""
        coming = chain.from_iterable(self.batch(each) for each in range(step, step + 2 * self.steps_per_epoch))
        return list(dict.fromkeys(chain(coming, others)))[:size]

    def only(self, ids: Collection[str], first_step: int = 0) -> QuestionStream:
        """The questions with these ids alone, from this step on, in batches of nearly one size, none larger."""
        questions = [question for question in self.questions if question.id in ids]
        return replace(self, questions=questions, drop_last=False, is_even=True, first_step=first_step)

    def updates(self, steps: int, questions_per_update: int) -> int:
        """Optimizer steps from the stream's first step to this one."""
        epochs, rest = divmod(steps - self.first_step, self.steps_per_epoch)
        updates = [ceil(len(batch) / questions_per_update) for batch in self._batches(range(len(self.questions)))]
        return epochs * sum(updates) + sum(updates[:rest])
