"""One more token for every row: embed → layers → head → draw → write down, with nothing for the host to look at.

    x += O · attend(turn(QKV · norm(x)))
    x += D · (silu(G · norm(x)) · (U · norm(x)))
    token ~ softmax(W · norm(x) / T)

Ten kernels a layer on CUDA: two norms with the sum before them, four matrix products, turn and store, attention to the
prompt and to the row's own tokens, and the gate; one more to merge once rows have several pages of their own.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.draw import SamplingSettings
from scrl.sampling.gpu.decode_state import TOKEN, Desk, Pages, Written
from scrl.sampling.gpu.fused_weights import FusedWeights, Layer, Shape


class Parts(Protocol):
    """`twins` or `kernels`."""

    def add_norm(
        self, hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]: ...

    def turn_and_store(
        self, qkv_RN: Tensor, layer: Layer, shape: Shape, desk: Desk, pages: Pages, keys: Tensor, values: Tensor
    ) -> Tensor: ...

    def attend(
        self, queries_RHD: Tensor, shape: Shape, desk: Desk, pages: Pages, keys: Tensor, values: Tensor
    ) -> Tensor: ...

    def gated(self, gate_up_RN: Tensor) -> Tensor: ...

    def logits(self, hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor: ...

    def choose(self, logits_RV: Tensor, desk: Desk, written: Written, settings: SamplingSettings) -> None: ...


def next_logits(
    parts: Parts, weights: FusedWeights, rows: int, desk: Desk, pages: Pages, cache: tuple[Tensor, Tensor]
) -> Tensor:
    """Logits [R, V] after the newest token of the first `rows` slots; its keys and values are stored."""
    keys, values = cache
    shape = weights.shape
    hidden_RE, residual_RE = F.embedding(desk.state[TOKEN, :rows], weights.embedding), None
    for number, layer in enumerate(weights.layers):
        normed_RE, residual_RE = parts.add_norm(hidden_RE, residual_RE, layer.attention_norm, shape.eps)
        place = (shape, desk, pages, keys[number], values[number])
        queries_RHD = parts.turn_and_store(F.linear(normed_RE, *layer.qkv), layer, *place)
        hidden_RE = F.linear(parts.attend(queries_RHD, *place), *layer.out)
        normed_RE, residual_RE = parts.add_norm(hidden_RE, residual_RE, layer.mlp_norm, shape.eps)
        hidden_RE = F.linear(parts.gated(F.linear(normed_RE, *layer.gate_up)), *layer.down)
    normed_RE, _ = parts.add_norm(hidden_RE, residual_RE, weights.norm, shape.eps)
    return parts.logits(normed_RE, *weights.head)
