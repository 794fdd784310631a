"""Rows of different lengths as one long sequence: no padding, and no token sees another row.

    with packed_attention(body.config):
        hidden_1NE = body(input_ids=tokens_1N, **packing.arguments(), use_cache=False).last_hidden_state

The body is transformers' own. Positions start again at 0 with every row, and the attention function registered here
gets the rows' borders: on a GPU it is one call of torch's variable-length flash attention, elsewhere (and in float32)
one of SDPA a row. A backward pass that computes activations again must run inside `packed_attention` too.

Padding computes as many tokens as if all rows had the longest one's: with 16 rows of 384 to 3,072 tokens a gradient
took 1.65 s packed and 2.57 s padded on an H200. Rows of one length gain nothing and are a little slower, 17,063 against
18,000 tokens/s, so they are padded unless compute.packing is on (`batching.is_worth_packing`). SDPA with a mask would
hold N² numbers for N tokens; borders are 4 bytes a row.

Shapes: R rows, N tokens of all rows, A attention heads (K of them for keys and values), D numbers a head.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scrl.device_copy import sent
from scrl.errors import ConfigError
from scrl.policy.settings import ComputeSettings

NAME = "scrl_packed"
"""Of our attention function among those of transformers."""
FLASH_DTYPES = (torch.bfloat16, torch.float16)
UNKNOWN = ("softcap", "s_aux", "position_bias")
"""Arguments of attention functions that change the scores, and that ours does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where the rows of one long sequence begin and end."""

    lengths_R: tuple[int, ...]
    borders: Tensor
    """int32 [R + 1], from 0 to N."""
    positions_1N: Tensor

    @classmethod
    def of(cls, lengths_R: Sequence[int], device: torch.device) -> Packing:
        """Of rows of these lengths."""
        borders = np.array([0, *accumulate(lengths_R)], dtype=np.int32)
        positions_N = np.concatenate([np.arange(length) for length in lengths_R])
        return cls(tuple(lengths_R), sent(borders, device), sent(positions_N[None], device))

    def arguments(self) -> dict[str, Any]:
        """What a body needs besides the tokens."""
        return {"position_ids": self.positions_1N, "packing": self}


@contextlib.contextmanager
def packed_attention(config: Any) -> Iterator[None]:
    """Let the model of this configuration attend within rows alone."""
    _register()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


@cache
def _register() -> None:
    """Without a mask function of that name transformers makes no mask."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend_within_rows)


def attend_within_rows(
    module: Any,
    query_1AND: Tensor,
    key_1KND: Tensor,
    value_1KND: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row, [1, N, A, D]; with a window W a token sees W − 1 tokens before it."""
    unknown = [name for name in UNKNOWN if others.get(name) is not None]
    if unknown or attention_mask is not None or not getattr(module, "is_causal", True):
        raise NotImplementedError(f"attention within rows has no {', '.join(unknown) or 'mask'}")
    if query_1AND.is_cuda and query_1AND.dtype in FLASH_DTYPES:
        query_NAD, key_NKD, value_NKD = (part[0].transpose(0, 1) for part in (query_1AND, key_1KND, value_1KND))
        return _flash(query_NAD, key_NKD, value_NKD, packing, scaling, sliding_window)[None], None
    lengths = [*packing.lengths_R]
    rows = zip(*(torch.split(part, lengths, 2) for part in (query_1AND, key_1KND, value_1KND)), strict=True)
    outputs = [_attend(query, key, value, scaling, sliding_window).transpose(1, 2) for query, key, value in rows]
    return torch.cat(outputs, dim=1), None


def _flash(
    query_NAD: Tensor, key_NKD: Tensor, value_NKD: Tensor, packing: Packing, scaling: float | None, window: int | None
) -> Tensor:
    """One call for all rows. Flash attention reads a shared head's keys once, whether or not it has to be told."""
    from torch.nn.attention import varlen

    attend: Any = varlen.varlen_attn
    longest = max(packing.lengths_R)
    output_NAD: Tensor = attend(
        query_NAD, key_NKD, value_NKD, packing.borders, packing.borders, longest, longest,
        scale=scaling, window_size=(-1 if window is None else window - 1, 0), **_shared_heads(),
    )  # fmt: skip
    return output_NAD


@cache
def _shared_heads() -> dict[str, bool]:
    """torch 2.11 takes fewer key heads than query heads as they are; later it wants to be told."""
    from torch.nn.attention.varlen import varlen_attn

    return {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def _attend(
    query_1ATD: Tensor, key_1KTD: Tensor, value_1KTD: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """One row by SDPA."""
    T = query_1ATD.shape[2]
    mask_TT = None
    if window is not None and window < T:
        place_T = torch.arange(T, device=query_1ATD.device)
        distance_TT = place_T[:, None] - place_T
        mask_TT = (distance_TT >= 0) & (distance_TT < window)
    return torch.nn.functional.scaled_dot_product_attention(
        query_1ATD, key_1KTD, value_1KTD, attn_mask=mask_TT, is_causal=mask_TT is None, scale=scaling,
        enable_gqa=key_1KTD.shape[1] != query_1ATD.shape[1],
    )  # fmt: skip


def packs_rows(plain: tuple[Any, Any] | None, compute: ComputeSettings) -> tuple[bool, str | None]:
    """Whether the rows of a pass are packed: as the settings say, or else on a GPU where the model can do it.

    `plain`: the model's body and head, if it has them. With it a note, where rows would be packed if they could.
    """
    is_expected = compute.attention == "sdpa" and plain is not None and plain[1].weight.is_cuda
    if compute.packing == "off" or (compute.packing == "auto" and not is_expected):
        return False, None
    reason = "this model changes its logits" if plain is None else why_not_packed(plain[0])
    if reason is None:
        return True, None
    if compute.packing == "on":
        raise ConfigError(f"compute.packing: rows cannot be packed ({reason}); set it to auto or off")
    return False, f"rows are padded, as they cannot be packed ({reason})"


PROBE = (5, 3, 1)
"""Lengths of the rows by which `why_not_packed` finds out."""


@torch.no_grad()
def why_not_packed(body: Any) -> str | None:
    """None where this body gives packed rows what it gives each of them alone; found out on three short rows."""
    device, was_training = next(body.parameters()).device, body.training
    body.eval()
    tokens_1N = torch.arange(sum(PROBE), device=device)[None]
    rows = torch.split(tokens_1N, [*PROBE], 1)
    alone = [body(input_ids=row_1T, use_cache=False).last_hidden_state for row_1T in rows]
    try:
        with packed_attention(body.config):
            packing = Packing.of(PROBE, device)
            packed_1NE = body(input_ids=tokens_1N, use_cache=False, **packing.arguments()).last_hidden_state
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, KeyError, ValueError, AttributeError, ImportError) as error:
        # it takes no such argument, its attention is of some other kind, or this torch has none for it
        return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    finally:
        body.train(was_training)
    tolerance = 1e-4 if packed_1NE.dtype == torch.float32 else 0.03
    found, wanted = packed_1NE.float(), torch.cat(alone, dim=1).float()
    is_same = bool((found - wanted).norm() <= tolerance * wanted.norm())
    return None if is_same else "this model gives packed rows other hidden states than each row alone"
