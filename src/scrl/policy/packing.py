"""Rows of different lengths as one long sequence: no padding, no token sees another row, each prompt appears once.

    with packed_attention(body.config):
        hidden_1LE = body(input_ids=tokens_1L, **packing.arguments(), use_cache=False).last_hidden_state

The body is transformers' own. Rows that continue the same prompt share it: the sequence is the prompt, then one
completion after the other, and each completion attends to the prompt's keys and to its own. Everything else a layer
does is done once for the prompt, instead of once for each of its completions. The attention function registered here
knows where pieces begin: on a GPU it is one call of torch's variable-length flash attention, elsewhere (and in float32)
one of SDPA per piece. A backward pass that recomputes activations must run inside `packed_attention` too.

With 16 rows of 384 to 3,072 tokens a gradient took 1.65 s packed and 2.57 s padded on an H200. Rows of one length gain
nothing but their prompts and are a little slower, so they are padded (`batching.is_worth_packing`).

Shapes: L tokens of the sequence, m keys of all pieces (a prompt's count for every completion), T tokens of one piece, S
keys it sees, C completions of a prompt, P tokens of a prompt, H heads (fewer of keys and values), D head size.
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
from numpy.typing import NDArray
from torch import Tensor

from scrl.device import to_device
from scrl.policy.model import first_line, in_eval_mode

NAME = "scrl_packed"
"""The name of our attention function among those of transformers."""
DEVICES = ("cuda",)
"""Where rows are packed."""
FLASH_DTYPES = (torch.bfloat16, torch.float16)
UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Arguments of attention functions that change the scores, and that ours does not take."""
PROBE = ((2, (3, 1)), (1, ()))
"""Prompts and their completions on which `why_not_packed` tries a model."""


@dataclass(frozen=True, slots=True, eq=False)
class Packing:
    """The pieces of one long sequence: prompts, each followed by its completions; and what they attend to."""

    query_lengths: tuple[int, ...]
    """Tokens of each piece."""
    key_lengths: tuple[int, ...]
    """Tokens it attends to: a completion to its prompt and itself."""
    cu_queries: Tensor
    """int32 [pieces + 1], from 0 to L."""
    cu_keys: Tensor
    """int32 [pieces + 1], from 0 to m."""
    positions_1L: Tensor
    keys_m: Tensor
    """The index of each key in the sequence."""
    own_L: Tensor
    """The index of each token among the m keys, as one of its own piece."""
    prompts: tuple[tuple[slice, Tensor], ...]
    """For each prompt with completions, its place in the sequence, and [1 + C, P]: all its places among the m keys."""

    @classmethod
    def of(cls, groups: Sequence[tuple[int, Sequence[int]]], device: torch.device) -> Packing:
        """For prompts of some tokens, each with completions of some tokens; a row that shares no prompt has none."""
        queries: list[int] = []
        keys: list[int] = []
        positions, key_places, own_places, prompts = [], [], [], []
        for prompt, completions in groups:
            shared_P = sum(queries) + np.arange(prompt)
            places: list[NDArray[np.int64]] = []
            for length in (prompt, *completions):
                before_P = shared_P if places else shared_P[:0]
                first_key = sum(keys)
                places.append(first_key + np.arange(prompt))
                key_places += [before_P, sum(queries) + np.arange(length)]
                own_places.append(first_key + len(before_P) + np.arange(length))
                positions.append(len(before_P) + np.arange(length))
                queries.append(length)
                keys.append(len(before_P) + length)
            if completions:
                prompts.append((slice(shared_P[0], shared_P[-1] + 1), to_device(np.stack(places), device)))
        cu_queries, cu_keys = (np.array([0, *accumulate(lengths)], dtype=np.int32) for lengths in (queries, keys))
        arrays = (np.concatenate(each) for each in (positions, key_places, own_places))
        positions_L, keys_m, own_L = (to_device(array.astype(np.int64), device) for array in arrays)
        offsets = (to_device(cu_queries, device), to_device(cu_keys, device))
        return cls(tuple(queries), tuple(keys), *offsets, positions_L[None], keys_m, own_L, tuple(prompts))

    def arguments(self) -> dict[str, Any]:
        """What a body needs besides the tokens."""
        return {"position_ids": self.positions_1L, "packing": self}


