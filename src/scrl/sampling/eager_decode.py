"""Eager decoding: rows that start together and are decoded token by token until the last one has ended.

Shapes: B prompts of P tokens, R rows of up to T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from scrl.records import Tokens
from scrl.sampling.decoders import Decoder
from scrl.sampling.draw import draw
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import StopTexts

COMPACT_BELOW = 0.75
"""Ended rows are dropped from the cache once fewer than this share of its rows are still being decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """R completions; row r has `lengths_R[r]` tokens."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    entropies_RT: Tensor
    facts_RT: dict[str, Tensor]
    lengths_R: Tensor
    finished_R: Tensor
    """Which rows ended with an end token or a stop text."""


def decode_eagerly(
    decoder: Decoder,
    logits_RV: Tensor,
    uniforms_RT: Tensor,
    settings: SamplingSettings,
    end_tokens: Tensor,
    stops: StopTexts | None,
    record: Sequence[str] = (),
    limits: Sequence[int] = (),
    on_token: Callable[[int, int], None] | None = None,
) -> DecodedRows:
    """Draw, record, drop rows that have ended, step. `limits` are the most tokens of each row.

    `on_token` is told how many tokens each row has so far, and the most it may have.
    """
    num_rows, max_tokens = uniforms_RT.shape
    device = uniforms_RT.device
    limits = limits or [max_tokens] * num_rows
    limit_values = frozenset(limits)
    out = DecodedRows(
        tokens_RT=torch.zeros(num_rows, max_tokens, dtype=torch.int64, device=device),
        logprobs_RT=torch.zeros(num_rows, max_tokens, device=device),
        entropies_RT=torch.zeros(num_rows, max_tokens, device=device),
        facts_RT={name: torch.zeros(num_rows, max_tokens, device=device) for name in record},
        lengths_R=torch.tensor(limits, device=device),
        finished_R=torch.zeros(num_rows, dtype=torch.bool, device=device),
    )
    rows = torch.arange(num_rows, device=device)  # the rows that the decoder still has
    for t in range(settings.max_tokens):
        new = draw(logits_RV, uniforms_RT[rows, t], settings, record)
        out.tokens_RT[rows, t] = new.tokens_R
        out.logprobs_RT[rows, t] = new.logprobs_R
        out.entropies_RT[rows, t] = new.entropies_R
        for name, values_R in new.facts_R.items():
            out.facts_RT[name][rows, t] = values_R
        is_end_R = torch.isin(new.tokens_R, end_tokens)
        if stops is not None:
            is_end_R |= stops.reached(out.tokens_RT[rows, : t + 1], new.tokens_R)
        end_rows = rows[is_end_R & ~out.finished_R[rows] & (out.lengths_R[rows] > t)]
        out.finished_R[end_rows] = True
        out.lengths_R[end_rows] = t + 1
        is_active_R = ~out.finished_R[rows] & (out.lengths_R[rows] > t + 1)
        num_active = int(is_active_R.sum())
        if on_token is not None:
            on_token(t + 1, max_tokens)
        if num_active == 0:
            break
        # Rows at their limits are dropped at once: one more step might exceed the model's positions.
        if num_active < COMPACT_BELOW * len(rows) or (t + 1 in limit_values and num_active < len(rows)):
            active = is_active_R.nonzero().squeeze(-1)
            decoder.keep(active)
            rows, new = rows[active], new._replace(tokens_R=new.tokens_R[active])
        if t + 1 < settings.max_tokens:
            logits_RV = decoder.step(new.tokens_R)
    return out


def left_pad(prompts_B: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, P] that end in the last column, and the mask of what is not padding."""
    longest = max(map(len, prompts_B))
    tokens_BP = np.zeros((len(prompts_B), longest), dtype=np.int64)
    mask_BP = np.zeros_like(tokens_BP)
    for row, tokens_P in enumerate(prompts_B):
        tokens_BP[row, longest - len(tokens_P) :] = tokens_P
        mask_BP[row, longest - len(tokens_P) :] = 1
    return torch.from_numpy(tokens_BP).to(device), torch.from_numpy(mask_BP).to(device)
