r"""What a value is called: the label before it (`x = 5`, `\text{Area} = 12`) and the unit behind it (`12 cm^2`)."""

from __future__ import annotations

import re

from scrl.answers.brackets import Tokens, depths, outside, split
from scrl.answers.tokens import Token
from scrl.answers.units import UNIT_LETTERS, scale_of

_RELATIONS = frozenset({"=", "~=", "<", "<=", ">", ">=", "!=", r"\in"})
_UNIT_TAIL = re.compile(r"(?:(?<=n)l/l(?:\^n|\^\{n\})?|(?:[wu](?:\^(?:n|\{-?n\}|-n))?(?:/l)?[/*]?)+)$")
_NAME = r"[A-Za-z]\w*(?:_\{[^}]*\})?'*"
_LABEL = re.compile(
    rf"{_NAME}(?:\([^=+*/-]*\)|\[[^=]*\])?|\{{\w+\}}"  # x, x_1, x(t), E[X], area, {{v}}
    rf"|[fghFGHPEp]'*(?:\^\{{-1\}})?\([^=]*\)"  # f(x+1), f^{{-1}}(x), P(A)
    rf"|[A-Z]{{2,4}}|[a-z]{{4,}}"  # AB, ABCD, words
    rf"|m?\\(?:angle|triangle|overline|vec|hat|bar|odot)\{{?[A-Za-z]+\}}?|\[[A-Z]{{3,4}}\]|\|[A-Z]{{2}}\|"
    rf"|\\frac\{{d\w*\}}\{{d\w+\}}|\\(?:sin|cos|tan)\(?\{{?[A-Za-z]+\}}?\)?"
    rf"|\({_NAME}(?:,{_NAME})+\)|{_NAME}(?::{_NAME})+"  # (x,y), a:b
)
_COMPASS = frozenset("NSEW")
_ROOTS = frozenset("xztr")
"""Letters whose subscripts number solutions: x_1 = 3, x_2 = 4 is the set {3, 4}."""


def without_units(tokens: Tokens) -> tuple[Tokens, int]:
    """`12 cm^2` → 12 and 1; `5 million dollars` → 5 and 10^6. Words that carry meaning stay."""
    shape = "".join(_shape(token) for token in tokens)
    tail = _UNIT_TAIL.search(shape)
    if tail is None or shape[tail.start() - 1 : tail.start()] in ("", *"+-*/^o"):
        return tokens, 1
    value, unit = tokens[: tail.start()], tokens[tail.start() :]
    if set("wu") & set(shape[: tail.start()]) or not any(
        token.kind == "number" or token.text == r"\pi" for token in value
    ):
        return tokens, 1
    if unit[-1].text in _COMPASS and (len(unit) > 1 or value[-1].text == "°"):
        return tokens, 1
    words = [token.text for token in unit if token.kind == "word"]
    scale = scale_of(words) if words else 1
    return (tokens, 1) if scale is None else (tokens[: tail.start()], scale)


def _shape(token: Token) -> str:
    """One letter a token, for `_UNIT_TAIL`."""
    if token.kind == "mark":
        return token.text if len(token.text) == 1 else "o"
    if token.kind in ("letter", "unit") and token.text in UNIT_LETTERS:
        return "u" if token.kind == "unit" else "l"
    return {"number": "n", "word": "w"}.get(token.kind, "x")


def is_label(tokens: Tokens) -> bool:
    """A name such as x, f(x), x_1, \\angle ABC, (x, y) or Area."""
    if any(token.kind == "number" and depth == 0 for token, depth in zip(tokens, depths(tokens), strict=True)):
        return False
    if tokens and all(token.kind == "word" for token in tokens):
        return True
    text = "".join(token.text for token in tokens)
    return bool(_LABEL.fullmatch(text)) and not (len(tokens) > 1 and text.isalpha() and text.islower())


def is_variable(tokens: Tokens) -> bool:
    """One symbol or word, as in x < 3."""
    return len(tokens) == 1 and tokens[0].kind in ("letter", "word") and not tokens[0].text[0].isdecimal()


def is_definition(left: Tokens, right: Tokens) -> bool:
    """`x = 5`, `y = 2x + 3`, `5 = x`, `= 5`: a name and its value, not an equation between two expressions."""
    if not left or not right:
        return True
    if is_label(right):
        if is_label(left):
            return len(right) > 1 and not names_in(left) & names_in(right)
        return not names_in(left)
    return is_label(left) and not names_in(outside(left)) & names_in(right)


def names_in(tokens: Tokens) -> set[str]:
    """The symbols and words in a part."""
    return {token.text for token in tokens if token.kind in ("letter", "word")}


def label_of(tokens: Tokens) -> str:
    """What a part of a list is about: `x` of x = 5 and x > 5, `boys` of 5 boys; empty if nothing."""
    sides, marks = split(tokens, _RELATIONS)
    if len(marks) == 1 and is_label(sides[0]) and sides[1]:
        return "".join(token.text for token in sides[0])
    if not marks:
        value, _ = without_units(tokens)
        return " ".join(token.text for token in tokens[len(value) :] if token.kind in ("word", "unit"))
    return ""


def base_name(label: str) -> str:
    """x_1 and x_2 number the solutions of x; a_1 and a_2 are different things."""
    base = label.partition("_")[0]
    return base if base in _ROOTS else label
