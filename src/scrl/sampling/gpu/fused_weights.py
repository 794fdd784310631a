"""A model's own weights, fused for a fast decode step: q, k and v are one matrix, gate and up another.

Weights that belong together are moved next to one another in one block of memory, and the model's parameters become
contiguous views of it: the model runs, trains and is saved as before, and the next step reads what an optimizer writes.
There is one copy of every weight and nothing to sync.

At 256 rows on 132 multiprocessors, gate and up apart are 172 tiles of 128 × 128 each, 1.3 waves (65 % of the GPU busy);
fused 344 tiles, 2.6 waves (87 %).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scrl.sampling.decoders import head_size, plain_model, why_not_grouped


class Linear(NamedTuple):
    """y = x Wᵀ + b."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One decoder layer."""

    attention_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a model."""

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    intermediate: int
    vocabulary: int
    scale: float
    """Of the scores: softmax(q Kᵀ · scale)."""
    eps: float

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    @property
    def numbers_per_token(self) -> int:
        """Keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size


@dataclass(frozen=True, slots=True, eq=False)
class FusedWeights:
    """All weights of a model, in place."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Linear
    shape: Shape

    @property
    def addresses(self) -> tuple[int, ...]:
        """Of every weight: a captured graph is valid as long as these are the same."""
        weights: list[Tensor | None] = [self.embedding, self.norm, *self.head]
        for layer in self.layers:
            weights += [layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm]
            weights += [*layer.qkv, *layer.out, *layer.gate_up, *layer.down]
        return tuple(weight.data_ptr() for weight in weights if weight is not None)


def why_not_fused(model: nn.Module) -> str | None:
    """Why a model's weights cannot be fused, or None."""
    reason = why_not_grouped(model)
    if reason is not None:
        return reason
    if hasattr(model, "get_base_model"):
        return "an adapter is on it"
    config: Any = model.config
    size = head_size(config)
    if size < 16 or size & (size - 1):
        return f"its heads have {size} numbers, not a power of two from 16 on"
    if config.num_attention_heads // config.num_key_value_heads > 64:
        return "more than 64 query heads share a key head"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its gate is {config.hidden_act!r}, not silu"
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if any(type(module) is not nn.Linear for module in linears) or len({m.weight.dtype for m in linears}) > 1:
        return "its weights are quantized or of several types"
    return None


@torch.inference_mode(False)
@torch.no_grad()
def fuse(model: nn.Module) -> FusedWeights:
    """Fuse the weights that are not yet fused; needs one layer's memory while it runs."""
    inner = plain_model(model)
    body, config = inner.model, inner.config
    layers = tuple(_layer(layer) for layer in body.layers)
    shape = Shape(
        layers=len(layers),
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_size=head_size(config),
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        vocabulary=inner.lm_head.weight.shape[0],
        scale=body.layers[0].self_attn.scaling,
        eps=config.rms_norm_eps,
    )
    return FusedWeights(
        body.embed_tokens.weight.detach(), layers, body.norm.weight.detach(), _fuse_linears([inner.lm_head]), shape
    )


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=_fuse_linears([attention.q_proj, attention.k_proj, attention.v_proj]),
        q_norm=attention.q_norm.weight.detach() if hasattr(attention, "q_norm") else None,
        k_norm=attention.k_norm.weight.detach() if hasattr(attention, "k_norm") else None,
        out=_fuse_linears([attention.o_proj]),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=_fuse_linears([mlp.gate_proj, mlp.up_proj]),
        down=_fuse_linears([mlp.down_proj]),
    )


def _fuse_linears(linears: Sequence[nn.Linear]) -> Linear:
    """Several linear maps of the same input as one."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return Linear(_fuse_rows([linear.weight for linear in linears]), _fuse_rows(biases) if biases else None)


def _fuse_rows(parts: Sequence[Tensor]) -> Tensor:
    """One tensor over the rows of some parameters, which become views of it unless they are already."""
    is_fused = all(part.is_contiguous() for part in parts) and all(
        other.data_ptr() == one.data_ptr() + one.nbytes
        and other.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
        for one, other in pairwise(parts)
    )
    if not is_fused:
        whole = torch.cat([part.detach() for part in parts])
        for part, view in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
            part.data = view
    first = parts[0].detach()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())
