"""`token_scores` on a GPU: cuBLAS makes a block of fp32 logits from bf16 inputs, one kernel reads it once.

A block of c tokens: bf16 × bf16 → fp32 logits [c, V] in one buffer that all blocks share; forward keeps log Z and H of
each token (8 bytes) and no logit. Backward computes the block again, a second kernel writes ∂L/∂x beside it in bf16 (in
place where inputs are fp32), and two products add to ∂L/∂h and to ∂L/∂W, which is summed in fp32 over all blocks.

A token costs 2EV operations forward and 6EV backward (logits again, ∂h, ∂W): 2.5 GFLOP at E = 2,048, V = 151,936, so
49,152 tokens take 122 TFLOP, 0.17 s at 700 TFLOP/s. Held at a time: 6 bytes per logit of one block, and ∂W (4EV bytes).

Existing kernels do not fit: Liger's fused GRPO loss has no entropy, holds its gradients from forward to backward and
multiplies in fp32 in its backward pass; cut-cross-entropy has no entropy and by default drops small gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**29
"""Largest [tokens × vocabulary] block: 2 GiB of fp32 logits and 1 GiB of bf16 gradients.

Every block reads and writes ∂W whole (2.5 GB at 3B, 0.6 ms), so blocks should be large; at 3,456 tokens that is 6 %
of the block's three backward products.
"""
ROWS = 128
"""The tokens of a block are a multiple of this: a tile of the matrix product."""


class FusedTokenScores(torch.autograd.Function):
    """(hidden_nE, weight_VE, bias_V, targets_n, temperature, chunk_elements) → (log π(target), H), both fp32 [n]."""

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
        from scrl.policy.logit_kernels import score_logits

        hidden_nE, targets_n = hidden_nE.contiguous(), targets_n.contiguous()
        chunk = block_rows(len(hidden_nE), len(weight_VE), chunk_elements)
        logits_cV = _block_buffer(hidden_nE, weight_VE, chunk)
        scores_3n = torch.empty(3, len(hidden_nE), dtype=torch.float32, device=hidden_nE.device)
        for part in parts(len(hidden_nE), chunk):
            block_cV = _product(hidden_nE[part], weight_VE.T, logits_cV)
            scores_3n[:, part] = score_logits(block_cV, targets_n[part], bias_V, temperature)
        logprobs_n, entropies_n, logsums_n = scores_3n.unbind(0)
        ctx.save_for_backward(hidden_nE, weight_VE, bias_V, targets_n, entropies_n, logsums_n)
        ctx.temperature, ctx.chunk = temperature, chunk
        ctx.set_materialize_grads(False)
        return logprobs_n.clone(), entropies_n.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        from scrl.policy.logit_kernels import turn_into_gradient

        hidden_nE, weight_VE, bias_V, targets_n, entropies_n, logsums_n = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        logits_cV = _block_buffer(hidden_nE, weight_VE, ctx.chunk)
        grads_cV = logits_cV if hidden_nE.dtype == torch.float32 else torch.empty_like(logits_cV, dtype=hidden_nE.dtype)
        grad_hidden = torch.empty_like(hidden_nE) if needs_hidden else None
        grad_weight = torch.zeros_like(weight_VE, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if bias_V is not None and needs_bias else None
        for part in parts(len(hidden_nE), ctx.chunk):
            block_cV = _product(hidden_nE[part], weight_VE.T, logits_cV)
            grad_cV = grads_cV[: len(block_cV)]
            upstream: Any = tuple(None if grad is None else grad[part].float().contiguous() for grad in grads)
            scores = (entropies_n[part], logsums_n[part])
            turn_into_gradient(block_cV, targets_n[part], bias_V, ctx.temperature, *scores, upstream, grad_cV)
            if grad_hidden is not None:
                torch.mm(grad_cV, weight_VE, out=grad_hidden[part])
            if grad_weight is not None:
                _add_product(grad_weight, grad_cV.T, hidden_nE[part])
            if grad_bias is not None:
                grad_bias += grad_cV.sum(dim=0, dtype=torch.float32)
        return grad_hidden, cast_to(weight_VE, grad_weight), cast_to(bias_V, grad_bias), None, None, None


def block_rows(tokens: int, vocabulary: int, chunk_elements: int) -> int:
    """Tokens of a block: as few blocks as `chunk_elements` allows, all of about the same size."""
    most = max(ROWS, chunk_elements // vocabulary // ROWS * ROWS)
    blocks = max(1, -(-tokens // most))
    return min(most, -(-tokens // (blocks * ROWS)) * ROWS)


def parts(number: int, chunk: int) -> Iterator[slice]:
    """0 … number − 1 in slices of `chunk`, of which the last may be shorter."""
    return (slice(first, min(first + chunk, number)) for first in range(0, number, chunk))


def cast_to(leaf: Tensor | None, grad: Tensor | None) -> Tensor | None:
    """A gradient that was summed in fp32, in the type of its leaf."""
    return None if leaf is None or grad is None else grad.to(leaf.dtype)


def _block_buffer(hidden_nE: Tensor, weight_VE: Tensor, chunk: int) -> Tensor:
    return torch.empty(min(chunk, len(hidden_nE)), len(weight_VE), dtype=torch.float32, device=hidden_nE.device)


def _product(left_cE: Tensor, right_EV: Tensor, buffer_cV: Tensor) -> Tensor:
    """left · right in fp32, in the first rows of `buffer_cV`; a CPU has no such product and takes fp32 copies."""
    out_cV = buffer_cV[: len(left_cE)]
    if left_cE.dtype == torch.float32:
        return torch.mm(left_cE, right_EV, out=out_cV)
    if left_cE.is_cuda:
        return torch.mm(left_cE, right_EV, out_dtype=torch.float32, out=out_cV)
    return torch.mm(left_cE.float(), right_EV.float(), out=out_cV)


def _add_product(sum_VE: Tensor, left_Vc: Tensor, right_cE: Tensor) -> None:
    """sum ← sum + left · right, where sum is fp32."""
    if left_Vc.dtype == torch.float32:
        sum_VE.addmm_(left_Vc, right_cE)
    elif left_Vc.is_cuda:
        torch.addmm(sum_VE, left_Vc, right_cE, out_dtype=torch.float32, out=sum_VE)
    else:
        sum_VE.addmm_(left_Vc.float(), right_cE.float())
