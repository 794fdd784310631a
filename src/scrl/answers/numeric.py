"""Numbers behind open expressions: enough digits to tell two values apart without a computer-algebra system.

A free symbol is given a fixed positive value derived from its name, so that two expressions in `x` can be compared
at one generic point. Different values prove two expressions different; equal values prove nothing (the judge decides).
"""

from __future__ import annotations

import hashlib
import threading
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import mpmath

from scrl.answers.exact import APPLY, Atom, Call, Expr

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = 120
"""Enough that sin(π) is 0 to 100 places while e^(−40π) is not."""
MAX_EXPONENT_BITS = 20_000
MAX_ARGUMENT = 10_000
Number = Any
"""mpmath has no types: mpf or mpc."""

_lock = threading.Lock()
"""mpmath changes the precision of its context while it computes: one thread at a time."""
_context = mpmath.mp.clone()
_context.dps = DIGITS
_RELATIVE, _ABSOLUTE = _context.mpf(10) ** -60, _context.mpf(10) ** -100


def value_of(expr: Expr, point: str = "") -> Number | None:
    """The value to 120 digits at a generic point; None where it has none (infinity, an unknown command)."""
    with _lock:
        _context.dps = DIGITS
        try:
            value = _sum(expr, point)
        except (ArithmeticError, ValueError, RecursionError):
            return None
        return value if _context.isfinite(value) else None


def scale_free_value(zero: Expr) -> Number | None:
    """For an equation 0 = E: the ratio of E at two points, the same for every multiple of E."""
    here, there = value_of(zero), value_of(zero, "elsewhere")
    return here / there if here is not None and there else None


def integer(n: int) -> Number:
    """A whole number in the same arithmetic."""
    return _context.mpf(n)


def surely_differ(a: Number | None, b: Number | None) -> bool:
    """True when the two values cannot belong to equal expressions."""
    if a is None or b is None:
        return False
    gap, size = abs(a - b), max(abs(a), abs(b))
    return bool(gap > size * _RELATIVE and gap > _ABSOLUTE)


def significant_text(expr: Expr, digits: int) -> str | None:
    """The real constant rounded to `digits` significant digits, e.g. `3.142e+0`; None if it is not one."""
    if expr.symbols:
        return None
    value = value_of(expr)
    if value is None or _context.im(value):
        return None
    text: str = _context.nstr(_context.re(value), digits, min_fixed=0, max_fixed=0, strip_zeros=False)
    return text


def _sum(expr: Expr, point: str) -> Number:
    total = _context.mpf(0)
    for monomial, coefficient in expr.terms.items():
        product = _rational(coefficient)
        for atom, exponent in monomial:
            product *= _power(_atom(atom, point), _rational(exponent))
        total += product
    return total


def _rational(q: Fraction) -> Number:
    return _context.mpf(q.numerator) / q.denominator


def _atom(atom: Atom, point: str) -> Number:
    if isinstance(atom, int):
        return _context.mpf(atom)
    if isinstance(atom, Call):
        args = [_sum(arg, point) for arg in atom.args]
        return _generic_function(atom.name, *args) if atom.name.startswith(APPLY) else _FUNCTIONS[atom.name](*args)
    constant = {"pi": _context.pi, "e": _context.e, "i": _context.j, "oo": _context.inf}.get(atom)
    return +constant if constant is not None else _generic_number(atom + point)


def _generic_number(name: str) -> Number:
    """A fixed irrational-looking number in (0.2, 0.9) for a name: positive, inside every common domain."""
    digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")
    return _context.mpf(digest) / (1 << 128) * _context.mpf("0.7") + _context.mpf("0.2")


def _generic_function(name: str, x: Number) -> Number:
    """An unknown function of x, the same for the same name: no linear rule holds for it by accident."""
    return _context.sin(x * x + x * _generic_number(f"{name} slope") + _generic_number(name))


def _power(base: Number, exponent: Number) -> Number:
    if exponent == 1:
        return base
    if base and abs(exponent) * abs(_context.log(abs(base), 2)) > MAX_EXPONENT_BITS:
        raise ArithmeticError("power out of range")
    return _context.power(base, exponent)


def _bounded(name: str) -> Callable[[Number], Number]:
    """A function that refuses arguments whose digits would take minutes: sin(10^500), cosh(10^9)."""
    function = getattr(_context, name)

    def apply(x: Number) -> Number:
        if abs(x) > MAX_ARGUMENT:
            raise ArithmeticError("argument out of range")
        return function(x)

    return apply


def _factorial(n: Number) -> Number:
    if abs(n) > 10_000:
        raise ArithmeticError("factorial out of range")
    return _context.factorial(n)


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    name: _bounded(name) for name in "sin cos tan cot sec csc sinh cosh tanh coth".split()
} | {
    name: getattr(_context, name)
    for name in "asin acos atan acot asec acsc asinh acosh atanh acoth ln floor ceil fabs binomial".split()
}
_FUNCTIONS |= {
    "pow": _power,
    "inv": lambda x: 1 / x,
    "log": lambda base, x: _context.log(x, base),
    "factorial": _factorial,
}
