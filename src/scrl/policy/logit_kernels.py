"""Two Triton kernels over a block of logits [c tokens × V]; `token_scores` has the same in plain torch.

    z = (x + bias) / T,   log Z = log Σ eᶻ,   log π(y) = z_y − log Z,   H = −Σ π log π

`score_logits` reads every logit once; `turn_into_gradient` reads it once more and writes ∂L/∂x. On an H200 49,152
tokens take 0.21 s forward and backward, in plain torch 0.44 (`benchmarks/gpu_kernels.py`).

This module imports Triton, and is itself imported only for tensors on a GPU.
"""

# ruff: noqa: ANN001, ANN202 (of Triton kernels, whose arguments are pointers and numbers)
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Logits that a program holds at a time: 16 for each of 256 threads."""
WARPS = 8
LOWEST = tl.constexpr(-3.0e38)
"""The initial value of the largest logit so far: a finite number, so that differences are never ∞ − ∞."""


def score_logits(logits_cV: Tensor, targets_c: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    """[3, c]: log π(target), H and log Z of each row of fp32 logits."""
    c, V = logits_cV.shape
    scores_3c = torch.empty(3, c, dtype=torch.float32, device=logits_cV.device)
    if c:
        kernel: Any = _score_kernel
        kernel[(c,)](
            logits_cV, targets_c, logits_cV if bias_V is None else bias_V, scores_3c, logits_cV.stride(0), c,
            1 / temperature, V=V, HAS_BIAS=bias_V is not None, BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    return scores_3c


def turn_into_gradient(
    logits_cV: Tensor,
    targets_c: Tensor,
    bias_V: Tensor | None,
    temperature: float,
    entropies_c: Tensor,
    logsums_c: Tensor,
    grads: tuple[Tensor | None, Tensor | None],
    out_cV: Tensor,
) -> None:
    """out = ∂L/∂x = [a (1[v = y] − π_v) − b π_v (log π_v + H)] / T, with `grads` = (a, b) = ∂L/∂(log π(y), H).

    `out_cV` may be `logits_cV` itself: each logit is read by the thread that writes its gradient.
    """
    (c, V), (a_c, b_c) = logits_cV.shape, grads
    if not c:
        return
    kernel: Any = _gradient_kernel
    kernel[(c, triton.cdiv(V, BLOCK))](
        logits_cV, targets_c, logits_cV if bias_V is None else bias_V, entropies_c, logsums_c,
        logsums_c if a_c is None else a_c, logsums_c if b_c is None else b_c, out_cV,
        logits_cV.stride(0), out_cV.stride(0), 1 / temperature,
        V=V, HAS_BIAS=bias_V is not None, HAS_A=a_c is not None, HAS_B=b_c is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip


@triton.jit
def _score_kernel(
    logits, targets, bias, scores, row_stride, c, scale, V: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    """One program per row. With m the largest z so far, s = Σ eᶻ⁻ᵐ and t = Σ (z − m) eᶻ⁻ᵐ:

    log Z = m + log s,  H = log s − t / s;  when m grows to m', t ← e^(m−m') (t + (m − m') s), s ← e^(m−m') s.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * row_stride
    m = LOWEST
    s = 0.0
    t = 0.0
    for first in range(0, V, BLOCK):
        v = first + tl.arange(0, BLOCK)
        z = tl.load(start + v, mask=v < V, other=-float("inf"))
        if HAS_BIAS:
            z += tl.load(bias + v, mask=v < V, other=0.0).to(tl.float32)
        z *= scale
        m_new = tl.maximum(m, tl.max(z, axis=0))
        d = tl.where(z > LOWEST, z - m_new, 0.0)
        e = tl.where(z > LOWEST, tl.exp(d), 0.0)
        shrink = tl.exp(m - m_new)
        t = shrink * (t + (m - m_new) * s) + tl.sum(d * e, axis=0)
        s = shrink * s + tl.sum(e, axis=0)
        m = m_new
    y = tl.load(targets + row)
    z_y = tl.load(start + y)
    if HAS_BIAS:
        z_y += tl.load(bias + y).to(tl.float32)
    log_s = tl.log(s)
    tl.store(scores + row, z_y * scale - m - log_s)
    tl.store(scores + c + row, tl.maximum(log_s - t / s, 0.0))
    tl.store(scores + 2 * c + row, m + log_s)


@triton.jit
def _gradient_kernel(
    logits, targets, bias, entropies, logsums, a, b, out, row_stride, out_stride, scale,
    V: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_A: tl.constexpr, HAS_B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program per row and block of the vocabulary."""
    row = tl.program_id(0).to(tl.int64)
    v = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * row_stride + v, mask=v < V, other=-float("inf"))
    if HAS_BIAS:
        z += tl.load(bias + v, mask=v < V, other=0.0).to(tl.float32)
    logprob = z * scale - tl.load(logsums + row)
    prob = tl.exp(logprob)
    gradient = tl.zeros((BLOCK,), dtype=tl.float32)
    if HAS_A:
        is_target = v == tl.load(targets + row)
        gradient += tl.load(a + row) * (tl.where(is_target, 1.0, 0.0) - prob)
    if HAS_B:
        surprise = tl.where(prob > 0, logprob + tl.load(entropies + row), 0.0)
        gradient -= tl.load(b + row) * prob * surprise
    tl.store(out + row * out_stride + v, (gradient * scale).to(out.dtype.element_ty), mask=v < V)
