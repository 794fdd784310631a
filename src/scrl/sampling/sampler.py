"""What a sampler is.

A user's own sampler is `module:NAME`, where NAME(model, tokenizer, *, max_rows, record, on_note) returns a `Sampler`;
`Detokenizer` is a base class with `texts` and `stop_texts`. Stop texts: a completion ends once it contains one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from scrl.records import Sample, Tokens
from scrl.sampling.settings import SamplingSettings


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


class StopTexts:
    """Looks for stop texts in growing rows of tokens.

    Only rows whose newest token holds the last character of a stop text, or part of a character, are decoded and
    searched. A special token can be a stop text too.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Any) -> None:
        """Find the tokens that can complete a stop text."""
        self._texts = tuple(texts)
        self._tokenizer = tokenizer
        last = {text[-1] for text in self._texts} | {"\ufffd"}  # what part of a character decodes to
        words = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
        self._may_end_V = torch.tensor([bool(last.intersection(word)) for word in words])
        self._longest = max(len(text.encode()) for text in self._texts)
        special = tokenizer.get_added_vocab()
        self._with_special = [text for text in self._texts if any(token in text for token in special)]

    def may_end(self, tokens: Tensor) -> Tensor:
        """Which tokens could be the last of a stop text."""
        may_end_V = self._may_end_V.to(tokens.device)
        return may_end_V[tokens.clamp(max=len(may_end_V) - 1)]

    def reached(self, tokens_RT: Tensor, newest_R: Tensor) -> Tensor:
        """Which rows contain a stop text that ends in their newest token."""
        reached_R = self.may_end(newest_R)
        for row in reached_R.nonzero().squeeze(-1).tolist():
            reached_R[row] = self._has_stopped(tokens_RT[row])
        return reached_R

    def first_end(self, tokens_T: Tensor) -> int | None:
        """The number of tokens up to the end of the first stop text, or None."""
        for t in self.may_end(tokens_T).nonzero().squeeze(-1).tolist():
            if self._has_stopped(tokens_T[: t + 1]):
                return int(t) + 1
        return None

    def _has_stopped(self, tokens_T: Tensor) -> bool:
        """Whether the last of these tokens hold a stop text."""
        # Every token but an empty one adds a byte, so a tail of this length holds any stop text that ends here.
        tail_T = tokens_T[-2 * self._longest - 4 :]
        tail = self._tokenizer.decode(tail_T, skip_special_tokens=True)
        whole = self._tokenizer.decode(tail_T, skip_special_tokens=False) if self._with_special else ""
        return any(text in tail for text in self._texts) or any(text in whole for text in self._with_special)

    def cut(self, text: str) -> str:
        """The text up to and including the first stop text."""
        ends = [text.find(stop) + len(stop) for stop in self._texts if stop in text]
        return text[: min(ends)] if ends else text


class Detokenizer:
    """The base class of samplers: turns tokens into texts, cut after the first stop text."""

    def __init__(self, tokenizer: Any) -> None:
        """Stop texts are prepared once for each set of them."""
        self._tokenizer = tokenizer
        self._stops: dict[tuple[str, ...], StopTexts] = {}

    def texts(self, rows: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """The texts of these rows of tokens, cut after the first stop text."""
        texts = self._tokenizer.batch_decode(rows, skip_special_tokens=True) if rows else []  # [] gives one text
        return [stops.cut(text) if stops else text for text in texts]

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises these stop texts; None if there are none."""
        if not texts:
            return None
        if texts not in self._stops:
            self._stops[texts] = StopTexts(texts, self._tokenizer)
        return self._stops[texts]
