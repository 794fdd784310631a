"""Exact arithmetic on answers: what `2\\sqrt{3}`, `\\frac{\\pi}{2}`, `(x+1)^2` or `3-4i` are worth.

An `Expr` is a sum of rational multiples of monomials. A monomial is a product of powers of atoms: a prime
under a radical (exponent strictly between 0 and 1), a symbol (`x`, `pi`, `e`, `i`), or the opaque value of a
function (`Call`). Roots of primes are linearly independent over the rationals (Besicovitch 1940), so two
*closed* expressions, those without a `Call`, are equal exactly when their texts are: no simplifier, no guess.

Everything here is bounded: whatever would grow past `MAX_BITS` or `MAX_TERMS` raises `Unreadable`.
"""

from __future__ import annotations

import math
import re
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
MAX_EXPONENT = 5_000
APPLY = "apply "
"""Name prefix of a call of an unknown function: f(x) is `apply f`."""


class Refused(Exception):  # noqa: N818 - a verdict on an answer, caught where forms are made
    """No form but its text."""

    @classmethod
    def when(cls, condition: object, reason: str = "") -> None:
        """Refuse if the condition holds."""
        if condition:
            raise cls(reason)


class Unreadable(Refused):
    """This text cannot be computed with."""


class Incomputable(Unreadable):
    """It can be read but must not be computed: too large, undefined, ambiguous, or not a number."""


class Unsettled(Refused):
    """No value to enough digits."""


@dataclass(frozen=True, eq=False)
class Call:
    """A function applied to expressions, kept as it is: sin(x), log(2, x), inv(x + 1)."""

    name: str
    args: tuple[Expr, ...]

    @cached_property
    def text(self) -> str:
        """The spelling of this value in keys."""
        return f"{self.name}({', '.join(arg.text for arg in self.args)})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


Atom = int | str | Call
Monomial = tuple[tuple[Atom, Fraction], ...]
UNIT: Monomial = ()
HALF = Fraction(1, 2)


