"""Stop texts: a completion ends once one of them stands in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


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

    def reached(self, tokens_RT: Tensor, newest_R: Tensor) -> Tensor:
        """Which rows have a stop text among what they have written, ending in the newest token."""
        may_end_V = self._may_end_V.to(newest_R.device)
        reached_R = may_end_V[newest_R.clamp(max=len(may_end_V) - 1)]
        for row in reached_R.nonzero().squeeze(-1).tolist():
            # Every token but an empty one adds a byte, so the tail this long holds any stop text that ends here.
            tail_t = tokens_RT[row, -2 * self._longest - 4 :]
            tail = self._tokenizer.decode(tail_t, skip_special_tokens=True)
            whole = self._tokenizer.decode(tail_t, skip_special_tokens=False) if self._with_special else ""
            found = any(text in tail for text in self._texts) or any(text in whole for text in self._with_special)
            reached_R[row] = found
        return reached_R

    def cut(self, text: str) -> str:
        """The text up to and including the first stop text."""
        ends = [text.find(stop) + len(stop) for stop in self._texts if stop in text]
        return text[: min(ends)] if ends else text
