"""Token lists cut where no bracket is open."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from scrl.answers.tokens import Token

Tokens = Sequence[Token]
_OPENING = frozenset({"(", "[", "{", r"\{"})
_CLOSING = frozenset({")", "]", "}", r"\}"})


def depths(tokens: Tokens) -> list[int]:
    """For each token, how many brackets are open around it; a bracket counts as inside itself."""
    found, depth = [], 0
    for token in tokens:
        opens = token.text in _OPENING or token.text.startswith(r"\begin{")
        closes = token.text in _CLOSING or token.text.startswith(r"\end{")
        depth += opens
        found.append(depth)
        depth -= closes
    return found


def outside(tokens: Tokens) -> list[Token]:
    """The tokens that stand outside all brackets."""
    return [token for token, depth in zip(tokens, depths(tokens), strict=True) if depth == 0]


def split(tokens: Tokens, marks: Collection[str]) -> tuple[list[Tokens], list[str]]:
    """Cut at these marks where they stand outside all brackets; returns the parts and the marks found."""
    parts: list[Tokens] = []
    found: list[str] = []
    start = 0
    for index, (token, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
        if depth == 0 and token.kind in ("mark", "command") and token.text in marks:
            parts.append(tokens[start:index])
            found.append(token.text)
            start = index + 1
    return [*parts, tokens[start:]], found


def inside(tokens: Tokens, opening: Collection[str], closing: Collection[str]) -> Tokens | None:
    """What stands between one pair of brackets around everything, if there is one."""
    if len(tokens) < 2 or tokens[0].text not in opening or tokens[-1].text not in closing:
        return None
    if (tokens[0].text == r"\{") != (tokens[-1].text == r"\}"):
        return None
    depth = 0
    for token in tokens[:-1]:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth == 0:
            return None
    return tokens[1:-1]


def text_of(tokens: Tokens) -> str:
    """The tokens without spaces."""
    return "".join(token.text for token in tokens)
