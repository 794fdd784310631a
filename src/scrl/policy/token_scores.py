"""Log-probabilities and entropies of tokens by a model, without ever holding [tokens × vocabulary].

z = h Wᵀ / T (+ bias / T), π = softmax(z):   log π(y) = z_y − log Σ eᶻ,   H = −Σ π log π.
Forward and backward go over the tokens in blocks; the backward pass computes a block's logits again instead of keeping
them. With a = ∂L/∂log π(y) and b = ∂L/∂H:

    ∂L/∂z_v = a (1[v = y] − π_v) − b π_v (log π_v + H)

On a GPU cuBLAS makes a block of fp32 logits from bf16 inputs in one buffer that all blocks share, one kernel reads it
once, and another writes its gradient beside it in bf16 (`scrl.policy.logit_kernels`). ∂L/∂W is summed in fp32.

Existing kernels do not fit: Liger's fused GRPO loss has no entropy, holds its gradients from forward to backward and
multiplies in fp32 in its backward pass; cut-cross-entropy has no entropy and by default drops small gradients.

Shapes: n tokens, c of them in a block, E hidden size, V vocabulary; R completions, L columns of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scrl.device import attention_without_cudnn, pad_rows, to_device
from scrl.errors import TrainingError
from scrl.policy.model import in_eval_mode, plain_model
from scrl.records import Floats, Tokens

CHUNK_ELEMENTS = 2**25
"""Largest [tokens × vocabulary] block held at a time: 128 MiB of fp32."""
FUSED_CHUNK_ELEMENTS = 2**29
"""The same with kernels: 2 GiB of fp32 logits and 1 GiB of bf16 gradients. Every block reads and writes ∂W whole (2.5
GB at 3B, 0.6 ms), so blocks should be large; at 3,456 tokens that is 6 % of the block's three backward products."""
FUSED_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROWS = 128
"""With kernels the tokens of a block are a multiple of this: a tile of the matrix product."""
BodyAndHead = tuple[Any, nn.Linear]
SCORED_TOKENS = 2**14
"""Tokens of a forward pass: in the 3B shape of Qwen2.5 its widest activation, [16384, 11008] of bf16, takes 361 MB."""


def body_and_head(model: Any) -> BodyAndHead | None:
    """The part that gives hidden states and the linear head on top, if the logits are just head(body).

    None if a model does something else to its logits (a cap, a scale): then they are taken from it whole.
    """
    inner = plain_model(model)
    head, body = inner.get_output_embeddings(), getattr(inner, inner.base_model_prefix, None)
    config = inner.config.get_text_config()
    if not isinstance(head, nn.Linear) or body is None or getattr(config, "final_logit_softcapping", None):
        return None  # a cap does not show on small logits; everything else shows below
    tokens_13 = torch.arange(3, device=head.weight.device)[None]
    with in_eval_mode(model.modules()):
        expected = model(input_ids=tokens_13, use_cache=False).logits
        found = head(body(input_ids=tokens_13, use_cache=False).last_hidden_state)
    is_same = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    return (body, head) if is_same else None


