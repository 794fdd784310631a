"""Rows of different lengths as one long sequence: no padding, and no token sees another row.

    with packed_attention(body.config):
        hidden_1LE = body(input_ids=tokens_1L, **packing.arguments(), use_cache=False).last_hidden_state

The body is transformers' own. Positions restart at 0 in every row, and the attention function registered here knows
where rows begin: on a GPU it is one call of torch's variable-length flash attention, elsewhere (and in float32) one of
SDPA per row. A backward pass that recomputes activations must run inside `packed_attention` too.

Padding computes as many tokens as if all rows were as long as the longest: with 16 rows of 384 to 3,072 tokens a
gradient took 1.65 s packed and 2.57 s padded on an H200. Rows of one length gain nothing and are a little slower,
17,063 against 18,000 tokens/s, so they are padded unless compute.packing is on (`batching.is_worth_packing`). SDPA with
a mask would hold L² numbers for L tokens; row offsets are 4 bytes per row.

Shapes: R rows, L tokens of all rows, T tokens of one row, H heads (fewer of keys and values), D head size.
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

from scrl.device_copy import to_device
from scrl.errors import ConfigError
from scrl.policy.settings import ComputeSettings

NAME = "scrl_packed"
"""Of our attention function among those of transformers."""
FLASH_DTYPES = (torch.bfloat16, torch.float16)
UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Arguments of attention functions that change the scores, and that ours does not take."""
PROBE_LENGTHS = (5, 3, 1)
"""Of the rows on which `why_not_packed` tries a model."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """Where the rows of one long sequence begin and end."""

    lengths_R: tuple[int, ...]
    cu_seqlens: Tensor
    """int32 [R + 1], from 0 to L."""
    positions_1L: Tensor

    @classmethod
    def of(cls, lengths_R: Sequence[int], device: torch.device) -> Packing:
        """For rows of these lengths."""
        cu_seqlens = np.array([0, *accumulate(lengths_R)], dtype=np.int32)
        positions_L = np.concatenate([np.arange(length) for length in lengths_R])
        return cls(tuple(lengths_R), to_device(cu_seqlens, device), to_device(positions_L[None], device))

    def arguments(self) -> dict[str, Any]:
        """What a body needs besides the tokens."""
        return {"position_ids": self.positions_1L, "packing": self}


@contextlib.contextmanager
def packed_attention(config: Any) -> Iterator[None]:
    """Let the model of this configuration attend within rows only."""
    _register()
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


@cache
def _register() -> None:
    """Transformers makes no mask for an attention function without a mask function of the same name."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, attend_within_rows)


def attend_within_rows(
    module: Any,
    query_1HLD: Tensor,
    key_1HLD: Tensor,
    value_1HLD: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Causal attention within each row, [1, L, H, D]; with a window W a token sees W − 1 tokens before it."""
    unsupported = [name for name in UNSUPPORTED if others.get(name) is not None]
    if unsupported or attention_mask is not None or not getattr(module, "is_causal", True):
        raise NotImplementedError(f"attention within rows has no {', '.join(unsupported) or 'mask'}")
    inputs = (query_1HLD, key_1HLD, value_1HLD)
    if query_1HLD.is_cuda and query_1HLD.dtype in FLASH_DTYPES:
        from torch.nn.attention import varlen

        attend: Any = varlen.varlen_attn
        longest, window = max(packing.lengths_R), -1 if sliding_window is None else sliding_window - 1
        output_LHD = attend(
            *(part[0].transpose(0, 1) for part in inputs), packing.cu_seqlens, packing.cu_seqlens, longest, longest,
            scale=scaling, window_size=(window, 0), **_shared_heads(),
        )  # fmt: skip
        return output_LHD[None], None
    rows = zip(*(torch.split(part, [*packing.lengths_R], 2) for part in inputs), strict=True)
    outputs = [_attend(query, key, value, scaling, sliding_window).transpose(1, 2) for query, key, value in rows]
    return torch.cat(outputs, dim=1), None


@cache
def _shared_heads() -> dict[str, bool]:
    """torch 2.11 accepts fewer key heads than query heads as they are; later versions want to be told."""
    from torch.nn.attention.varlen import varlen_attn

    return {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def _attend(
    query_1HTD: Tensor, key_1HTD: Tensor, value_1HTD: Tensor, scaling: float | None, window: int | None
) -> Tensor:
    """One row by SDPA."""
    T = query_1HTD.shape[2]
    mask_TT = None
    if window is not None and window < T:
        positions_T = torch.arange(T, device=query_1HTD.device)
        distance_TT = positions_T[:, None] - positions_T
        mask_TT = (distance_TT >= 0) & (distance_TT < window)
    return torch.nn.functional.scaled_dot_product_attention(
        query_1HTD, key_1HTD, value_1HTD, attn_mask=mask_TT, is_causal=mask_TT is None, scale=scaling,
        enable_gqa=key_1HTD.shape[1] != query_1HTD.shape[1],
    )  # fmt: skip


def choose_packing(parts: tuple[Any, Any] | None, compute: ComputeSettings) -> tuple[bool, str | None]:
    """Whether rows are packed: as the settings say, or with `auto` on a GPU where the model allows it.

    `parts`: the model's body and head, if it has them. With the answer a note, where rows should be packed but cannot.
    """
    is_expected = compute.attention == "sdpa" and parts is not None and parts[1].weight.is_cuda
    if compute.packing == "off" or (compute.packing == "auto" and not is_expected):
        return False, None
    reason = "this model changes its logits" if parts is None else why_not_packed(parts[0])
    if reason is None:
        return True, None
    if compute.packing == "on":
        raise ConfigError(f"compute.packing: rows cannot be packed ({reason}); set it to auto or off")
    return False, f"rows are padded, as they cannot be packed ({reason})"


@torch.no_grad()
def why_not_packed(body: Any) -> str | None:
    """None where this body gives three short packed rows the hidden states that it gives each of them alone."""
    device, was_training = next(body.parameters()).device, body.training
    body.eval()
    tokens_1L = torch.arange(sum(PROBE_LENGTHS), device=device)[None]
    rows = torch.split(tokens_1L, [*PROBE_LENGTHS], 1)
    alone = [body(input_ids=row_1T, use_cache=False).last_hidden_state for row_1T in rows]
    try:
        with packed_attention(body.config):
            packing = Packing.of(PROBE_LENGTHS, device)
            packed_1LE = body(input_ids=tokens_1L, use_cache=False, **packing.arguments()).last_hidden_state
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, KeyError, ValueError, AttributeError, ImportError) as error:
        # it takes no such argument, its attention is of another kind, or this torch has none for it
        return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    finally:
        body.train(was_training)
    tolerance = 1e-4 if packed_1LE.dtype == torch.float32 else 0.03
    found, wanted = packed_1LE.float(), torch.cat(alone, dim=1).float()
    is_same = bool((found - wanted).norm() <= tolerance * wanted.norm())
    return None if is_same else "this model gives packed rows other hidden states than each row alone"
