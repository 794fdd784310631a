"""Eager decoding: rows that start together and are decoded token by token until the last one has ended.

A decoder reads each prompt once, copies its keys and values to the N rows of the group, and can drop rows that have
ended. `GroupDecoder` runs the modules of Llama-, Qwen2- and Qwen3-shaped models itself over a cache of fixed size;
`TransformersDecoder` runs any causal model that transformers can run with a cache, much slower.
Shapes: B prompts, R rows (B·N at first) of up to T tokens, P prompt tokens, L cache columns, H heads, D head size, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import DynamicCache

from scrl.policy.model import plain_model
from scrl.records import Tokens
from scrl.sampling.draw import draw
from scrl.sampling.sampler import StopTexts
from scrl.sampling.settings import SamplingSettings

COMPACT_BELOW = 0.75
"""Ended rows are dropped from the cache once fewer than this share of its rows are still being decoded."""
LLAMA_SHAPED = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
STATIC_ROPES = ("default", "linear", "llama3", "yarn")
Attend = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""(layer, queries, keys, values, scale) → mixed values, all [rows, heads, tokens, head size]."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodedRows:
    """R completions; row r has `lengths_R[r]` tokens."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    entropies_RT: Tensor
    facts_RT: dict[str, Tensor]
    lengths_R: Tensor
    finished_R: Tensor
    """Which rows ended with an end token or a stop text."""


def decode_eagerly(
    decoder: Decoder,
    logits_RV: Tensor,
    uniforms_RT: Tensor,
    settings: SamplingSettings,
    end_tokens: Tensor,
    stops: StopTexts | None,
    record: Sequence[str],
    limits: Sequence[int],
    on_token: Callable[[int, int], None] | None,
) -> DecodedRows:
    """Draw, record, drop rows that have ended, step. `limits` are the most tokens of each row.

    `on_token` is told how many tokens each row has so far, and the most it may have.
    """
    num_rows, max_tokens = uniforms_RT.shape
    device = uniforms_RT.device
    limit_values = frozenset(limits)
    out = DecodedRows(
        tokens_RT=torch.zeros(num_rows, max_tokens, dtype=torch.int64, device=device),
        logprobs_RT=torch.zeros(num_rows, max_tokens, device=device),
        entropies_RT=torch.zeros(num_rows, max_tokens, device=device),
        facts_RT={name: torch.zeros(num_rows, max_tokens, device=device) for name in record},
        lengths_R=torch.tensor(limits, device=device),
        finished_R=torch.zeros(num_rows, dtype=torch.bool, device=device),
    )
    rows = torch.arange(num_rows, device=device)  # the rows that the decoder still has
    for t in range(max_tokens):
        new = draw(logits_RV, uniforms_RT[rows, t], settings, record)
        out.tokens_RT[rows, t] = new.tokens_R
        out.logprobs_RT[rows, t] = new.logprobs_R
        out.entropies_RT[rows, t] = new.entropies_R
        for name, values_R in new.facts_R.items():
            out.facts_RT[name][rows, t] = values_R
        is_end_R = torch.isin(new.tokens_R, end_tokens)
        if stops is not None:
            is_end_R |= stops.reached(out.tokens_RT[rows, : t + 1], new.tokens_R)
        end_rows = rows[is_end_R & ~out.finished_R[rows]]
        out.finished_R[end_rows] = True
        out.lengths_R[end_rows] = t + 1
        is_active_R = ~out.finished_R[rows] & (out.lengths_R[rows] > t + 1)
        num_active = int(is_active_R.sum())
        if on_token is not None:
            on_token(t + 1, max_tokens)
        if num_active == 0:
            break
        # Rows at their limits are dropped at once: one more step might exceed the model's positions.
        if num_active < COMPACT_BELOW * len(rows) or (t + 1 in limit_values and num_active < len(rows)):
            active = is_active_R.nonzero().squeeze(-1)
            decoder.keep(active)
            rows, new = rows[active], new._replace(tokens_R=new.tokens_R[active])
        logits_RV = decoder.step(new.tokens_R)
    return out


