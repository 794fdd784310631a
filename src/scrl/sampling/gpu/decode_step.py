"""One more token for every row: embed → layers → head → draw → store, without the host.

    x += O · attend(rope(QKV · norm(x)))
    x += D · (silu(G · norm(x)) · (U · norm(x)))
    token ~ softmax(W · norm(x) / T)

Ten kernels per layer on CUDA: two norms that also add the residual, four matrix products, rotary positions and storing,
attention to the prompt and to the row's own tokens, and the gate; one more merges pages once rows have several. With an
adapter three matrix products are followed by the sum with their low-rank parts; the gate adds its own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.gpu.decode_state import TOKEN, DecodeState, PageTables
from scrl.sampling.gpu.fused_weights import FusedWeights, Linear

Ops = Any
"""The operations of a step: the module `reference_ops` or `kernels`, which have the same functions."""


def next_logits(
    ops: Ops, weights: FusedWeights, rows: int, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """Logits [R, V] after the newest token of the first `rows` slots; its keys and values are stored."""
    shape = weights.shape
    hidden_RE, residual_RE = F.embedding(state.fields[TOKEN, :rows], weights.embedding), None
    for number, layer in enumerate(weights.layers):
        normed_RE, residual_RE = ops.add_rms_norm(hidden_RE, residual_RE, layer.attention_norm, shape.eps)
        cache = (shape, state, tables, keys[number], values[number])
        queries_RHD = ops.rope_and_store(_project(ops, normed_RE, layer.qkv), layer, *cache)
        hidden_RE = _project(ops, ops.attend(queries_RHD, *cache), layer.out)
        normed_RE, residual_RE = ops.add_rms_norm(hidden_RE, residual_RE, layer.mlp_norm, shape.eps)
        gate_up = F.linear(normed_RE, layer.gate_up.weight, layer.gate_up.bias)
        hidden_RE = _project(ops, ops.silu_and_mul(gate_up, layer.gate_up.lora_B), layer.down)
    normed_RE, _ = ops.add_rms_norm(hidden_RE, residual_RE, weights.norm, shape.eps)
    logits_RV: Tensor = ops.logits(normed_RE, weights.head.weight, weights.head.bias)
    return logits_RV


def _project(ops: Ops, inputs: Tensor, linear: Linear) -> Tensor:
    """x Wᵀ + b, and with an adapter + (s x Aᵀ) Bᵀ."""
    outputs = F.linear(inputs, linear.weight, linear.bias)
    return outputs if linear.lora_B is None else ops.add_low_rank(outputs, linear.lora_B)
