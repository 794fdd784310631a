"""Exact arithmetic on answers: what `2\\sqrt{3}`, `\\frac{\\pi}{2}`, `(x+1)^2` or `3-4i` are worth.

An `Expr` is a sum of rational multiples of monomials. A monomial is a product of powers of atoms: a prime
under a radical (exponent strictly between 0 and 1), a symbol (`x`, `pi`, `e`, `i`), or the opaque value of a
function (`Call`). Roots of primes are linearly independent over the rationals (Besicovitch 1940), so two
*closed* expressions, those without a `Call`, are equal exactly when their texts are: no simplifier, no guess.

Everything here is bounded: whatever would grow past `MAX_BITS` or `MAX_TERMS` raises `Unreadable`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

MAX_BITS = 40_000
"""Longest integer we compute with (about 12,000 decimal digits; 2006! has 5,759)."""
MAX_TERMS = 64
MAX_PRODUCTS = 1_500
MAX_CALL_CHARS = 4_000
"""Longest arguments of an opaque function value: nesting them must not grow without end."""
MAX_EXPANDED_POWER = 12
MAX_RADICAND_BITS = 200
APPLY = "apply "
"""Name prefix of a call of an unknown function: f(x) is `apply f`."""
FACTOR_LIMIT = 20_000
"""Trial division stops here, so what is left below its square is prime."""


class Unreadable(Exception):  # noqa: N818 - a verdict on an answer, caught where forms are made
    """This text is not something we can compute with; the judge may."""


class Incomputable(Unreadable):
    """We can read it, and nobody should compute it: too large, undefined, or no number at all."""


@dataclass(frozen=True, eq=False)
class Call:
    """A function applied to expressions, kept as it stands: sin(x), log(2, x), inv(x + 1)."""

    name: str
    args: tuple[Expr, ...]

    @cached_property
    def text(self) -> str:
        """The spelling that stands for this value in keys."""
        return f"{self.name}({', '.join(arg.text for arg in self.args)})"

    def __eq__(self, other: object) -> bool:
        """Two calls are the same atom when they are spelled the same."""
        return isinstance(other, Call) and self.text == other.text

    def __hash__(self) -> int:
        """Hash of the spelling, in step with equality."""
        return hash(self.text)


Atom = int | str | Call
Monomial = tuple[tuple[Atom, Fraction], ...]
UNIT: Monomial = ()
HALF = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Expr:
    """A sum of coefficient × monomial; zero coefficients are never stored."""

    terms: Mapping[Monomial, Fraction]

    @cached_property
    def is_closed(self) -> bool:
        """True when the text decides equality: no opaque function value inside."""
        return not any(isinstance(atom, Call) for monomial in self.terms for atom, _ in monomial)

    @cached_property
    def text(self) -> str:
        """Canonical spelling: terms and factors in a fixed order."""
        if not self.terms:
            return "0"
        return " + ".join(sorted(_term_text(c, m) for m, c in self.terms.items()))

    @property
    def rational(self) -> Fraction | None:
        """The value when it is a rational number."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(UNIT) if len(self.terms) == 1 else None

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The free symbols, at any depth; pi, e, i and infinity are not free."""
        found: set[str] = set()
        for atom in self._atoms():
            if isinstance(atom, Call):
                found.update(*(arg.symbols for arg in atom.args))
            elif isinstance(atom, str) and atom not in CONSTANTS:
                found.add(atom)
        return frozenset(found)

    def _atoms(self) -> Iterable[Atom]:
        return (atom for monomial in self.terms for atom, _ in monomial)


CONSTANTS = frozenset({"pi", "e", "i", "oo"})


def number(value: Fraction | int) -> Expr:
    """A rational constant."""
    return Expr({UNIT: Fraction(value)} if value else {})


def symbol(name: str) -> Expr:
    """A symbol, or one of the constants pi, e, i, oo."""
    return Expr({((name, Fraction(1)),): Fraction(1)})


def call(name: str, *args: Expr) -> Expr:
    """An opaque function value: equal spellings are equal, the rest is the judge's."""
    if sum(len(arg.text) for arg in args) > MAX_CALL_CHARS:
        raise Incomputable("too long to compare")
    return Expr({((Call(name, args), Fraction(1)),): Fraction(1)})


def add(a: Expr, b: Expr) -> Expr:
    """A + b."""
    terms = dict(a.terms)
    for monomial, coefficient in b.terms.items():
        _accumulate(terms, monomial, coefficient)
    return _checked(terms)


def negate(a: Expr) -> Expr:
    """-a."""
    return Expr({monomial: -coefficient for monomial, coefficient in a.terms.items()})


def multiply(a: Expr, b: Expr) -> Expr:
    """A × b, expanded."""
    if len(a.terms) * len(b.terms) > MAX_PRODUCTS:
        raise Incomputable("too many products")
    terms: dict[Monomial, Fraction] = {}
    for left, x in a.terms.items():
        for right, y in b.terms.items():
            factor, monomial = _join(left, right)
            _accumulate(terms, monomial, x * y * factor)
    return _checked(terms)


