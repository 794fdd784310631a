"""The form of an answer: values, equations, ratios, approximations, inequalities and the sets that they describe."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from scrl.answers import exact, grammar
from scrl.answers.exact import Expr, Incomputable, Unreadable, Unsettled
from scrl.answers.fingerprint import equation_key, expression_key, real_value, significant_text
from scrl.answers.names import NEUTRAL, assignments, free_names, in_order, is_function, is_name, is_words, without_units
from scrl.answers.powers import cancel, monic
from scrl.answers.real_sets import EVERYTHING, RealSet, between, intersect, set_key, solution, unite, without
from scrl.answers.spelling import squeeze
from scrl.answers.tokens import Tokens, inside, outside, split, text_of

EQUALITIES = frozenset({"=", "~="})
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
RELATIONS = EQUALITIES | FLIPPED.keys() | {"!=", r"\in"}
REALS = r"\mathbb{R}"
_ORDERED = re.compile(
    r"(?:\( \d+ \)(?: |$)){2,}|(?=(?:[a-z](?: \^ (?:\d|\{ (?:- )?\d+ \}))?(?: |$))+$).*?([a-z])[^a-z]+(?!\1)[a-z].*\1.*"
)
"""(1)(3), the first and the third; (12)(13); aba^{-1}, where a letter returns after another: no products of numbers."""
_CLOSENESS = 0.01
"""`\\frac{22}{7} \\approx 3.14` is 22/7; what differs by more than a hundredth is no approximation."""


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
class Relations(ABC):
    """Tokens of values, and of everything with a relation sign, → forms; the sides of a relation are any structure."""

    significant_digits: int | None = None

    @abstractmethod
    def form(self, tokens: Tokens) -> Form: ...

    @abstractmethod
    def variants(self, tokens: Tokens) -> list[Form]: ...

    @abstractmethod
    def single(self, tokens: Tokens) -> Form: ...

    def value(self, tokens: Tokens, *, allow_infinity: bool = False) -> Expr:
        """The exact value, without its unit."""
        tokens, scale = without_units(tokens)
        Incomputable.when(len(tokens) > 1 and any(token.kind == "word" for token in tokens), "words in a formula")
        Incomputable.when(len(tokens) > 4 and any(token.text == r"\mathbb" for token in tokens), "arithmetic with sets")
        Unsettled.when(_ORDERED.fullmatch(" ".join(token.text for token in tokens)))
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
        digits = self.significant_digits
        rounded = None if digits is None else significant_text(expr, digits)
        return Form(expression_key(expr), "expression") if rounded is None else Form(rounded, "rounded")

    def equation(self, tokens: Tokens) -> Form:
        """A name is dropped before a value (`x = 5` is 5); equal sides are one value; the rest are equations."""
        sides, marks = split(tokens, EQUALITIES)
        sides = [side for side in sides if side]
        if "~=" in marks:
            return self.approximation(tokens)
        if len(sides) == 1:
            return self.single(sides[0])
        pairs = assignments(tokens)
        if len(pairs) > 1:
            return self.mapping(pairs)
        first, *rest = sides
        if is_words(first):
            label = " ".join(token.text for token in first)
            return self.equal(rest) if label in NEUTRAL else labelled([(label, self.equal(rest))])
        if is_function(first, rest) or (is_name(first) and not any(free_names(side) for side in rest)):
            return self.equal(rest)
        if len(rest) == 1 and is_name(rest[0]) and not free_names(first):
            return self.single(first)
        if not any(free_names(side) for side in (rest if _is_asked_sum(first) else sides)):
            return self.equal(rest if _is_asked_sum(first) else sides)
        Incomputable.when(len({self.single(side).key for side in rest}) != 1, "unequal sides")
        names, values = (split(side, {":"})[0] for side in (first, rest[0]))
        if len(names) > 1 and len(names) == len(values) and all(map(is_name, names)):
            parts = dict(zip(map(text_of, names), values, strict=True))
            order = in_order(list(parts))
            form = self.ratio_or_label([parts[name] for name in order])
            return form if order == list(parts) else labelled([(":".join(order), form)])
        return self.difference(first, rest[0])

    def equal(self, sides: Sequence[Tokens]) -> Form:
        """One value, written several times."""
        forms = [set_form(self.variants(side)) for side in sides]
        Incomputable.when(len({form.key for form in forms}) != 1, "unequal sides")
        return forms[0]

    def difference(self, left: Tokens, right: Tokens) -> Form:
        """left = right, as 0 = left - right with leading coefficient 1."""
        zero = cancel(self.value(left) - self.value(right))
        Incomputable.when(zero.rational is not None, "not an equation in anything")
        try:
            return Form(equation_key(monic(zero)), "equation")
        except Unsettled:
            raise Incomputable("an equation without values") from None

    def approximation(self, tokens: Tokens) -> Form:
        """`x = \\frac{22}{7} \\approx 3.14` is 22/7; a value alone after ≈ is the answer."""
        exactly, *nearly = split(tokens, {"~="})[0]
        named = split(exactly, {"="})[0]
        is_named = is_name(named[0]) or is_function(named[0], named[1:]) or not named[0]
        values = named[1:] if is_named else named
        if is_words(exactly) or any(free_names(side) for side in (*values, *nearly)):
            raise Unreadable("an approximation of something else")
        exact_form = self.equal(values) if values else None
        numbers = [real_value(self.value(side)) for side in (*values, *nearly)]
        if any(abs(number - numbers[0]) > _CLOSENESS * abs(numbers[0]) for number in numbers):
            raise Incomputable("no approximation")
        return exact_form or self.single(nearly[0])

    # Inequalities and sets of numbers

    def inequality(self, tokens: Tokens) -> Form:
        """`1 < x \\le 2` → the interval (1, 2]; what is not solved keeps its normal form E < 0."""
        constraints = self.constraints(tokens)
        if not any(difference.symbols for difference, _ in constraints):
            return self.comparison(tokens)
        try:
            if len({name for difference, _ in constraints for name in difference.symbols}) != 1:
                raise Unreadable("several variables")
            found = solution(constraints)
        except Incomputable:
            raise
        except Unreadable:
            scaled = [(e * (1 / abs(exact.leading(e))), mark) for e, mark in constraints]  # which keeps signs
            return Form(", ".join(sorted(f"{expression_key(e)} {mark} 0" for e, mark in scaled)), "inequality")
        Incomputable.when(not found, "no number")
        return real_form(found)

    def comparison(self, tokens: Tokens) -> Form:
        """A statement about numbers, `2 < 3`: the numbers in rising order."""
        sides, marks = split(tokens, {*FLIPPED, "!="})
        keys = [self.single(side).key for side in sides]
        if marks == ["!="]:
            keys.sort()
        if marks[0][0] == ">":
            keys, marks = keys[::-1], [FLIPPED[mark] for mark in marks[::-1]]
        return Form(" ".join(itertools.chain.from_iterable(zip(keys, [*marks, ""], strict=True))).strip(), "inequality")

    def constraints(self, tokens: Tokens) -> list[tuple[Expr, str]]:
        """(E, mark) for every E < 0, E <= 0 or E != 0 of a chain."""
        sides, marks = split(tokens, {*FLIPPED, "!="})
        Unreadable.when(any(not side for side in sides), "a side is missing")
        directions = {mark[0] for mark in marks}
        Unreadable.when(len(directions) > 1, "mixed inequality")
        low, high = ("-\\infty", "\\infty") if directions == {"<"} else ("\\infty", "-\\infty")
        if len(sides) > 2 and text_of(sides[-1]).removeprefix("+") == high:  # 0 < x < oo
            sides, marks = sides[:-1], marks[:-1]
        if len(sides) > 2 and text_of(sides[0]).removeprefix("+") == low:
            sides, marks = sides[1:], marks[1:]
        values = [self.value(side) for side in sides]
        pairs = zip(itertools.pairwise(values), marks, strict=True)
        return [(cancel(b - a), FLIPPED[mark]) if mark[0] == ">" else (cancel(a - b), mark) for (a, b), mark in pairs]

    def inequalities(self, parts: list[Tokens], marks: list[str]) -> Form:
        """For one variable: `x > 1 and x < 5` is (1, 5); commas may also mean "or": x < -1, x > 1."""
        sets = [self.real_set(part) for part in parts]
        both = () if "or" in marks else reduce(intersect, sets)
        Incomputable.when(not both and "and" in marks, "no number")
        return real_form(both or unite(*sets))

    def intersection(self, parts: Sequence[Tokens]) -> Form:
        """`[-1, 1] \\cap [0, 2]` is [0, 1]; for named sets, the names in any order."""
        if all(map(is_name, parts)):
            return Form(" ∩ ".join(sorted(map(text_of, parts))), "set")
        both = reduce(intersect, map(self.real_set, parts))
        return real_form(both) if both else Form("{}", "set")

    def union(self, parts: Sequence[Tokens]) -> Form:
        """`(-\\infty, 0) \\cup (0, \\infty)`; of named sets, the names in any order."""
        if all(map(is_name, parts)):
            return Form(" U ".join(sorted(map(text_of, parts))), "set")
        return real_form(unite(*map(self.real_set, parts)))

    def real_set(self, tokens: Tokens) -> RealSet:
        """The numbers in an interval, in a set of points, in ℝ without some, or in what an inequality allows."""
        kept, removed = split(tokens, {r"\setminus"})
        if removed:
            points = inside(kept[-1], {r"\{"}, {r"\}"})
            if len(kept) != 2 or points is None:
                raise Unreadable("not points")
            return intersect(self.real_set(kept[0]), without([self.value(part) for part in split(points, {","})[0]]))
        if r"\in" in {token.text for token in outside(tokens)}:
            return self.real_set(split(tokens, {r"\in"})[0][-1])
        if text_of(tokens) == REALS:
            return EVERYTHING
        if relations_in(tokens):
            return solution(self.constraints(tokens))
        inner = inside(tokens, {"(", "[", r"\{"}, {")", "]", r"\}"})
        if inner is None:
            raise Unreadable("brackets that do not match")
        ends = split(inner, {","})[0]
        opening, closing = tokens[0].text, tokens[-1].text
        if opening == r"\{":
            values = [self.value(end) for end in ends]
            return unite([between("[", value, value, "]") for value in values])
        Unreadable.when(len(ends) != 2, "not an interval")
        low, high = (self.value(end, allow_infinity=True) for end in ends)
        found = between(opening, low, high, closing)
        if low.text == "oo" or not (low.symbols or high.symbols or found.low < found.high):
            raise Incomputable("ends in the wrong order")
        return (found,)

    def ratio_or_label(self, parts: list[Tokens]) -> Form:
        """`3:4`, `gain: 5`, `Answer: 5`."""
        if is_words(parts[0]):
            form = self.form(parts[-1])
            label = " ".join(token.text for token in parts[0])
            Unreadable.when(len(parts) != 2, "several labels")
            return form if label in NEUTRAL else labelled([(label, form)])
        forms = [self.expression(part) for part in parts]
        if _may_be_a_time(parts):
            hour, *others = map(text_of, parts)
            return Form(":".join([str(int(hour)), *others]), "ratio", tuple(forms))
        keys = [form.key for form in forms]
        with suppress(ValueError):  # a key that is not a number
            numbers = [Fraction(key) for key in keys]
            if all(numbers):
                scale = math.lcm(*(q.denominator for q in numbers))
                shared = math.gcd(*(int(q * scale) for q in numbers))
                keys = [exact.integer_text(int(q * scale) // shared) for q in numbers]
        return Form(":".join(keys), "ratio", tuple(forms))

    def mapping(self, pairs: Sequence[tuple[str, Tokens]]) -> Form:
        """`(x, y) = (1, 2)` is (1, 2); names against their order are kept, but for x, y, z: `(q, p) = (1, 2)`."""
        named = {name: set_form(self.variants(value)) for name, value in pairs}
        names = in_order(list(named))
        if names != list(named) and not {*"xyz"}.issuperset(names) and len({form.key for form in named.values()}) > 1:
            return labelled(list(named.items()))
        values = [named[name] for name in names]
        return Form(f"({', '.join(value.key for value in values)})", "sequence", tuple(values))

    def membership(self, tokens: Tokens) -> Form:
        """`x \\in [0, 1)` is the interval."""
        sides, _ = split(tokens, {r"\in"})
        names = [text_of(part) for part in split(inside(sides[0], {"("}, {")"}) or sides[0], {","})[0]]
        Incomputable.when(all(names) and names != in_order(names), "names in another order")
        if len(sides) != 2 or not (is_name(sides[0]) or inside(sides[0], {"("}, {")"})) or not sides[1]:
            raise Unreadable("not a name in a set")
        is_pair = len(split(inside(sides[1], {"("}, {")"}) or [], {","})[0]) == 2 and is_name(sides[0])
        return real_form(self.real_set(sides[1])) if is_pair else self.single(sides[1])


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


def _is_asked_sum(tokens: Tokens) -> bool:
    """m + n, of which a value is asked; x + y = 3 is a line."""
    names = [text_of(part) for part in split(tokens, {"+"})[0]]
    return len(names) > 1 and all(re.fullmatch("[a-wA-W]", name) for name in names)


def real_form(found: RealSet) -> Form:
    return Form(set_key(found), "real set")


def relations_in(tokens: Tokens) -> set[str]:
    """The relation signs outside all brackets."""
    return {token.text for token in outside(tokens)} & RELATIONS


def _may_be_a_time(parts: Sequence[Tokens]) -> bool:
    """`10:30`, `1:05`, `25:05`; not `2:4`, `30:20` or `3:75`."""
    hour, *others = map(text_of, parts)
    is_clock = hour.isdecimal() and all(text.isdecimal() and len(text) == 2 and int(text) < 60 for text in others)
    return is_clock and (int(hour) <= 24 or others[0][0] == "0")
