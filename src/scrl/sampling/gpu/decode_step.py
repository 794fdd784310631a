"""The layers of a model over fused weights: one more token for every row, and the prompts before it.

    x += O · attend(rope(QKV · norm(x)))
    x += D · (silu(G · norm(x)) · (U · norm(x)))
    token ~ softmax(W · norm(x) / T)

A step runs without the host: embed → layers → head → draw → store. Nine kernels per layer on CUDA: two norms that also
add the residual, four matrix products, attention to the prompt and to the row's own tokens, which turns and stores the
new one, and the gate; one more merges pages once rows have several. With an adapter three matrix products are followed
by the sum with their low-rank parts; the gate adds its own.

Keys and values are stored in pages, [pages, key heads, page size, D] per layer. The pages of a prompt are shared by all
the rows that continue it (its tokens are their prefix); each row has pages for its own tokens (its suffix). Page 0 is a
dummy that empty slots write to. Shapes: R rows of a step, C completions of a call, T tokens, L positions, D head size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.decoders import apply_rope
from scrl.sampling.draw import draw
from scrl.sampling.gpu.fused_weights import FusedWeights, Layer, Linear, Shape
from scrl.sampling.settings import SamplingSettings

TOKEN, LENGTH, SUFFIX, ALIVE, LIMIT, COMPLETION, PROMPT, PREFIX = FIELDS = range(8)
"""The fields of a row's state.

TOKEN       its newest token, whose keys and values are not yet stored
LENGTH      tokens of its completion
SUFFIX      tokens stored in its own pages
ALIVE       1 while it is being decoded
LIMIT       the most tokens its completion may have
COMPLETION  the completion it writes
PROMPT      its prompt's row of the page table
PREFIX      tokens stored in the prompt's pages
"""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeState:
    """The rows' state, and what stays the same during a call."""

    fields: Tensor
    """int32 [FIELDS, slots]."""
    cos_LD: Tensor
    sin_LD: Tensor
    end_tokens: Tensor
    """int32: tokens that end a completion."""
    draw_params: Tensor
    """float32: temperature (1 where it is 0), top_p."""


@dataclass(frozen=True, slots=True, eq=False)
class PageTables:
    """Which pages rows attend to, and how many at most in a step."""

    suffix: Tensor
    """int32 [slots, pages]: the pages of each row."""
    prompt: Tensor
    """int32 [prompts, pages]."""
    teams: Tensor
    """int32 [slots, rows]: rows with the same prompt, which read it together; −1 for none."""
    suffix_pages: int = 0
    prompt_pages: int = 0
    num_teams: int = 0
    """0 if every row reads its prompt by itself: one page before its only own page, or any number beside its own."""

    @property
    def is_alone(self) -> bool:
        """Whether rows read their prompts by themselves."""
        return self.prompt_pages > 0 and self.num_teams == 0

    @property
    def shared_pages(self) -> int:
        """Prompt pages that teams read."""
        return self.prompt_pages if self.num_teams else 0


@dataclass(frozen=True, slots=True, eq=False)
class Completions:
    """C completions of at most T tokens; the last one takes what is never read."""

    tokens_CT: Tensor
    logprobs_CT: Tensor
    entropies_CT: Tensor
    lengths_C: Tensor
    """int32: tokens so far."""
    uniforms_CT: Tensor
    facts_CT: Mapping[str, Tensor]


Ops = Any
"""The operations of a step: the module `kernels`, or one with the same functions."""
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


def turned_heads(qkv: Tensor, layer: Layer, shape: Shape, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [..., heads, D], the first two normed where the model does so, and turned."""
    sizes = [shape.heads, shape.kv_heads, shape.kv_heads]
    queries, keys, values = torch.split(qkv.view(*qkv.shape[:-1], -1, shape.head_size), sizes, dim=-2)
    if layer.q_norm is not None and layer.k_norm is not None:
        queries, keys = rms_norm(queries, layer.q_norm, shape.eps), rms_norm(keys, layer.k_norm, shape.eps)
    return apply_rope(queries, cos, sin), apply_rope(keys, cos, sin), values


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """(x / rms(x)) · w, the root mean square in float32."""
    wide = states.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)).to(states.dtype)


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


def draw_tokens(logits_RV: Tensor, state: DecodeState, completions: Completions, settings: SamplingSettings) -> None:
    """Draw and store a token for each living row, top-k among the settings: `draw_kernels` does the rest faster.

    A row dies with an end token or at its limit.
    """
    fields = state.fields[:, : len(logits_RV)]
    index_R = fields[LENGTH].long().clamp(max=completions.uniforms_CT.shape[1] - 1)
    uniforms_R = completions.uniforms_CT[fields[COMPLETION].long(), index_R]
    new = draw(logits_RV, uniforms_R, settings, completions.facts_CT)
    is_alive_R = fields[ALIVE] != 0
    # Dead rows write to the last completion, which is never read.
    completion_R = torch.where(is_alive_R, fields[COMPLETION], len(completions.tokens_CT) - 1).long()
    length_R = torch.where(is_alive_R, fields[LENGTH], 0).long()
    completions.tokens_CT[completion_R, length_R] = new.tokens_R.to(completions.tokens_CT.dtype)
    completions.logprobs_CT[completion_R, length_R] = new.logprobs_R
    completions.entropies_CT[completion_R, length_R] = new.entropies_R
    for name, values_R in new.facts_R.items():
        completions.facts_CT[name][completion_R, length_R] = values_R
    fields[TOKEN] = torch.where(is_alive_R, new.tokens_R.to(fields.dtype), fields[TOKEN])
    fields[LENGTH] += is_alive_R
    completions.lengths_C[completion_R] = fields[LENGTH]
    fields[ALIVE] = is_alive_R & ~torch.isin(new.tokens_R, state.end_tokens) & (fields[LENGTH] < fields[LIMIT])
    fields[SUFFIX] += fields[ALIVE]  # a dead row stays where it is: its next token might need a page it does not have
