"""The parts of a decode step as Triton kernels, twins of the functions in `twins`; drawing is in `draw_kernels`.

At 256 rows of Qwen2.5-3B each of the small ones moves 1 to 17 MB, 0.3 to 4 µs at 4.3 TB/s, so what they cost is mostly
being launched: seven a layer, about 2.5 µs each in a graph. Attention moves the cache: a page of 256 tokens and one key
head is 131 kB in bfloat16, read once by one program.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scrl.sampling.gpu.attention_kernels import attend
from scrl.sampling.gpu.decode_state import PREFIX, SUFFIX, Desk, Pages
from scrl.sampling.gpu.draw_kernels import choose
from scrl.sampling.gpu.fused_weights import Layer, Shape

__all__ = ["add_norm", "attend", "choose", "gated", "logits", "turn_and_store"]

HEADS_AT_ONCE = 4
"""Heads that one program of `_turn_and_store` turns: one alone is 128 bytes, too little to be worth a program."""


def add_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual. Reads 2 R E numbers, writes as many: 4 MB, 1 µs."""
    rows, size = hidden_RE.shape
    normed_RE = torch.empty_like(hidden_RE)
    total_RE = hidden_RE if residual_RE is None else torch.empty_like(hidden_RE)
    block = triton.next_power_of_2(size)
    _add_norm[(rows,)](
        hidden_RE,
        hidden_RE if residual_RE is None else residual_RE,
        weight_E,
        normed_RE,
        total_RE,
        eps,
        SIZE=size,
        BLOCK=block,
        ADD=residual_RE is not None,
        num_warps=max(1, min(16, block // 512)),
    )
    return normed_RE, total_RE


@triton.jit
def _add_norm(hidden, residual, weight, normed, total, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < SIZE
    x = tl.load(hidden + row * SIZE + place, mask=inside, other=0.0)
    if ADD:
        x = (tl.load(residual + row * SIZE + place, mask=inside, other=0.0).to(tl.float32) + x.to(tl.float32)).to(
            x.dtype
        )
        tl.store(total + row * SIZE + place, x, mask=inside)
    w = tl.load(weight + place, mask=inside, other=0.0)
    tl.store(normed + row * SIZE + place, _normed(x, w, eps, SIZE), mask=inside)


@triton.jit
def _normed(x, w, eps, SIZE: tl.constexpr):
    """Along the last axis of a vector: float32 inside, rounded before the weight is multiplied."""
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    return ((wide * scale).to(x.dtype).to(tl.float32) * w.to(tl.float32)).to(x.dtype)


def turn_and_store(
    qkv_RN: Tensor, layer: Layer, shape: Shape, desk: Desk, pages: Pages, keys: Tensor, values: Tensor
) -> Tensor:
    """Queries [R, H, D] with their positions turned in; keys and values go to the row's page: 2.6 MB, 0.6 µs."""
    rows, page = len(qkv_RN), keys.shape[2]
    queries_RHD = torch.empty(rows, shape.heads, shape.head_size, dtype=qkv_RN.dtype, device=qkv_RN.device)
    has_norm = layer.q_norm is not None
    heads = shape.heads + shape.kv_heads
    _turn_and_store[(rows, triton.cdiv(heads, HEADS_AT_ONCE))](
        qkv_RN,
        layer.q_norm if has_norm else qkv_RN,
        layer.k_norm if has_norm else qkv_RN,
        desk.cos_LD,
        desk.sin_LD,
        desk.state,
        pages.suffix_SP,
        queries_RHD,
        keys,
        values,
        shape.eps,
        desk.state.shape[1],
        pages.suffix_SP.shape[1],
        HEADS=shape.heads,
        KV=shape.kv_heads,
        D=shape.head_size,
        PAGE=page,
        BLOCK=HEADS_AT_ONCE,
        NORM=has_norm,
        PREFIX_ROW=PREFIX,
        SUFFIX_ROW=SUFFIX,
        num_warps=1,
    )
    return queries_RHD


@triton.jit(do_not_specialize=["slots", "width"])
def _turn_and_store(
    qkv, q_norm, k_norm, cos, sin, state, table, queries, keys, values, eps, slots, width,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr,
    PREFIX_ROW: tl.constexpr, SUFFIX_ROW: tl.constexpr,
):  # fmt: skip
    """A row and some of its heads, first those of queries, then those of keys, whose values are stored too."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[:, None]
    half = tl.arange(0, D // 2)[None, :]
    is_query = (head < HEADS) & (half >= 0)
    is_key = (head >= HEADS) & (head < HEADS + KV) & (half >= 0)
    suffix = tl.load(state + SUFFIX_ROW * slots + row)
    position = (tl.load(state + PREFIX_ROW * slots + row) + suffix).to(tl.int64)
    source = qkv + (row * (HEADS + 2 * KV) + head) * D + half
    one = tl.load(source, mask=is_query | is_key, other=0.0)
    two = tl.load(source + D // 2, mask=is_query | is_key, other=0.0)
    if NORM:
        weight_one = _either(q_norm + half, k_norm + half, is_query, is_key)
        weight_two = _either(q_norm + D // 2 + half, k_norm + D // 2 + half, is_query, is_key)
        wide_one, wide_two = one.to(tl.float32), two.to(tl.float32)
        squares = tl.sum(wide_one * wide_one, axis=1) + tl.sum(wide_two * wide_two, axis=1)
        scale = tl.rsqrt(squares / D + eps)[:, None]
        one = ((wide_one * scale).to(one.dtype).to(tl.float32) * weight_one).to(one.dtype)
        two = ((wide_two * scale).to(two.dtype).to(tl.float32) * weight_two).to(two.dtype)
    c, s = tl.load(cos + position * D + half), tl.load(sin + position * D + half)
    turned_one, turned_two = _turned(one, two, c, s)
    to = queries + (row * HEADS + head) * D + half
    tl.store(to, turned_one, mask=is_query)
    tl.store(to + D // 2, turned_two, mask=is_query)
    page = tl.load(table + row * width + suffix // PAGE).to(tl.int64)
    place = ((page * KV + head - HEADS) * PAGE + suffix % PAGE) * D + half
    tl.store(keys + place, turned_one, mask=is_key)
    tl.store(keys + place + D // 2, turned_two, mask=is_key)
    tl.store(values + place, tl.load(source + KV * D, mask=is_key, other=0.0), mask=is_key)
    tl.store(values + place + D // 2, tl.load(source + KV * D + D // 2, mask=is_key, other=0.0), mask=is_key)


@triton.jit
def _either(one, other, is_one, is_other):
    """Of each head its own weights."""
    return tl.load(one, mask=is_one, other=0.0).to(tl.float32) + tl.load(other, mask=is_other, other=0.0).to(tl.float32)


@triton.jit
def _turned(one, two, c, s):
    """(x₁ cos − x₂ sin, x₂ cos + x₁ sin), every product rounded as in transformers."""
    kind = one.dtype
    x, y, c, s = one.to(tl.float32), two.to(tl.float32), c.to(tl.float32), s.to(tl.float32)
    first = (x * c).to(kind).to(tl.float32) - (y * s).to(kind).to(tl.float32)
    second = (y * c).to(kind).to(tl.float32) + (x * s).to(kind).to(tl.float32)
    return first.to(kind), second.to(kind)


def gated(gate_up_RN: Tensor) -> Tensor:
    """silu(gate) · up. Reads 2 R I numbers and writes half as many: 17 MB, 4 µs."""
    rows, size = gate_up_RN.shape[0], gate_up_RN.shape[1] // 2
    out_RI = torch.empty(rows, size, dtype=gate_up_RN.dtype, device=gate_up_RN.device)
    block = min(1024, triton.next_power_of_2(size))
    _gated[(rows, triton.cdiv(size, block))](gate_up_RN, out_RI, SIZE=size, BLOCK=block, num_warps=4)
    return out_RI


@triton.jit
def _gated(gate_up, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + place, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + place, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out + row * SIZE + place, (silu.to(tl.float32) * up.to(tl.float32)).to(gate.dtype), mask=inside)


def logits(hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor:
    """hidden · Wᵀ, kept in float32: bfloat16 logits between 16 and 32 are 0.125 apart, ±0.06 in a log-probability."""
    if hidden_RE.dtype == torch.float32:
        logits_RV = hidden_RE @ weight_VE.T
    elif hidden_RE.is_cuda:
        logits_RV = torch.mm(hidden_RE, weight_VE.T, out_dtype=torch.float32)
    else:
        logits_RV = (hidden_RE @ weight_VE.T).float()
    return logits_RV if bias_V is None else logits_RV + bias_V
