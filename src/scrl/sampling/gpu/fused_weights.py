"""A model's own weights, fused for a fast decode step: q, k and v are one matrix, gate and up another.

Weights that belong together are moved next to one another in one block of memory, and the model's parameters become
contiguous views of it: the model runs, trains and is saved as before, and the next step reads what an optimizer writes.
There is one copy of every weight and nothing to sync, except for an adapter's.

A low-rank adapter, y + s · B A x, adds the rows s · A to the matrix that reads x, so that the same product also gives
s · A x, in the last columns of y; one more kernel adds B times those. A and B are small and copied before every call.
A merged W + s · B A would lose most of a young adapter: bfloat16 rounds away what is below 1/500 of W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scrl.policy.model import plain_model
from scrl.sampling.decoders import head_size, why_not_grouped

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear maps of a layer, which may have an adapter."""
MIN_RANK = 16
"""An adapter's rank is padded to a power of two, and to at least this: tiles of a matrix product are no smaller."""

MAX_RANK = 85
"""An adapter's largest rank: q, k and v have three times as much, padded to 256; more exceeds shared memory."""


class Copy(NamedTuple):
    """A copy of an adapter's weight, times `scale`, into a fused matrix."""

    to: Tensor
    source: Tensor
    scale: float


class Linear(NamedTuple):
    """y = x Wᵀ + b."""

    weight: Tensor
    bias: Tensor | None
    lora_B: Tensor | None = None
    """[out, r]; then s · A are the last r rows of `weight`, and y + h Bᵀ is the output, with h the last r of y."""
    copies: tuple[Copy, ...] = ()
    """What has to be copied before every call."""


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

    @property
    def linears(self) -> tuple[Linear, Linear, Linear, Linear]:
        """The linear maps in the order in which they run."""
        return self.qkv, self.out, self.gate_up, self.down


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
    """The scale of the scores: softmax(q Kᵀ · scale)."""
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
        """The address of every weight: a captured graph is valid as long as these are the same."""
        weights: list[Tensor | None] = [self.embedding, self.norm, self.head.weight, self.head.bias]
        for layer in self.layers:
            weights += [layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm]
            for linear in layer.linears:
                weights += [linear.weight, linear.bias, linear.lora_B]
        return tuple(weight.data_ptr() for weight in weights if weight is not None)


def why_not_fused(model: nn.Module) -> str | None:
    """Why a model's weights cannot be fused, or None."""
    reason = why_not_grouped(model)
    if reason is not None:
        return reason
    config: Any = plain_model(model).config
    size = head_size(config)
    if size < 16 or size & (size - 1):
        return f"its heads have {size} numbers, not a power of two from 16 on"
    if config.num_attention_heads // config.num_key_value_heads > 64:
        return "more than 64 query heads share a key head"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its gate is {config.hidden_act!r}, not silu"
    linears = [module for name, module in model.named_modules() if isinstance(module, nn.Linear) and "lora" not in name]
    if any(type(module) is not nn.Linear for module in linears) or len({m.weight.dtype for m in linears}) > 1:
        return "its weights are quantized or of several types"
    return _why_not_adapted(model)


def _why_not_adapted(model: nn.Module) -> str | None:
    """Why a model's adapter cannot be run in a fused step, or None."""
    for name, module in model.named_modules():
        if hasattr(module, "base_layer"):
            kind = type(module).__module__
            if not hasattr(module, "lora_A") or any(module.use_dora.values()) or any(module.lora_bias.values()):
                return f"its adapter is not a plain LoRA ({kind})"
            if max((len(A) for A, _, _ in _adapters(module)), default=0) > MAX_RANK:
                return f"its adapter's rank is above {MAX_RANK}"
            if any(parameter.requires_grad for parameter in module.base_layer.parameters()):
                return "its adapter trains other weights, too"
            if name.rpartition(".")[2] not in PROJECTIONS:
                return f"its adapter is on {name.rpartition('.')[2]}, too"
    return None


@torch.inference_mode(False)
@torch.no_grad()
def fuse(model: nn.Module, before: FusedWeights | None = None) -> FusedWeights:
    """Fuse the weights that are not yet fused; needs one layer's memory while it runs.

    `before` is what an earlier call returned: an adapter's weights are copied there, if the model has not moved.
    """
    inner = plain_model(model)
    body, config = inner.model, inner.config
    layers = tuple(
        _layer(layer, None if before is None else before.layers[number]) for number, layer in enumerate(body.layers)
    )
    copies = [copy for layer in layers for linear in layer.linears for copy in linear.copies]
    if copies:  # few kernels for all of them
        scaled = torch._foreach_mul([copy.source for copy in copies], [copy.scale for copy in copies])
        torch._foreach_copy_([copy.to for copy in copies], scaled)
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
    head = _fuse_linears([inner.lm_head], None)
    return FusedWeights(body.embed_tokens.weight.detach(), layers, body.norm.weight.detach(), head, shape)


