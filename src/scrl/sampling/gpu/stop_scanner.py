"""Looks for stop texts in rows that run ahead of the search: tokens after a stop text are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from scrl.sampling.eager_decode import DecodedRows
from scrl.sampling.gpu.decode_step import Completions
from scrl.sampling.stop_texts import StopTexts


class StopScanner:
    """Finds out which completions contain a stop text, and where it ends."""

    def __init__(self, stops: StopTexts | None, end_tokens: Sequence[int]) -> None:
        """Without stop texts only end tokens end a completion."""
        self._stops = stops
        self._end_tokens = tuple(end_tokens)
        self._scan_ends: dict[int, int] = {}
        self._stop_lengths: dict[int, int] = {}

    @property
    def needs_tokens(self) -> bool:
        """Whether there are stop texts to look for."""
        return self._stops is not None

    def scan(self, completions_R: Tensor, lengths_R: Tensor, tokens_RT: Tensor | None) -> dict[int, int]:
        """The completions whose new tokens complete a stop text, and their lengths up to its end."""
        if self._stops is None or tokens_RT is None:
            return {}
        lengths = {}
        may_end_RT = self._stops.may_end(tokens_RT.long())
        for row, (completion, length) in enumerate(zip(completions_R.tolist(), lengths_R.tolist(), strict=True)):
            first = self._scan_ends.get(completion, 0)
            self._scan_ends[completion] = max(first, length)
            for t in first + may_end_RT[row, first:length].nonzero().flatten():
                so_far_1T = tokens_RT[row : row + 1, : t + 1].long()
                if completion not in self._stop_lengths and self._stops.reached(so_far_1T, so_far_1T[:, -1]):
                    self._stop_lengths[completion] = lengths[completion] = int(t) + 1
        return lengths

    def results(self, completions: Completions, number: int, max_tokens: int) -> DecodedRows:
        """The first `number` completions, cut after their stop texts."""
        tokens_RT = completions.tokens_CT[:number, :max_tokens].cpu().long()
        lengths_R = completions.lengths_C[:number].cpu().long()
        self.scan(torch.arange(number), lengths_R, tokens_RT)
        last_R = tokens_RT.gather(1, (lengths_R[:, None] - 1).clamp(min=0)).squeeze(1)
        finished_R = torch.isin(last_R, torch.tensor(self._end_tokens, dtype=torch.int64))
        for completion, length in self._stop_lengths.items():
            lengths_R[completion], finished_R[completion] = length, True
        return DecodedRows(
            tokens_RT=tokens_RT,
            logprobs_RT=completions.logprobs_CT[:number, :max_tokens],
            entropies_RT=completions.entropies_CT[:number, :max_tokens],
            facts_RT={name: values_CT[:number, :max_tokens] for name, values_CT in completions.facts_CT.items()},
            lengths_R=lengths_R,
            finished_R=finished_R,
        )