def left_pad(prompts_B: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor]:
    """Tokens [B, P] that end in the last column, and the mask of what is not padding."""
    longest = max(map(len, prompts_B))
    tokens_BP = np.zeros((len(prompts_B), longest), dtype=np.int64)
    mask_BP = np.zeros_like(tokens_BP)
    for row, tokens_P in enumerate(prompts_B):
        tokens_BP[row, longest - len(tokens_P) :] = tokens_P
        mask_BP[row, longest - len(tokens_P) :] = 1
    return torch.from_numpy(tokens_BP).to(device), torch.from_numpy(mask_BP).to(device)


def why_not_grouped(model: nn.Module) -> str | None:
    """Why `GroupDecoder` cannot run this model, or None."""
    inner = plain_model(model)
    config = inner.config
    name = type(inner).__name__
    rope = (getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}).get("rope_type")
    if name not in LLAMA_SHAPED:
        return f"{name} is not one of {', '.join(LLAMA_SHAPED)}"
    if rope not in (None, *STATIC_ROPES):
        return f"its rotary positions are of the kind {rope!r}"
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()):
        return "some of its layers attend to a sliding window"
    if name == "MistralForCausalLM" and getattr(config, "sliding_window", None):
        return "it attends to a sliding window"
    return None


def head_size(config: Any) -> int:
    """The dimension of an attention head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def rope_tables(model: nn.Module, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin [L, D] of the first positions."""
    body = plain_model(model).model
    weight = body.embed_tokens.weight
    cos_1LD, sin_1LD = body.rotary_emb(weight[:1], torch.arange(length, device=weight.device)[None])
    return cos_1LD[0], sin_1LD[0]