@dataclass(frozen=True, eq=False)
class Expr:
    """A sum of coefficient × monomial; zero coefficients are never stored."""

    terms: Mapping[Monomial, Fraction]

    def __add__(self, other: Expr) -> Expr:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            terms[monomial] = terms[monomial] + coefficient if monomial in terms else coefficient
        return checked(terms)

    def __neg__(self) -> Expr:
        return Expr({monomial: -coefficient for monomial, coefficient in self.terms.items()})

    def __sub__(self, other: Expr) -> Expr:
        return self + -other

    def __mul__(self, other: Expr | Fraction | int) -> Expr:
        other = other if isinstance(other, Expr) else number(other)
        if len(self.terms) * len(other.terms) > MAX_PRODUCTS:
            raise Incomputable("too many products")
        terms: dict[Monomial, Fraction] = {}
        for left, x in self.terms.items():
            for right, y in other.terms.items():
                factor, monomial = normal((*left, *right)) if left and right else (Fraction(1), left or right)
                terms[monomial] = terms.get(monomial, 0) + x * y * factor
        return checked(terms)

    @cached_property
    def is_closed(self) -> bool:
        """True when the text decides equality: no opaque function value inside."""
        return not any(isinstance(atom, Call) for atom in self._atoms())

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
    def names(self) -> frozenset[str]:
        """The symbols at any depth, the constants pi, e, i and oo included."""
        names = frozenset(atom for atom in self._atoms() if isinstance(atom, str))
        return names.union(*(arg.names for arg in self._args()))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The free symbols, at any depth."""
        return self.names - CONSTANTS

    @cached_property
    def functions(self) -> frozenset[str]:
        """The names of all calls, at any depth."""
        calls = frozenset(atom.name for atom in self._atoms() if isinstance(atom, Call))
        return calls.union(*(arg.functions for arg in self._args()))

    def _atoms(self) -> list[Atom]:
        return [atom for monomial in self.terms for atom, _ in monomial]

    def _args(self) -> list[Expr]:
        return [arg for atom in self._atoms() if isinstance(atom, Call) for arg in atom.args]


CONSTANTS = frozenset({"pi", "e", "i", "oo"})


def number(value: Fraction | int) -> Expr:
    return Expr({UNIT: Fraction(value)} if value else {})


def symbol(name: str) -> Expr:
    """A symbol, or one of the constants pi, e, i, oo."""
    return Expr({((name, Fraction(1)),): Fraction(1)})


def call(name: str, *args: Expr) -> Expr:
    """An opaque function value."""
    Incomputable.when(sum(len(arg.text) for arg in args) > MAX_CALL_CHARS, "too long to compare")
    return Expr({((Call(name, args), Fraction(1)),): Fraction(1)})


def integer_text(n: int) -> str:
    """Decimal where Python prints it, hexadecimal beyond its limit of 4,300 digits."""
    return str(n) if n.bit_length() < 14_000 else hex(n)


def fraction_text(q: Fraction) -> str:
    """`3`, `-1/2`."""
    return integer_text(q.numerator) + (f"/{integer_text(q.denominator)}" if q.denominator != 1 else "")


def leading(a: Expr) -> Fraction:
    """The coefficient of the first monomial in the order of keys."""
    return a.terms[min(a.terms, key=_monomial_text)]


def checked(terms: dict[Monomial, Fraction]) -> Expr:
    """An expression within bounds, without terms that cancelled."""
    terms = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}
    Incomputable.when(len(terms) > MAX_TERMS, "too many terms")
    Incomputable.when(any(bits(coefficient) > MAX_BITS for coefficient in terms.values()), "number too large")
    return Expr(terms)


def bits(q: Fraction) -> int:
    """The bits of numerator and denominator together."""
    return q.numerator.bit_length() + q.denominator.bit_length()


def normal(powers: Iterable[tuple[Atom, Fraction]]) -> tuple[Fraction, Monomial]:
    """Collect powers; whole powers of primes and of i move into the coefficient."""
    exponents: dict[Atom, Fraction] = {}
    for atom, exponent in powers:
        exponents[atom] = exponents.get(atom, Fraction(0)) + exponent
    factor = Fraction(1)
    for atom, exponent in list(exponents.items()):
        if isinstance(atom, int):
            whole = math.floor(exponent)
            if abs(whole) * atom.bit_length() > MAX_BITS:  # 2^100000 stays a power
                continue
            factor *= Fraction(atom) ** whole
            exponents[atom] = exponent - whole
        elif atom == "i" and exponent.denominator == 1:
            turns = exponent.numerator % 4
            factor *= -1 if turns >= 2 else 1
            exponents[atom] = Fraction(turns % 2)
    kept = [(atom, exponent) for atom, exponent in exponents.items() if exponent]
    return factor, tuple(sorted(kept, key=lambda pair: str(pair[0])))


def _monomial_text(monomial: Monomial) -> str:
    return "*".join(str(atom) if e == 1 else f"{atom}^({fraction_text(e)})" for atom, e in monomial)


def _term_text(coefficient: Fraction, monomial: Monomial) -> str:
    if not monomial:
        return fraction_text(coefficient)
    return ("" if coefficient == 1 else f"{fraction_text(coefficient)}*") + _monomial_text(monomial)


def decimal(text: str) -> Fraction:
    """`025`, `142.0`, `.5`, `4.5e33`, exactly."""
    _, _, exponent = text.lower().partition("e")
    Incomputable.when(exponent and abs(int(exponent)) > MAX_EXPONENT, "exponent too large")
    return Fraction(text.removesuffix("."))


def repeating_decimal(text: str) -> Fraction:
    r"""`0.1\overline{6}`, `0.1\bar6` and `0.1(6)` are 1/10 + 6/90."""
    match = re.fullmatch(r"(\d*)\.(\d*)\D+(\d+)\D*", text)
    assert match is not None  # the tokenizer's pattern is narrower
    whole, fixed, period = match.groups()
    scale = 10 ** len(fixed)
    return Fraction(int((whole + fixed) or "0"), scale) + Fraction(int(period), scale * (10 ** len(period) - 1))
