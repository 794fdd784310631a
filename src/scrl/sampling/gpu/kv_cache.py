"""The device memory of a rollout: pages for keys and values, the rows' state, and where completions are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from scrl.attention import unplanned_attention
from scrl.device_copy import sent, stacked
from scrl.records import Floats
from scrl.sampling.decoders import ModuleWalk
from scrl.sampling.gpu.decode_state import FIELDS, JOB, Desk, Pages, Written, team_size
from scrl.sampling.gpu.fused_weights import Shape
from scrl.sampling.gpu.scheduler import Row, Source

PREFILL_TOKENS = 8192
"""Prompts are read so many tokens at a time (a longer one alone)."""
KEPT_FREE = 0.04
"""Share of a GPU's memory that is left to others and to fragments."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much an arena has room for."""

    slots: int
    pages: int
    page: int
    completions: int
    tokens: int
    """Of a completion."""
    prompt_tokens: int
    record: tuple[str, ...] = ()

    def holds(self, other: Size) -> bool:
        """Whether there is room for what needs `other`, its pages aside."""
        mine, theirs = ((s.slots, s.completions, s.tokens, s.prompt_tokens) for s in (self, other))
        return (self.page, self.record) == (other.page, other.record) and all(map(int.__ge__, mine, theirs))


def affordable_pages(free: int, total: int, shape: Shape, size: Size, itemsize: int) -> int:
    """Pages that fit beside what a step and the reading of prompts need for themselves.

    A page of 256 tokens takes 256 · 2 · layers · K · D numbers: 9.4 MB for Qwen2.5-3B, 37.7 MB for Qwen3-4B.
    """
    step = size.slots * (2 * 4 * shape.words + itemsize * (6 * shape.inner + 8 * shape.hidden))
    splits = -(-size.tokens // size.page) + -(-size.prompt_tokens // size.page)
    step += size.slots * shape.heads * splits * (shape.head_size + 1) * 4
    prefill = max(PREFILL_TOKENS, size.prompt_tokens) * itemsize * (5 * shape.inner + 12 * shape.hidden)
    written = (size.completions + 1) * size.tokens * 4 * (4 + len(size.record))
    left = free - step - prefill - written - int(KEPT_FREE * total)
    return left // (size.page * shape.numbers_per_token * itemsize)


@dataclass(slots=True, eq=False)
class Arena:
    """Everything whose address a captured step knows."""

    size: Size
    shape: Shape
    keys: Tensor
    """[layers, pages, K, page, D]."""
    values: Tensor
    desk: Desk
    written: Written
    suffix_SP: Tensor
    prompt_BP: Tensor
    teams_SN: Tensor
    _walk: ModuleWalk = field(repr=False)

    @classmethod
    def build(cls, model: nn.Module, shape: Shape, size: Size, ends: Sequence[int]) -> Arena:
        """Zeroed memory, and the rotations of all positions that can come up."""
        like = next(model.parameters())
        walk = ModuleWalk(model)
        pool = (shape.layers, size.pages, shape.kv_heads, size.page, shape.head_size)

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=like.device)

        cos_LD, sin_LD = walk.rotations(size.prompt_tokens + size.tokens + 1)
        jobs, tokens = size.completions + 1, size.tokens
        real = torch.float32
        return cls(
            size=size,
            shape=shape,
            keys=torch.empty(pool, dtype=like.dtype, device=like.device),
            values=torch.empty(pool, dtype=like.dtype, device=like.device),
            desk=Desk(
                state=zeros(len(FIELDS), size.slots),
                cos_LD=cos_LD.contiguous(),
                sin_LD=sin_LD.contiguous(),
                ends=torch.tensor(padded_ends(ends), dtype=torch.int32, device=like.device),
                knobs=zeros(2, dtype=real),
            ),
            written=Written(
                tokens_JT=zeros(jobs, tokens),
                logprobs_JT=zeros(jobs, tokens, dtype=real),
                entropies_JT=zeros(jobs, tokens, dtype=real),
                lengths_J=zeros(jobs),
                uniforms_JT=zeros(jobs, tokens, dtype=real),
                facts_JT={name: zeros(jobs, tokens, dtype=real) for name in size.record},
            ),
            suffix_SP=zeros(size.slots, -(-size.tokens // size.page)),
            prompt_BP=zeros(size.slots + 2, max(1, -(-(size.prompt_tokens + size.tokens) // size.page))),
            teams_SN=zeros(size.slots, team_size(shape.group)),
            _walk=walk,
        )

    def begin(self, uniforms: Sequence[Floats], temperature: float, top_p: float) -> None:
        """Blank pages for new completions."""
        written = self.written
        for page in (written.tokens_JT, written.logprobs_JT, written.entropies_JT, written.lengths_J):
            page.zero_()
        for page in written.facts_JT.values():
            page.zero_()
        uniforms_RT = stacked(uniforms, np.float32)
        written.uniforms_JT[: len(uniforms_RT), : uniforms_RT.shape[1]] = self._sent(uniforms_RT)
        self.desk.knobs.copy_(self._sent(np.array([temperature or 1.0, top_p], dtype=np.float32)))
        self.desk.state.zero_()

    def arrange(self, live: Sequence[Row]) -> None:
        """Rows move to the first slots in their order; keys and values stay where they are."""
        fresh = np.zeros((len(FIELDS), 1 + sum(row.slot < 0 for row in live)), dtype=np.int32)
        fresh[JOB] = self.size.completions
        index_S = np.full(self.size.slots, self.size.slots, dtype=np.int64)  # a blank column, for slots that are free
        number = 0
        for slot, row in enumerate(live):
            if row.slot < 0:
                number += 1
                fresh[:, number] = _column(row)
            index_S[slot] = row.slot if row.slot >= 0 else self.size.slots + number
            row.slot = slot
        wide = torch.cat((self.desk.state, self._sent(fresh)), dim=1)
        self.desk.state.copy_(wide[:, self._sent(index_S)])
        self._send_tables(live)

    def _send_tables(self, live: Sequence[Row]) -> None:
        suffix_SP = np.zeros(tuple(self.suffix_SP.shape), dtype=np.int32)
        prompt_BP = np.zeros(tuple(self.prompt_BP.shape), dtype=np.int32)
        for row in live:
            suffix_SP[row.slot, : len(row.pages)] = row.pages
            prompt_BP[row.source.place, : len(row.source.pages)] = row.source.pages
        self.suffix_SP.copy_(self._sent(suffix_SP))
        self.prompt_BP.copy_(self._sent(prompt_BP))
        teams_SN = np.full(tuple(self.teams_SN.shape), -1, dtype=np.int32)
        for team, slots in enumerate(teams_of(live, teams_SN.shape[1])):
            teams_SN[team, : len(slots)] = slots
        self.teams_SN.copy_(self._sent(teams_SN))

    def pages(self, suffix_pages: int, prompt_pages: int, teams: int) -> Pages:
        """The tables, and how much of them rows may look at."""
        return Pages(self.suffix_SP, self.prompt_BP, self.teams_SN, suffix_pages, prompt_pages, teams)

    def tokens_of(self, jobs: Sequence[int], longest: int) -> Tensor:
        """What these completions have for their first tokens, on the device."""
        return self.written.tokens_JT[self._sent(np.array(jobs, dtype=np.int64)), :longest]

    def _sent(self, values: NDArray[np.generic]) -> Tensor:
        return sent(values, self.keys.device)

    def read(self, sources: Sequence[Source]) -> None:
        """Keys and values of prompts, by the model's own modules."""
        parts = prefill_parts([len(source.tokens_P) for source in sources])
        for part in parts:
            self._read([sources[number] for number in part])

    def _read(self, sources: Sequence[Source]) -> None:
        page = self.size.page
        longest = max(len(source.tokens_P) for source in sources)
        tokens_BP = np.zeros((len(sources), longest), dtype=np.int64)
        pages_BP = np.zeros_like(tokens_BP)  # what pads a prompt goes to page 0
        for number, source in enumerate(sources):
            length = len(source.tokens_P)
            tokens_BP[number, :length] = source.tokens_P
            pages_BP[number, :length] = np.repeat(source.pages, page)[:length]
        places_P = self._sent(np.arange(longest) % page)
        to_BP = self._sent(pages_BP)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
            self.keys[layer][to_BP, :, places_P] = keys.transpose(1, 2)
            self.values[layer][to_BP, :, places_P] = values.transpose(1, 2)
            # Padding stands behind a prompt, where none of its tokens looks: causal is mask enough.
            grouped = queries.shape[1] != keys.shape[1]
            return F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, scale=scale, enable_gqa=grouped
            )

        cos, sin = self.desk.cos_LD[:longest], self.desk.sin_LD[:longest]
        with unplanned_attention():
            self._walk.run(self._sent(tokens_BP), cos[None, None], sin[None, None], attend)


def _column(row: Row) -> tuple[int, ...]:
    """The state of a row that enters: TOKEN, PLACE, SUFFIX, ALIVE, LIMIT, JOB, PROMPT, PREFIX."""
    return (row.token, row.written, 0, 1, row.limit, row.job, row.source.place, len(row.source.tokens_P))


def teams_of(live: Sequence[Row], size: int) -> list[list[int]]:
    """Slots of the rows that look at the same prompt, at most `size` together; prompts of one token have none."""
    by_prompt: dict[int, list[int]] = {}
    for row in live:
        if len(row.source.tokens_P):
            by_prompt.setdefault(row.source.place, []).append(row.slot)
    return [slots[first : first + size] for slots in by_prompt.values() for first in range(0, len(slots), size)]


def prefill_parts(lengths: Sequence[int]) -> list[list[int]]:
    """Prompts that are read together: of like lengths, at most PREFILL_TOKENS with their padding; empty ones not."""
    parts: list[list[int]] = []
    for number in sorted((n for n, length in enumerate(lengths) if length), key=lambda n: -lengths[n]):
        if not parts or (len(parts[-1]) + 1) * lengths[parts[-1][0]] > PREFILL_TOKENS:
            parts.append([])
        parts[-1].append(number)
    return parts


def padded_ends(ends: Sequence[int]) -> list[int]:
    """A power of two of them, filled with a token that no model has."""
    size = 1 << max(0, len(ends) - 1).bit_length()
    return [*ends, *[-1] * (size - len(ends))]
