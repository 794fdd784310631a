"""The operations of a decode step as Triton kernels; drawing is in `draw_kernels`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from scrl.sampling.gpu.attention_kernels import attend
from scrl.sampling.gpu.draw_kernels import draw_tokens

__all__ = ["add_low_rank", "add_rms_norm", "attend", "draw_tokens", "logits", "silu_and_mul"]


def add_rms_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual."""
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
    """The norm in float32, rounded before it is multiplied by the weight."""
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=0) / SIZE + eps)
    return ((wide * scale).to(x.dtype).to(tl.float32) * w.to(tl.float32)).to(x.dtype)


def silu_and_mul(gate_up: Tensor, lora_B: Tensor | None = None) -> Tensor:
    """silu(gate) · up, with an adapter of gate + h Bᵀ and up + h Bᵀ (see `add_low_rank`)."""
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
    """y + h Bᵀ, where `outputs` are the columns of y, then those of h."""
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
