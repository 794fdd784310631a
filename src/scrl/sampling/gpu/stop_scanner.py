"""Looking for stop texts in rows that run ahead of who looks: what was written after a stop text is let go of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from scrl.sampling.gpu.decode_state import Written
from scrl.sampling.stop_texts import StopTexts


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """R completions."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    entropies_RT: Tensor
    facts_RT: dict[str, Tensor]
    lengths_R: Tensor
    finished_R: Tensor


class StopWatch:
    """Which completions hold a stop text, and where it ends."""

    def __init__(self, stops: StopTexts | None, ends: Sequence[int]) -> None:
        """Without stop texts only end tokens end a completion."""
        self._stops = stops
        self._ends = tuple(ends)
        self._looked: dict[int, int] = {}
        self._cut: dict[int, int] = {}

    @property
    def is_on(self) -> bool:
        """Whether tokens have to be looked at."""
        return self._stops is not None

    def look(self, jobs_R: Tensor, lengths_R: Tensor, tokens_RT: Tensor | None) -> dict[int, int]:
        """The jobs whose new tokens complete a stop text, and how many tokens they have up to its end."""
        if self._stops is None or tokens_RT is None:
            return {}
        found = {}
        may_end_RT = self._stops.may_end(tokens_RT.long())
        for row, (job, length) in enumerate(zip(jobs_R.tolist(), lengths_R.tolist(), strict=True)):
            first = self._looked.get(job, 0)
            self._looked[job] = max(first, length)
            for place in first + may_end_RT[row, first:length].nonzero().flatten():
                so_far_1T = tokens_RT[row : row + 1, : place + 1].long()
                if job not in self._cut and self._stops.reached(so_far_1T, so_far_1T[:, -1]):
                    self._cut[job] = found[job] = int(place) + 1
        return found

    def results(self, written: Written, number: int, most: int) -> Results:
        """The first `number` completions as they stand, cut after their stop texts."""
        tokens_RT, lengths_R = written.tokens_JT[:number, :most].cpu(), written.lengths_J[:number].cpu()
        self.look(torch.arange(number), lengths_R, tokens_RT)
        lengths_R = lengths_R.long()
        last_R = tokens_RT.long().gather(1, (lengths_R[:, None] - 1).clamp(min=0)).squeeze(1)
        finished_R = torch.isin(last_R, torch.tensor(self._ends, dtype=torch.int64))
        for job, length in self._cut.items():
            lengths_R[job], finished_R[job] = length, True
        return Results(
            tokens_RT=tokens_RT.long(),
            logprobs_RT=written.logprobs_JT[:number, :most],
            entropies_RT=written.entropies_JT[:number, :most],
            facts_RT={name: page[:number, :most] for name, page in written.facts_JT.items()},
            lengths_R=lengths_R,
            finished_R=finished_R,
        )
