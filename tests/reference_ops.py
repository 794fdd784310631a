"""The operations of a decode step in plain torch, which the kernels are compared with and which run on any machine.

Rounding happens where transformers rounds, so that the policy that samples and the policy that is trained differ as
little as possible.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.gpu.decode_step import (
    PREFIX,
    PROMPT,
    SUFFIX,
    DecodeState,
    PageTables,
    draw_tokens,
    rms_norm,
    turned_heads,
)
from scrl.sampling.gpu.fused_weights import Layer, Shape

__all__ = ["add_low_rank", "add_rms_norm", "attend", "draw_tokens", "logits", "silu_and_mul"]


def add_rms_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual; the root mean square in float32."""
    total_RE = hidden_RE if residual_RE is None else residual_RE + hidden_RE
    return rms_norm(total_RE, weight_E, eps), total_RE


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
