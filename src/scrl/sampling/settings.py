"""The settings of drawing completions."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from scrl.settings import Settings

ALL_EQUAL = "at sampling.temperature 0 all completions of a question are equal, so there is nothing to learn: raise it"
"""The message about a run whose completions are not drawn at random."""


class SamplingSettings(Settings):
    """How completions are drawn."""

    temperature: float = Field(1.0, ge=0, le=10, description="T: logits are divided by it; 0: the likeliest token.")
    top_p: float = Field(1.0, gt=0, le=1, description="Keep the likeliest tokens that together reach this probability.")
    top_k: int = Field(0, ge=0, description="Keep this many of the likeliest tokens (0: all).")
    max_tokens: int = Field(1024, ge=1, description="A completion is cut after this many tokens.")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), description="Texts that end a completion.")
