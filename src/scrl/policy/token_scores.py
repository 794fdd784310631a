"""Log-probabilities and entropies of tokens, from hidden states, without ever holding [tokens × vocabulary].

z = h Wᵀ / T (+ bias / T), π = softmax(z):   log π(y) = z_y − log Σ eᶻ,   H = −Σ π log π.
Forward and backward go over the tokens in chunks; the backward pass computes a chunk's logits again instead of keeping
them. With a = ∂L/∂log π(y) and b = ∂L/∂H:

    ∂L/∂z_v = a (1[v = y] − π_v) − b π_v (log π_v + H)

On a GPU kernels do the same (`scrl.policy.fused_token_scores`); they are tested against this file.

Shapes: n tokens, E hidden size, V vocabulary.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from scrl.policy.fused_token_scores import CHUNK_ELEMENTS as FUSED_CHUNK_ELEMENTS
from scrl.policy.fused_token_scores import FusedTokenScores, cast_to, parts

CHUNK_ELEMENTS = 2**25
"""Largest [tokens × vocabulary] block held at a time: 128 MiB of fp32."""
FUSED_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def token_scores(
    hidden_nE: Tensor,
    weight_VE: Tensor,
    targets_n: Tensor,
    *,
    bias_V: Tensor | None = None,
    temperature: float = 1.0,
    chunk_elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """(log π(target), H) of each token, fp32, differentiable in the hidden states and in the head.

    `chunk_elements`: the largest [tokens × vocabulary] block held at a time; None: what suits the device.
    """
    has_kernels = is_fused(hidden_nE)
    function: Any = FusedTokenScores if has_kernels else _TokenScores
    size = chunk_elements or (FUSED_CHUNK_ELEMENTS if has_kernels else CHUNK_ELEMENTS)
    logprobs_n, entropies_n = function.apply(hidden_nE, weight_VE, bias_V, targets_n, temperature, size)
    return logprobs_n, entropies_n


def logit_scores(logits_nV: Tensor, targets_n: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The same from whole logits, for models that do more than h Wᵀ."""
    return _scores(torch.log_softmax(logits_nV.float() / temperature, dim=-1), targets_n)


def is_fused(hidden_nE: Tensor) -> bool:
    """Whether kernels do it: on a GPU with Triton, which torch brings along on Linux, and torch 2.8 or newer."""
    return hidden_nE.is_cuda and hidden_nE.dtype in FUSED_DTYPES and _has_kernels()


@cache
def _has_kernels() -> bool:
    """Triton, and matrix products whose result has another dtype than their factors."""
    product: Any = torch.ops.aten.mm
    return find_spec("triton") is not None and "dtype_out" in product.overloads()


class _TokenScores(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_nE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        targets_n: Tensor,
        temperature: float,
        chunk_elements: int,
    ) -> tuple[Tensor, Tensor]:
        chunk = max(1, chunk_elements // len(weight_VE))
        scores_n2 = torch.empty(len(hidden_nE), 2, dtype=torch.float32, device=hidden_nE.device)
        for part in parts(len(hidden_nE), chunk):
            logprobs_cV = _logprobs(hidden_nE[part], weight_VE, bias_V, temperature)
            scores_n2[part] = torch.stack(_scores(logprobs_cV, targets_n[part]), dim=-1)
        ctx.save_for_backward(hidden_nE, weight_VE, bias_V, targets_n, scores_n2[:, 1])
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.set_materialize_grads(False)
        return scores_n2[:, 0].clone(), scores_n2[:, 1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_nE, weight_VE, bias_V, targets_n, entropies_n = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden_nE) if needs_hidden else None
        grad_weight = torch.zeros_like(weight_VE, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if bias_V is not None and needs_bias else None
        for part in parts(len(hidden_nE), ctx.chunk):
            logprobs_cV = _logprobs(hidden_nE[part], weight_VE, bias_V, ctx.temperature)
            a_c, b_c = (None if grad is None else grad[part] for grad in grads)
            grad_cV = _logit_gradient(logprobs_cV, targets_n[part], entropies_n[part], a_c, b_c) / ctx.temperature
            if grad_bias is not None:
                grad_bias += grad_cV.sum(dim=0)
            grad_cV = grad_cV.to(hidden_nE.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = grad_cV @ weight_VE
            if grad_weight is not None:
                grad_weight += grad_cV.T @ hidden_nE[part]
        return grad_hidden, cast_to(weight_VE, grad_weight), cast_to(bias_V, grad_bias), None, None, None


def _logprobs(hidden_cE: Tensor, weight_VE: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    logits_cV = torch.nn.functional.linear(hidden_cE, weight_VE, bias_V).float()
    return torch.log_softmax(logits_cV.div_(temperature), dim=-1)


def _scores(logprobs_cV: Tensor, targets_c: Tensor) -> tuple[Tensor, Tensor]:
    """log π(target) and H; 0 · log 0 is 0, in the gradient too."""
    finite_cV = logprobs_cV.clamp(min=torch.finfo(logprobs_cV.dtype).min)
    entropies_c: Tensor = -(logprobs_cV.exp() * finite_cV).sum(dim=-1)
    return logprobs_cV.gather(-1, targets_c[:, None]).squeeze(-1), entropies_c


def _logit_gradient(
    logprobs_cV: Tensor, targets_c: Tensor, entropies_c: Tensor, a_c: Tensor | None, b_c: Tensor | None
) -> Tensor:
    """a (1[v = y] − π_v) − b π_v (log π_v + H)."""
    probs_cV = logprobs_cV.exp()
    grad_cV = torch.zeros_like(probs_cV)
    if b_c is not None:
        surprise_cV = torch.where(probs_cV > 0, logprobs_cV, 0.0) + entropies_c[:, None]
        grad_cV -= b_c[:, None] * probs_cV * surprise_cV
    if a_c is not None:
        grad_cV -= a_c[:, None] * probs_cV
        grad_cV.scatter_add_(-1, targets_c[:, None], a_c[:, None])
    return grad_cV
