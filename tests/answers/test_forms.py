r"""Canonical forms: golden keys, the corpus of pairs, exactness, bounds."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scrl.answers import exact, powers
from scrl.answers.classes import same_answer
from scrl.answers.forms import canonical_form, explain_answer
from scrl.cli.main import main

HERE = Path(__file__).parent
LISTS = ["pairs", "blind_pairs", "second_pairs", "third_pairs", "fourth_pairs", "fifth_pairs", "attack_pairs"]
"""Ours, three by people who had not seen the code (blind, second, fourth), mistakes found since, and two by attackers."""


def read_pairs():
    """(list, class, equal, left, right)."""
    for line in (HERE / "pairs.jsonl").read_text(encoding="utf-8").splitlines():
        pair = json.loads(line)
        yield "first", pair["kind"], pair["equal"], pair["a"], pair["b"]
    for name in LISTS:
        for line in (HERE / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
            *kind, equal, left, right = line.split("\t")
            yield name, kind[0] if kind else "mixed", equal == "1", left, right


PAIRS = list(read_pairs())
SPLITS, MERGES = (
    {tuple(line.split("\t")[:2]) for line in (HERE / f"known_{name}.txt").read_text(encoding="utf-8").splitlines()}
    for name in ("splits", "merges")
)
"""Equal answers that we keep apart, which cost votes, and the price of conventions, each with its reason."""


@pytest.mark.parametrize("name", ["first", *LISTS])
def test_different_answers_are_never_merged(name):
    different = {(left, right) for own, _, equal, left, right in PAIRS if own == name and not equal}
    assert {pair for pair in different if same_answer(*pair)} == different & MERGES
    assert {pair for pair in different if same_answer(*pair[::-1])} == different & MERGES


@pytest.mark.parametrize("name", ["first", *LISTS])
def test_equal_answers_are_merged_but_for_the_known_splits(name):
    same = {(left, right) for own, _, equal, left, right in PAIRS if own == name and equal}
    assert {pair for pair in same if not same_answer(*pair)} == same & SPLITS


def test_every_class_of_mistakes_has_forty_pairs_half_of_them_different():
    for kind in map(str, range(1, 13)):
        labels = [equal for name, own, equal, _, _ in PAIRS if name == "pairs" and own == kind]
        assert len(labels) >= 40, kind
        assert 0.4 <= labels.count(False) / len(labels) <= 0.6, kind


GOLDEN = [line.split("\t") for line in (HERE / "golden_keys.tsv").read_text(encoding="utf-8").splitlines()]
"""Answer and key; ≈ alone: values at points."""


@pytest.mark.parametrize(("answer", "key"), GOLDEN)
def test_golden_keys(answer, key):
    found = canonical_form(answer)
    assert found.key == key if key != "≈" else found.decided_by == "fingerprint"


@pytest.mark.parametrize(
    "answer",
    [
        "n!", r"\frac{2}{4x+4}", r"2^x", r"\sqrt{x+1}", r"\log_2 x", r"\log x", r"\sin^{-1} x", r"\sin^2 x", r"\sin -x",
        "f(2)", r"\sin \frac{\pi}{5}", r"e^\sin x", r"\sqrt{x^2}", r"(-2)^{1/4}",
    ],
)  # fmt: skip
def test_open_expressions_have_fingerprints(answer):
    """Values at points that depend on the symbols' names alone, so that the key is the same in every process."""
    assert canonical_form(answer).key.startswith("≈")


@pytest.mark.parametrize("answer", ["", "  ", "{}", r"\text{}", "$$", r"\,", ".", "...", r"\(\)"])
def test_nothing_is_no_answer(answer):
    assert canonical_form(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        r"9^{9^{9^9}}", "9" * 900 + "!", r"(1+x)^{10^6}", "1e999999", "(" * 300 + "x" + ")" * 300,
        r"\sqrt{" * 100 + "2" + "}" * 100, "^".join("9" * 40), r"\frac{1}{" * 90, r"\binom{99999}{5}", "3001!",
        r"2^{0.5^{-9}}" * 5, "(a+b+c+d+e+f+g+h)^{30}", "(a+b+c+d+e+f+g+h+j+k)^2 (l+m+n+o+p+q+r+s+t+u+v+w+x+y+z)^2",
        r"\sqrt{1000000000000000000000000000057}", r"\pm" * 40 + "1", "x" * 5_000, "x" + "!" * 350,
        "(" + ",".join(["apples"] * 140) + "]=5", "(1+x)" * 196, "x" + "^a" * 350, "x" + "'" * 350, "A'(B+C)", "2^3 5", "^2 5", "(A+B)(C+D)(E+F)(H+J)(K+L)(M+N)(O+P)",
        r"\sin((1+x)^{11}" * 20 + ")" * 20,
        r"((1+\sqrt2)(1+\sqrt3)(1+\sqrt5)(1+\sqrt7)(1+\sqrt{11}))^{12}" + "+1" * 100, "(1+x+y)^{12}" * 60,
        r"\sqrt{19997^{2000}}" * 40, r"\text{①、③}", r"\text{₂ 5}", "٣", "Ⅷ", "\ud800", "\x00",
    ],
)  # fmt: skip
def test_hostile_answers_have_a_form_and_are_bounded(answer):
    form = canonical_form(answer)
    assert form is not None
    assert len(form.key) < 20_000