class TokenScorer:
    """Scores tokens by a model: by its body and head in chunks, or from whole logits where it has no plain head."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.body_and_head = body_and_head(model)

    def __call__(
        self, tokens_RL: Tensor, states_n: Tensor, targets_n: Tensor, temperature: float, *,
        chunk_elements: int | None = None, **arguments: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """log π and H of n tokens, each predicted by the hidden state at a flat index into `tokens_RL`.

        `arguments` are the body's own.
        """
        if self.body_and_head is None:
            logits_nV = self.model(input_ids=tokens_RL, use_cache=False).logits.flatten(0, 1)[states_n]
            return logit_scores(logits_nV, targets_n, temperature)
        body, head = self.body_and_head
        hidden_nE = body(input_ids=tokens_RL, use_cache=False, **arguments).last_hidden_state.flatten(0, 1)[states_n]
        options: dict[str, Any] = {"temperature": temperature, "chunk_elements": chunk_elements}
        return token_scores(hidden_nE, head.weight, targets_n, bias_V=head.bias, **options)


def completion_logprobs(model: Any, pairs_R: Sequence[tuple[Tokens, Tokens]]) -> list[Floats]:
    """log π of every token of completions, each given after its prompt, without gradient.

    Completions of similar length share a pass of at most SCORED_TOKENS tokens, padded on the right, where causal
    attention never looks.
    """
    score_tokens, device = TokenScorer(model), next(model.parameters()).device
    logprobs: dict[int, Floats] = {}
    left = sorted(range(len(pairs_R)), key=lambda row: -sum(map(len, pairs_R[row])))
    try:
        with in_eval_mode(model.modules()), attention_without_cudnn():
            while left:
                size = max(1, SCORED_TOKENS // sum(map(len, pairs_R[left[0]])))
                rows, left = left[:size], left[size:]
                pairs = [pairs_R[row] for row in rows]
                tokens_RL = pad_rows([np.concatenate(pair) for pair in pairs], np.int64)
                states_n = np.concatenate([  # the hidden state before a token predicts it
                    row * tokens_RL.shape[1] + np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
                    for row, (prompt, tokens) in enumerate(pairs)
                ])  # fmt: skip
                targets_n = np.concatenate([tokens for _, tokens in pairs])
                inputs = [to_device(values, device) for values in (tokens_RL, states_n, targets_n)]
                logprobs_n, _ = score_tokens(inputs[0], inputs[1], inputs[2], temperature=1.0)
                ends = np.cumsum([len(tokens) for _, tokens in pairs])[:-1]
                logprobs |= zip(rows, np.split(logprobs_n.double().cpu().numpy(), ends), strict=True)
    except torch.OutOfMemoryError as error:
        raise TrainingError("memory ran out while completions were scored: shorten sampling.max_tokens") from error
    return [logprobs[row] for row in range(len(pairs_R))]


# From hidden states


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
    function: Any = TokenScores
    kind = KernelBlocks if is_fused(hidden_nE) else PlainBlocks
    size = chunk_elements or kind.chunk_elements
    logprobs_n, entropies_n = function.apply(hidden_nE, weight_VE, bias_V, targets_n, temperature, size, kind)
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


class TokenScores(torch.autograd.Function):
    """(hidden_nE, weight_VE, bias_V, targets_n, temperature, chunk_elements, kind) → (log π(target), H), fp32 [n]."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_nE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor | None,
        targets_n: Tensor,
        temperature: float,
        chunk_elements: int,
        kind: type[PlainBlocks] | type[KernelBlocks],
    ) -> tuple[Tensor, Tensor]:
        hidden_nE, targets_n = hidden_nE.contiguous(), targets_n.contiguous()
        blocks = kind(hidden_nE, weight_VE, bias_V, temperature, chunk_elements)
        scores_3n = torch.zeros(3, len(hidden_nE), dtype=torch.float32, device=hidden_nE.device)
        for part in _parts(len(hidden_nE), blocks.rows):
            blocks.score(hidden_nE[part], targets_n[part], scores_3n[:, part])
        ctx.save_for_backward(hidden_nE, weight_VE, bias_V, targets_n, scores_3n)
        ctx.options = (temperature, chunk_elements, kind)
        ctx.set_materialize_grads(False)
        return scores_3n[0].clone(), scores_3n[1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        (hidden_nE, weight_VE, bias_V, targets_n, scores_3n), (temperature, size, kind) = ctx.saved_tensors, ctx.options
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        blocks = kind(hidden_nE, weight_VE, bias_V, temperature, size)
        grad_hidden = torch.empty_like(hidden_nE) if needs_hidden else None
        grad_weight = torch.zeros_like(weight_VE, dtype=torch.float32) if needs_weight else None
        grad_bias = torch.zeros_like(bias_V, dtype=torch.float32) if bias_V is not None and needs_bias else None
        for part in _parts(len(hidden_nE), blocks.rows):
            upstream: Any = tuple(None if grad is None else grad[part].float().contiguous() for grad in grads)
            grad_cV = blocks.gradient(hidden_nE[part], targets_n[part], scores_3n[:, part], *upstream)
            if grad_hidden is not None:
                torch.mm(grad_cV, weight_VE, out=grad_hidden[part])
            if grad_weight is not None:
                _add_product(grad_weight, grad_cV.T, hidden_nE[part])
            if grad_bias is not None:
                grad_bias += grad_cV.sum(dim=0, dtype=torch.float32)
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight_VE.dtype)
        if grad_bias is not None:
            grad_bias = grad_bias.to(bias_V.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None


def _parts(number: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, number)) for first in range(0, number, size))


def _add_product(sum_VE: Tensor, left_Vc: Tensor, right_cE: Tensor) -> None:
    """sum ← sum + left · right, where sum is fp32."""
    if not left_Vc.is_cuda:
        sum_VE += left_Vc @ right_cE
    elif left_Vc.dtype == torch.float32:
        sum_VE.addmm_(left_Vc, right_cE)
    else:
        torch.addmm(sum_VE, left_Vc, right_cE, out_dtype=torch.float32, out=sum_VE)


