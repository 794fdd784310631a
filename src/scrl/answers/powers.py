"""Powers, roots and quotients of exact values."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from operator import mul

from scrl.answers import exact
from scrl.answers.exact import Atom, Call, Expr, Incomputable, Monomial, Unreadable, call, normal, number

MAX_EXPANDED_POWER = 12
MAX_RADICAND_BITS = 200
MAX_DIVISION_STEPS = 64
_SCALARS = frozenset("GIRV")
"""Capitals of physics, or the identity, that are rather numbers than matrices: I^2R is RI^2."""
FACTOR_LIMIT = 20_000
"""Trial division stops here, so what is left below its square is prime."""


def divide(a: Expr, b: Expr) -> Expr:
    return a * invert(b)


def invert(a: Expr) -> Expr:
    """1 / a: square roots and i leave the denominator; other sums stay as an opaque inv(…)."""
    Incomputable.when(not a.terms, "division by zero")
    numerator, denominator = _without_quadratics(a)
    if len(denominator.terms) == 1:
        ((monomial, coefficient),) = denominator.terms.items()
        inverses = [atom for atom, power in monomial if isinstance(atom, Call) and atom.name == "inv" and power == 1]
        factor, flipped = normal((atom, -power) for atom, power in monomial if atom not in inverses)
        numerator = math.prod((atom.args[0] for atom in inverses), start=numerator)  # 1 / (1 / (x + 1))
        return numerator * Expr({flipped: factor / coefficient})
    shared, rest = _monomial_content(denominator)
    flipped = tuple((atom, -exponent) for atom, exponent in shared)
    return numerator * Expr({flipped: 1 / exact.leading(rest)}) * call("inv", monic(rest))


def monic(a: Expr) -> Expr:
    """Divided by its leading coefficient: the same for all multiples of an expression."""
    return a * (1 / exact.leading(a))


def cancel(a: Expr) -> Expr:
    """Divide where no remainder is left: (x² − 1)/(x − 1) is x + 1; and sin² is 1 − cos². The rest is unchanged."""
    a = sum((_without_sine_squared(m, c) for m, c in a.terms.items()), number(0))
    inverses = {atom for monomial in a.terms for atom, _ in monomial if isinstance(atom, Call) and atom.name == "inv"}
    for atom in sorted(inverses, key=lambda atom: atom.text):
        (divisor,) = atom.args
        if not _is_polynomial(divisor):
            continue
        parts: dict[int, dict[Monomial, Fraction]] = {}
        for monomial, coefficient in a.terms.items():
            powers = dict(monomial)
            count = powers.pop(atom, Fraction(0))
            if count.denominator != 1 or count < 0:
                return a
            parts.setdefault(int(count), {})[tuple(powers.items())] = coefficient
        if not any(monomial for terms in parts.values() for monomial in terms):
            continue  # a number above it
        depth = max(parts)
        lifted = (Expr(terms) * _integer_power(divisor, depth - own) for own, terms in parts.items())
        numerator = sum(lifted, number(0))
        while depth and (quotient := _divide_exactly(numerator, divisor)) is not None:
            numerator, depth = quotient, depth - 1
        if depth == 0:
            a = numerator
    return a


def _without_sine_squared(monomial: Monomial, coefficient: Fraction) -> Expr:
    for atom, e in monomial:
        if isinstance(atom, Call) and atom.name == "sin" and e in (2, 3):
            _, rest = normal((*monomial, (atom, Fraction(-2))))
            cosine = call("cos", *atom.args)
            return Expr({rest: coefficient}) * (number(1) - cosine * cosine)
    return Expr({monomial: coefficient})


def _is_polynomial(a: Expr) -> bool:
    """Only positive powers of free symbols, whole ones or roots."""
    return all(
        isinstance(atom, str) and atom not in exact.CONSTANTS and power > 0
        for monomial in a.terms
        for atom, power in monomial
    )


def _divide_exactly(a: Expr, divisor: Expr) -> Expr | None:
    """The quotient of polynomials; None if there is a remainder."""
    shift, a = _monomial_content(a) if a.terms else (exact.UNIT, a)
    if not _is_polynomial(a):
        return None
    names = sorted(a.symbols | divisor.symbols)

    def degrees(monomial: Monomial) -> tuple[Fraction, ...]:
        powers = dict(monomial)
        return tuple(powers.get(name, Fraction(0)) for name in names)

    lead = max(divisor.terms, key=degrees)
    quotient = number(0)
    for _ in range(MAX_DIVISION_STEPS):
        if not a.terms:
            return quotient * Expr({shift: Fraction(1)})
        top = max(a.terms, key=degrees)
        step = [high - low for high, low in zip(degrees(top), degrees(lead), strict=True)]
        if min(step) < 0:
            return None
        monomial = tuple((name, power) for name, power in zip(names, step, strict=True) if power)
        term = Expr({monomial: a.terms[top] / divisor.terms[lead]})
        quotient, a = quotient + term, a - term * divisor
    return None


def _monomial_content(a: Expr) -> tuple[Monomial, Expr]:
    """a = m · rest, with the largest m of symbols and functions that divides every term: x² − x = x (x − 1)."""
    atoms = {atom for monomial in a.terms for atom, _ in monomial if not isinstance(atom, int)} - exact.CONSTANTS
    atoms = {atom for atom in atoms if not (isinstance(atom, Call) and atom.name == "inv")}
    _, shared = normal((atom, min(dict(monomial).get(atom, Fraction(0)) for monomial in a.terms)) for atom in atoms)
    if not shared:
        return exact.UNIT, a
    flipped = Expr({tuple((name, -power) for name, power in shared): Fraction(1)})
    return shared, a * flipped


def power(base: Expr, exponent: Expr) -> Expr:
    """Base ^ exponent, exact for rational exponents where that has one meaning."""
    q = exponent.rational
    if q is None:
        inner = _inner_logarithm(base, exponent)
        return call("pow", base, exponent) if inner is None else inner
    if q.denominator == 1:
        return _integer_power(base, q.numerator)
    if not base.terms:
        Incomputable.when(q < 0, "division by zero")
        return number(0)
    if len(base.terms) > 1:
        return call("pow", base, exponent)
    return _rational_power_of_term(base, q)


def _inner_logarithm(base: Expr, exponent: Expr) -> Expr | None:
    """b^(log_b a) = a."""
    if len(exponent.terms) != 1:
        return None
    ((monomial, coefficient),) = exponent.terms.items()
    match monomial:
        case ((Call("ln", (inner,)), Fraction(numerator=1, denominator=1)),) if coefficient == 1 and base.text == "e":
            return inner
        case ((Call("log", (own, inner)), Fraction(numerator=1, denominator=1)),) if coefficient == 1:
            return inner if own.text == base.text and own.rational not in (None, 0, 1) else None
    return None


def _without_quadratics(a: Expr) -> tuple[Expr, Expr]:
    """1/a = numerator/denominator, with square roots of primes and i cleared from the denominator."""
    numerator, denominator = number(1), a
    for _ in range(4):
        pairs = [pair for monomial in denominator.terms for pair in monomial]
        roots = [atom for atom, e in pairs if (isinstance(atom, int) and e == exact.HALF) or (atom == "i" and e == 1)]
        if len(denominator.terms) < 2 or not roots:
            break
        conjugate = Expr({m: -c if roots[0] in dict(m) else c for m, c in denominator.terms.items()})
        numerator, denominator = numerator * conjugate, denominator * conjugate
    return numerator, denominator


def _integer_power(base: Expr, n: int) -> Expr:
    if n < 0:
        return invert(_integer_power(base, -n))
    if not base.terms:
        return number(0 if n else 1)
    if len(base.terms) == 1:
        ((monomial, coefficient),) = base.terms.items()
        if exact.bits(coefficient) * n > exact.MAX_BITS and abs(coefficient) != 1:
            return _rational_power_of_term(base, Fraction(n))
        factor, raised = normal((atom, exponent * n) for atom, exponent in monomial)
        return exact.checked({raised: coefficient**n * factor})
    Incomputable.when(n > MAX_EXPANDED_POWER, "power too large to expand")
    return math.prod([base] * n, start=number(1))


def _rational_power_of_term(base: Expr, q: Fraction) -> Expr:
    """(c · m)^q for one term: real roots, and i for the square root of a negative number; √(xy) is not √x √y."""
    ((monomial, coefficient),) = base.terms.items()
    even_root = q.denominator % 2 == 0
    free = [(atom, e) for atom, e in monomial if isinstance(atom, str) and atom not in ("pi", "e")]
    ambiguous = any(atom == "i" or isinstance(atom, Call) for atom, _ in monomial) or (
        even_root and bool(free) and (len(free) > 1 or free[0][1] != 1 or coefficient < 0)
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
    factor, raised = normal(powers)
    return exact.checked({raised: factor * sign})


def _factor(n: int) -> Counter[int]:
    """Prime factors of n; refuses what trial division cannot finish."""
    Unreadable.when(n.bit_length() > MAX_RADICAND_BITS, "radicand too large to factor")
    factors: Counter[int] = Counter()
    for divisor in itertools.chain([2], range(3, FACTOR_LIMIT, 2)):
        if divisor * divisor > n:
            break
        while n % divisor == 0:
            factors[divisor] += 1
            n //= divisor
    if n < FACTOR_LIMIT**2:
        return factors | Counter([n] if n > 1 else [])
    root = math.isqrt(n)
    Unreadable.when(root * root != n or root >= FACTOR_LIMIT**2, "radicand too large to factor")
    return factors | Counter([root, root])


def product(factors: Sequence[Expr]) -> Expr:
    """The product; what may be matrices or operators keeps its order: AB is not BA, x^T x is not x x^T."""
    if len(factors) == 1:
        return factors[0]
    has_transpose = any(map(_is_transpose, factors))
    operators = [f for f in factors if any(map(_is_operator_name, f.symbols)) or (has_transpose and f.symbols)]
    names = {name for factor in operators for name in factor.symbols if _is_operator_name(name)}
    if len(operators) > 1 and (len(names) > 1 or has_transpose):
        if (count := math.prod(len(f.terms) for f in operators)) > exact.MAX_TERMS:
            raise Incomputable("too many products")
        if count > 1:  # A(B+C) is AB+AC
            terms = ([Expr({m: c}) for m, c in f.terms.items()] for f in operators)
            word = sum(map(product, itertools.product(*terms)), number(0))
        else:
            spelled = " ".join(Expr(dict.fromkeys(f.terms, Fraction(1))).text for f in operators)
            scale = math.prod((c for f in operators for c in f.terms.values()), start=Fraction(1))
            word = exact.symbol(f"({spelled})") * scale
        factors = [word, *(factor for factor in factors if factor not in operators)]
    return reduce(mul, factors)


def _is_operator_name(name: str) -> bool:
    """A capital letter but G, I, R and V, one with a hat, σ_x, a_+, or a product of such: may be a matrix."""
    is_marked = name.startswith(("hat(", "vec(", "bold(", "(")) or name.endswith(("_{+}", "_{-}"))
    is_capital = name[0].isupper() and name[:2].rstrip("_") not in _SCALARS
    return is_capital or is_marked or name in ("sigma_x", "sigma_y", "sigma_z")


def _is_transpose(factor: Expr) -> bool:
    """x^T, unless x is a number."""
    match tuple(factor.terms):
        case (((Call("pow", (base, exponent)), _),),):
            return exponent.text == "T" and bool(base.symbols)
    return False