def _layer(layer: Any, before: Layer | None) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    olds = (None,) * 4 if before is None else before.linears
    return Layer(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=_fuse_linears([attention.q_proj, attention.k_proj, attention.v_proj], olds[0]),
        q_norm=attention.q_norm.weight.detach() if hasattr(attention, "q_norm") else None,
        k_norm=attention.k_norm.weight.detach() if hasattr(attention, "k_norm") else None,
        out=_fuse_linears([attention.o_proj], olds[1]),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=_fuse_linears([mlp.gate_proj, mlp.up_proj], olds[2]),
        down=_fuse_linears([mlp.down_proj], olds[3]),
    )


def _fuse_linears(linears: Sequence[Any], before: Linear | None) -> Linear:
    """Several linear maps of the same input as one; with an adapter `before` itself, if no weight has moved since."""
    bases = [getattr(linear, "base_layer", linear) for linear in linears]
    weights, biases = [base.weight for base in bases], [base.bias for base in bases if base.bias is not None]
    if bases == list(linears):
        return Linear(_fuse_rows(weights), _fuse_rows(biases) if biases else None)
    adapters = [_adapters(linear) for linear in linears]
    rank = max(MIN_RANK, 1 << (sum(len(A) for each in adapters for A, _, _ in each) - 1).bit_length())
    like, rows = weights[0].detach(), sum(map(len, weights))
    is_there = before is not None and like.data_ptr() == before.weight.data_ptr() and _is_adjacent(weights)
    if before is not None and before.lora_B is not None and is_there and before.lora_B.shape == (rows, rank):
        pairs = [pair for each in adapters for A, B, scale in each for pair in ((A, scale), (B, 1.0))]
        sources = [(source.data_ptr(), scale) for source, scale in pairs]
        if sources == [(copy.source.data_ptr(), copy.scale) for copy in before.copies]:
            return before
        whole, bias, lora_B = before.weight, before.bias, before.lora_B.zero_()
    else:
        whole = torch.cat([*(weight.detach() for weight in weights), like.new_zeros(rank, like.shape[1])])
        _move_into(weights, whole)
        bias = torch.cat([*(bias.detach() for bias in biases), like.new_zeros(rank)]) if biases else None
        lora_B = like.new_zeros(rows, rank)  # one block for each adapter, and zeros beside it
    copies: list[Copy] = []
    row, column = 0, 0
    for base, each in zip(weights, adapters, strict=True):
        for A, B, scale in each:
            copies.append(Copy(whole[rows + column : rows + column + len(A)], A.detach(), scale))
            copies.append(Copy(lora_B[row : row + len(base), column : column + len(A)], B.detach(), 1.0))
            column += len(A)
        row += len(base)
    return Linear(whole, bias, lora_B, tuple(copies))


def _adapters(linear: Any) -> list[tuple[Tensor, Tensor, float]]:
    """(A [r, in], B [out, r], s) of a linear map's adapters; none where they are switched off, or merged."""
    if not hasattr(linear, "lora_A") or linear.disable_adapters or linear.merged:
        return []
    names = [name for name in linear.active_adapters if name in linear.lora_A]
    return [(linear.lora_A[name].weight, linear.lora_B[name].weight, linear.scaling[name]) for name in names]


def _fuse_rows(parts: Sequence[Tensor]) -> Tensor:
    """One tensor over the rows of some parameters, which become views of it unless they are already."""
    if not _is_adjacent(parts):
        _move_into(parts, torch.cat([part.detach() for part in parts]))
    first = parts[0].detach()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())


def _is_adjacent(parts: Sequence[Tensor]) -> bool:
    """Whether parameters are next to one another in one block of memory."""
    return all(part.is_contiguous() for part in parts) and all(
        other.data_ptr() == one.data_ptr() + one.nbytes
        and other.untyped_storage().data_ptr() == one.untyped_storage().data_ptr()
        for one, other in pairwise(parts)
    )


def _move_into(parts: Sequence[Tensor], whole: Tensor) -> None:
    """Make parameters views of the first rows of `whole`, which has their values."""
    first = 0
    for part in parts:
        part.data = whole[first : first + len(part)]
        first += len(part)
