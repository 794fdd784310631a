"""What a decode step finds on the device: one column a row, tables of pages, and where tokens are written.

Keys and values lie in pages of some tokens each, [pages, K, page, D] a layer. Every prompt has its pages once, however
many rows continue it; every row has pages for what it has written itself. Page 0 belongs to nobody: rows that are not
there write into it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

TOKEN, PLACE, SUFFIX, ALIVE, LIMIT, JOB, PROMPT, PREFIX = FIELDS = range(8)
"""Rows of the state, one column a slot.

TOKEN   the newest token, whose keys and values are not yet stored
PLACE   how many tokens the completion has
SUFFIX  how many tokens the row has stored in pages of its own
ALIVE   1 while it is being written
LIMIT   how many tokens it may have
JOB     where it is written down
PROMPT  whose pages come before its own
PREFIX  how many tokens those hold
"""


@dataclass(frozen=True, slots=True, eq=False)
class Desk:
    """What does not move while a rollout goes on."""

    state: Tensor
    """int32 [FIELDS, slots]."""
    cos_LD: Tensor
    sin_LD: Tensor
    ends: Tensor
    """int32: tokens after which a completion has ended."""
    knobs: Tensor
    """float32: temperature (1 where it is 0), top_p."""


@dataclass(frozen=True, slots=True, eq=False)
class Pages:
    """Which pages rows look at, and how many at most."""

    suffix_SP: Tensor
    """int32 [slots, pages]: a row's own."""
    prompt_BP: Tensor
    """int32 [prompts, pages]."""
    teams_SN: Tensor
    """int32 [slots, rows]: rows that look at the same prompt together; −1 for nobody."""
    suffix_pages: int
    prompt_pages: int
    teams: int
    """Of those in the table; 0 where every row reads its prompt, of one page, by itself."""

    @property
    def is_alone(self) -> bool:
        """Whether rows read their prompts themselves."""
        return self.prompt_pages > 0 and self.teams == 0

    @property
    def shared_pages(self) -> int:
        """Pages of prompts that teams read."""
        return self.prompt_pages if self.teams else 0


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """J completions of at most T tokens; the last row takes what nobody reads."""

    tokens_JT: Tensor
    logprobs_JT: Tensor
    entropies_JT: Tensor
    lengths_J: Tensor
    """int32: tokens written so far."""
    uniforms_JT: Tensor
    facts_JT: Mapping[str, Tensor]


def team_size(group: int) -> int:
    """Rows whose query heads fill a tile of 64 for one key head."""
    return max(1, 64 // group)
