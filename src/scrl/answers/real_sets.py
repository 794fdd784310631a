"""Sets of real numbers: intervals with exact ends, their intersections and unions, and the inequalities they solve."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scrl.answers.balls import Number
from scrl.answers.exact import Call, Expr, Incomputable, Monomial, Unreadable, add, negate, number
from scrl.answers.fingerprint import expression_key, real_value, sign_of
from scrl.answers.powers import divide


@dataclass(frozen=True)
class End:
    """One end of an interval; `value` None is infinity."""

    value: Expr | None
    is_closed: bool = False

    @property
    def key(self) -> str:
        return "oo" if self.value is None else expression_key(self.value)

    @property
    def place(self) -> Number:
        assert self.value is not None
        return real_value(self.value)


@dataclass(frozen=True)
class Interval:
    low: End
    high: End

    @property
    def key(self) -> str:
        """`[0, 1)`; a single number is itself."""
        if self.low.value is not None and self.low.key == self.high.key and self.low.is_closed and self.high.is_closed:
            return self.low.key
        low = "-1*oo" if self.low.value is None else self.low.key
        return f"{'(['[self.low.is_closed]}{low}, {self.high.key}{')]'[self.high.is_closed]}"

    @property
    def is_empty(self) -> bool:
        if self.low.value is None or self.high.value is None:
            return False
        if self.low.key == self.high.key:
            return not (self.low.is_closed and self.high.is_closed)
        return bool(self.low.place > self.high.place)


RealSet = tuple[Interval, ...]
"""Disjoint intervals in rising order."""
EVERYTHING: RealSet = (Interval(End(None), End(None)),)


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
    parts = [
        Interval(_tighter(a.low, b.low, is_low=True), _tighter(a.high, b.high, is_low=False))
        for a in one
        for b in other
    ]
    return unite(part for part in parts if not part.is_empty)


def unite(intervals: Iterable[Interval]) -> RealSet:
    """What is in any of them; intervals that touch become one."""
    merged: list[Interval] = []
    for interval in sorted((part for part in intervals if not part.is_empty), key=_order):
        if merged and _touch(merged[-1].high, interval.low):
            last = merged.pop()
            interval = Interval(last.low, _later_high(last.high, interval.high))
        merged.append(interval)
    return tuple(merged)


def without(points: Sequence[Expr]) -> RealSet:
    """All numbers but these."""
    places = {expression_key(point): point for point in points}
    ordered = [None, *sorted(places.values(), key=real_value), None]
    return tuple(Interval(End(low), End(high)) for low, high in itertools.pairwise(ordered))


def _order(interval: Interval) -> tuple[int, Number, bool]:
    if interval.low.value is None:
        return (0, 0, False)
    return (1, interval.low.place, not interval.low.is_closed)


def _touch(high: End, low: End) -> bool:
    if high.value is None or low.value is None:
        return True
    if high.key == low.key:
        return high.is_closed or low.is_closed
    return bool(high.place > low.place)


def _tighter(a: End, b: End, *, is_low: bool) -> End:
    """The larger of two low ends, the smaller of two high ends."""
    if a.value is None or b.value is None:
        return b if a.value is None else a
    if a.key == b.key:
        return End(a.value, a.is_closed and b.is_closed)
    return a if (a.place > b.place if is_low else a.place < b.place) else b


def _later_high(a: End, b: End) -> End:
    """The larger of two high ends."""
    if a.value is None or b.value is None:
        return End(None)
    if a.key == b.key:
        return End(a.value, a.is_closed or b.is_closed)
    return a if a.place > b.place else b


# Inequalities


def solve(difference: Expr, is_strict: bool) -> RealSet:
    """The x for which a x + b < 0, or k |a x + b| + c < 0 (≤ 0 where not strict)."""
    if len(difference.symbols) != 1:
        raise Unreadable("several variables")
    size = next((m for m in difference.terms if len(m) == 1 and _is_absolute(m)), None)
    if size is None:
        return (_half_line(difference, is_strict),)
    if any("fabs" in Expr({m: c}).functions for m, c in difference.terms.items() if m != size):
        raise Unreadable("several absolute values")
    call = size[0][0]
    assert isinstance(call, Call)
    bound = divide(Expr({m: -c for m, c in difference.terms.items() if m != size}), number(abs(difference.terms[size])))
    if bound.symbols:
        raise Unreadable("the variable inside and outside")
    (inner,) = call.args
    above, below = add(inner, negate(bound)), negate(add(inner, bound))
    if difference.terms[size] > 0:  # |inner| < bound
        return intersect((_half_line(above, is_strict),), (_half_line(below, is_strict),))
    return unite(  # |inner| > −bound
        _half_line(negate(side), is_strict) for side in (add(inner, bound), negate(add(inner, negate(bound))))
    )


def _half_line(difference: Expr, is_strict: bool) -> Interval:
    """a x + b < 0: x < −b/a, or x > −b/a where a is negative."""
    slope, constant = linear_parts(difference)
    end = End(divide(negate(constant), slope), not is_strict)
    return Interval(End(None), end) if sign_of(slope) > 0 else Interval(end, End(None))


def linear_parts(expr: Expr) -> tuple[Expr, Expr]:
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
    if not slope:
        raise Incomputable("no variable")
    return Expr(slope), Expr(constant)


def _is_absolute(monomial: Monomial) -> bool:
    atom, exponent = monomial[0]
    return isinstance(atom, Call) and atom.name == "fabs" and exponent == 1
