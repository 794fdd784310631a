"""Rows that are written side by side from prompt to end, token by token: how models are sampled without captured steps.

Shapes: B prompts of P tokens, R rows of up to T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scrl.records import Tokens
from scrl.sampling.decoders import Decoder
from scrl.sampling.draw import SamplingSettings, draw
from scrl.sampling.stop_texts import StopTexts

CLOSE_RANKS_BELOW = 0.75
"""Finished rows are thrown out of the cache once fewer than this share of its rows is still writing."""


@dataclass(slots=True, eq=False)
class Pages:
    """What R rows have written so far."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    entropies_RT: Tensor
    uniforms_RT: Tensor
    facts_RT: dict[str, Tensor]
    lengths_R: Tensor
    """How many tokens a row has, or may have while it is still writing."""
    finished_R: Tensor
    limits: frozenset[int]
    """How many tokens rows may have: when one has so many, even if it has ended before, it is not run any further."""

    @classmethod
    def blank(cls, uniforms_RT: Tensor, record: Sequence[str] = (), limits: Sequence[int] = ()) -> Pages:
        rows, max_tokens = uniforms_RT.shape
        device = uniforms_RT.device
        limits = limits or [max_tokens] * rows
        return cls(
            tokens_RT=torch.zeros(rows, max_tokens, dtype=torch.int64, device=device),
            logprobs_RT=torch.zeros(rows, max_tokens, device=device),
            entropies_RT=torch.zeros(rows, max_tokens, device=device),
            uniforms_RT=uniforms_RT,
            facts_RT={name: torch.zeros(rows, max_tokens, device=device) for name in record},
            lengths_R=torch.tensor(limits, device=device),
            finished_R=torch.zeros(rows, dtype=torch.bool, device=device),
            limits=frozenset(limits),
        )


def fill_pages(
    pages: Pages,
    decoder: Decoder,
    logits_RV: Tensor,
    settings: SamplingSettings,
    ends: Tensor,
    stops: StopTexts | None,
) -> None:
    """The decoding loop: draw, write down, let go of what has finished, go on."""
    rows = torch.arange(len(logits_RV), device=logits_RV.device)
    for place in range(settings.max_tokens):
        drawn = draw(logits_RV, pages.uniforms_RT[rows, place], settings, pages.facts_RT)
        pages.tokens_RT[rows, place] = drawn.tokens_R
        pages.logprobs_RT[rows, place] = drawn.logprobs_R
        pages.entropies_RT[rows, place] = drawn.entropies_R
        for name, values_R in drawn.facts_R.items():
            pages.facts_RT[name][rows, place] = values_R
        ended_R = torch.isin(drawn.tokens_R, ends)
        if stops is not None:
            ended_R |= stops.reached(pages.tokens_RT[rows, : place + 1], drawn.tokens_R)
        just_R = rows[ended_R & ~pages.finished_R[rows] & (pages.lengths_R[rows] > place)]
        pages.finished_R[just_R] = True
        pages.lengths_R[just_R] = place + 1
        writing_R = ~pages.finished_R[rows] & (pages.lengths_R[rows] > place + 1)
        num_writing = int(writing_R.sum())
        if num_writing == 0:
            return
        if num_writing < CLOSE_RANKS_BELOW * len(rows) or (place + 1 in pages.limits and num_writing < len(rows)):
            stay = writing_R.nonzero().squeeze(-1)
            decoder.keep(stay)
            rows, drawn = rows[stay], drawn._replace(tokens_R=drawn.tokens_R[stay])
        if place + 1 < settings.max_tokens:
            logits_RV = decoder.step(drawn.tokens_R)


def left_padded(prompts: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, P] that end in the last column, and the mask of what is no padding."""
    longest = max(map(len, prompts))
    tokens_BP = np.zeros((len(prompts), longest), dtype=np.int64)
    mask_BP = np.zeros_like(tokens_BP)
    for row, prompt in enumerate(prompts):
        tokens_BP[row, longest - len(prompt) :] = prompt
        mask_BP[row, longest - len(prompt) :] = 1
    return torch.from_numpy(tokens_BP).to(device), torch.from_numpy(mask_BP).to(device)
