"""Numbers with bounds: every result is a ball, a midpoint and an error that covers all rounding.

A midpoint is a pair of whole numbers in units of 2⁻⁶⁴⁰, an error a number of such units. With m the midpoint and r the
error of an argument, each function adds the bound beside it and the rounding of its own result. Where a function has no
bound (division by a ball around 0, a logarithm across its cut) or its value is out of range it raises `Unsettled`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from typing import Any

import mpmath

from scrl.answers.exact import HALF, Unsettled

BITS = 640
UNIT = 1 << BITS
"""The number 1."""
MIN_EXPONENT, MAX_EXPONENT = -250, 500
"""Limits of an exponent: e⁵⁰⁰ is 2⁷²¹, and below e⁻²⁵⁰ units of 2⁻⁶⁴⁰ show too few digits."""
MAX_ANGLE = 2.0**40
MAX_RATIO_BITS = 266
"""10⁸⁰: of a term that much smaller than the sum too few of the 100 digits are compared."""
MAX_REPEATED = 64
ROUNDING = 8.0
"""Units that the result of a function from mpmath may be off by, with 64 bits to spare."""
Number = Any
"""mpmath has no types: mpf or mpc."""

lock = threading.Lock()
"""For one thread at a time: mpmath changes the precision of its context while it computes."""
mp = mpmath.mp.clone()
mp.prec = BITS + 64


@dataclass(frozen=True, slots=True)
class Ball:
    """All numbers within `error` units of a midpoint; a real one has real numbers only."""

    real: int
    imag: int
    error: float
    is_real: bool

    @property
    def size(self) -> float:
        return abs(self.real / UNIT) if self.is_real else math.hypot(self.real / UNIT, self.imag / UNIT)

    @property
    def spread(self) -> float:
        """The error as a number."""
        return math.ldexp(self.error, -BITS)

    @property
    def middle(self) -> Number:
        """The midpoint, for mpmath."""
        real = mp.ldexp(mp.mpf(self.real), -BITS)
        return real if self.is_real else mp.mpc(real, mp.ldexp(mp.mpf(self.imag), -BITS))


def exactly(q: Fraction | int) -> Ball:
    q = Fraction(q)
    return Ball((q.numerator << BITS) // q.denominator, 0, float(q.denominator != 1), is_real=True)


def rounded(value: Number, error: float, is_real: bool) -> Ball:
    """A value from mpmath."""
    real, imag = (int(mp.nint(mp.ldexp(part, BITS))) for part in (mp.re(value), mp.im(value)))
    return Ball(real, 0 if is_real else imag, error + ROUNDING, is_real)


PI = rounded(+mp.pi, 0.0, is_real=True)
E = rounded(+mp.e, 0.0, is_real=True)
I = Ball(0, UNIT, 0.0, is_real=False)  # noqa: E741 - the number


def total(a: Ball, b: Ball) -> Ball:
    """The sum, unless one term is lost beside the other."""
    one, other = (max(abs(ball.real), abs(ball.imag)) for ball in (a, b))
    is_lost = abs(one.bit_length() - other.bit_length()) > MAX_RATIO_BITS
    Unsettled.when(is_lost and one > a.error and other > b.error)
    return Ball(a.real + b.real, a.imag + b.imag, a.error + b.error, a.is_real and b.is_real)


def product(a: Ball, b: Ball) -> Ball:
    error = a.size * b.error + b.size * a.error + a.error * b.spread + 2
    if a.is_real and b.is_real:
        return Ball(a.real * b.real >> BITS, 0, error, is_real=True)
    real = a.real * b.real - a.imag * b.imag >> BITS
    return Ball(real, a.real * b.imag + a.imag * b.real >> BITS, error, is_real=False)


def inverse(a: Ball) -> Ball:
    """|1/z − 1/m| ≤ r / (|m| (|m| − r))."""
    size = a.size
    Unsettled.when(size <= a.spread)
    error = a.error / (size * (size - a.spread)) + 2
    square = a.real * a.real + a.imag * a.imag
    return Ball((a.real << 2 * BITS) // square, -(a.imag << 2 * BITS) // square, error, a.is_real)


def exponential(a: Ball) -> Ball:
    """|e^z − e^m| ≤ |e^m| (e^r − 1), and e^r − 1 ≤ 2r for r ≤ 1."""
    if not MIN_EXPONENT * UNIT < a.real < MAX_EXPONENT * UNIT or abs(a.imag) > MAX_ANGLE * UNIT or a.spread > 1:
        raise Unsettled
    size = math.exp(a.real / UNIT) * (1 + 1e-9)
    return rounded(mp.exp(a.middle), 2 * size * a.error + size * ROUNDING, a.is_real)


def logarithm(a: Ball) -> Ball:
    """The principal logarithm; |log z − log m| ≤ r / (|m| − r), away from the cut along the negative numbers."""
    size = a.size
    Unsettled.when(size <= a.spread or (not a.is_real and a.real < a.error and abs(a.imag) <= a.error))
    return rounded(mp.log(a.middle), a.error / (size - a.spread), is_real=a.is_real and a.real > 0)


def _circular(function: Callable[[Number], Number], a: Ball) -> Ball:
    """|sin z − sin m| ≤ r cosh(|Im m| + r), and the same for the cosine."""
    Unsettled.when(a.size > MAX_ANGLE or abs(a.imag) > -MIN_EXPONENT * UNIT or a.spread > 1)
    growth = math.cosh(abs(a.imag / UNIT) + a.spread)
    return rounded(function(a.middle), (a.error + ROUNDING) * growth * (1 + 1e-9), a.is_real)


sine = partial(_circular, mp.sin)


def power(base: Ball, q: Fraction) -> Ball:
    """z^q: exact multiplication for small whole powers, the real root of a negative number where there is one."""
    if q == 1:
        return base
    if q.denominator == 1 and abs(q) <= MAX_REPEATED:
        result = reduce(product, [base] * abs(q.numerator), exactly(1))
        return inverse(result) if q < 0 else result
    if base.is_real and base.real < 0 and q.denominator % 2 == 1:
        size = power(Ball(-base.real, 0, base.error, is_real=True), q)
        return product(exactly(-1), size) if q.numerator % 2 else size
    return exponential(product(exactly(q), logarithm(base)))


def minus(a: Ball, b: Ball) -> Ball:
    return total(a, product(exactly(-1), b))


def _turned(a: Ball, times: int = 1) -> Ball:
    """a · i, or a · −i."""
    return Ball(-times * a.imag, times * a.real, a.error, is_real=False)


def _really(a: Ball, is_real: bool) -> Ball:
    """A value known to be real, without the rounding in its imaginary part."""
    return Ball(a.real, 0, a.error, is_real=True) if is_real else a


def _asin(a: Ball) -> Ball:
    """−i log(iz + √(1 − z²))."""
    if a.is_real and not a.error and abs(a.real) == UNIT:
        return product(product(exactly(HALF), a), PI)
    is_real = a.is_real and a.size + a.spread < 1
    inner = minus(exactly(1), product(a, a))
    return _really(_turned(logarithm(total(_turned(a), power(inner, HALF))), -1), is_real)


def _atan(a: Ball) -> Ball:
    """(i/2) (log(1 − iz) − log(1 + iz))."""
    turned = _turned(a)
    difference = minus(logarithm(minus(exactly(1), turned)), logarithm(total(exactly(1), turned)))
    return _really(product(exactly(HALF), _turned(difference)), a.is_real)


FUNCTIONS: dict[str, Callable[..., Ball]] = {
    "sin": sine, "cos": partial(_circular, mp.cos), "asin": _asin, "atan": _atan, "ln": logarithm, "inv": inverse,
    "log": lambda base, a: product(logarithm(a), inverse(logarithm(base))),
    "pow": lambda base, exponent: exponential(product(exponent, logarithm(base))),
}  # fmt: skip
