"""What a sampler is.

A user's own sampler is `module:NAME`, where NAME(model, tokenizer, *, max_rows, record, on_note) returns a `Sampler`;
`stop_texts.Detokenizer` is a base class with `texts` and `stop_texts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scrl.records import Sample, Tokens
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.stop_texts import StopTexts


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What the completions of a group start from."""

    question_id: str
    """Random numbers depend on it."""
    tokens_P: Tokens
    max_tokens: int | None = None
    """The most new tokens; None: as many as the settings allow."""


class Sampler(Protocol):
    """Draws groups of completions from the policy as it is at the time of the call; never sees an answer."""

    note: str | None
    """What a user should know about it."""
    max_rows: int
    """Completions decoded in parallel."""

    @property
    def rows_per_call(self) -> int:
        """Completions to ask for in one call: more than `max_rows` if rows that end are replaced by others."""

    def sample(
        self, prompts_B: Sequence[Prompt], settings: SamplingSettings, *, num_samples: int, seed: int, step: int | str
    ) -> list[tuple[Sample, ...]]:
        """N completions of each prompt; completion i of a prompt does not depend on the others."""

    def release(self) -> None:
        """Free memory, before every update; the next call of `sample` reads the weights as they are then."""

    def texts(self, rows: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """The texts of these rows of tokens, cut after the first stop text."""

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises these stop texts; None if there are none."""


MEMBERS = [name for name in (*Sampler.__annotations__, *vars(Sampler)) if not name.startswith("_")]
