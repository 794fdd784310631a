"""Sets of real numbers: intervals with exact ends, their intersections and unions, and the inequalities they solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from scrl.answers.exact import Call, Expr, Incomputable, Monomial, Unreadable, number
from scrl.answers.fingerprint import expression_key, real_value, sign_of
from scrl.answers.powers import divide


@dataclass(frozen=True)
class Cut:
    """A place between numbers: just below a value (side -1) or just above it (1); without a value, an infinity."""

    value: Expr | None
    side: int

    @property
    def key(self) -> str:
        return "oo" if self.value is None else expression_key(self.value)

    def __lt__(self, other: Cut) -> bool:
        if self.key == other.key:
            return self.side < other.side
        if self.value is None or other.value is None:
            return self.side < 0 if self.value is None else other.side > 0
        return bool(real_value(self.value) < real_value(other.value))


LOWEST, HIGHEST = Cut(None, -1), Cut(None, 1)


@dataclass(frozen=True)
class Interval:
    low: Cut
    high: Cut

    @property
    def key(self) -> str:
        """`[0, 1)`; a single number is itself."""
        if self.low.value is not None and self.low.key == self.high.key and self.low < self.high:
            return self.low.key
        low, high = ("-1*oo" if self.low.value is None else self.low.key), self.high.key
        opening = "[" if self.low.value is not None and self.low.side < 0 else "("
        return f"{opening}{low}, {high}{']' if self.high.value is not None and self.high.side > 0 else ')'}"


def between(opening: str, low: Expr, high: Expr, closing: str) -> Interval:
    """`[0, 1)`, `(-oo, 1]`."""
    start = LOWEST if low.text == "-1*oo" else Cut(low, -1 if opening == "[" else 1)
    return Interval(start, HIGHEST if high.text == "oo" else Cut(high, 1 if closing == "]" else -1))


RealSet = tuple[Interval, ...]
"""Disjoint intervals in rising order."""
EVERYTHING: RealSet = (Interval(LOWEST, HIGHEST),)


def set_key(intervals: RealSet) -> str:
    """`(-1*oo, 0) U (0, oo)`; points alone are a plain set, and `]1, 2[` is no pair."""
    keys = [interval.key for interval in intervals]
    if len(keys) == 1 and keys[0][0] == "(" and keys[0][-1] == ")" and "oo" not in keys[0]:
        return f"]{keys[0][1:-1]}["
    if any(key[0] in "([" and key[-1] in ")]" for key in keys):
        return " U ".join(keys)
    return keys[0] if len(keys) == 1 else f"{{{', '.join(sorted(keys))}}}"


def intersect(one: RealSet, other: RealSet) -> RealSet:
    """What is in both."""
    return unite([Interval(max(a.low, b.low), min(a.high, b.high)) for a in one for b in other])


def unite(*sets: Sequence[Interval]) -> RealSet:
    """What is in any of them; intervals that touch become one, and empty ones vanish."""
    merged: list[Interval] = []
    parts = (part for found in sets for part in found if part.low < part.high)
    for interval in sorted(parts, key=lambda part: part.low):
        if merged and not merged[-1].high < interval.low:
            last = merged.pop()
            interval = Interval(last.low, max(last.high, interval.high))
        merged.append(interval)
    return tuple(merged)


def without(points: Sequence[Expr]) -> RealSet:
    """All numbers but these."""
    ordered = sorted({expression_key(point): point for point in points}.values(), key=real_value)
    lows, highs = [Cut(point, 1) for point in ordered], [Cut(point, -1) for point in ordered]
    return tuple(map(Interval, [LOWEST, *lows], [*highs, HIGHEST]))


# Inequalities


def solution(constraints: Sequence[tuple[Expr, str]]) -> RealSet:
    """The numbers for which every E < 0, E <= 0 and E != 0 holds."""
    found = EVERYTHING
    for difference, mark in constraints:
        if mark == "!=":
            slope, constant = _linear_parts(difference)
            found = intersect(found, without([divide(-constant, slope)]))
        else:
            found = intersect(found, _solve(difference, is_strict=mark == "<"))
    return found


def _solve(difference: Expr, is_strict: bool) -> RealSet:
    """The x for which a x + b < 0, or k |a x + b| + c < 0 (≤ 0 where not strict)."""
    Unreadable.when(len(difference.symbols) != 1, "several variables")
    atoms = ((m, *m[0]) for m in difference.terms if len(m) == 1)
    absolutes = [(m, a) for m, a, exponent in atoms if isinstance(a, Call) and a.name == "fabs" and exponent == 1]
    if not absolutes:
        return (_half_line(difference, is_strict),)
    (size, absolute), *_ = absolutes
    if any("fabs" in Expr({m: c}).functions for m, c in difference.terms.items() if m != size):
        raise Unreadable("several absolute values")
    bound = divide(Expr({m: -c for m, c in difference.terms.items() if m != size}), number(abs(difference.terms[size])))
    Unreadable.when(bound.symbols, "the variable inside and outside")
    (inner,) = absolute.args
    if difference.terms[size] > 0:  # |inner| < bound
        return intersect((_half_line(inner - bound, is_strict),), (_half_line(-inner - bound, is_strict),))
    return unite([_half_line(-bound - side, is_strict) for side in (inner, -inner)])  # |inner| > −bound


def _half_line(difference: Expr, is_strict: bool) -> Interval:
    """a x + b < 0: x < −b/a, or x > −b/a where a is negative."""
    slope, constant = _linear_parts(difference)
    direction = sign_of(slope)
    end = Cut(divide(-constant, slope), -direction if is_strict else direction)
    return Interval(LOWEST, end) if direction > 0 else Interval(end, HIGHEST)


def _linear_parts(expr: Expr) -> tuple[Expr, Expr]:
    """a and b of a x + b with constants a and b."""
    slope: dict[Monomial, Fraction] = {}
    constant: dict[Monomial, Fraction] = {}
    for monomial, coefficient in expr.terms.items():
        rest = tuple(pair for pair in monomial if not Expr({(pair,): Fraction(1)}).symbols)
        free = [pair for pair in monomial if pair not in rest]
        if not free:
            constant[monomial] = coefficient
        elif len(free) == 1 and isinstance(free[0][0], str) and free[0][1] == 1:
            slope[rest] = coefficient
        else:
            raise Unreadable("not linear")
    Incomputable.when(not slope, "no variable")
    return Expr(slope), Expr(constant)
