r"""Numbers behind open expressions: `2\sin x\cos x` and `\sin 2x` have the same values at six fixed points.

Every free symbol gets values that depend on its name alone, real ones of both signs and a complex one, multiples of
2⁻²⁴. Values are balls, a midpoint and an error that covers every rounding (`scrl.answers.balls`). Where a ball is too
wide, where a function has no value, or where a branch cut runs through it, there is no fingerprint, and the answer is
compared as text.

docs/answers.md says what this proves, and what it does not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from scrl.answers import balls
from scrl.answers.balls import BITS, UNIT, Ball, Number, exactly, lock, mp, product, total
from scrl.answers.exact import APPLY, HALF, Atom, Call, Expr, Unsettled, bits, number, symbol
from scrl.answers.powers import power

KEY_DIGITS = 100
MAX_DENOMINATOR = 10**6
MAX_COEFFICIENT = 10**4
SETTLED = 10.0 ** (-KEY_DIGITS - 10)
"""How far a settled value may be off, relative to its size."""
GRID_BITS = 24
POINTS = {
    "positive": (1, 4), "negative": (-1, -4), "complex": (1, 4), "wide": (8, 16), "far": (16, 24), "back": (-8, -24),
}  # fmt: skip
"""Ranges of a symbol's values, in quarters. Those far out show that √(1 − sin² x) is not cos x."""
MAX_HEIGHT = 200
"""Bits of all numbers in an expression together: 2⁻²⁰⁰ = 10⁻⁶⁰ is far above what 100 digits tell apart."""
LARGEST = 10**250 * UNIT
ROUNDABLE = 1e20
"""How many times larger than its error a number must be for its first 15 digits to be known."""
POINTLESS = frozenset({"floor", "ceil", "fabs"})
"""Functions that are equal at many points without being equal: by exact values or as text, never by points."""


def expression_key(expr: Expr) -> str:
    """The key of an expression: its text where that decides, else a small exact value, else its fingerprint."""
    if not _needs_points(expr):
        return expr.text
    with lock:
        if not expr.symbols:
            value = _settled(_value(expr, ""))
            exact = _identify(value)
            return exact.text if exact is not None else f"≈{_digest([value])}"
        values = [_settled(_value(expr, point)) for point in POINTS]
        a, b, *_ = values
        may_be_equal = abs(a.real - b.real) <= 2 * (a.error + b.error) + 1
        constant = _rational(a) if may_be_equal else None
        if constant is not None and all(_rational(value) == constant for value in values):
            return number(constant).text
        return f"≈{_digest(values)}({', '.join(sorted(expr.symbols))})"


def equation_key(zero: Expr) -> str:
    """The key of 0 = E, the same for every multiple of E: ratios of E's values, or E itself if it has only one."""
    if not zero.symbols or not _needs_points(zero):
        return f"0 = {expression_key(zero)}"
    with lock:
        first, *others = (_settled(_value(zero, point)) for point in POINTS)
        ratios = [_settled(product(other, balls.inverse(first))) for other in others]
        return f"0 = ≈{_digest(ratios)}({', '.join(sorted(zero.symbols))})"


def _needs_points(expr: Expr) -> bool:
    """Whether the text of an expression does not decide; what is too large for the digits raises."""
    if expr.is_closed or expr.functions & POINTLESS:
        return False
    Unsettled.when("oo" in expr.names or _height(expr) > MAX_HEIGHT)
    return True


def _height(expr: Expr) -> int:
    """How many bits the numbers of an expression have, at any depth; an atom that occurs often counts once."""
    size, calls = 0, set()
    for monomial, coefficient in expr.terms.items():
        size += bits(coefficient) if coefficient not in (1, -1) else 0
        for atom, exponent in monomial:
            size += bits(exponent) if exponent != 1 else 0
            if isinstance(atom, int):
                size += atom.bit_length()
            elif isinstance(atom, Call):
                calls.add(atom)
    return size + sum(_height(arg) for call in calls for arg in call.args)


def sign_of(constant: Expr) -> int:
    """−1 or 1 for a real number that is not 0."""
    value = _real(constant)
    Unsettled.when(abs(value.real) <= value.error)
    return 1 if value.real > 0 else -1


