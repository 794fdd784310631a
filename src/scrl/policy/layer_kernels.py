"""Triton kernels for the small operations of a layer, forward and backward: RMS norm, gate (SwiGLU), rotary positions.

    norm     y = w · r(x s)   with s = 1 / √(mean x² + ε), where x may be the sum of two
    gate     y = r(silu(g)) · u
    rotary   (x₁, x₂) → (r(x₁ cos) − r(x₂ sin), r(x₂ cos) + r(x₁ sin))

r rounds to the type of x, as transformers does; sums and everything else are float32, and each result is rounded once.
Each number is read and written once. Bytes per token in the 3B shape of Qwen2.5, bfloat16: a norm moves 8 kB forward
and 12 backward, the gate 66 and 110, rotary 9 each way; a layer 92 and 144. At 49,152 tokens, 36 layers and 4.3 TB/s
that is 0.04 s forward and 0.06 s backward; transformers moves three to four times as much.

The gradient of a norm's weight is summed by PROGRAMS programs over their rows, then over programs: always in the same
order, on every GPU.

This module imports Triton, and is itself imported only for tensors on a GPU. Shapes: n rows, E numbers of a row, B
sequences of T tokens, H heads of D numbers.
"""

# ruff: noqa: ANN001, ANN202 (of Triton kernels, whose arguments are pointers and numbers)
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048
"""Numbers that a program holds at a time: 16 for each of 128 threads."""
PROGRAMS = 1024
"""The most programs of the norm's backward pass: eight for each of 132 multiprocessors."""
ROTARY: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
"""Launch options of rotary positions. With fusion, one of two products would be added before it is rounded."""


