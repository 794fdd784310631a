"""Exact numbers of small height that a value is to 100 digits."""

from __future__ import annotations

import math
from fractions import Fraction

from scrl.answers.balls import PI, Ball, Number, mp
from scrl.answers.exact import HALF, Expr, number, symbol
from scrl.answers.powers import power

KEY_DIGITS = 100
MAX_DENOMINATOR = 10**6
MAX_COEFFICIENT = 10**4
SETTLED = 10.0 ** (-KEY_DIGITS - 10)
"""How far a settled value may be off, relative to its size."""


def identify(value: Ball) -> Expr | None:
    """p/q, p/q · π, a + b √n, √a ± √b, and such a number plus i times another; None if it is none of them."""
    radius = value.spread + value.size * SETTLED
    real, imag = (_identify_real(part, radius) for part in (mp.re(value.middle), mp.im(value.middle)))
    return None if real is None or imag is None else real + imag * symbol("i")


def _identify_real(x: Number, radius: float) -> Expr | None:
    if abs(x) <= radius:
        return number(0)
    for scale, unit in ((mp.mpf(1), number(1)), (PI.middle, symbol("pi"))):
        q = _near_fraction(x / scale, radius)
        if q is not None:
            return number(q) * unit
    for candidate in (*_quadratic_roots(x), *_biquadratic_roots(x)):
        if abs(_value(candidate) - x) <= radius + abs(x) * SETTLED:
            return candidate
    return None


def _near_fraction(x: Number, radius: float) -> Fraction | None:
    """The fraction with a small denominator within the radius."""
    if abs(x) > 10**9:
        return None
    scaled = Fraction(int(mp.nint(x * 10**KEY_DIGITS)), 10**KEY_DIGITS)
    near = scaled.limit_denominator(MAX_DENOMINATOR)
    return near if abs(mp.mpf(near.numerator) / near.denominator - x) <= radius + abs(x) * SETTLED else None


def rational(value: Ball) -> Fraction | None:
    """The fraction with a small denominator that a value is."""
    radius = value.spread + value.size * SETTLED
    return _near_fraction(mp.re(value.middle), radius) if abs(mp.im(value.middle)) <= radius else None


def _quadratic_roots(x: Number) -> list[Expr]:
    """a x² + b x + c = 0 in small whole numbers: p ± √q."""
    relation = _relation([mp.mpf(1), x, x * x])
    if relation is None:
        return []
    c, b, a = relation
    p = -b / (2 * a)
    q = p * p - c / a
    return [number(p) + _root_of(q) * sign for sign in (1, -1)] if q > 0 else []


def _biquadratic_roots(x: Number) -> list[Expr]:
    """a x⁴ + b x² + c = 0 with c/a = m²: ±√u ± √v with u, v = (−b/2a ± m)/2."""
    relation = _relation([mp.mpf(1), x**2, x**4])
    if relation is None:
        return []
    c, b, a = relation
    m = _fraction_root(c / a)
    if m is None:
        return []
    u, v = (-b / (2 * a) + m) / 2, (-b / (2 * a) - m) / 2
    if u < 0 or v < 0:
        return []
    root_u, root_v = map(_root_of, (u, v))
    return [root_u * one + root_v * other for one in (1, -1) for other in (1, -1)]


def _relation(powers: list[Number]) -> tuple[Fraction, ...] | None:
    """Small whole numbers whose products with the powers add up to nothing."""
    relation = mp.pslq(powers, tol=mp.mpf(SETTLED), maxcoeff=MAX_COEFFICIENT, maxsteps=1_000)
    return tuple(map(Fraction, relation)) if relation is not None and relation[2] else None


def _root_of(q: Fraction) -> Expr:
    return power(number(q), number(HALF))


def _fraction_root(q: Fraction) -> Fraction | None:
    if q < 0:
        return None
    root = Fraction(math.isqrt(q.numerator), math.isqrt(q.denominator))
    return root if root * root == q else None


def _value(candidate: Expr) -> Number:
    """The value of a sum of rational multiples of square roots."""
    terms = (
        mp.mpf(c.numerator) / c.denominator * math.prod((mp.sqrt(prime) for prime, _ in monomial), start=mp.mpf(1))
        for monomial, c in candidate.terms.items()
    )
    return sum(terms, mp.mpf(0))