def floor_of(constant: Expr) -> int:
    """⌊x⌋ of a real number."""
    if constant.rational is not None:
        return constant.rational.numerator // constant.rational.denominator
    value = _real(constant)
    low, high = (value.real + side * math.ceil(value.error) >> BITS for side in (-1, 1))
    Unsettled.when(low != high)
    return low


def real_value(constant: Expr) -> Number:
    """A number to many digits, for ordering."""
    value = _settled(_real(constant))
    with lock:
        return value.middle


def _real(constant: Expr) -> Ball:
    Unsettled.when(constant.symbols)
    with lock:
        value = _value(constant, "")
    Unsettled.when(not value.is_real)
    return value


def significant_text(expr: Expr, digits: int) -> str | None:
    """The real constant to `digits` significant digits, halves away from zero: `3.14`, `6.67e-1`; None: it is none."""
    if expr.symbols or "oo" in expr.names:
        return None
    try:
        value = expr.rational if expr.rational is not None else _outer_end(expr)
    except Unsettled:
        return None
    if not value:
        return "0.0"
    exactly_rounded = Context(digits, ROUND_HALF_UP, MIN_EMIN, MAX_EMAX)  # decimal's "up" is away from zero
    rounded = exactly_rounded.divide(Decimal(value.numerator), Decimal(value.denominator))
    mantissa, exponent = f"{rounded:.{digits - 1}e}".split("e")
    return f"{mantissa}{'' if digits > 1 else '.'}{'' if exponent == '+0' else f'e{exponent}'}"


def _outer_end(constant: Expr) -> Fraction:
    """The end of a real number's ball that is farther from zero: a half inside the ball is rounded as one."""
    with lock:
        value = _value(constant, "")
    size = abs(value.real)
    Unsettled.when(abs(value.imag) > value.error)
    if size <= value.error and value.spread < SETTLED:
        return Fraction(0)
    Unsettled.when(value.error * ROUNDABLE > size)
    end = size + math.ceil(value.error)
    return Fraction(end if value.real > 0 else -end, UNIT)


# Values


def _value(expr: Expr, point: str) -> Ball:
    try:
        return _sum(expr, point)
    except (ArithmeticError, ValueError, RecursionError) as error:
        raise Unsettled from error


def _sum(expr: Expr, point: str) -> Ball:
    if expr.rational is not None:
        return exactly(expr.rational)
    value = exactly(0)
    for monomial, coefficient in expr.terms.items():
        term = exactly(coefficient)
        for atom, exponent in monomial:
            term = product(term, balls.power(_atom(atom, point), exponent))
        value = total(value, term)
    return value


def _atom(atom: Atom, point: str) -> Ball:
    if isinstance(atom, int):
        return exactly(atom)
    if isinstance(atom, Call):
        return _call(atom, point)
    Unsettled.when(atom == "oo")
    return {"pi": balls.PI, "e": balls.E, "i": balls.I}.get(atom) or _generic(atom, point)


@lru_cache(maxsize=1 << 12)
def _generic(name: str, point: str) -> Ball:
    """A multiple of 2⁻²⁴ in the range of the point, drawn from the name; complex: one for each part."""
    first, end = (quarters << (GRID_BITS - 2) for quarters in POINTS[point])

    def draw(what: str) -> int:
        digest = hashlib.blake2b(f"{point} {what} {name}".encode(errors="surrogatepass"), digest_size=8).digest()
        size = abs(first) + int.from_bytes(digest, "big") % abs(end - first)
        return (size if first > 0 else -size) << (BITS - GRID_BITS)

    if point == "complex":
        return Ball(draw("real"), draw("imaginary"), 0.0, is_real=False)
    return Ball(draw("size"), 0, 0.0, is_real=True)


@lru_cache(maxsize=1 << 12)
def _call(call: Call, point: str) -> Ball:
    if call.name == "pow" and call.args[1].rational is not None:
        return balls.power(_sum(call.args[0], point), call.args[1].rational)
    args = [_sum(arg, point) for arg in call.args]
    function = balls.FUNCTIONS.get(call.name)
    if function is not None:
        return function(*args)
    if call.name.startswith(APPLY) or call.name in ("factorial", "binomial"):
        return _unknown(call.name, args)
    raise Unsettled


def _unknown(name: str, args: list[Ball]) -> Ball:
    """An unknown function, the same for the same name: no identity holds for it by accident."""
    angle = _generic(f"{name} constant", "positive")
    for place, x in enumerate(args):
        slope = _generic(f"{name} slope {place}", "positive")
        angle = total(angle, total(product(x, x), product(slope, x)))
    return balls.sine(angle)


