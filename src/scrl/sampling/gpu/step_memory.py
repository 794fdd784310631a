"""The device memory of a call: the paged cache of keys and values, the rows' state and the completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from scrl.device import attention_without_cudnn, pad_rows, to_device
from scrl.policy.memory import RESERVED_SHARE
from scrl.records import Floats
from scrl.sampling.decoders import rope_tables
from scrl.sampling.gpu.decode_step import COMPLETION, FIELDS, Completions, DecodeState, Ops, PageTables, run_prompts
from scrl.sampling.gpu.fused_weights import FusedWeights, Shape
from scrl.sampling.gpu.scheduler import Prefix, Row, pages_for

PREFILL_TOKENS = 8192
"""Prompts are prefilled in batches of this many tokens (a longer prompt alone)."""
TEAM_QUERIES = 64
"""The query heads of a team of rows fill a tile of this size for one key head."""


@dataclass(frozen=True, slots=True)
class MemorySize:
    """What there is room for."""

    slots: int
    pages: int
    page_size: int
    completions: int
    max_tokens: int
    """The most tokens of a completion."""
    prompt_tokens: int
    record: tuple[str, ...] = ()

    def holds(self, other: MemorySize) -> bool:
        """Whether there is room for `other`, apart from its pages."""
        mine, theirs = ((s.slots, s.completions, s.max_tokens, s.prompt_tokens) for s in (self, other))
        is_alike = (self.page_size, self.record) == (other.page_size, other.record)
        return is_alike and all(map(int.__ge__, mine, theirs))


def affordable_pages(free: int, total: int, shape: Shape, size: MemorySize, itemsize: int) -> int:
    """Pages that fit in `free` bytes beside the memory of a decode step, of a prefill and of the completions.

    A page of 256 tokens takes 256 · 2 · layers · key heads · D numbers: 9.4 MB for Qwen2.5-3B, 37.7 MB for Qwen3-4B.
    """
    step = size.slots * (2 * 4 * shape.vocabulary + itemsize * (6 * shape.intermediate + 8 * shape.hidden))
    splits = pages_for(size.max_tokens, size.page_size) + pages_for(size.prompt_tokens, size.page_size)
    step += size.slots * shape.heads * splits * (shape.head_size + 1) * 4
    prefill = max(PREFILL_TOKENS, size.prompt_tokens) * itemsize * (5 * shape.intermediate + 12 * shape.hidden)
    completions = (size.completions + 1) * size.max_tokens * 4 * (4 + len(size.record))
    left = free - step - prefill - completions - int(RESERVED_SHARE * total)
    return left // (size.page_size * shape.numbers_per_token * itemsize)


@dataclass(slots=True, eq=False)
class StepMemory:
    """Everything whose address a captured step holds."""

    size: MemorySize
    keys: Tensor
    """[layers, pages, key heads, page size, D]."""
    values: Tensor
    state: DecodeState
    completions: Completions
    tables: PageTables

    @classmethod
    def build(cls, model: nn.Module, shape: Shape, size: MemorySize, end_tokens: Sequence[int]) -> StepMemory:
        """Allocate zeroed memory, and the rotary tables of all positions that can come up."""
        like = next(model.parameters())
        pool = (shape.layers, size.pages, shape.kv_heads, size.page_size, shape.head_size)

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=like.device)

        cos_LD, sin_LD = rope_tables(model, size.prompt_tokens + size.max_tokens + 1)
        # A power of two of them; no model has the token -1.
        ends = [*end_tokens, *[-1] * ((1 << max(0, len(end_tokens) - 1).bit_length()) - len(end_tokens))]
        C, T, real = size.completions + 1, size.max_tokens, torch.float32
        return cls(
            size=size,
            keys=torch.empty(pool, dtype=like.dtype, device=like.device),
            values=torch.empty(pool, dtype=like.dtype, device=like.device),
            state=DecodeState(
                fields=zeros(len(FIELDS), size.slots),
                cos_LD=cos_LD.contiguous(),
                sin_LD=sin_LD.contiguous(),
                end_tokens=torch.tensor(ends, dtype=torch.int32, device=like.device),
                draw_params=zeros(2, dtype=real),
            ),
            completions=Completions(
                tokens_CT=zeros(C, T),
                logprobs_CT=zeros(C, T, dtype=real),
                entropies_CT=zeros(C, T, dtype=real),
                lengths_C=zeros(C),
                uniforms_CT=zeros(C, T, dtype=real),
                facts_CT={name: zeros(C, T, dtype=real) for name in size.record},
            ),
            tables=PageTables(
                suffix=zeros(size.slots, pages_for(T, size.page_size)),
                prompt=zeros(size.slots + 2, max(1, pages_for(size.prompt_tokens + T, size.page_size))),
                teams=zeros(size.slots, max(1, TEAM_QUERIES // shape.group)),
            ),
        )

    def reset(self, uniforms: Sequence[Floats], temperature: float, top_p: float) -> None:
        """Clear the state and the completions for a new call."""
        out = self.completions
        for buffer in (out.tokens_CT, out.logprobs_CT, out.entropies_CT, out.lengths_C, *out.facts_CT.values()):
            buffer.zero_()
        uniforms_CT = pad_rows(uniforms, np.float32)
        out.uniforms_CT[: len(uniforms_CT), : uniforms_CT.shape[1]] = self._to_device(uniforms_CT)
        self.state.draw_params.copy_(self._to_device(np.array([temperature or 1.0, top_p], dtype=np.float32)))
        self.state.fields.zero_()

    def prefill(self, ops: Ops, weights: FusedWeights, prefixes: Sequence[Prefix]) -> None:
        """Store the keys and values of prompts, batch by batch."""
        for batch in prefill_batches([len(prefix.tokens_P) for prefix in prefixes]):
            self._prefill(ops, weights, [prefixes[number] for number in batch])

    def _prefill(self, ops: Ops, weights: FusedWeights, prefixes: Sequence[Prefix]) -> None:
        page_size = self.size.page_size
        tokens_BP = pad_rows([prefix.tokens_P for prefix in prefixes], np.int64)
        lengths_B, longest = [len(prefix.tokens_P) for prefix in prefixes], tokens_BP.shape[1]
        pages = [np.repeat(p.pages, page_size)[:length] for p, length in zip(prefixes, lengths_B, strict=True)]
        page_BP = self._to_device(pad_rows(pages, np.int64))  # padding goes to page 0
        column_P = self._to_device(np.arange(longest) % page_size)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            self.keys[layer][page_BP, :, column_P] = keys.transpose(1, 2)
            self.values[layer][page_BP, :, column_P] = values.transpose(1, 2)
            # Padding is on the right, where no token of the prompt looks: the causal mask is enough.
            return F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=weights.shape.scale, enable_gqa=weights.shape.group > 1
            )

        cos_PD, sin_PD = self.state.cos_LD[:longest], self.state.sin_LD[:longest]
        with attention_without_cudnn():
            run_prompts(ops, weights, self._to_device(tokens_BP), cos_PD, sin_PD, attend)

    def assign_slots(self, running: Sequence[Row]) -> None:
        """Move rows to the first slots in order; their keys and values stay where they are."""
        blank = self.size.slots  # the column after the last slot, for slots without a row
        fresh = [np.zeros(len(FIELDS), dtype=np.int32)]
        fresh[0][COMPLETION] = self.size.completions
        column_of_slot = np.full(self.size.slots, blank, dtype=np.int64)
        for slot, row in enumerate(running):
            column_of_slot[slot] = row.slot if row.slot >= 0 else blank + len(fresh)
            if row.slot < 0:
                # TOKEN, LENGTH, SUFFIX, ALIVE, LIMIT, COMPLETION, PROMPT, PREFIX
                prefix = row.prefix
                fields = (row.token, row.start, 0, 1, row.limit, row.completion, prefix.table_row, len(prefix.tokens_P))
                fresh.append(np.array(fields, dtype=np.int32))
            row.slot = slot
        columns = torch.cat((self.state.fields, self._to_device(np.stack(fresh, axis=1))), dim=1)
        self.state.fields.copy_(columns[:, self._to_device(column_of_slot)])
        suffix, prompt = (np.zeros(table.shape, dtype=np.int32) for table in (self.tables.suffix, self.tables.prompt))
        for row in running:
            suffix[row.slot, : len(row.pages)] = row.pages
            prompt[row.prefix.table_row, : len(row.prefix.pages)] = row.prefix.pages
        teams = np.full(self.tables.teams.shape, -1, dtype=np.int32)
        for team, slots in enumerate(prompt_teams(running, teams.shape[1])):
            teams[team, : len(slots)] = slots
        self.tables.suffix.copy_(self._to_device(suffix))
        self.tables.prompt.copy_(self._to_device(prompt))
        self.tables.teams.copy_(self._to_device(teams))

    def _to_device(self, values: NDArray[np.generic]) -> Tensor:
        return to_device(values, self.keys.device)


def prompt_teams(running: Sequence[Row], size: int) -> list[list[int]]:
    """Slots of the rows with the same prompt, at most `size` together; empty prefixes have none."""
    by_prompt: dict[int, list[int]] = {}
    for row in running:
        if len(row.prefix.tokens_P):
            by_prompt.setdefault(row.prefix.table_row, []).append(row.slot)
    return [slots[first : first + size] for slots in by_prompt.values() for first in range(0, len(slots), size)]


def prefill_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Prompts of similar lengths, at most PREFILL_TOKENS with their padding; empty ones are left out."""
    batches: list[list[int]] = []
    for number in sorted((n for n, length in enumerate(lengths) if length), key=lambda n: -lengths[n]):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > PREFILL_TOKENS:
            batches.append([])
        batches[-1].append(number)
    return batches