def apply_rope(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries or keys, turned by the angles of their positions."""
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat((-second, first), dim=-1) * sin


class GroupDecoder:
    """One prefill per prompt, a cache of fixed size, one pass over the model's modules per token."""

    def __init__(self, model: nn.Module) -> None:
        """Reads the weights of `model` in place: nothing to copy or sync."""
        self._model: Any = plain_model(model)
        self._body: Any = self._model.model

    def start(self, tokens_BP: Tensor, mask_BP: Tensor, group_size: int, max_tokens: int) -> Tensor:
        """Prefill left-padded prompts, `group_size` rows for each; logits [B, V] of the first new token."""
        B, P = tokens_BP.shape
        config = self._model.config
        shape_RHLD = (B * group_size, config.num_key_value_heads, P + max_tokens, head_size(config))
        like = self._body.embed_tokens.weight
        self._keys, self._values = (
            [torch.empty(shape_RHLD, dtype=like.dtype, device=like.device) for _ in self._body.layers] for _ in range(2)
        )
        self._cos_LD, self._sin_LD = rope_tables(self._model, P + max_tokens)
        causal_PP = torch.ones(P, P, dtype=torch.bool, device=mask_BP.device).tril()
        # A padding token that saw nothing would give NaN, so it sees itself; its output is never read.
        itself_PP = torch.eye(P, dtype=torch.bool, device=mask_BP.device)
        see_B1PP = ((causal_PP & mask_BP.bool()[:, None, :]) | itself_PP)[:, None]

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
            for cache_RHLD, fresh_BHPD in ((self._keys[layer], keys), (self._values[layer], values)):
                cache_RHLD[:, :, :P] = fresh_BHPD.repeat_interleave(group_size, dim=0)
            is_gqa = queries.shape[1] != keys.shape[1]
            return F.scaled_dot_product_attention(
                queries, keys, values, attn_mask=see_B1PP, scale=scale, enable_gqa=is_gqa
            )

        logits_BV = self._run(tokens_BP, (mask_BP.cumsum(dim=-1) - 1).clamp(min=0), attend)
        self._length = P
        self._padding_R = (P - mask_BP.sum(dim=-1)).repeat_interleave(group_size)
        self._bias_RL = None
        if not bool(mask_BP.all()):  # −∞ where a row has padding, 0 elsewhere
            bias_BP = torch.zeros(mask_BP.shape, dtype=like.dtype, device=mask_BP.device)
            bias_BP = bias_BP.masked_fill(mask_BP == 0, -torch.inf)
            self._bias_RL = F.pad(bias_BP, (0, max_tokens)).repeat_interleave(group_size, dim=0)
        return logits_BV

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to each row; logits [R, V] of the next."""
        R, start, end = len(tokens_R), self._length, self._length + 1
        bias_R11L = None if self._bias_RL is None else self._bias_RL[:, None, None, :end]

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
            self._keys[layer][:R, :, start:end] = keys
            self._values[layer][:R, :, start:end] = values
            return _attend_one_token(
                queries, self._keys[layer][:R, :, :end], self._values[layer][:R, :, :end], bias_R11L, scale
            )

        self._length = end
        return self._run(tokens_R[:, None], (start - self._padding_R)[:, None], attend)

    def keep(self, rows: Tensor) -> None:
        """Move these rows to the front of the cache; the others are dropped."""
        for cache_RHLD in (*self._keys, *self._values):
            cache_RHLD[: len(rows), :, : self._length] = cache_RHLD[rows, :, : self._length]
        self._padding_R = self._padding_R[rows]
        self._bias_RL = None if self._bias_RL is None else self._bias_RL[rows]

    def _run(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """The logits [rows, V] after the last of these tokens."""
        cos, sin = self._cos_LD[positions][:, None], self._sin_LD[positions][:, None]
        hidden, size = self._body.embed_tokens(tokens), head_size(self._model.config)
        for number, layer in enumerate(self._body.layers):
            attention = layer.self_attn
            normed = _rms_norm(layer.input_layernorm, hidden)
            split = (*hidden.shape[:-1], -1, size)
            queries, keys = attention.q_proj(normed).view(split), attention.k_proj(normed).view(split)
            if hasattr(attention, "q_norm"):
                queries, keys = _rms_norm(attention.q_norm, queries), _rms_norm(attention.k_norm, keys)
            values = attention.v_proj(normed).view(split)
            queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
            mixed = attend(number, apply_rope(queries, cos, sin), apply_rope(keys, cos, sin), values, attention.scaling)
            hidden = hidden + attention.o_proj(mixed.transpose(1, 2).flatten(-2))
            hidden = hidden + layer.mlp(_rms_norm(layer.post_attention_layernorm, hidden))
        logits_RV: Tensor = self._model.lm_head(_rms_norm(self._body.norm, hidden)[:, -1])
        return logits_RV


def _rms_norm(norm: Any, hidden: Tensor) -> Tensor:
    return F.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _attend_one_token(queries: Tensor, keys: Tensor, values: Tensor, bias_R11L: Tensor | None, scale: float) -> Tensor:
    """softmax(q Kᵀ · scale + bias) V for one new token per row; query heads that share a key head form one matrix.

    For a single query this is faster on a CPU than the fused kernel (3 × at four query heads per key head).
    """
    R, H, _, D = queries.shape
    q = queries.view(R, keys.shape[1], H // keys.shape[1], D)
    scores = torch.matmul(q * scale, keys.transpose(-1, -2))
    weights = torch.softmax(scores if bias_R11L is None else scores + bias_R11L, dim=-1)
    return torch.matmul(weights, values).view(R, H, 1, D)


class TransformersDecoder:
    """Any causal model of transformers, through its own forward and its own growing cache."""

    def __init__(self, model: nn.Module) -> None:
        """Reads the weights of `model` in place."""
        self._model: Any = model

    def start(self, tokens_BP: Tensor, mask_BP: Tensor, group_size: int, max_tokens: int) -> Tensor:  # noqa: ARG002
        """Like GroupDecoder: prefill, then repeat the cache."""
        self._cache = DynamicCache(config=plain_model(self._model).config)
        positions_BP = (mask_BP.cumsum(dim=-1) - 1).clamp(min=0)
        logits_BV = self._forward(tokens_BP, mask_BP, positions_BP)
        self._cache.batch_repeat_interleave(group_size)
        self._mask_RL = mask_BP.repeat_interleave(group_size, dim=0)
        return logits_BV

    def step(self, tokens_R: Tensor) -> Tensor:
        """Append one token to each row; logits [R, V] of the next."""
        positions_R1 = self._mask_RL.sum(dim=-1, keepdim=True)
        self._mask_RL = F.pad(self._mask_RL, (0, 1), value=1)
        return self._forward(tokens_R[:, None], self._mask_RL, positions_R1)

    def keep(self, rows: Tensor) -> None:
        """Drop all other rows."""
        self._cache.batch_select_indices(rows)
        self._mask_RL = self._mask_RL[rows]

    def _forward(self, tokens: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        logits_RV: Tensor = self._model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        return logits_RV


Decoder = GroupDecoder | TransformersDecoder
