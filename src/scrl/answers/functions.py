"""Values of functions, exact where exact arithmetic decides them; everything else stays a `Call`."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

from scrl.answers.exact import HALF, UNIT, Expr, Incomputable, Unsettled, call, leading, number, symbol
from scrl.answers.fingerprint import floor_of, sign_of
from scrl.answers.powers import divide, power

MAX_FACTORIAL = 3_000
MAX_POLYNOMIAL = 8
_OF_INVERSES = {"acot": "atan", "asec": "acos", "acsc": "asin", "acoth": "atanh"}


def elementary(name: str, a: Expr) -> Expr:
    """By sine, arcsine, arctangent, logarithm and powers; sine and cosine are exact at multiples of π/6 and π/4."""
    of, one, half = partial(elementary, a=a), number(1), number(HALF)
    match name:
        case "tan" | "tanh":
            return divide(of(name.replace("tan", "sin")), of(name.replace("tan", "cos")))
        case "cot" | "coth":
            return divide(of(name.replace("cot", "cos")), of(name.replace("cot", "sin")))
        case "sec" | "csc":
            return divide(one, of("cos" if name == "sec" else "sin"))
        case "sinh" | "cosh":
            growing = power(symbol("e"), a)
            return half * (growing + divide(number(1 if name == "cosh" else -1), growing))
        case "acos":
            return symbol("pi") * half - of("asin")
        case "asinh":
            return call("ln", a + power(a * a + one, half))
        case "acosh":
            return call("ln", a + power(a + one, half) * power(a - one, half))
        case "atanh":
            return half * (call("ln", one + a) - call("ln", one - a))
        case "acot" | "asec" | "acsc" | "acoth":
            return elementary(_OF_INVERSES[name], divide(one, a))
    turns = Fraction(0) if not a.terms else a.terms.get((("pi", Fraction(1)),))
    if name not in ("sin", "cos") or turns is None or len(a.terms) > 1:
        return call(name, a)
    value = _sine(turns + HALF * (name == "cos"))
    return call(name, a) if value is None else value


def _sine(turns: Fraction) -> Expr | None:
    """sin(turns · π) for multiples of 1/6 and 1/4: 0, 1/2, √2/2, √3/2, 1 and their negatives."""
    turns %= 2
    if turns >= 1:
        value = _sine(turns - 1)
        return None if value is None else -value
    square = {0: 0, Fraction(1, 6): 1, Fraction(1, 4): 2, Fraction(1, 3): 3, HALF: 4}.get(min(turns, 1 - turns))
    return None if square is None else power(number(square), number(HALF)) * HALF


def factorial(a: Expr) -> Expr:
    """N! for a whole number within bounds; (n + 2)! is n! (n + 1) (n + 2)."""
    n = a.rational
    shift = a.terms.get(UNIT, Fraction(0))
    if n is None and shift.denominator == 1 and abs(shift) <= MAX_POLYNOMIAL:
        base = a - number(shift)
        above = math.prod((base + number(k) for k in range(1, int(shift) + 1)), start=call("factorial", base))
        return divide(above, math.prod((base - number(k) for k in range(-int(shift))), start=number(1)))
    if n is None or n.denominator != 1 or n < 0:
        return call("factorial", a)
    Incomputable.when(n > MAX_FACTORIAL, "factorial too large")
    return number(math.factorial(int(n)))


def binomial(a: Expr, b: Expr) -> Expr:
    """C(n, k) for whole numbers within bounds."""
    n, k = a.rational, b.rational
    if a.symbols or b.symbols:
        return divide(factorial(a), factorial(b) * factorial(a - b))
    if n is None or k is None or n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n:
        return call("binomial", a, b)
    Incomputable.when(n > MAX_FACTORIAL, "binomial too large")
    return number(math.comb(int(n), int(k)))


def absolute(a: Expr) -> Expr:
    """|a|: exact for numbers; |2 − x| is |x − 2|, and |2x| is 2 |x|."""
    if not a.terms:
        return a
    if not a.symbols:
        if any(atom == "i" for monomial in a.terms for atom, _ in monomial):
            Incomputable.when(not a.is_closed, "the size of an open complex number")
            turned = Expr({m: c for m, c in a.terms.items() if any(atom == "i" for atom, _ in m)})
            real, imaginary = a - turned, turned * -symbol("i")
            return power(real * real + imaginary * imaginary, number(HALF))
        try:
            return -a if sign_of(a) < 0 else a
        except Unsettled:
            return call("fabs", a)
    scale = leading(a)
    return call("fabs", a * (1 / scale)) * abs(scale)


def rounded(name: str, a: Expr) -> Expr:
    """⌊a⌋ or ⌈a⌉: exact for numbers, opaque otherwise."""
    if a.symbols:
        return call(name, a)
    try:
        return number(floor_of(a) if name == "floor" else -floor_of(-a))
    except Unsettled:
        return call(name, a)
