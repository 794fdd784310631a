"""A position in a list of tokens, and what is there."""

from __future__ import annotations

from collections.abc import Sequence

from scrl.answers.exact import Unreadable
from scrl.answers.tokens import Token


class Cursor:
    """Moves from token to token; after the last one there is nothing."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0

    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def sees(self, *texts: str) -> bool:
        """Whether these are the next tokens."""
        return [token.text for token in self.tokens[self.position : self.position + len(texts)]] == list(texts)

    def is_sign(self) -> bool:
        return self.kind() == "mark" and self.peek() in ("+", "-")

    def take_minus(self) -> bool:
        """Take all signs at this position; whether they make a minus."""
        negative = False
        while self.is_sign():
            negative ^= self.take().text == "-"
        return negative

    def take(self) -> Token:
        if self.at_end():
            raise Unreadable("ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unreadable(f"expected {text}")

    def group_text(self) -> str:
        """A braced group, or one token, as text."""
        texts = [self.take().text]
        depth = int(texts[0] == "{")
        while depth:
            texts.append(self.take().text)
            depth += (texts[-1] == "{") - (texts[-1] == "}")
        return " ".join(texts[1:-1] if texts[0] == "{" else texts)
