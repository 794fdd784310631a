"""The parts of a decode step in plain torch: what runs without CUDA, and what the kernels are compared with.

R rows, each one new token: every function has a twin of the same name and arguments in `kernels`. Rounding happens
where transformers rounds, so that the policy that samples and the policy that is trained differ as little as they can.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from scrl.sampling.draw import Draw, SamplingSettings, draw
from scrl.sampling.gpu.decode_state import ALIVE, JOB, LIMIT, PLACE, PREFIX, PROMPT, SUFFIX, TOKEN, Desk, Pages, Written
from scrl.sampling.gpu.fused_weights import Layer, Shape


def add_norm(hidden_RE: Tensor, residual_RE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(x / rms(x)) · w and x, with x = hidden + residual; the root mean square in float32."""
    total_RE = hidden_RE if residual_RE is None else residual_RE + hidden_RE
    return _normed(total_RE, weight_E, eps), total_RE


def _normed(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = states.float()
    return weight * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)).to(states.dtype)


def turn_and_store(
    qkv_RN: Tensor, layer: Layer, shape: Shape, desk: Desk, pages: Pages, keys: Tensor, values: Tensor
) -> Tensor:
    """Queries [R, H, D] with their positions turned in; keys and values go to the row's page, at its new place."""
    rows, sizes = len(qkv_RN), [shape.heads, shape.kv_heads, shape.kv_heads]
    queries, fresh_keys, fresh_values = torch.split(qkv_RN.view(rows, -1, shape.head_size), sizes, dim=1)
    if layer.q_norm is not None and layer.k_norm is not None:
        queries, fresh_keys = (
            _normed(queries, layer.q_norm, shape.eps),
            _normed(fresh_keys, layer.k_norm, shape.eps),
        )
    state = desk.state[:, :rows].long()
    position_R, suffix_R = state[PREFIX] + state[SUFFIX], state[SUFFIX]
    cos_R1D, sin_R1D = desk.cos_LD[position_R][:, None], desk.sin_LD[position_R][:, None]
    page_R = pages.suffix_SP[torch.arange(rows, device=qkv_RN.device), suffix_R // keys.shape[2]].long()
    keys[page_R, :, suffix_R % keys.shape[2]] = _turned(fresh_keys, cos_R1D, sin_R1D)
    values[page_R, :, suffix_R % keys.shape[2]] = fresh_values
    return _turned(queries, cos_R1D, sin_R1D)


def _turned(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin


def attend(queries_RHD: Tensor, shape: Shape, desk: Desk, pages: Pages, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(q Kᵀ · scale) V, [R, H · D], over the prompt's pages and the row's own."""
    rows, _, size = queries_RHD.shape
    state = desk.state[:, :rows].long()
    spans = (
        (pages.prompt_BP[state[PROMPT], : pages.prompt_pages], state[PREFIX]),
        (pages.suffix_SP[:rows, : pages.suffix_pages], state[SUFFIX] + 1),
    )
    seen = [_gathered(keys, values, table, length) for table, length in spans if table.shape[1]]
    keys_RKLD, values_RKLD = (torch.cat([part[kind] for part in seen], dim=2) for kind in (0, 1))
    see_RL = torch.cat([part[2] for part in seen], dim=1)
    shared = queries_RHD.view(rows, shape.kv_heads, shape.group, size).float() * shape.scale
    scores = shared @ keys_RKLD.float().transpose(-1, -2)
    weights = torch.softmax(scores.masked_fill(~see_RL[:, None, None], -torch.inf), dim=-1)
    return (weights @ values_RKLD.float()).to(queries_RHD.dtype).reshape(rows, -1)


def _gathered(keys: Tensor, values: Tensor, table_RP: Tensor, length_R: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values [R, K, L, D] of some pages in a row, and which of the L places are filled."""
    places_L = torch.arange(table_RP.shape[1] * keys.shape[2], device=keys.device)
    see_RL = places_L < length_R[:, None]
    found = [pool[table_RP.long()].transpose(1, 2).flatten(2, 3) for pool in (keys, values)]
    return found[0], found[1].masked_fill(~see_RL[:, None, :, None], 0), see_RL


def gated(gate_up_RN: Tensor) -> Tensor:
    """silu(gate) · up."""
    gate_RI, up_RI = gate_up_RN.chunk(2, dim=-1)
    return F.silu(gate_RI) * up_RI


def logits(hidden_RE: Tensor, weight_VE: Tensor, bias_V: Tensor | None) -> Tensor:
    """hidden · Wᵀ."""
    return F.linear(hidden_RE, weight_VE, bias_V)


def choose(logits_RV: Tensor, desk: Desk, written: Written, settings: SamplingSettings) -> None:
    """Draw a token for each row and write it down."""
    state = desk.state[:, : len(logits_RV)].long()
    places_R = state[PLACE].clamp(max=written.uniforms_JT.shape[1] - 1)
    write_down(draw(logits_RV, written.uniforms_JT[state[JOB], places_R], settings, written.facts_JT), desk, written)


def write_down(drawn: Draw, desk: Desk, written: Written) -> None:
    """What the living rows have drawn goes to their pages; a row dies with an end token or at its limit."""
    rows = len(drawn.tokens_R)
    state = desk.state[:, :rows]
    lives_R = state[ALIVE] != 0
    # A dead row writes where no row of the rollout does: the last row of every page.
    job_R = torch.where(lives_R, state[JOB], len(written.tokens_JT) - 1).long()
    place_R = torch.where(lives_R, state[PLACE], 0).long()
    written.tokens_JT[job_R, place_R] = drawn.tokens_R.to(written.tokens_JT.dtype)
    written.logprobs_JT[job_R, place_R] = drawn.logprobs_R
    written.entropies_JT[job_R, place_R] = drawn.entropies_R
    for name, values_R in drawn.facts_R.items():
        written.facts_JT[name][job_R, place_R] = values_R
    state[TOKEN] = torch.where(lives_R, drawn.tokens_R.to(state.dtype), state[TOKEN])
    state[PLACE] += lives_R
    written.lengths_J[job_R] = state[PLACE]
    state[ALIVE] = lives_R & ~torch.isin(drawn.tokens_R, desk.ends) & (state[PLACE] < state[LIMIT])
    state[SUFFIX] += state[ALIVE]  # a row that has ended stays at its last place: the next may be on no page of its own
