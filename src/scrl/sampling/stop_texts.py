"""Stop texts: a completion ends once one of them stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from scrl.records import Tokens


class StopTexts:
    """Looks for stop texts in growing rows of tokens.

    Only rows whose newest token holds the last character of a stop text, or a part of a character, are decoded and
    searched. A special token can be a stop text too.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Any) -> None:
        """Find out which tokens can complete which text."""
        self._texts = tuple(texts)
        self._tokenizer = tokenizer
        last = {text[-1] for text in self._texts} | {"\ufffd"}  # what a part of a character is decoded to
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
        """Which rows have a stop text among what they have written, ending in the newest token."""
        reached_R = self.may_end(newest_R)
        for row in reached_R.nonzero().squeeze(-1).tolist():
            reached_R[row] = self._ends(tokens_RT[row])
        return reached_R

    def first_end(self, tokens_T: Tensor) -> int | None:
        """How many tokens of a completion there are up to the end of the first stop text; None where there is none."""
        may_end_T = self._may_end_V[tokens_T.clamp(max=len(self._may_end_V) - 1)]
        for place in may_end_T.nonzero().squeeze(-1).tolist():
            if self._ends(tokens_T[: place + 1]):
                return int(place) + 1
        return None

    def _ends(self, tokens_t: Tensor) -> bool:
        """Whether a stop text stands at the end of these tokens."""
        # Every token but an empty one adds a byte, so the tail this long holds any stop text that ends here.
        tail_t = tokens_t[-2 * self._longest - 4 :]
        tail = self._tokenizer.decode(tail_t, skip_special_tokens=True)
        whole = self._tokenizer.decode(tail_t, skip_special_tokens=False) if self._with_special else ""
        return any(text in tail for text in self._texts) or any(text in whole for text in self._with_special)

    def cut(self, text: str) -> str:
        """The text up to and including the first stop text."""
        ends = [text.find(stop) + len(stop) for stop in self._texts if stop in text]
        return text[: min(ends)] if ends else text


class TextWriter:
    """What every sampler does with the tokens it has drawn: they become a text, up to a text that ends it."""

    def __init__(self, tokenizer: Any) -> None:
        """Stop texts are looked up once for each set of them."""
        self._tokenizer = tokenizer
        self._stops: dict[tuple[str, ...], StopTexts] = {}

    def texts(self, written: Sequence[Tokens], stops: StopTexts | None) -> list[str]:
        """Tokens as text, up to a text that ends a completion."""
        # Of no rows transformers makes one text.
        found = self._tokenizer.batch_decode(written, skip_special_tokens=True) if written else []
        return [stops.cut(text) if stops else text for text in found]

    def stop_texts(self, texts: tuple[str, ...]) -> StopTexts | None:
        """What recognises the texts that end a completion; None where there are none."""
        if not texts:
            return None
        if texts not in self._stops:
            self._stops[texts] = StopTexts(texts, self._tokenizer)
        return self._stops[texts]
