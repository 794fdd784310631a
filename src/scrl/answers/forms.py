r"""Answer text → canonical form: the exact, cheap half of the equality of answers.

`\dfrac{1}{2}`, `0.50` and `1/2` have the key `1/2`; `\{2, 1\}`, `1,2` and `x=1 \text{ or } x=2` have the key `{1, 2}`.
Equal keys are equal answers. A *closed* form is fully understood: another closed form with another key is another
answer. Where a form is open (functions, sums in a denominator, LaTeX we do not read) the judge may still merge it.

Nothing here calls or evaluates what a text names, and every text has a form or is no answer at all.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from scrl.answers import exact, grammar, numeric
from scrl.answers.exact import Expr, Incomputable, Unreadable
from scrl.answers.tokens import FUNCTIONS, MAX_ANSWER_CHARS, Token, clean, is_wordy, tokenize, unwrap_text

Tokens = Sequence[Token]

_INTEGER = re.compile(r"[+-]?\d{1,300}")
_TIME = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?\s*(?:([ap])\.?m\.?)?", re.IGNORECASE)
_PROSE = re.compile(r"[^\W\d_]|[\s.,;'\"()&!?-]")
_LETTERS = re.compile(r"[^\W\d_]+")

_OPENING = frozenset({"(", "[", "{", r"\{"})
_CLOSING = frozenset({")", "]", "}", r"\}"})
_SEPARATORS = frozenset({",", ";", "and", "or"})
_EQUALITIES = frozenset({"=", "~="})
_ORDERS = {"<": ("(", ")"), "<=": ("[", "]"), ">": ("(", ")"), ">=": ("[", "]")}
_LABEL_MARKS = frozenset({"(", ")", "{", "}", ",", "'", "|"})
_LABEL_COMMANDS = frozenset([r"\angle", r"\triangle", r"\overline", r"\vec", r"\hat", r"\bar", r"\odot"])
_MATRICES = frozenset({"pmatrix", "bmatrix", "Bmatrix", "matrix", "smallmatrix"})

_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_MEANINGFUL = frozenset(
    (
        "am pm bc ad bce ce north south east west left right up down above below before after more less fewer "
        "least most mod modulo base remainder squared cubed factorial times over plus minus divided "
        "percentage if when where for otherwise not no only dozen half quarter"
    ).split()
)
"""Words after a number that are part of the answer; all others are units and dropped."""
_UNIT_TAIL = re.compile(r"(?:[wu](?:\^(?:n|\{-?n\}|-n))?[/*]?)+$")


@dataclass(frozen=True)
class Form:
    """The canonical form of one answer."""

    key: str
    """Equal keys are equal answers."""
    kind: str
    """expression, sequence, set, interval union, matrix, equation, assignments, ratio, words or text."""
    is_closed: bool
    """Fully understood: a different closed key is a different answer."""
    expr: Expr | None = None
    """The exact value of an expression, or the side of an equation that is zero."""
    arity: int = 1
    """Number of parts of a sequence or matrix."""

    @cached_property
    def value(self) -> numeric.Number | None:
        """The value to many digits, for telling open expressions apart."""
        if self.expr is None:
            return None
        return numeric.scale_free_value(self.expr) if self.kind == "equation" else numeric.value_of(self.expr)


@lru_cache(maxsize=1 << 16)
def canonical_form(answer: str, significant_digits: int | None = None) -> Form | None:
    """The form of an answer; None when there is nothing in it (an empty box is no answer)."""
    if significant_digits is None and _INTEGER.fullmatch(answer):
        return Form(str(int(answer)), "expression", True)
    if len(answer) > MAX_ANSWER_CHARS:
        return Form(f"text {' '.join(answer.split())}", "text", True)
    cleaned = clean(answer)
    if not re.search(r"[^\s{}.,;:]", unwrap_text(cleaned)):
        return None
    prose = _words(cleaned)
    if prose is not None:
        return prose
    try:
        return _Canonical(significant_digits).form(tokenize(cleaned))
    except Incomputable:
        return _opaque(cleaned, is_closed=True)
    except (Unreadable, RecursionError):
        return _opaque(cleaned, is_closed=not (re.search(r"[\d\\]", cleaned) and _is_balanced(cleaned)))


def may_be_equal(a: Form, b: Form) -> bool:
    """Whether two forms with different keys are still open to the judge."""
    if (a.is_closed and b.is_closed) or "words" in (a.kind, b.kind):
        return False
    if "text" in (a.kind, b.kind):
        return True
    if a.kind != b.kind or a.arity != b.arity:
        return False
    return not numeric.surely_differ(_value(a), _value(b))


def _value(form: Form) -> numeric.Number | None:
    if form.expr is None and form.kind == "expression":
        return numeric.integer(int(form.key))
    return form.value


def _opaque(cleaned: str, *, is_closed: bool) -> Form:
    """Text compared letter by letter; open to the judge if it looks like mathematics we do not read."""
    return Form("text " + "".join(cleaned.split()), "text", is_closed)


def _is_balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _words(cleaned: str) -> Form | None:
    """Plain words and clock times: case, spacing and order of a list do not matter."""
    text = " ".join(unwrap_text(cleaned).split())
    time = _TIME.fullmatch(text)
    if time:
        hour, minute, second, half = time.groups()
        return Form(f"time {int(hour)}:{minute}:{second or '00'} {half or ''}".strip().lower(), "words", True)
    if not all(_PROSE.match(letter) for letter in text):
        return None
    runs = [run for run in _LETTERS.findall(text) if run.lower() not in ("and", "or")]
    if not any(is_wordy(run) or not run.isascii() for run in runs) or FUNCTIONS.intersection(runs):
        return None
    if runs in (["pi"], ["oo"], ["inf"], ["infinity"], ["infty"]):
        return None
    parts = (
        re.sub(r"[\s.,;'\"()&!?-]+", " ", part).strip() for part in re.split(r",|;|\band\b|\bor\b", text.casefold())
    )
    return _set_form([Form(f'"{part}"', "words", True) for part in parts if part])


@dataclass(frozen=True)
class _Canonical:
    """Token lists → forms, under one numeric tolerance."""

    significant_digits: int | None

    def form(self, tokens: Tokens) -> Form:
        """A list of answers, or one."""
        parts, separators = _split(tokens, _SEPARATORS)
        parts = [part for part in parts if part]
        if not parts:
            raise Unreadable("nothing but separators")
        if len(parts) == 1:
            return _set_form(self.variants(parts[0]))
        labelled = [self.labelled(part) for part in parts]
        labels = [label for label, _ in labelled]
        if all(labels) and len({_base_name(label) for label in labels}) > 1:
            pairs = sorted(f"{label} = {form.key}" for label, form in labelled)
            return Form(", ".join(pairs), "assignments", all(form.is_closed for _, form in labelled))
        forms = [form for part in parts for form in self.variants(part)]
        if set(separators) == {"or"} and all(form.kind == "sequence" for form in forms):
            return _union_form(forms)
        return _set_form(forms)

    def labelled(self, tokens: Tokens) -> tuple[str, Form]:
        """`x = 5` → ("x", 5); no label → ("", form)."""
        sides, marks = _split(tokens, _EQUALITIES)
        if len(marks) == 1 and _is_label(sides[0]) and sides[1]:
            return "".join(token.text for token in sides[0]), _set_form(self.variants(sides[1]))
        return "", _set_form(self.variants(tokens))

    def variants(self, tokens: Tokens) -> list[Form]:
        """The readings of ±: `3 \\pm x` is 3 + x and 3 - x."""
        places = [index for index, token in enumerate(tokens) if token.text in (r"\pm", r"\mp")]
        if not places:
            return [self.single(tokens)]
        if len(places) > 3:
            raise Unreadable("too many ±")
        tied = any(tokens[index].text == r"\mp" for index in places)
        choices: Iterable[tuple[bool, ...]] = itertools.product((True, False), repeat=len(places))
        if tied:
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
        inner = _enclosed(tokens, "{", "}")
        if inner is not None:
            return self.form(inner)
        marks = {token.text for token in _outside_brackets(tokens)}
        if r"\in" in marks:
            return self.single(_split(tokens, {r"\in"})[0][-1])
        if marks & _EQUALITIES:
            return self.equation(tokens)
        if marks & _ORDERS.keys() or "!=" in marks:
            return self.inequality(tokens)
        if r"\cup" in marks:
            return _union_form([self.single(part) for part in _split(tokens, {r"\cup"})[0]])
        if ":" in marks:
            parts = [self.expression(part) for part in _split(tokens, {":"})[0]]
            return _compound(":".join(part.key for part in parts), "ratio", parts)
        return self.structure(tokens)

    def structure(self, tokens: Tokens) -> Form:
        """Sets, tuples, intervals, matrices, and last a plain expression."""
        if [token.text for token in tokens] == [r"\emptyset"]:
            return Form("{}", "set", True)
        if tokens and tokens[0].text.startswith(r"\begin{"):
            return self.matrix(tokens)
        if _is_enclosed(tokens):
            opening, closing, inner = tokens[0].text, tokens[-1].text, tokens[1:-1]
            if opening == r"\{":
                return self.braced_set(inner)
            parts, _ = _split(inner, {",", ";"})
            if len(parts) > 1:
                forms = [self.single(part) for part in parts]
                return _compound(f"{opening}{', '.join(form.key for form in forms)}{closing}", "sequence", forms)
            if (opening, closing) in (("(", ")"), ("[", "]")):
                return self.single(inner)
        return self.expression(tokens)

    def braced_set(self, inner: Tokens) -> Form:
        """`\\{1, 2, 2\\}`: order and repetition do not matter."""
        if any(token.text in ("|", ":", r"\mid") for token in inner):
            raise Unreadable("set builder")
        parts = [part for part in _split(inner, {",", ";"})[0] if part]
        forms = {form.key: form for part in parts for form in self.variants(part)}
        return _set_form(list(forms.values()))

    def matrix(self, tokens: Tokens) -> Form:
        """`\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}`, entry by entry."""
        name = tokens[0].text[len(r"\begin{") : -1]
        if name not in _MATRICES or tokens[-1].text != rf"\end{{{name}}}":
            raise Unreadable("not a matrix")
        rows = [row for row in _split(tokens[1:-1], {"\\\\"})[0] if row]
        cells = [[self.expression(cell) for cell in _split(row, {"&"})[0]] for row in rows]
        key = "; ".join(", ".join(cell.key for cell in row) for row in cells)
        return _compound(f"matrix {key}", "matrix", [cell for row in cells for cell in row])

    def equation(self, tokens: Tokens) -> Form:
        """A label is dropped (`x = 5` is 5); other equations are normalised up to a factor."""
        sides, marks = _split(tokens, _EQUALITIES)
        values = [side for side in sides if side and not _is_label(side)]
        if "~=" in marks and values:
            return self.single(values[0])
        if len(sides) == 2 and not _is_definition(*sides):
            return self.difference(*sides)
        forms = [self.single(side) for side in values]
        if len({form.key for form in forms}) != 1:
            raise Unreadable("unequal sides")
        return forms[0]

    def difference(self, left: Tokens, right: Tokens) -> Form:
        """Left = right, as 0 = left - right with leading coefficient 1."""
        zero = exact.add(grammar.evaluate(left), exact.negate(grammar.evaluate(right)))
        if zero.rational is not None:
            raise Unreadable("not an equation in anything")
        monic = exact.monic(zero)
        return Form(f"0 = {monic.text}", "equation", monic.is_closed, monic)

    def inequality(self, tokens: Tokens) -> Form:
        """`1 < x \\le 2` → the interval (1, 2]; `x \\ne 2` keeps its sign."""
        sides, marks = _split(tokens, {*_ORDERS, "!="})
        forms = [None if _is_label(side) else self.expression(side) for side in sides]
        if marks == ["!="] and forms[0] is None and forms[1] is not None:
            return _compound(f"!= {forms[1].key}", "inequality", [forms[1]])
        if all(mark.startswith(">") for mark in marks):
            sides, forms = sides[::-1], forms[::-1]
            marks = [mark.replace(">", "<") for mark in marks[::-1]]
        if any(not mark.startswith("<") for mark in marks):
            raise Unreadable("mixed inequality")
        return _interval_form(forms, marks)

    def expression(self, tokens: Tokens) -> Form:
        """The exact value, without its unit."""
        tokens, scale = _without_units(tokens)
        expr = exact.multiply(grammar.evaluate(tokens), exact.number(scale))
        if self.significant_digits is not None:
            rounded = numeric.significant_text(expr, self.significant_digits)
            if rounded is not None:
                return Form(rounded, "rounded", True)
        return Form(expr.text, "expression", expr.is_closed, expr)


def _compound(key: str, kind: str, parts: Sequence[Form]) -> Form:
    return Form(key, kind, all(part.is_closed for part in parts), arity=len(parts))


def _set_form(forms: Sequence[Form]) -> Form:
    """Several answers in no order; one alone is itself."""
    if len(forms) == 1:
        return forms[0]
    kind = "words" if forms and all(form.kind == "words" for form in forms) else "set"
    return _compound(f"{{{', '.join(sorted(form.key for form in forms))}}}", kind, forms)


def _union_form(forms: Sequence[Form]) -> Form:
    keys = sorted({form.key for form in forms})
    return _compound(" U ".join(keys), "sequence" if len(keys) == 1 else "union", forms)


def _interval_form(forms: Sequence[Form | None], marks: Sequence[str]) -> Form:
    """A < x, x < b or a < x < b, with the sides in rising order."""
    low, high = Form("-1*oo", "expression", True), Form("oo", "expression", True)
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


def _signed(token: Token, plus: bool) -> Token:
    return Token("mark", "+" if (token.text == r"\pm") == plus else "-")


def _depths(tokens: Tokens) -> list[int]:
    """For each token, how many brackets are open around it; a bracket counts as inside itself."""
    depths, depth = [], 0
    for token in tokens:
        opens = token.text in _OPENING or token.text.startswith(r"\begin{")
        closes = token.text in _CLOSING or token.text.startswith(r"\end{")
        depth += opens
        depths.append(depth)
        depth -= closes
    return depths


def _outside_brackets(tokens: Tokens) -> list[Token]:
    return [token for token, depth in zip(tokens, _depths(tokens), strict=True) if depth == 0]


def _split(tokens: Tokens, marks: Collection[str]) -> tuple[list[Tokens], list[str]]:
    """Cut at these marks where they stand outside all brackets; returns the parts and the marks found."""
    parts: list[Tokens] = []
    found: list[str] = []
    start = 0
    for index, (token, depth) in enumerate(zip(tokens, _depths(tokens), strict=True)):
        if depth == 0 and token.kind in ("mark", "command") and token.text in marks:
            parts.append(tokens[start:index])
            found.append(token.text)
            start = index + 1
    return [*parts, tokens[start:]], found


def _is_enclosed(tokens: Tokens) -> bool:
    """The first bracket closes with the last token."""
    if len(tokens) < 2 or tokens[0].text not in ("(", "[", r"\{") or tokens[-1].text not in (")", "]", r"\}"):
        return False
    if (tokens[0].text == r"\{") != (tokens[-1].text == r"\}"):
        return False
    return all(depth >= 1 for depth in _depths(tokens)) and 0 not in _closing_levels(tokens)


def _closing_levels(tokens: Tokens) -> list[int]:
    """The depth left after each token but the last."""
    levels, depth = [], 0
    for token in tokens[:-1]:
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        levels.append(depth)
    return levels


def _enclosed(tokens: Tokens, opening: str, closing: str) -> Tokens | None:
    """What stands between one pair of brackets around everything, if there is one."""
    if len(tokens) >= 2 and tokens[0].text == opening and tokens[-1].text == closing:
        return tokens[1:-1] if 0 not in _closing_levels(tokens) else None
    return None


def _is_label(tokens: Tokens) -> bool:
    """A name such as x, f(x), x_1, \\angle ABC or Area: letters, and numbers only inside brackets."""
    depths = _depths(tokens)
    names = 0
    for token, depth in zip(tokens, depths, strict=True):
        if token.kind in ("letter", "word", "unit") and not token.text[0].isdigit():
            names += 1
        elif not (token.text in _LABEL_MARKS or token.text in _LABEL_COMMANDS or (token.kind == "number" and depth)):
            return False
    return names > 0


def _is_definition(left: Tokens, right: Tokens) -> bool:
    """`x = 5`, `y = 2x + 3`, `5 = x`, `= 5`: a name and its value, not an equation between two expressions."""
    if not left or not right:
        return True
    if _is_label(right):
        return not _is_label(left) and not _names(left)
    return _is_label(left) and not _names(_outside_brackets(left)) & _names(right)


def _names(tokens: Tokens) -> set[str]:
    return {token.text for token in tokens if token.kind in ("letter", "word")}


def _base_name(label: str) -> str:
    return label.partition("_")[0]


def _without_units(tokens: Tokens) -> tuple[Tokens, int]:
    """`12 cm^2` → 12; `5 million dollars` → 5 and 10^6. Words that carry meaning stay."""
    shape = "".join(_shape(token) for token in tokens)
    tail = _UNIT_TAIL.search(shape)
    if tail is None or tail.start() == 0 or shape[tail.start() - 1] in "+-*/^o" or "w" in shape[: tail.start()]:
        return tokens, 1
    words = [token.text for token in tokens[tail.start() :] if token.kind == "word"]
    if _MEANINGFUL.intersection(words):
        return tokens, 1
    scale = 1
    for word in words:
        scale *= _SCALES.get(word, 1)
    return tokens[: tail.start()], scale


_SHAPES = {"number": "n", "word": "w", "unit": "u"}


def _shape(token: Token) -> str:
    """One letter a token, for `_UNIT_TAIL`."""
    if token.kind == "mark":
        return token.text if len(token.text) == 1 else "o"
    return _SHAPES.get(token.kind, "x")
