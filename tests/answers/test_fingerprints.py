r"""Values at points: what they merge, what they must keep apart, and that their bounds hold."""

import subprocess
import sys

import mpmath
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from scrl.answers import balls
from scrl.answers.classes import same_answer
from scrl.answers.exact import Unsettled
from scrl.answers.forms import canonical_form


def test_sympy_agrees_on_what_is_merged_and_on_what_is_nearly_equal():
    """A second opinion, on expressions of our own making."""
    x, y = sympy.symbols("x y", positive=True)
    assert sympy.simplify(2 * sympy.sin(x) * sympy.cos(x) - sympy.sin(2 * x)) == 0
    assert sympy.simplify(1 / (x - 1) + 1 / (x + 1) - 2 * x / (x**2 - 1)) == 0
    assert sympy.simplify(sympy.sin(sympy.pi / 12) - (sympy.sqrt(6) - sympy.sqrt(2)) / 4) == 0
    assert sympy.sqrtdenest(sympy.sqrt(3 + 2 * sympy.sqrt(2))) == 1 + sympy.sqrt(2)
    for near, value in [
        (sympy.Rational(355, 113), sympy.pi),
        (sympy.exp(sympy.pi) - sympy.pi, sympy.Integer(20)),
        (sympy.exp(sympy.pi * sympy.sqrt(163)), sympy.Integer(262537412640768744)),
    ]:
        assert (near - value).evalf(60) != 0
    z, w = sympy.symbols("z w")  # no assumption: these do not simplify to one another
    assert sympy.simplify(sympy.log(z * w) - sympy.log(z) - sympy.log(w)) != 0
    assert sympy.sqrt(z**2) != z
    assert sympy.simplify(sympy.log(x * y) - sympy.log(x) - sympy.log(y)) == 0  # only where both are positive


def test_beyond_rational_functions_it_is_a_heuristic():
    """cos(10⁻⁵⁵) is 1 − 10⁻¹¹⁰/2: the 100 digits of a key do not show it. docs/answers.md says so."""
    assert same_answer(r"\cos(10^{-55}\sin x)", r"\cos(10^{-55}\cos x)")
    assert not same_answer(r"1 + e^{-130} 2^{-170} \sin x", r"1 + e^{-130} 2^{-170} \cos x")  # lost beside 1: text
    assert not same_answer(r"1 + e^{-130} \sin x", r"1 + e^{-130} \cos x")
    assert not same_answer(r"1 + e^{-1000} \sin x", "1")  # out of range: text


def test_branch_cuts_beyond_the_points_are_not_seen():
    """Points lie within 6 of 0, and real symbols have one sign at each. docs/answers.md says so."""
    assert same_answer(r"\ln((x-10)^2)", r"2\ln(10-x)")  # for x > 10 the second is not real
    assert not same_answer(r"\ln((x-5)^2)", r"2\ln(5-x)")
    assert same_answer(r"\ln\frac{x}{y}", r"\ln x-\ln y")  # for x > 0 > y they are πi and -πi
    assert not same_answer(r"\ln(xy)", r"\ln x+\ln y")


SMALL = st.integers(-9, 9)
POLYNOMIALS = st.lists(SMALL, min_size=1, max_size=4)


def write(coefficients):
    return " + ".join(f"({c}) x^{{{power}}}" for power, c in enumerate(coefficients))


@given(POLYNOMIALS, POLYNOMIALS, POLYNOMIALS, POLYNOMIALS)
def test_rational_functions_are_equal_exactly_when_their_cross_products_are(p, q, r, s):
    x = sympy.Symbol("x")
    polynomials = [sympy.Poly(sum(c * x**power for power, c in enumerate(own)), x) for own in (p, q, r, s)]
    assume(not polynomials[1].is_zero)
    assume(not polynomials[3].is_zero)
    a, b = rf"\frac{{{write(p)}}}{{{write(q)}}}", rf"\frac{{{write(r)}}}{{{write(s)}}}"
    cross = polynomials[0] * polynomials[3] - polynomials[2] * polynomials[1]
    assert same_answer(a, b) == cross.is_zero


REALS = st.fractions(min_value=-4, max_value=4, max_denominator=64)
FUNCTIONS = sorted(balls.FUNCTIONS.keys() - {"log", "pow", "inv"})


@given(st.sampled_from(FUNCTIONS), REALS, REALS)
def test_balls_hold_the_true_value(name, real, imaginary):
    """Against mpmath's own functions with twice the digits."""
    z = balls.total(balls.exactly(real), balls.product(balls.exactly(imaginary), balls.I))
    if imaginary == 0:
        z = balls.exactly(real)
    try:
        found = balls.FUNCTIONS[name](z)
    except (Unsettled, ZeroDivisionError):
        return
    with mpmath.workdps(300):
        exact = (
            mpmath.mpc(real.numerator, 0) / real.denominator
            + mpmath.mpc(0, imaginary.numerator) / imaginary.denominator
        )
        true = getattr(mpmath, {"ln": "log"}.get(name, name))(exact if imaginary else exact.real)
        assert abs(mpmath.mpmathify(found.middle) - true) <= found.spread + mpmath.mpf(10) ** -130


def test_a_key_is_the_same_in_every_process_and_for_no_other_name():
    code = "from scrl.answers.forms import canonical_form; print(canonical_form(r'\\sin x').key)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, encoding="utf-8")
    assert other.stdout.strip() == canonical_form(r"\sin x").key
    assert canonical_form(r"\sin x").key != canonical_form(r"\sin y").key


def test_what_would_take_minutes_is_text():
    for answer in (
        r"\sin(\sinh(10^{9}))",
        r"\cos(\cosh(10^{12}))",
        r"\tan(10^{500})",
        r"e^{99999\pi}",
        r"e^{e^{e^{9}}}",
    ):
        assert canonical_form(answer).decided_by == "text", answer