@contextlib.contextmanager
def packed_attention(config: Any) -> Iterator[None]:
    """Let the model of this configuration attend within rows only."""
    from transformers import AttentionInterface

    # Transformers makes no mask for an attention function without a mask function of the same name.
    AttentionInterface.register(NAME, attend_within_rows)
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


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
    query_LHD, key_mHD, value_mHD = (part[0].transpose(0, 1) for part in (query_1HLD, key_1HLD, value_1HLD))
    if packing.prompts:
        function: Any = KeysOfPieces
        key_mHD, value_mHD = function.apply(key_mHD, packing), function.apply(value_mHD, packing)
    if query_1HLD.is_cuda and query_1HLD.dtype in FLASH_DTYPES:
        from torch.nn.attention import varlen

        attend: Any = varlen.varlen_attn
        longest = (max(packing.query_lengths), max(packing.key_lengths))
        window = -1 if sliding_window is None else sliding_window - 1
        output_LHD = attend(
            query_LHD, key_mHD, value_mHD, packing.cu_queries, packing.cu_keys, *longest,
            scale=scaling, window_size=(window, 0), **_shared_heads(),
        )  # fmt: skip
        return output_LHD[None], None
    queries, keys, values = (
        torch.split(part, [*lengths])
        for part, lengths in (
            (query_LHD, packing.query_lengths), (key_mHD, packing.key_lengths), (value_mHD, packing.key_lengths)
        )
    )  # fmt: skip
    pieces = zip(queries, keys, values, strict=True)
    outputs = [_attend(query, key, value, scaling, sliding_window) for query, key, value in pieces]
    return torch.cat(outputs)[None], None


class KeysOfPieces(torch.autograd.Function):
    """Keys or values [L, H, D] → [m, H, D]: for every piece its own and, before them, those of its prompt.

    The gradient of a prompt's key is the sum over its pieces, always in the same order.
    """

    @staticmethod
    def forward(ctx: Any, states_LHD: Tensor, packing: Packing) -> Tensor:
        ctx.packing = packing
        return states_LHD.index_select(0, packing.keys_m)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad_mHD,), packing = grads, ctx.packing
        grad_LHD = grad_mHD.index_select(0, packing.own_L)
        for prompt, places in packing.prompts:
            grad_LHD[prompt] = grad_mHD[places].sum(dim=0)
        return grad_LHD, None


@cache
def _shared_heads() -> dict[str, bool]:
    """torch 2.11 accepts fewer key heads than query heads as they are; later versions want to be told."""
    from torch.nn.attention.varlen import varlen_attn

    return {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def _attend(query_THD: Tensor, key_SHD: Tensor, value_SHD: Tensor, scaling: float | None, window: int | None) -> Tensor:
    """One piece by SDPA, [T, H, D]; its last token sees the last key.

    A mask would be kept for the backward pass: without a window, queries of 0 for the prompt take its place.
    """
    T, S = len(query_THD), len(key_SHD)
    query_SHD = torch.nn.functional.pad(query_THD, (0, 0, 0, 0, S - T, 0))
    mask_SS = None
    if window is not None and window < S:
        positions_S = torch.arange(S, device=query_THD.device)
        distance_SS = positions_S[:, None] - positions_S
        mask_SS = (distance_SS >= 0) & (distance_SS < window)
    query_1HSD, key_1HSD, value_1HSD = (part.transpose(0, 1)[None] for part in (query_SHD, key_SHD, value_SHD))
    output_1HSD = torch.nn.functional.scaled_dot_product_attention(
        query_1HSD, key_1HSD, value_1HSD, attn_mask=mask_SS, is_causal=mask_SS is None, scale=scaling,
        enable_gqa=key_SHD.shape[1] != query_THD.shape[1],
    )  # fmt: skip
    return output_1HSD[0, :, S - T :].transpose(0, 1)


def choose_packing(parts: tuple[Any, Any] | None) -> tuple[bool, str | None]:
    """Whether rows are packed: on a GPU, where the model allows it; and a note if it does not.

    `parts`: the model's body and head, if it has them.
    """
    if parts is None or parts[1].weight.device.type not in DEVICES:
        return False, None
    reason = why_not_packed(parts[0])
    return reason is None, None if reason is None else f"rows are padded, as they cannot be packed ({reason})"


def why_not_packed(body: Any) -> str | None:
    """None if this body gives packed rows, two of them with one prompt, the hidden states that each has alone."""
    device = next(body.parameters()).device
    (prompt, completions), (row, _) = PROBE
    packing = Packing.of(PROBE, device)
    tokens_1L = torch.arange(sum(packing.query_lengths), device=device)[None]
    shared, *own = torch.split(tokens_1L, [prompt, *completions, row], 1)
    rows = [*(torch.cat((shared, tokens), dim=1) for tokens in own[:-1]), own[-1]]
    with in_eval_mode(body.modules()):
        alone = [body(input_ids=row_1T, use_cache=False).last_hidden_state for row_1T in rows]
    alone[1] = alone[1][:, prompt:]  # the first row has the prompt already
    try:
        with in_eval_mode(body.modules()), packed_attention(body.config):
            packed_1LE = body(input_ids=tokens_1L, use_cache=False, **packing.arguments()).last_hidden_state
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, KeyError, ValueError, AttributeError, ImportError) as error:
        # it takes no such argument, its attention is of another kind, or this torch has none for it
        return f"{type(error).__name__}: {first_line(error)}"
    tolerance = 1e-4 if packed_1LE.dtype == torch.float32 else 0.03
    found, wanted = packed_1LE.float(), torch.cat(alone, dim=1).float()
    is_same = bool((found - wanted).norm() <= tolerance * wanted.norm())
    return None if is_same else "this model gives packed rows other hidden states than each row alone"
