"""The operations of a decode step as Triton kernels, counterparts of `reference_ops`; drawing is in `draw_kernels`.

At 256 rows of Qwen2.5-3B each of the small ones moves 1 to 17 MB, 0.3 to 4 µs at 4.3 TB/s, so their cost is mostly the
launch: seven per layer, about 2.5 µs each in a graph. Attention moves the cache: a page of 256 tokens and one key head
is 131 kB in bfloat16, read once by one program.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scrl.sampling.gpu.attention_kernels import attend
from scrl.sampling.gpu.decode_state import PREFIX, SUFFIX, DecodeState, PageTables
from scrl.sampling.gpu.draw_kernels import draw_tokens
from scrl.sampling.gpu.fused_weights import Layer, Shape

__all__ = ["add_low_rank", "add_rms_norm", "attend", "draw_tokens", "logits", "rope_and_store", "silu_and_mul"]

HEADS_PER_PROGRAM = 4
"""Of `_rope_and_store`: one head alone is 128 bytes, too little for a program."""


def add_rms_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual. Reads 2 R E numbers, writes as many: 4 MB, 1 µs."""
    rows, size = hidden_RE.shape
    normed_RE = torch.empty_like(hidden_RE)
    total_RE = hidden_RE if residual_RE is None else torch.empty_like(hidden_RE)
    block = triton.next_power_of_2(size)
    _add_rms_norm[(rows,)](
        hidden_RE, hidden_RE if residual_RE is None else residual_RE, weight_E, normed_RE, total_RE, eps,
        SIZE=size, BLOCK=block, ADD=residual_RE is not None, num_warps=max(1, min(16, block // 512)),
    )  # fmt: skip
    return normed_RE, total_RE


@triton.jit
def _add_rms_norm(
    hidden, residual, weight, normed, total, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr
):
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
    tl.store(normed + row * SIZE + place, _rms_norm(x, w, eps, SIZE), mask=inside)


@triton.jit
def _rms_norm(x, w, eps, SIZE: tl.constexpr):
    """In float32, rounded before it is multiplied by the weight."""
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    return ((wide * scale).to(x.dtype).to(tl.float32) * w.to(tl.float32)).to(x.dtype)


def rope_and_store(
    qkv: Tensor, layer: Layer, shape: Shape, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """Queries [R, H, D] with rotary positions; the new keys and values go to the row's page: 2.6 MB, 0.6 µs."""
    rows = len(qkv)
    queries_RHD = torch.empty(rows, shape.heads, shape.head_size, dtype=qkv.dtype, device=qkv.device)
    has_norm = layer.q_norm is not None
    _rope_and_store[(rows, triton.cdiv(shape.heads + shape.kv_heads, HEADS_PER_PROGRAM))](
        qkv, layer.q_norm if has_norm else qkv, layer.k_norm if has_norm else qkv, state.cos_LD, state.sin_LD,
        state.fields, tables.suffix, queries_RHD, keys, values,
        shape.eps, state.fields.shape[1], tables.suffix.shape[1],
        HEADS=shape.heads, KV=shape.kv_heads, D=shape.head_size, PAGE=keys.shape[2], BLOCK=HEADS_PER_PROGRAM,
        NORM=has_norm, PREFIX_ROW=PREFIX, SUFFIX_ROW=SUFFIX, num_warps=1,
    )  # fmt: skip
    return queries_RHD


@triton.jit(do_not_specialize=["slots", "width"])
def _rope_and_store(
    qkv, q_norm, k_norm, cos, sin, state, table, queries, keys, values, eps, slots, width,
    HEADS: tl.constexpr, KV: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, NORM: tl.constexpr,
    PREFIX_ROW: tl.constexpr, SUFFIX_ROW: tl.constexpr,
):  # fmt: skip
    """(row, block of heads): heads of queries first, then those of keys, whose values are stored too."""
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
    rotated_one, rotated_two = _apply_rope(one, two, c, s)
    to = queries + (row * HEADS + head) * D + half
    tl.store(to, rotated_one, mask=is_query)
    tl.store(to + D // 2, rotated_two, mask=is_query)
    page = tl.load(table + row * width + suffix // PAGE).to(tl.int64)
    offset = ((page * KV + head - HEADS) * PAGE + suffix % PAGE) * D + half
    tl.store(keys + offset, rotated_one, mask=is_key)
    tl.store(keys + offset + D // 2, rotated_two, mask=is_key)
    tl.store(values + offset, tl.load(source + KV * D, mask=is_key, other=0.0), mask=is_key)
    tl.store(values + offset + D // 2, tl.load(source + KV * D + D // 2, mask=is_key, other=0.0), mask=is_key)


@triton.jit
def _either(one, other, is_one, is_other):
    """The norm's weights of query heads from one pointer, of key heads from the other."""
    return tl.load(one, mask=is_one, other=0.0).to(tl.float32) + tl.load(other, mask=is_other, other=0.0).to(tl.float32)


@triton.jit
def _apply_rope(one, two, c, s):
    """(x₁ cos − x₂ sin, x₂ cos + x₁ sin), every product rounded as in transformers."""
    kind = one.dtype
    x, y, c, s = one.to(tl.float32), two.to(tl.float32), c.to(tl.float32), s.to(tl.float32)
    first = (x * c).to(kind).to(tl.float32) - (y * s).to(kind).to(tl.float32)
    second = (y * c).to(kind).to(tl.float32) + (x * s).to(kind).to(tl.float32)
    return first.to(kind), second.to(kind)


def silu_and_mul(gate_up: Tensor, lora_B: Tensor | None = None) -> Tensor:
    """silu(gate) · up, with an adapter of gate + h Bᵀ and up + h Bᵀ (see `add_low_rank`); 17 MB, 4 µs."""
    rows, rank = len(gate_up), 0 if lora_B is None else lora_B.shape[1]
    size = (gate_up.shape[1] - rank) // 2
    out = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    if lora_B is None:
        block = min(1024, triton.next_power_of_2(size))
        _silu_and_mul[(rows, triton.cdiv(size, block))](gate_up, out, SIZE=size, BLOCK=block, num_warps=4)
    else:
        _launch_add_low_rank(gate_up, lora_B, out, block=64, is_gated=True)
    return out


@triton.jit
def _silu_and_mul(gate_up, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < SIZE
    gate = tl.load(gate_up + row * 2 * SIZE + place, mask=inside, other=0.0)
    up = tl.load(gate_up + row * 2 * SIZE + SIZE + place, mask=inside, other=0.0)
    tl.store(out + row * SIZE + place, _gated(gate, up), mask=inside)


@triton.jit
def _gated(gate, up):
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    return (silu.to(tl.float32) * up.to(tl.float32)).to(gate.dtype)


def add_low_rank(outputs: Tensor, lora_B: Tensor) -> Tensor:
    """y + h Bᵀ, where `outputs` are the columns of y, then those of h; 2 MB."""
    out = torch.empty(len(outputs), len(lora_B), dtype=outputs.dtype, device=outputs.device)
    _launch_add_low_rank(outputs, lora_B, out, block=128, is_gated=False)
    return out


def _launch_add_low_rank(outputs: Tensor, lora_B: Tensor, out: Tensor, *, block: int, is_gated: bool) -> None:
    rows, size = out.shape
    tile = 16 if rows <= 16 else 32
    _add_low_rank[(triton.cdiv(size, block), triton.cdiv(rows, tile))](
        outputs, lora_B, out, rows,
        SIZE=size, RANK=lora_B.shape[1], ROWS=tile, BLOCK=block, GATED=is_gated, num_warps=4,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _add_low_rank(
    outputs, lora_B, out, rows,
    SIZE: tl.constexpr, RANK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """A tile of y + h Bᵀ; GATED: of silu of the first half of it, times the second, each of SIZE columns."""
    WIDTH: tl.constexpr = 2 * SIZE if GATED else SIZE
    row = (tl.program_id(1) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < SIZE)
    source = outputs + row * (WIDTH + RANK)
    h = tl.load(source + WIDTH + tl.arange(0, RANK)[None, :], mask=row < rows, other=0.0)
    total = _plus_low_rank(source + column, h, lora_B, column, inside, SIZE, RANK)
    if GATED:
        up = _plus_low_rank(source + SIZE + column, h, lora_B + SIZE * RANK, column, inside, SIZE, RANK)
        total = _gated(total, up)
    tl.store(out + row * SIZE + column, total, mask=inside)


@triton.jit
def _plus_low_rank(outputs, h, lora_B, column, inside, SIZE: tl.constexpr, RANK: tl.constexpr):
    """y + h Bᵀ of some columns, rounded to the type of y."""
    y = tl.load(outputs, mask=inside, other=0.0)
    up = tl.load(lora_B + column * RANK + tl.arange(0, RANK)[:, None], mask=column < SIZE, other=0.0)
    return (y.to(tl.float32) + tl.dot(h, up, input_precision="ieee")).to(y.dtype)


def logits(hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor:
    """hidden · Wᵀ, kept in float32: bfloat16 logits between 16 and 32 are 0.125 apart, ±0.06 in a log-probability."""
    if hidden_RE.dtype == torch.float32:
        logits_RV = hidden_RE @ weight_VE.T
    elif hidden_RE.is_cuda:
        logits_RV = torch.mm(hidden_RE, weight_VE.T, out_dtype=torch.float32)
    else:
        logits_RV = (hidden_RE @ weight_VE.T).float()
    return logits_RV if bias_V is None else logits_RV + bias_V
