r"""Answer text → canonical form: the exact, cheap half of the equality of answers.

`\dfrac{1}{2}`, `0.50` and `1/2` have the key `1/2`; `\{2, 1\}`, `1,2` and `x=1 \text{ or } x=2` have the key `{1, 2}`.
Equal keys are equal answers. A *closed* form is fully understood: another closed form with another key is another
answer. Where a form is open (functions, sums in a denominator, LaTeX we do not read) the judge may still merge it.

Nothing here calls or evaluates what a text names, and every text has a form or is no answer at all.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from scrl.answers import exact, grammar, numeric
from scrl.answers.brackets import Tokens, inside, outside, split
from scrl.answers.exact import Expr, Incomputable, Unreadable
from scrl.answers.names import base_name, is_definition, is_label, is_variable, label_of, names_in, without_units
from scrl.answers.prose import read_time, read_words
from scrl.answers.spelling import clean, squeeze, unwrap_text
from scrl.answers.tokens import MAX_ANSWER_CHARS, Token, tokenize

_INTEGER = re.compile(r"[+-]?\d{1,300}", re.ASCII)
_OPEN_TEXT = re.compile(r"[\d\\]")
_NEVER_JUDGED = re.compile(r"\\[pb]?mod|\\[lcd]?dots|\.\.|\\text|\\not|\\endash|\d\s*[_']")
"""Texts that math-verify would compare by something else than their meaning; so would it equations."""

_VECTORS, _PRODUCTS = (
    re.compile(r"\\(?:vec|nabla|mathbf|boldsymbol|bm)(?![A-Za-z])"),
    re.compile(r"\\(?:times|cdot)(?![A-Za-z])"),
)
"""Products of vectors do not commute, and \\times is not \\cdot: compared as text."""

_SEPARATORS = frozenset({",", ";", "and", "or"})
_EQUALITIES = frozenset({"=", "~="})
_ORDERS = {"<": ("(", ")"), "<=": ("[", "]"), ">": ("(", ")"), ">=": ("[", "]")}
_MATRICES = frozenset({"pmatrix", "bmatrix", "Bmatrix", "matrix", "smallmatrix"})
_REALS = ["\\mathbb", "{", "R", "}"]


@dataclass(frozen=True)
class Form:
    """The canonical form of one answer."""

    key: str
    """Equal keys are equal answers."""
    kind: str
    """expression, rounded, sequence, set, union, matrix, equation, inequality, assignments, ratio, words or text."""
    is_closed: bool
    """Fully understood: a different closed key is a different answer."""
    expr: Expr | None = None
    """The exact value of an expression, or the side of an equation that is zero."""
    parts: tuple[Form, ...] = ()
    """The parts of a sequence, set or matrix, in the order of the key."""

    @cached_property
    def value(self) -> numeric.Number | None:
        """The value to many digits, for telling open expressions apart."""
        if self.expr is None:
            return numeric.integer(int(self.key)) if self.kind == "expression" else None
        return numeric.scale_free_value(self.expr) if self.kind == "equation" else numeric.value_of(self.expr)


def canonical_form(answer: str, significant_digits: int | None = None) -> Form | None:
    """The form of an answer; None when there is nothing in it (an empty box is no answer)."""
    if len(answer) <= MAX_ANSWER_CHARS:
        return _form(answer, significant_digits)
    text = " ".join(answer.split())
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return Form(f"text {digest} {text[:40]}", "text", True) if text else None


@lru_cache(maxsize=1 << 16)
def _form(answer: str, significant_digits: int | None) -> Form | None:
    if significant_digits is None and _INTEGER.fullmatch(answer):
        return Form(str(int(answer)), "expression", True)
    cleaned = clean(answer)
    if not re.search(r"[^\s{}.,;:]", unwrap_text(cleaned)):
        return None
    time, words = read_time(cleaned), read_words(cleaned)
    if time is not None:
        return Form(f"time {time}", "words", True)
    if words is not None:
        return _set_form([Form(f'"{part}"', "words", True) for part in words])
    text = squeeze(unwrap_text(cleaned))
    if _VECTORS.search(answer) and _PRODUCTS.search(answer):
        return Form(f"text {text}", "text", True)
    try:
        return _Canonical(significant_digits).form(tokenize(cleaned))
    except Incomputable:
        return Form(f"text {text}", "text", True)
    except (Unreadable, RecursionError, ValueError):
        return Form(f"text {text}", "text", not _can_be_judged(cleaned))


def may_be_equal(a: Form, b: Form) -> bool:
    """Whether two forms with different keys are still open to the judge."""
    texts = [form for form in (a, b) if form.kind == "text"]
    if (a.is_closed and b.is_closed) or "words" in (a.kind, b.kind) or any(form.is_closed for form in texts):
        return False
    if texts:
        return True
    if a.kind != b.kind or len(a.parts) != len(b.parts):
        return False
    if a.kind in ("sequence", "matrix", "ratio"):
        return all(p.key == q.key or may_be_equal(p, q) for p, q in zip(a.parts, b.parts, strict=True))
    return not numeric.surely_differ(a.value, b.value)


def _can_be_judged(cleaned: str) -> bool:
    """It looks like a formula that we do not read, with balanced braces and no equals sign outside them."""
    depth = 0
    for mark in re.findall(r"(?<!\\)[{}=]", cleaned):
        if mark == "=" and depth == 0:
            return False
        depth += (mark == "{") - (mark == "}")
        if depth < 0:
            return False
    return depth == 0 and bool(_OPEN_TEXT.search(cleaned)) and not _NEVER_JUDGED.search(cleaned)


@dataclass(frozen=True)
class _Canonical:
    """Token lists → forms, under one numeric tolerance."""

    significant_digits: int | None

    def form(self, tokens: Tokens) -> Form:
        """A list of answers, or one."""
        groups, _ = split(tokens, {"or", ";"})
        if sum(len(split(group, {","})[0]) > 1 and bool(split(group, {","})[0][-1]) for group in groups) > 1:
            return _set_form([self.form(group) for group in groups])  # x=1, y=2 or x=2, y=1
        parts, separators = split(tokens, _SEPARATORS)
        parts = [part for part in parts if part]
        if not parts:
            raise Unreadable("nothing but separators")
        if len(parts) == 1:
            return _set_form(self.variants(parts[0]))
        labels = [label_of(part) for part in parts]
        if all(labels) and len({base_name(label) for label in labels}) > 1:
            if "or" in separators:
                raise Incomputable("alternatives of different things")
            return self.assignments(labels, parts)
        forms = [form for part in parts for form in self.variants(part)]
        if set(separators) == {"or"}:
            forms = list({form.key: form for form in forms}.values())
            if len(forms) == len(parts) and all(map(_is_interval, parts, forms)):
                return _union_form(forms)
        return _set_form(forms)

    def assignments(self, labels: list[str], parts: list[Tokens]) -> Form:
        """`x = 1, y = 2` and `5 boys, 3 girls`: several labels, each with its value."""
        forms = [_set_form(self.variants(part)) for part in parts]
        pairs = sorted(f"{label} = {form.key}" for label, form in zip(labels, forms, strict=True))
        return Form(", ".join(pairs), "assignments", all(form.is_closed for form in forms))

    def variants(self, tokens: Tokens) -> list[Form]:
        """The readings of ±: `3 \\pm x` is 3 + x and 3 - x."""
        places = [index for index, token in enumerate(tokens) if token.text in (r"\pm", r"\mp")]
        if not places or inside(tokens, {r"\{"}, {r"\}"}) is not None:
            return [self.single(tokens)]
        if len(places) > 3:
            raise Unreadable("too many ±")
        choices: Iterable[tuple[bool, ...]] = itertools.product((True, False), repeat=len(places))
        if any(tokens[index].text == r"\mp" for index in places):
            choices = [(first,) * len(places) for first in (True, False)]
        forms = {}
        for choice in choices:
            signs = dict(zip(places, choice, strict=True))
            signed = [_signed(token, signs[i]) if i in signs else token for i, token in enumerate(tokens)]
            form = self.single(signed)
            forms[form.key] = form
        return list(forms.values())

    def single(self, tokens: Tokens) -> Form:
        """One answer without list or ±."""
        braced = inside(tokens, {"{"}, {"}"})
        if braced is not None:
            return self.form(braced)
        marks = {token.text for token in outside(tokens)}
        if r"\not" in marks:
            raise Unreadable("a negated relation")
        if r"\in" in marks:
            return self.single(split(tokens, {r"\in"})[0][-1])
        if marks & _EQUALITIES:
            return self.equation(tokens)
        if marks & _ORDERS.keys() or "!=" in marks:
            return self.inequality(tokens)
        if r"\cup" in marks:
            return _union_form([self.single(part) for part in split(tokens, {r"\cup"})[0]])
        if ":" in marks and all(token.kind == "word" for token in split(tokens, {":"})[0][0]):
            return self.single(split(tokens, {":"})[0][-1])  # Answer: 5
        if ":" in marks:
            parts = [self.expression(part) for part in split(tokens, {":"})[0]]
            return _compound(":".join(part.key for part in parts), "ratio", parts)
        return self.structure(tokens)

    def structure(self, tokens: Tokens) -> Form:
        """Sets, tuples, intervals, matrices, and last a plain expression."""
        texts = [token.text for token in tokens]
        if texts == [r"\emptyset"]:
            return Form("{}", "set", True)
        if texts == _REALS:
            return Form("(-1*oo, oo)", "sequence", True)
        if tokens and texts[0].startswith(r"\begin{"):
            return self.matrix(tokens)
        inner = inside(tokens, {"(", "[", r"\{"}, {")", "]", r"\}"})
        if inner is not None:
            if texts[0] == r"\{":
                return self.braced_set(inner)
            parts, marks = split(inner, {",", ";"})
            if len(set(marks)) > 1:
                raise Incomputable("rows in brackets")
            if len(parts) > 1:
                forms = [self.single(part) for part in parts]
                return _compound(f"{texts[0]}{', '.join(form.key for form in forms)}{texts[-1]}", "sequence", forms)
            if (texts[0], texts[-1]) in (("(", ")"), ("[", "]")):
                return self.single(inner)
        return self.expression(tokens)

    def braced_set(self, inner: Tokens) -> Form:
        """`\\{1, 2, 2\\}`: order and repetition do not matter."""
        if any(token.text in ("|", ":") for token in inner):
            raise Unreadable("set builder")
        parts = [part for part in split(inner, {",", ";"})[0] if part]
        forms = {form.key: form for part in parts for form in self.variants(part)}
        return _set_form(list(forms.values()))

    def matrix(self, tokens: Tokens) -> Form:
        """`\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}`, entry by entry."""
        name = tokens[0].text[len(r"\begin{") : -1]
        if name not in _MATRICES or tokens[-1].text != rf"\end{{{name}}}":
            raise Unreadable("not a matrix")
        rows = [row for row in split(tokens[1:-1], {"\\\\"})[0] if row]
        cells = [[self.expression(cell) for cell in split(row, {"&"})[0]] for row in rows]
        key = "; ".join(", ".join(cell.key for cell in row) for row in cells)
        return _compound(f"matrix {key}", "matrix", [cell for row in cells for cell in row])

    def equation(self, tokens: Tokens) -> Form:
        """A label is dropped (`x = 5` is 5); equal sides are one value; other equations are normalised to a factor."""
        sides, marks = split(tokens, _EQUALITIES)
        values = [side for side in sides if side and not is_label(side)]
        if "~=" in marks and values:
            return self.single(next((value for value in values if not names_in(value)), values[0]))
        if len(sides) == 2 and not is_definition(*sides):
            return self.difference(*sides)
        forms = [self.single(side) for side in values or sides[-1:]]
        if len({form.key for form in forms}) != 1:
            raise Incomputable("unequal sides")
        return forms[0]

    def difference(self, left: Tokens, right: Tokens) -> Form:
        """left = right, as 0 = left - right with leading coefficient 1; `2 + 3 = 5` is 5."""
        value = grammar.evaluate(right)
        zero = exact.add(grammar.evaluate(left), exact.negate(value))
        if zero.rational == 0 and not value.symbols:
            return self.expression(right)
        if zero.rational is not None:
            raise Incomputable("not an equation in anything")
        monic = exact.monic(zero)
        return Form(f"0 = {monic.text}", "equation", monic.is_closed, monic)

    def inequality(self, tokens: Tokens) -> Form:
        """`1 < x \\le 2` → the interval (1, 2]; `x \\ne 2` keeps its sign."""
        sides, marks = split(tokens, {*_ORDERS, "!="})
        forms = [None if is_variable(side) else self.expression(side) for side in sides]
        names = {side[0].text for side, form in zip(sides, forms, strict=True) if form is None}
        if any(form is not None and names & names_in(side) for side, form in zip(sides, forms, strict=True)):
            raise Unreadable("the variable on both sides")
        if marks == ["!="] and forms[0] is None and forms[1] is not None:
            return _compound(f"!= {forms[1].key}", "inequality", [forms[1]])
        if all(mark.startswith(">") for mark in marks):
            forms, marks = forms[::-1], [mark.replace(">", "<") for mark in marks[::-1]]
        if any(not mark.startswith("<") for mark in marks):
            raise Unreadable("mixed inequality")
        return _interval_form(forms, marks)

    def expression(self, tokens: Tokens) -> Form:
        """The exact value, without its unit."""
        tokens, scale = without_units(tokens)
        if len(tokens) > 1 and any(token.kind == "word" for token in tokens):
            raise Incomputable("words in a formula")
        expr = exact.multiply(grammar.evaluate(tokens), exact.number(scale))
        if any(token.text == r"\infty" for token in tokens) and expr.text not in ("oo", "-1*oo"):
            raise Incomputable("arithmetic with infinity")
        if self.significant_digits is not None:
            rounded = numeric.significant_text(expr, self.significant_digits)
            if rounded is not None:
                return Form(rounded, "rounded", True)
        return Form(expr.text, "expression", expr.is_closed, expr)


def _compound(key: str, kind: str, parts: Sequence[Form]) -> Form:
    return Form(key, kind, all(part.is_closed for part in parts), parts=tuple(parts))


def _set_form(forms: Sequence[Form]) -> Form:
    """Several answers in no order; one alone is itself."""
    if len(forms) == 1:
        return forms[0]
    kind = "words" if forms and all(form.kind == "words" for form in forms) else "set"
    ordered = sorted(forms, key=lambda form: form.key)
    return _compound(f"{{{', '.join(form.key for form in ordered)}}}", kind, ordered)


def _union_form(forms: Sequence[Form]) -> Form:
    keys = sorted({form.key for form in forms})
    return _compound(" U ".join(keys), "sequence" if len(keys) == 1 else "union", forms)


def _interval_form(forms: Sequence[Form | None], marks: Sequence[str]) -> Form:
    """a < x, x < b or a < x < b, with the sides in rising order."""
    infinity = exact.symbol("oo")
    low, high = (Form(end.text, "expression", True, end) for end in (exact.negate(infinity), infinity))
    match list(forms):
        case [Form() as a, None]:
            ends, brackets = [a, high], _ORDERS[marks[0]][0] + ")"
        case [None, Form() as b]:
            ends, brackets = [low, b], "(" + _ORDERS[marks[0]][1]
        case [Form() as a, None, Form() as b]:
            ends, brackets = [a, b], _ORDERS[marks[0]][0] + _ORDERS[marks[1]][1]
        case _:
            raise Unreadable("not an interval")
    return _compound(f"{brackets[0]}{ends[0].key}, {ends[1].key}{brackets[1]}", "sequence", ends)


def _is_interval(part: Tokens, form: Form) -> bool:
    has_order = any(token.text in _ORDERS for token in part)
    return form.kind == "sequence" and (has_order or any(token.text == r"\infty" for token in part))


def _signed(token: Token, plus: bool) -> Token:
    return Token("mark", "+" if (token.text == r"\pm") == plus else "-")
