"""The layers of a model over fused weights: one more token for every row, and the prompts before it.

    x += O · attend(rope(QKV · norm(x)))
    x += D · (silu(G · norm(x)) · (U · norm(x)))
    token ~ softmax(W · norm(x) / T)

A step runs without the host: embed → layers → head → draw → store. Nine kernels per layer on CUDA: two norms that also
add the residual, four matrix products, attention to the prompt and to the row's own tokens, which turns and stores the
new one, and the gate; one more merges pages once rows have several. With an adapter three matrix products are followed
by the sum with their low-rank parts; the gate adds its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.gpu.decode_state import TOKEN, DecodeState, PageTables
from scrl.sampling.gpu.fused_weights import FusedWeights, Layer, Linear
from scrl.sampling.gpu.reference_ops import turned_heads

Ops = Any
"""The operations of a step: the module `reference_ops` or `kernels`, which have the same functions."""
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, queries, keys, values) → mixed values, all [prompts, heads, tokens, head size]."""


def next_logits(
    ops: Ops, weights: FusedWeights, rows: int, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """Logits [R, V] after the newest token of the first `rows` slots; its keys and values are stored."""
    shape = weights.shape
    hidden_RE, residual_RE = F.embedding(state.fields[TOKEN, :rows], weights.embedding), None
    for number, layer in enumerate(weights.layers):
        normed_RE, residual_RE = ops.add_rms_norm(hidden_RE, residual_RE, layer.attention_norm, shape.eps)
        cache = (shape, state, tables, keys[number], values[number])
        mixed_RE = ops.attend(_project(ops, normed_RE, layer.qkv), layer, *cache)
        hidden_RE, residual_RE = _after_attention(ops, mixed_RE, residual_RE, layer, shape.eps)
    normed_RE, _ = ops.add_rms_norm(hidden_RE, residual_RE, weights.norm, shape.eps)
    logits_RV: Tensor = ops.logits(normed_RE, weights.head.weight, weights.head.bias)
    return logits_RV


def run_prompts(
    ops: Ops, weights: FusedWeights, tokens_BP: Tensor, cos_PD: Tensor, sin_PD: Tensor, attend: Attend
) -> None:
    """Every layer's queries, keys and values of all prompt tokens go to `attend`, which stores the keys and values."""
    shape, (B, P) = weights.shape, tokens_BP.shape
    hidden_nE, residual_nE = F.embedding(tokens_BP.flatten(), weights.embedding), None
    for number, layer in enumerate(weights.layers):
        normed_nE, residual_nE = ops.add_rms_norm(hidden_nE, residual_nE, layer.attention_norm, shape.eps)
        qkv = _project(ops, normed_nE, layer.qkv).view(B, P, -1)
        heads = turned_heads(qkv, layer, shape, cos_PD[:, None], sin_PD[:, None])
        mixed_BHPD = attend(number, *(part.transpose(1, 2) for part in heads))
        if number + 1 < shape.layers:  # what comes after the last layer's keys and values is never read
            mixed_nE = mixed_BHPD.transpose(1, 2).reshape(B * P, -1)
            hidden_nE, residual_nE = _after_attention(ops, mixed_nE, residual_nE, layer, shape.eps)


def _after_attention(
    ops: Ops, mixed_RE: Tensor, residual_RE: Tensor, layer: Layer, eps: float
) -> tuple[Tensor, Tensor]:
    """The rest of a layer: what it adds to the residual, and the residual."""
    normed_RE, residual_RE = ops.add_rms_norm(_project(ops, mixed_RE, layer.out), residual_RE, layer.mlp_norm, eps)
    gate_up = F.linear(normed_RE, layer.gate_up.weight, layer.gate_up.bias)
    return _project(ops, ops.silu_and_mul(gate_up, layer.gate_up.lora_B), layer.down), residual_RE


def _project(ops: Ops, inputs: Tensor, linear: Linear) -> Tensor:
    """x Wᵀ + b, and with an adapter + (s x Aᵀ) Bᵀ."""
    outputs = F.linear(inputs, linear.weight, linear.bias)
    return outputs if linear.lora_B is None else ops.add_low_rank(outputs, linear.lora_B)