# Exact numbers of small height that a value is to 100 digits


def _identify(value: Ball) -> Expr | None:
    """p/q, p/q · π, a + b √n, √a ± √b, and such a number plus i times another; None if it is none of them."""
    radius = value.spread + value.size * SETTLED
    real, imag = (_identify_real(part, radius) for part in (mp.re(value.middle), mp.im(value.middle)))
    return None if real is None or imag is None else real + imag * symbol("i")


def _identify_real(x: Number, radius: float) -> Expr | None:
    if abs(x) <= radius:
        return number(0)
    for scale, unit in ((mp.mpf(1), number(1)), (balls.PI.middle, symbol("pi"))):
        q = _near_fraction(x / scale, radius)
        if q is not None:
            return number(q) * unit
    near = (root for root in _roots(x) if abs(_sum(root, "").middle - x) <= radius + abs(x) * SETTLED)
    return next(near, None)


def _near_fraction(x: Number, radius: float) -> Fraction | None:
    """The fraction with a small denominator within the radius."""
    if abs(x) > 10**9:
        return None
    scaled = Fraction(int(mp.nint(x * 10**KEY_DIGITS)), 10**KEY_DIGITS)
    near = scaled.limit_denominator(MAX_DENOMINATOR)
    return near if abs(mp.mpf(near.numerator) / near.denominator - x) <= radius + abs(x) * SETTLED else None


def _rational(value: Ball) -> Fraction | None:
    """The fraction with a small denominator that a value is."""
    radius = value.spread + value.size * SETTLED
    return _near_fraction(mp.re(value.middle), radius) if abs(mp.im(value.middle)) <= radius else None


def _roots(x: Number) -> Iterator[Expr]:
    """p ± √q that solve a x² + b x + c = 0, then ±√u ± √v that solve a x⁴ + b x² + c = 0 where c/a is a square."""
    if relation := _relation(x):
        p, product = relation
        if p * p > product:
            yield from (number(p) + _root_of(p * p - product) * sign for sign in (1, -1))
    if relation := _relation(x * x):
        p, product = relation
        m = _root_of(product).rational
        if m is not None and p >= m:
            root_u, root_v = _root_of((p + m) / 2), _root_of((p - m) / 2)
            yield from (root_u * one + root_v * other for one in (1, -1) for other in (1, -1))


def _relation(y: Number) -> tuple[Fraction, Fraction] | None:
    """−b/2a and c/a, where a y² + b y + c = 0 in small whole numbers: half the sum and the product of the solutions."""
    relation = mp.pslq([mp.mpf(1), y, y * y], tol=mp.mpf(SETTLED), maxcoeff=MAX_COEFFICIENT, maxsteps=1_000)
    if relation is None or not relation[2]:
        return None
    c, b, a = map(Fraction, relation)
    return -b / (2 * a), c / a


def _root_of(q: Fraction) -> Expr:
    return power(number(q), number(HALF))


# Keys


def _settled(value: Ball) -> Ball:
    """A value in range and known to more digits than a key has; one that may be zero must be zero to as many."""
    Unsettled.when(max(abs(value.real), abs(value.imag)) >= LARGEST)
    if value.spread <= SETTLED * value.size:
        return value
    if value.size <= value.spread < SETTLED:
        return Ball(0, 0, 0.0, value.is_real)
    raise Unsettled


def _digest(values: list[Ball]) -> str:
    """The leading digits, to be read, and a hash of all of them."""
    texts = [_digits(part, value) for value in values for part in (value.real, value.imag)]
    code = hashlib.blake2b(" ".join(texts).encode(), digest_size=12).hexdigest()
    return f"{float(texts[0]):.6g}#{code}"


def _digits(part: int, value: Ball) -> str:
    """A part to KEY_DIGITS places relative to the whole number, so that a part that is zero reads 0."""
    if not value.size:
        return "0"
    places = KEY_DIGITS - math.floor(math.log10(value.size))
    error = math.ceil(value.error)
    above, below = (10**places, 1) if places >= 0 else (1, 10**-places)
    low, high = ((2 * (part + side * error) * above + UNIT * below) // (2 * UNIT * below) for side in (-1, 1))
    Unsettled.when(low != high)
    return f"{low}e{-places}"
