"""What every sampler can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from scrl.records import Sample, Tokens
from scrl.rollout.endings import OnGroup
from scrl.rollout.local import Prompt
from scrl.rollout.sampling import SamplingSettings
from scrl.rollout.stopping import StopTexts


class Sampler(Protocol):
    """Draws groups of completions from the policy as it is at the time of the call; never sees an answer."""

    note: str | None
    """What a user should know about it."""
    max_rows: int
    """Completions that are written side by side."""
    shares_weights: bool
    """Whether it draws from the very weights that are trained; one with a copy must be released before an update."""

    @property
    def rows_a_call(self) -> int:
        """Completions to ask for in one call: more than fit side by side, where those that end make room for others."""

    @property
    def drift(self) -> float | None:
        """Mean |Δ log π| between sampler and policy over the tokens of a step; None: they are one, or unknown."""

    def sample(
        self,
        prompts_B: Sequence[Prompt],
        settings: SamplingSettings,
        *,
        num_samples: int,
        seed: int,
        step: int | str,
        first: int = 0,
        on_group: OnGroup | None = None,
    ) -> list[tuple[Sample, ...]]:
        """Completions `first` … `first` + N − 1 of each prompt; one is the same whichever are drawn with it.

        `on_group` hears of each prompt's completions: perhaps first of some of them as they end, each time of more, and
        at last of all, in order and once, where it can before others are drawn. It must be quick: sampling waits.
        """

    def release(self) -> None:
        """Give memory back; the next call of `sample` sees the weights as they are then."""

    def texts(self, written: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """Tokens as text, up to a text that ends a completion."""

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises the texts that end a completion; None where there are none."""
