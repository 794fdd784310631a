"""The form of an answer, and the values at the bottom of every structure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from scrl.answers import grammar
from scrl.answers.balls import Unsettled
from scrl.answers.exact import Expr, Incomputable
from scrl.answers.fingerprint import expression_key, significant_text
from scrl.answers.names import without_units
from scrl.answers.powers import cancel
from scrl.answers.spelling import squeeze
from scrl.answers.tokens import Tokens

_ORDERED = re.compile(
    r"(?:\( \d+ \)(?: |$)){2,}|(?=(?:[a-z](?: \^ (?:\d|\{ (?:- )?\d+ \}))?(?: |$))+$).*?([a-z])[^a-z]+(?!\1)[a-z].*\1.*"
)
"""(1)(3), the first and the third; (12)(13); aba^{-1}, where a letter returns after another: no products of numbers."""


@dataclass(frozen=True, slots=True)
class Form:
    """The canonical form of one answer."""

    key: str
    """Equal keys are equal answers."""
    kind: str
    """expression, rounded, sequence, set, real set, matrix, equation, inequality, labels, ratio, conditional, cases,
    words or text."""
    parts: tuple[Form, ...] = ()
    """The parts of a structure, in the order of the key."""

    @property
    def decided_by(self) -> str:
        """What made the key: `text`, `words`, `fingerprint` (values at points) or `exact` arithmetic."""
        if self.kind in ("text", "words"):
            return self.kind
        return "fingerprint" if "≈" in self.key else "exact"


@dataclass(frozen=True)
class Values:
    """Tokens of one expression → its form, under one numeric tolerance."""

    significant_digits: int | None = None

    def value(self, tokens: Tokens, *, allow_infinity: bool = False) -> Expr:
        """The exact value, without its unit."""
        tokens, scale = without_units(tokens)
        if len(tokens) > 1 and any(token.kind == "word" for token in tokens):
            raise Incomputable("words in a formula")
        if len(tokens) > 4 and any(token.text == r"\mathbb" for token in tokens):
            raise Incomputable("arithmetic with sets")
        if _ORDERED.fullmatch(" ".join(token.text for token in tokens)):
            raise Unsettled
        expr = grammar.evaluate(tokens)
        if not expr.is_closed:
            expr = cancel(expr)
        if scale != 1:
            expr *= scale
        has_infinity = any(token.text == r"\infty" for token in tokens)
        if has_infinity and not (allow_infinity and expr.text in ("oo", "-1*oo")):
            raise Incomputable("arithmetic with infinity")
        return expr

    def expression(self, tokens: Tokens) -> Form:
        """A value's form; one that cannot be settled is its text."""
        try:
            return self.formed(self.value(tokens, allow_infinity=True))
        except Unsettled:
            return Form(f"text {squeeze(' '.join(token.text for token in tokens))}", "text")

    def formed(self, expr: Expr) -> Form:
        if self.significant_digits is not None:
            rounded = significant_text(expr, self.significant_digits)
            if rounded is not None:
                return Form(rounded, "rounded")
        return Form(expression_key(expr), "expression")


def set_form(forms: Sequence[Form], kind: str = "set") -> Form:
    """Several answers in no order; a single one is itself."""
    if len(forms) == 1:
        return forms[0]
    if forms and all(form.kind == "words" for form in forms):
        kind = "words"
    ordered = sorted(forms, key=lambda form: form.key)
    return Form(f"{{{', '.join(form.key for form in ordered)}}}", kind, tuple(ordered))


def labelled(pairs: Sequence[tuple[str, Form]]) -> Form:
    """Values that keep their labels: `boys = 5, girls = 3`."""
    ordered = sorted(pairs, key=lambda pair: (pair[0], pair[1].key))
    key = ", ".join(f"{label} = {form.key}" if label else form.key for label, form in ordered)
    return Form(key, "labels", tuple(form for _, form in ordered))