def test_nested_functions_do_not_grow_without_end():
    """Each level multiplies the length of the key by 13; the fourth would have megabytes."""
    answer = "x"
    for _ in range(6):
        answer = rf"\sin((1+{answer})^{{12}})"
    assert len(canonical_form(answer).key) < 1_000


def test_nested_mixed_numbers_take_no_exponential_time():
    answer = "x"
    for _ in range(18):
        answer = rf"2\frac{{{answer}}}{{3}}"
    assert canonical_form(answer).key == f"{2**18}/{3**18}*x"


def test_huge_exact_numbers_are_compared_exactly():
    assert canonical_form("2006!").key.startswith("0x")
    assert canonical_form("2006!").key != canonical_form("2004!").key
    assert canonical_form("2006!").key == canonical_form(r"2006 \cdot 2005!").key


def test_very_long_answers_are_compared_as_text():
    long = "x + " * 300
    assert canonical_form(long + "1").key != canonical_form(long + "2").key
    assert len(canonical_form("x" * 10**6).key) < 100  # and take no room
    assert canonical_form(" " * 2_000) is None


@pytest.mark.parametrize(
    ("answer", "digits", "key"),
    [
        ("3.14159", 3, "3.14"), (r"\pi", 3, "3.14"), ("3.142", 3, "3.14"), ("3.15", 3, "3.15"),
        ("4.5e33", 2, "4.5e+33"), ("0", 3, "0.0"), ("-12345", 2, "-1.2e+4"), (r"\frac{2}{3}", 4, "6.667e-1"),
        (r"\sin 1", 3, "8.41e-1"), ("2x", 3, "2*x"), ("2i", 3, "2*i"), ("(1.234, x)", 2, "(1.2, x)"),
        ("3.14", 1, "3."), ("4500", 1, "5.e+3"), ("9.995", 3, "1.00e+1"), ("2006!", 3, "2.14e+5755"),
        (r"\pi\cdot 10^{-150}", 3, "3.14e-150"), (r"\pi\cdot 10^{260}", 3, "3.14e+260"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_to_significant_digits_on_request(answer, digits, key):
    assert canonical_form(answer, digits).key == key


ONE = r"(\sin^2(1)+\cos^2(1))"
"""The number 1, known to many digits but not exactly."""


@pytest.mark.parametrize(
    ("answer", "digits", "key"),
    [
        ("0.125", 2, "1.3e-1"), ("0.135", 2, "1.4e-1"), ("2.675", 3, "2.68"), ("-2.675", 3, "-2.68"), ("1.005", 3, "1.01"),
        (r"\frac18", 2, "1.3e-1"), ("12345", 4, "1.235e+4"), ("2.67499999999999999999999999", 3, "2.67"),
        (rf"0.125{ONE}", 2, "1.3e-1"), (rf"2.675{ONE}", 3, "2.68"), (rf"-2.675{ONE}", 3, "-2.68"), (f"{ONE}-1", 3, "0.0"),
        (r"\cos^2(\sin 1)+\sin^2(\sin 1)-1", 3, "0.0"),
    ],
)  # fmt: skip
def test_halves_are_rounded_away_from_zero(answer, digits, key):
    """As exact numbers are, and as numbers that are exact to all digits that are known."""
    assert canonical_form(answer, digits).key == key


@given(st.fractions(max_denominator=10_000).filter(bool), st.integers(1, 15))
def test_rounding_is_within_half_a_unit_of_the_last_digit(q, digits):
    text = canonical_form(f"\\frac{{{q.numerator}}}{{{q.denominator}}}", digits).key
    mantissa, _, exponent = text.partition("e")
    error = Fraction(text.replace(".e", "e")) - q
    half = Fraction(10) ** (int(exponent or 0) - digits + 1) / 2
    assert len(mantissa.strip("-")) == digits + 1
    assert abs(error) <= half
    if abs(error) == half:
        assert error * q > 0  # away from zero


# --- properties -----------------------------------------------------------------------------------------------------

FRACTIONS = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=500)


def spellings_of(q):
    """Many ways to write a rational number."""
    n, d = abs(q.numerator), q.denominator
    sign = "-" if q < 0 else ""
    ways = [
        f"{sign}\\frac{{{n}}}{{{d}}}", f"{sign}\\dfrac{{{2 * n}}}{{{2 * d}}}", f"\\frac{{{sign}{n}}}{{{d}}}",
        f"{sign}{n}/{d}", f"x = {sign}{n}/{d}", f"$ {sign}\\tfrac {{{n}}} {{{d}}} $",
        f"{sign}\\frac{{{n}}}{{{d}}}\\text{{ cm}}", f"\\left({sign}\\frac{{{n}}}{{{d}}}\\right)",
    ]  # fmt: skip
    if d == 1:
        ways += [f"{sign}{n:,}", f"{sign}00{n}", f"{sign}{n}.0", f"{sign}{n}\\%", f"{sign}{n}^\\circ", f"{sign}\\${n}."]
    elif n > d:
        ways.append(f"{sign}{n // d}\\frac{{{n % d}}}{{{d}}}")
    return ways


@given(FRACTIONS, FRACTIONS, st.data())
def test_spellings_of_rationals_are_equal_exactly_when_the_values_are(p, q, data):
    a = canonical_form(data.draw(st.sampled_from(spellings_of(p))))
    b = canonical_form(data.draw(st.sampled_from(spellings_of(q))))
    assert (a.key == b.key) == (p == q)


SMALL = st.integers(-6, 6)


@given(st.lists(st.tuples(SMALL, st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5), st.randoms())
def test_polynomials_do_not_depend_on_the_order_of_their_terms(terms, rng):
    def write(parts):
        return " + ".join(f"({c}) x^{{{i}}} y^{j}" for c, i, j in parts)

    shuffled = rng.sample(terms, len(terms))
    assert canonical_form(write(terms)).key == canonical_form(write(shuffled)).key


@given(st.integers(1, 400), st.integers(1, 400), st.integers(2, 4))
def test_roots_multiply(a, b, k):
    product = canonical_form(f"\\sqrt[{k}]{{{a}}} \\cdot \\sqrt[{k}]{{{b}}}")
    assert product.key == canonical_form(f"\\sqrt[{k}]{{{a * b}}}").key


@given(st.lists(SMALL, min_size=2, max_size=5), st.randoms())
def test_sets_are_unordered_and_tuples_are_not(values, rng):
    shuffled = rng.sample(values, len(values))
    as_set = canonical_form(f"\\{{{', '.join(map(str, values))}\\}}")
    assert as_set.key == canonical_form(f"\\{{{','.join(map(str, shuffled))}\\}}").key
    first, second = (canonical_form(f"({', '.join(map(str, v))})") for v in (values, shuffled))
    assert (first.key == second.key) == (values == shuffled)


EXPRESSIONS = st.recursive(
    st.integers(0, 9).map(str) | st.sampled_from(["x", "y", r"\pi", r"\sqrt{2}", "i"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]} + {ab[1]})"),
        st.tuples(inner, inner).map(lambda ab: f"({ab[0]} - {ab[1]})"),
        st.tuples(inner, inner).map(lambda ab: f"{ab[0]} \\cdot {ab[1]}"),
        st.tuples(inner, st.integers(1, 9)).map(lambda ab: f"\\frac{{{ab[0]}}}{{{ab[1]}}}"),
        st.tuples(inner, st.integers(0, 3)).map(lambda ab: f"({ab[0]})^{{{ab[1]}}}"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, EXPRESSIONS)
def test_keys_agree_with_sympy(first, second):
    """Parity with an independent implementation, on expressions of our own making (so `sympify` is safe here)."""
    import sympy

    def read(latex):
        text = latex.replace(r"\cdot", "*").replace(r"\pi", "pi").replace(r"\sqrt{2}", "sqrt(2)").replace("^", "**")
        text = text.replace("{", "(").replace("}", ")").replace(r"\frac", "")
        return sympy.expand(sympy.sympify(text.replace(")(", ")/("), locals={"i": sympy.I}))

    a, b = canonical_form(first), canonical_form(second)
    assume(a.kind == b.kind == "expression")
    assert (a.key == b.key) == (sympy.expand(read(first) - read(second)) == 0)


@given(st.text(alphabet=st.characters(), max_size=60))
def test_every_text_has_a_form_or_is_no_answer(text):
    form = canonical_form(text)
    if form is not None:
        assert canonical_form(text) == form


PIECES = st.sampled_from(
    r"\frac \sqrt \sin \log_ \pm \text{ cm} { } ( ) [ ] \{ \} , ; = < \le \cup \in ^ _ ! | + - * / . : ' 1 23 0.5 x y \pi \infty "
    r"and or million \begin{pmatrix} \end{pmatrix} & \\ \overline \over \binom e i % $ \circ ~ ½ √ ² é Ⅷ ٣ \left \right".split()
)


@given(st.lists(PIECES, max_size=25).map(" ".join))
def test_no_heap_of_latex_raises(text):
    form = canonical_form(text)
    assert form is None or form.key


# --- exact arithmetic -----------------------------------------------------------------------------------------------


def test_division_clears_square_roots_and_i_from_the_denominator():
    # 1/(2 - i) = (2 + i)/5
    two_minus_i = exact.number(2) - exact.symbol("i")
    assert powers.invert(two_minus_i).text == "1/5*i + 2/5"


def test_a_product_with_its_inverse_is_one():
    value = exact.number(3) + powers.power(exact.number(7), exact.number(Fraction(1, 2)))
    assert (value * powers.invert(value)).text == "1"


def test_some_roots_stay_in_the_denominator():
    assert canonical_form(r"\frac{1}{1+\sqrt[3]{2}}").decided_by == "fingerprint"
    six = canonical_form(r"\frac{1}{\sqrt2+\sqrt3+\sqrt5+\sqrt7+\sqrt{11}+\sqrt{13}}")
    assert six.decided_by == "text"  # its numbers are too long for the digits of a fingerprint


def test_perfect_squares_of_large_primes_have_roots():
    prime = 1_000_003
    assert powers.power(exact.number(prime**2), exact.number(Fraction(1, 2))).text == str(prime)


def test_a_vanishing_denominator_is_refused():
    with pytest.raises(exact.Incomputable):
        powers.invert(exact.number(0))
    with pytest.raises(exact.Incomputable):
        powers.power(exact.number(0), exact.number(-1))


# --- what a user is told --------------------------------------------------------------------------------------------


def test_an_answer_is_explained():
    found = explain_answer(r"$x = 1,\ y = \frac{\pi}{2}$")
    assert found.read_as == r"x=1,y=\frac{\pi}2"
    assert (found.form.key, found.form.kind, found.form.decided_by) == ("(1, 1/2*pi)", "sequence", "exact")
    assert [part.key for part in found.form.parts] == ["1", "1/2*pi"]
    assert explain_answer(r"\text{}").form is None


def test_the_command_shows_what_was_read_and_what_is_the_same(capsys):
    assert main(["answers", "--explain", r"\frac12", "0.50", r"\sin x", "-1", "x = 3", ""]) == 0
    shown = capsys.readouterr().out
    assert "key      1/2  (exact)" in shown
    assert "(fingerprint)" in shown
    assert "no answer" in shown
    assert r"same: \frac12   0.50" in shown
    assert "key      -1  (exact)" in shown
    assert main(["answers", "--explain", "1.04", "1.01"]) == 0
    assert "all different" in capsys.readouterr().out
    assert main(["answers", "--explain", "1.04", "1.01", "--significant-digits", "2"]) == 0
    assert "same: 1.04   1.01" in capsys.readouterr().out
    for words in ([], ["1", "--significant-digits", "two"], ["1", "--completions", "4"]):
        assert main(["answers", "--explain", *words]) == 2
        assert "--explain: give answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        r"x<1\text{ or }x>5\text{ and }x<7", r"x=1\text{ or }y=2", r"x=1,2, y=3", r"x=2\pm\sqrt3, y=2\mp\sqrt3",
        r"5\text{ boys or }3\text{ girls}", r"x>1\text{ and }x<0", r"1>x>2", r"\frac13\approx1.3", r"x=\frac13=0.3",
        r"\{x\mid y>1\}", r"\{x\mid x>1\mid x<2\}", r"(1,2)\setminus3", r"(2,-\infty)\cup(0,1)", r"(n,m)\in\{(1,2)\}",
        r"\text{gain: loss: }5", r"\begin{cases}\end{cases}", r"\begin{cases}1&2&3\end{cases}",
        r"\begin{pmatrix}1\end{cases}", r"\begin{pmatrix}1&2\end{pmatrix}\begin{pmatrix}3&4\end{pmatrix}",
        r"\begin{pmatrix}1\end{pmatrix}+\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1\end{pmatrix}+1",
        r"P\begin{pmatrix}1\end{pmatrix}P^{-1}", r"[n/2]", "(12)(13)", r"\cos 2\pi/3", r"\mathbb{Z}/2\mathbb{Z}",
        r"\infty-\infty", r"y=e^{e^{e^x}}", r"\tan\frac{\pi}{2}", "2024/03/06", ", ".join(map(str, range(80))),
    ],
)  # fmt: skip
def test_what_has_no_single_meaning_is_text(answer):
    assert canonical_form(answer).kind == "text"