def rms_norm(x_nE: Tensor, delta_nE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The normed rows of x + delta, that sum (x itself where there is no delta), and s of each row."""
    n, E = x_nE.shape
    y_nE, scale_n = torch.empty_like(x_nE), torch.empty(n, dtype=torch.float32, device=x_nE.device)
    total_nE = x_nE if delta_nE is None else torch.empty_like(x_nE)
    block, rows = _tile(E)
    kernel: Any = _rms_norm
    if n:
        kernel[(triton.cdiv(n, rows),)](
            x_nE, x_nE if delta_nE is None else delta_nE, weight_E, y_nE, total_nE, scale_n, n, eps,
            SIZE=E, ROWS=rows, BLOCK=block, ADD=delta_nE is not None, num_warps=_warps(block * rows, 512),
        )  # fmt: skip
    return y_nE, total_nE, scale_n


def rms_norm_gradient(
    grad_nE: Tensor, rest_nE: Tensor | None, x_nE: Tensor, weight_E: Tensor, scale_n: Tensor, *, needs_weight: bool
) -> tuple[Tensor, Tensor | None]:
    """∂L/∂x = s (g − x̂ mean(g x̂)) with x̂ = x s and g = w ∂L/∂y; and ∂L/∂w = Σ r(x̂) ∂L/∂y over rows, if needed.

    `rest_nE`: the part of ∂L/∂x that does not go through the norm, to be added.
    """
    n, E = x_nE.shape
    block, rows = _tile(E)
    programs = min(PROGRAMS, triton.cdiv(n, rows))
    grad_x_nE = torch.empty_like(x_nE)
    sums = torch.empty(programs if needs_weight else 0, E, dtype=torch.float32, device=x_nE.device)
    kernel: Any = _rms_norm_gradient
    if n:
        rows_of_program = rows * triton.cdiv(n, rows * programs)
        kernel[(programs,)](
            grad_nE, grad_nE if rest_nE is None else rest_nE, x_nE, weight_E, scale_n, grad_x_nE, sums, n,
            rows_of_program, SIZE=E, ROWS=rows, BLOCK=block, ADD=rest_nE is not None, NEEDS_WEIGHT=needs_weight,
            num_warps=_warps(block * rows, 256),
        )  # fmt: skip
    return grad_x_nE, sums.sum(dim=0).to(weight_E.dtype) if needs_weight else None


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up of contiguous tensors."""
    out, n = torch.empty_like(gate), gate.numel()
    kernel: Any = _swiglu
    if n:
        kernel[(triton.cdiv(n, TILE),)](gate, up, out, n, BLOCK=TILE, num_warps=4)
    return out


def swiglu_gradient_in_place(grad: Tensor, gate: Tensor, up: Tensor) -> None:
    """gate ← ∂L/∂gate and up ← ∂L/∂up, with `grad` = ∂L/∂y."""
    n = gate.numel()
    kernel: Any = _swiglu_gradient
    if n:
        kernel[(triton.cdiv(n, TILE),)](grad, gate, up, n, BLOCK=TILE, num_warps=4)


def rotate(q_BHTD: Tensor, k_BHTD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor, *, is_back: bool) -> tuple[Tensor, Tensor]:
    """Queries and keys turned by their angles, or back; both are in memory as [B, T, H, D], as projections do.

    Angles are the same for all heads, and for all sequences where cos and sin have one row; both halves of D have them.
    """
    B, H, T, D = q_BHTD.shape
    KV = k_BHTD.shape[1]
    q_BTHD, k_BTHD = (torch.empty(B, T, heads, D, dtype=q_BHTD.dtype, device=q_BHTD.device) for heads in (H, KV))
    kernel: Any = _rotate
    if B * T:
        kernel[(B * T,)](
            q_BHTD, k_BHTD, cos_BTD, sin_BTD, q_BTHD, k_BTHD, T, *q_BHTD.stride()[:3], *k_BHTD.stride()[:3],
            0 if len(cos_BTD) == 1 else T * D, HEADS=H, KV=KV, HALF=D // 2, Q_BLOCK=triton.next_power_of_2(H),
            K_BLOCK=triton.next_power_of_2(KV), BLOCK=triton.next_power_of_2(D // 2), IS_BACK=is_back, **ROTARY,
        )  # fmt: skip
    return q_BTHD.transpose(1, 2), k_BTHD.transpose(1, 2)


def _tile(size: int) -> tuple[int, int]:
    """Columns and rows of a tile, powers of two: a row whole, and short rows several at a time."""
    block = triton.next_power_of_2(size)
    return block, max(1, TILE // block)


def _warps(numbers: int, numbers_per_warp: int) -> int:
    return max(1, min(16, numbers // numbers_per_warp))


@triton.jit(do_not_specialize=["n"])
def _rms_norm(
    x, delta, weight, y, total, scales, n, eps,
    SIZE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    at = row[:, None] * SIZE + column[None, :]
    inside = (row[:, None] < n) & (column[None, :] < SIZE)
    kind = y.dtype.element_ty
    wide = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        rounded = (wide + tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)).to(kind)
        tl.store(total + at, rounded, mask=inside)
        wide = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, axis=1) / SIZE + eps)
    tl.store(scales + row, scale, mask=row < n)
    w = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
    normed = (wide * scale[:, None]).to(kind).to(tl.float32)
    tl.store(y + at, (normed * w[None, :]).to(kind), mask=inside)


@triton.jit(do_not_specialize=["n", "rows_of_program"])
def _rms_norm_gradient(
    grad, rest, x, weight, scales, grad_x, sums, n, rows_of_program,
    SIZE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, ADD: tl.constexpr, NEEDS_WEIGHT: tl.constexpr,
):  # fmt: skip
    """One program for `rows_of_program` rows, ROWS of them at a time."""
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    kind = grad_x.dtype.element_ty
    w = tl.load(weight + column, mask=column < SIZE, other=0.0).to(tl.float32)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for first in range(0, rows_of_program, ROWS):
        row = program.to(tl.int64) * rows_of_program + first + tl.arange(0, ROWS)
        at = row[:, None] * SIZE + column[None, :]
        inside = (row[:, None] < n) & (column[None, :] < SIZE)
        dy = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(scales + row, mask=row < n, other=0.0)[:, None]
        normed = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) * scale
        g = dy * w[None, :]
        mean = tl.sum(g * normed, axis=1) / SIZE
        dx = scale * (g - normed * mean[:, None])
        if ADD:
            dx += tl.load(rest + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(grad_x + at, dx.to(kind), mask=inside)
        if NEEDS_WEIGHT:
            total += dy * normed.to(kind).to(tl.float32)
    if NEEDS_WEIGHT:
        tl.store(sums + program.to(tl.int64) * SIZE + column, tl.sum(total, axis=0), mask=column < SIZE)


@triton.jit
def _swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < n, other=0.0)
    u = tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    wide = g.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(g.dtype).to(tl.float32)
    tl.store(out + at, (silu * u).to(g.dtype), mask=at < n)


@triton.jit
def _swiglu_gradient(grad, gate, up, n, BLOCK: tl.constexpr):
    """With σ = 1 / (1 + e⁻ᵍ): ∂L/∂u = r(g σ) ∂L/∂y and ∂L/∂g = u σ (1 + g (1 − σ)) ∂L/∂y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(grad + at, mask=at < n, other=0.0).to(tl.float32)
    g = tl.load(gate + at, mask=at < n, other=0.0)
    u = tl.load(up + at, mask=at < n, other=0.0).to(tl.float32)
    wide = g.to(tl.float32)
    sigmoid = 1.0 / (1.0 + tl.exp(-wide))
    silu = (wide * sigmoid).to(g.dtype).to(tl.float32)
    tl.store(up + at, (dy * silu).to(g.dtype), mask=at < n)
    tl.store(gate + at, (dy * u * sigmoid * (1.0 + wide * (1.0 - sigmoid))).to(g.dtype), mask=at < n)


@triton.jit(do_not_specialize=["length"])
def _rotate(
    q, k, cos, sin, q_to, k_to, length, q_sequence, q_head, q_token, k_sequence, k_head, k_token, angle_sequence,
    HEADS: tl.constexpr, KV: tl.constexpr, HALF: tl.constexpr,
    Q_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, BLOCK: tl.constexpr, IS_BACK: tl.constexpr,
):  # fmt: skip
    """One program for all heads of a token."""
    place = tl.program_id(0).to(tl.int64)
    sequence, token = place // length, place % length
    half = tl.arange(0, BLOCK)
    angle = sequence * angle_sequence + token * 2 * HALF + half
    c = tl.load(cos + angle, mask=half < HALF, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + angle, mask=half < HALF, other=0.0).to(tl.float32)[None, :]
    if IS_BACK:
        s = -s
    _rotate_heads(q + sequence * q_sequence + token * q_token, q_head, q_to, place, c, s, HEADS, HALF, Q_BLOCK, BLOCK)
    _rotate_heads(k + sequence * k_sequence + token * k_token, k_head, k_to, place, c, s, KV, HALF, K_BLOCK, BLOCK)


@triton.jit
def _rotate_heads(
    source, stride, to, place, c, s, HEADS: tl.constexpr, HALF: tl.constexpr, H_BLOCK: tl.constexpr, BLOCK: tl.constexpr
):
    head, half = tl.arange(0, H_BLOCK)[:, None].to(tl.int64), tl.arange(0, BLOCK)[None, :]
    inside = (head < HEADS) & (half < HALF)
    kind = to.dtype.element_ty
    x = tl.load(source + head * stride + half, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(source + head * stride + HALF + half, mask=inside, other=0.0).to(tl.float32)
    first = (x * c).to(kind).to(tl.float32) - (y * s).to(kind).to(tl.float32)
    second = (y * c).to(kind).to(tl.float32) + (x * s).to(kind).to(tl.float32)
    start = to + (place * HEADS + head) * 2 * HALF + half
    tl.store(start, first.to(kind), mask=inside)
    tl.store(start + HALF, second.to(kind), mask=inside)
