"""The operations of a decode step in plain torch: what runs without CUDA, and what the kernels are tested against.

Every operation has a counterpart of the same name and arguments in `kernels`; `turned_heads` serves both. Rounding
happens where transformers rounds, so that the policy that samples and the policy that is trained differ as little as
possible.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.decoders import apply_rope
from scrl.sampling.draw import draw
from scrl.sampling.gpu.decode_state import (
    ALIVE,
    COMPLETION,
    LENGTH,
    LIMIT,
    PREFIX,
    PROMPT,
    SUFFIX,
    TOKEN,
    Completions,
    DecodeState,
    PageTables,
)  # fmt: skip
from scrl.sampling.gpu.fused_weights import Layer, Shape
from scrl.sampling.settings import SamplingSettings


def add_rms_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual; the root mean square in float32."""
    total_RE = hidden_RE if residual_RE is None else residual_RE + hidden_RE
    return _rms_norm(total_RE, weight_E, eps), total_RE


def _rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = states.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)).to(states.dtype)


def _store(
    qkv: Tensor, layer: Layer, shape: Shape, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """Queries [R, H, D] with rotary positions; the new keys and values go to the row's page."""
    rows = len(qkv)
    fields = state.fields[:, :rows].long()
    position_R, suffix_R = fields[PREFIX] + fields[SUFFIX], fields[SUFFIX]
    cos_R1D, sin_R1D = state.cos_LD[position_R][:, None], state.sin_LD[position_R][:, None]
    queries, fresh_keys, fresh_values = turned_heads(qkv, layer, shape, cos_R1D, sin_R1D)
    page_R = tables.suffix[torch.arange(rows, device=qkv.device), suffix_R // keys.shape[2]].long()
    keys[page_R, :, suffix_R % keys.shape[2]] = fresh_keys
    values[page_R, :, suffix_R % keys.shape[2]] = fresh_values
    return queries


def turned_heads(qkv: Tensor, layer: Layer, shape: Shape, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [..., heads, D], the first two normed where the model does so, and turned."""
    sizes = [shape.heads, shape.kv_heads, shape.kv_heads]
    queries, keys, values = torch.split(qkv.view(*qkv.shape[:-1], -1, shape.head_size), sizes, dim=-2)
    if layer.q_norm is not None and layer.k_norm is not None:
        queries, keys = _rms_norm(queries, layer.q_norm, shape.eps), _rms_norm(keys, layer.k_norm, shape.eps)
    return apply_rope(queries, cos, sin), apply_rope(keys, cos, sin), values


def attend(
    qkv: Tensor, layer: Layer, shape: Shape, state: DecodeState, tables: PageTables, keys: Tensor, values: Tensor
) -> Tensor:
    """softmax(q Kᵀ · scale) V, [R, H · D], over the prompt's pages and the row's own, where the new token is stored."""
    queries_RHD = _store(qkv, layer, shape, state, tables, keys, values)
    R, _, D = queries_RHD.shape
    fields = state.fields[:, :R].long()
    spans = (
        (tables.prompt[fields[PROMPT], : tables.prompt_pages], fields[PREFIX]),
        (tables.suffix[:R, : tables.suffix_pages], fields[SUFFIX] + 1),
    )
    parts = [_gather_pages(keys, values, table, length_R) for table, length_R in spans if table.shape[1]]
    keys_RHLD, values_RHLD = (torch.cat([part[kind] for part in parts], dim=2) for kind in (0, 1))
    see_RL = torch.cat([part[2] for part in parts], dim=1)
    q = queries_RHD.view(R, shape.kv_heads, shape.group, D).float() * shape.scale
    scores = q @ keys_RHLD.float().transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~see_RL[:, None, None], -torch.inf), dim=-1)
    return (weights @ values_RHLD.float()).to(queries_RHD.dtype).reshape(R, -1)


def _gather_pages(keys: Tensor, values: Tensor, table: Tensor, length_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values [R, H, L, D] of each row's pages, and which of the L columns are filled."""
    columns_L = torch.arange(table.shape[1] * keys.shape[2], device=keys.device)
    see_RL = columns_L < length_R[:, None]
    keys_RHLD, values_RHLD = (pool[table.long()].transpose(1, 2).flatten(2, 3) for pool in (keys, values))
    return keys_RHLD, values_RHLD.masked_fill(~see_RL[:, None, :, None], 0), see_RL


def silu_and_mul(gate_up: Tensor, lora_B: Tensor | None = None) -> Tensor:
    """silu(gate) · up, with an adapter of gate + h Bᵀ and up + h Bᵀ."""
    gate, up = (gate_up if lora_B is None else add_low_rank(gate_up, lora_B)).chunk(2, dim=-1)
    return F.silu(gate) * up


def add_low_rank(outputs: Tensor, lora_B: Tensor) -> Tensor:
    """y + h Bᵀ, where `outputs` are the columns of y, then those of h; in float32, rounded once."""
    size = len(lora_B)
    return (outputs[:, :size].float() + outputs[:, size:].float() @ lora_B.float().T).to(outputs.dtype)


def logits(hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor:
    """hidden · Wᵀ."""
    return F.linear(hidden_RE, weight_VE, bias_V)


def draw_tokens(logits_RV: Tensor, state: DecodeState, completions: Completions, settings: SamplingSettings) -> None:
    """Draw and store a token for each living row; a row dies with an end token or at its limit."""
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
