"""What a decode step reads and writes on the device: the state of the rows, page tables, and the completions.

Keys and values are stored in pages, [pages, key heads, page size, D] per layer. The pages of a prompt are shared by all
the rows that continue it (its tokens are their prefix); each row has pages for its own tokens (its suffix). Page 0 is a
dummy that empty slots write to. Shapes: R rows of a step, C completions of a call, T tokens, L positions, D head size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

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