def divide(a: Expr, b: Expr) -> Expr:
    """A / b."""
    return multiply(a, invert(b))


def invert(a: Expr) -> Expr:
    """1 / a: square roots and i leave the denominator; other sums stay as an opaque inv(…)."""
    if not a.terms:
        raise Incomputable("division by zero")
    numerator, denominator = _without_quadratics(a)
    if len(denominator.terms) == 1:
        ((monomial, coefficient),) = denominator.terms.items()
        factor, flipped = _normal((atom, -power) for atom, power in monomial)
        return multiply(numerator, Expr({flipped: factor / coefficient}))
    scale = number(1 / _leading(denominator))
    return multiply(multiply(numerator, scale), call("inv", monic(denominator)))


def monic(a: Expr) -> Expr:
    """A divided by its leading coefficient: the same for all multiples of a."""
    return multiply(a, number(1 / _leading(a)))


def power(base: Expr, exponent: Expr) -> Expr:
    """Base ^ exponent, exact for rational exponents where that has one meaning."""
    q = exponent.rational
    if q is None:
        return call("pow", base, exponent)
    if q.denominator == 1:
        return _integer_power(base, q.numerator)
    if not base.terms:
        if q < 0:
            raise Incomputable("division by zero")
        return number(0)
    if len(base.terms) > 1:
        return call("pow", base, exponent)
    return _rational_power_of_term(base, q)


def trigonometric(name: str, angle: Expr) -> Expr:
    """Sine, cosine and tangent, exact at multiples of π/6 and π/4, opaque elsewhere."""
    turns = Fraction(0) if not angle.terms else angle.terms.get((("pi", Fraction(1)),))
    if turns is None or len(angle.terms) > 1:
        return call(name, angle)
    sine, cosine = _sine(turns), _sine(turns + HALF)
    if name == "tan" and sine is not None and cosine is not None and cosine.terms:
        return divide(sine, cosine)
    value = {"sin": sine, "cos": cosine}.get(name)
    return call(name, angle) if value is None else value


def _sine(turns: Fraction) -> Expr | None:
    """sin(turns · π) for multiples of 1/6 and 1/4: 0, 1/2, √2/2, √3/2, 1 and their negatives."""
    turns %= 2
    if turns >= 1:
        value = _sine(turns - 1)
        return None if value is None else negate(value)
    square = {0: 0, Fraction(1, 6): 1, Fraction(1, 4): 2, Fraction(1, 3): 3, HALF: 4}.get(min(turns, 1 - turns))
    return None if square is None else multiply(power(number(square), number(HALF)), number(HALF))


def factorial(a: Expr) -> Expr:
    """N! for a whole number within bounds."""
    n = a.rational
    if n is None or n.denominator != 1 or n < 0:
        return call("factorial", a)
    if n > 3_000:
        raise Incomputable("factorial too large")
    return number(math.factorial(int(n)))


def binomial(a: Expr, b: Expr) -> Expr:
    """C(n, k) for whole numbers within bounds."""
    n, k = a.rational, b.rational
    if n is None or k is None or n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n:
        return call("binomial", a, b)
    if n > 3_000:
        raise Incomputable("binomial too large")
    return number(math.comb(int(n), int(k)))


def integer_text(n: int) -> str:
    """Decimal where Python prints it, hexadecimal beyond its limit of 4,300 digits."""
    return str(n) if n.bit_length() < 14_000 else hex(n)


def fraction_text(q: Fraction) -> str:
    """`3`, `-1/2`."""
    if q.denominator == 1:
        return integer_text(q.numerator)
    return f"{integer_text(q.numerator)}/{integer_text(q.denominator)}"


def _leading(a: Expr) -> Fraction:
    return a.terms[min(a.terms, key=_monomial_text)]


def _accumulate(terms: dict[Monomial, Fraction], monomial: Monomial, coefficient: Fraction) -> None:
    total = terms.get(monomial, Fraction(0)) + coefficient
    if total:
        terms[monomial] = total
    else:
        terms.pop(monomial, None)


def _checked(terms: dict[Monomial, Fraction]) -> Expr:
    if len(terms) > MAX_TERMS:
        raise Incomputable("too many terms")
    if any(_bits(coefficient) > MAX_BITS for coefficient in terms.values()):
        raise Incomputable("number too large")
    return Expr(terms)


def _bits(q: Fraction) -> int:
    return q.numerator.bit_length() + q.denominator.bit_length()


def _join(left: Monomial, right: Monomial) -> tuple[Fraction, Monomial]:
    if not left:
        return Fraction(1), right
    if not right:
        return Fraction(1), left
    return _normal((*left, *right))