class PlainBlocks:
    """Blocks of logits in plain torch."""

    chunk_elements = CHUNK_ELEMENTS

    def __init__(
        self, hidden_nE: Tensor, weight_VE: Tensor, bias_V: Tensor | None, temperature: float, chunk_elements: int
    ) -> None:
        self._dtype, self._head, self._temperature = hidden_nE.dtype, (weight_VE, bias_V), temperature
        self.rows = max(1, chunk_elements // len(weight_VE))

    def score(self, hidden_cE: Tensor, targets_c: Tensor, out_3c: Tensor) -> None:
        """log π(target) and H of each token."""
        out_3c[0], out_3c[1] = _scores(self._logprobs(hidden_cE), targets_c)

    def gradient(
        self, hidden_cE: Tensor, targets_c: Tensor, scores_3c: Tensor, a_c: Tensor | None, b_c: Tensor | None
    ) -> Tensor:
        """∂L/∂(h Wᵀ): [a (1[v = y] − π_v) − b π_v (log π_v + H)] / T."""
        logprobs_cV = self._logprobs(hidden_cE)
        probs_cV = logprobs_cV.exp()
        grad_cV = torch.zeros_like(probs_cV)
        if b_c is not None:
            surprise_cV = torch.where(probs_cV > 0, logprobs_cV, 0.0) + scores_3c[1][:, None]
            grad_cV -= b_c[:, None] * probs_cV * surprise_cV
        if a_c is not None:
            grad_cV -= a_c[:, None] * probs_cV
            grad_cV.scatter_add_(-1, targets_c[:, None], a_c[:, None])
        return (grad_cV / self._temperature).to(self._dtype)

    def _logprobs(self, hidden_cE: Tensor) -> Tensor:
        logits_cV = torch.nn.functional.linear(hidden_cE, *self._head).float()
        return torch.log_softmax(logits_cV.div_(self._temperature), dim=-1)


def _scores(logprobs_cV: Tensor, targets_c: Tensor) -> tuple[Tensor, Tensor]:
    """log π(target) and H; 0 · log 0 is 0, in the gradient too."""
    finite_cV = logprobs_cV.clamp(min=torch.finfo(logprobs_cV.dtype).min)
    entropies_c: Tensor = -(logprobs_cV.exp() * finite_cV).sum(dim=-1)
    return logprobs_cV.gather(-1, targets_c[:, None]).squeeze(-1), entropies_c


class KernelBlocks:
    """The same by kernels."""

    chunk_elements = FUSED_CHUNK_ELEMENTS

    def __init__(
        self, hidden_nE: Tensor, weight_VE: Tensor, bias_V: Tensor | None, temperature: float, chunk_elements: int
    ) -> None:
        n, V = len(hidden_nE), len(weight_VE)
        self._weight_VE, self._head = weight_VE, (bias_V, temperature)
        self.rows = block_rows(n, V, chunk_elements)
        self._logits_cV = torch.empty(min(self.rows, n), V, dtype=torch.float32, device=hidden_nE.device)
        self._grads_cV: Tensor | None = None

    def score(self, hidden_cE: Tensor, targets_c: Tensor, out_3c: Tensor) -> None:
        """log π(target), H and log Z of each token."""
        from scrl.policy.logit_kernels import score_logits

        out_3c.copy_(score_logits(self._logits(hidden_cE), targets_c, *self._head))

    def gradient(
        self, hidden_cE: Tensor, targets_c: Tensor, scores_3c: Tensor, a_c: Tensor | None, b_c: Tensor | None
    ) -> Tensor:
        """In one buffer for all blocks; in place of the logits where inputs are fp32."""
        from scrl.policy.logit_kernels import turn_into_gradient

        block_cV = self._logits(hidden_cE)
        if self._grads_cV is None:
            is_fp32 = hidden_cE.dtype == torch.float32
            self._grads_cV = self._logits_cV if is_fp32 else torch.empty_like(self._logits_cV, dtype=hidden_cE.dtype)
        grad_cV = self._grads_cV[: len(block_cV)]
        turn_into_gradient(block_cV, targets_c, *self._head, scores_3c[1], scores_3c[2], (a_c, b_c), grad_cV)
        return grad_cV

    def _logits(self, hidden_cE: Tensor) -> Tensor:
        """h Wᵀ in fp32, in the first rows of the buffer; a CPU has no such product and takes fp32 copies."""
        out_cV, weight_EV = self._logits_cV[: len(hidden_cE)], self._weight_VE.T
        if hidden_cE.dtype == torch.float32:
            return torch.mm(hidden_cE, weight_EV, out=out_cV)
        if hidden_cE.is_cuda:
            return torch.mm(hidden_cE, weight_EV, out_dtype=torch.float32, out=out_cV)
        return torch.mm(hidden_cE.float(), weight_EV.float(), out=out_cV)


def block_rows(tokens: int, vocabulary: int, chunk_elements: int) -> int:
    """Tokens of a block: as few blocks as `chunk_elements` allows, all of about the same size."""
    most = max(ROWS, chunk_elements // vocabulary // ROWS * ROWS)
    blocks = max(1, -(-tokens // most))
    return min(most, -(-tokens // (blocks * ROWS)) * ROWS)