def _normal(powers: Iterable[tuple[Atom, Fraction]]) -> tuple[Fraction, Monomial]:
    """Collect powers; whole powers of primes and of i move into the coefficient."""
    exponents: dict[Atom, Fraction] = {}
    for atom, exponent in powers:
        exponents[atom] = exponents.get(atom, Fraction(0)) + exponent
    factor = Fraction(1)
    for atom, exponent in list(exponents.items()):
        if isinstance(atom, int):
            whole = math.floor(exponent)
            if abs(whole) * atom.bit_length() > MAX_BITS:
                raise Incomputable("power too large")
            factor *= Fraction(atom) ** whole
            exponents[atom] = exponent - whole
        elif atom == "i" and exponent.denominator == 1:
            turns = exponent.numerator % 4
            factor *= -1 if turns >= 2 else 1
            exponents[atom] = Fraction(turns % 2)
    kept = [(atom, exponent) for atom, exponent in exponents.items() if exponent]
    return factor, tuple(sorted(kept, key=lambda pair: _atom_text(pair[0])))


def _without_quadratics(a: Expr) -> tuple[Expr, Expr]:
    """1/a = numerator/denominator, with square roots of primes and i cleared from the denominator."""
    numerator, denominator = number(1), a
    for _ in range(4):
        generator = next(
            (
                atom
                for monomial in denominator.terms
                for atom, exponent in monomial
                if len(denominator.terms) > 1
                and ((isinstance(atom, int) and exponent == HALF) or (atom == "i" and exponent == 1))
            ),
            None,
        )
        if generator is None:
            break
        conjugate = Expr(
            {m: -c if any(atom == generator for atom, _ in m) else c for m, c in denominator.terms.items()}
        )
        numerator, denominator = multiply(numerator, conjugate), multiply(denominator, conjugate)
    return numerator, denominator


def _integer_power(base: Expr, n: int) -> Expr:
    if n < 0:
        return invert(_integer_power(base, -n))
    if not base.terms:
        return number(0 if n else 1)
    if len(base.terms) == 1:
        ((monomial, coefficient),) = base.terms.items()
        if _bits(coefficient) * n > MAX_BITS and abs(coefficient) != 1:
            raise Incomputable("power too large")
        factor, raised = _normal((atom, exponent * n) for atom, exponent in monomial)
        return _checked({raised: coefficient**n * factor})
    if n > MAX_EXPANDED_POWER:
        raise Incomputable("power too large to expand")
    result = number(1)
    for _ in range(n):
        result = multiply(result, base)
    return result


def _rational_power_of_term(base: Expr, q: Fraction) -> Expr:
    """(c · m)^q for one term: real roots, and i for the square root of a negative number."""
    ((monomial, coefficient),) = base.terms.items()
    even_root = q.denominator % 2 == 0
    ambiguous = any(
        atom == "i" or isinstance(atom, Call) or (even_root and isinstance(atom, str) and e != 1)
        for atom, e in monomial
    )
    if ambiguous or (coefficient < 0 and even_root and q.denominator != 2):
        return call("pow", base, number(q))
    powers: list[tuple[Atom, Fraction]] = [(atom, e * q) for atom, e in monomial]
    sign = 1
    if coefficient < 0:
        if even_root:
            powers.append(("i", Fraction(q.numerator)))
        else:
            sign = -1 if q.numerator % 2 else 1
    for n, direction in ((abs(coefficient.numerator), 1), (coefficient.denominator, -1)):
        for prime, multiplicity in _factor(n).items():
            powers.append((prime, direction * multiplicity * q))
    factor, raised = _normal(powers)
    return _checked({raised: factor * sign})


def _factor(n: int) -> dict[int, int]:
    """Prime factors of n; refuses what trial division cannot finish."""
    if n.bit_length() > MAX_RADICAND_BITS:
        raise Unreadable("radicand too large to factor")
    factors: dict[int, int] = {}
    divisor = 2
    while divisor * divisor <= n and divisor < FACTOR_LIMIT:
        while n % divisor == 0:
            factors[divisor] = factors.get(divisor, 0) + 1
            n //= divisor
        divisor += 1 if divisor == 2 else 2
    if n > 1:
        if n >= FACTOR_LIMIT**2:
            root = math.isqrt(n)
            if root * root != n or root >= FACTOR_LIMIT**2:
                raise Unreadable("radicand too large to factor")
            return factors | {root: 2}
        factors[n] = factors.get(n, 0) + 1
    return factors


def _atom_text(atom: Atom) -> str:
    return atom.text if isinstance(atom, Call) else str(atom)


def _monomial_text(monomial: Monomial) -> str:
    return "*".join(_atom_text(atom) if e == 1 else f"{_atom_text(atom)}^({fraction_text(e)})" for atom, e in monomial)


def _term_text(coefficient: Fraction, monomial: Monomial) -> str:
    if not monomial:
        return fraction_text(coefficient)
    if coefficient == 1:
        return _monomial_text(monomial)
    return f"{fraction_text(coefficient)}*{_monomial_text(monomial)}"
