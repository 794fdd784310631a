r"""Golden keys of structures: sets of numbers, lists with names, conditions, cases, matrices; and what is text."""

import pytest

from scrl.answers.forms import canonical_form


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        # sets of numbers
        (r"[0,2)\cup(1,3]", "[0, 3]"),
        (r"[0,1)\cup[1,2)", "[0, 2)"),
        (r"(0,1)\cup(1,2)", "(0, 1) U (1, 2)"),
        (r"(0,1]\cup(1,2)", "]0, 2["),
        (r"(0,3)\cup(1,3]", "(0, 3]"),
        (r"(-\infty,1)\cup(0,\infty)", "(-1*oo, oo)"),
        (r"\{1\}\cup(2,3)", "1 U (2, 3)"),
        (r"\{1\}\cup\{2\}", "{1, 2}"),
        (r"x\in\{1\}\cup(2,3)", "1 U (2, 3)"),
        (r"\mathbb{R}\setminus\{2,1\}", "(-1*oo, 1) U (1, 2) U (2, oo)"),
        (r"[0,5]\setminus\{2\}", "[0, 2) U (2, 5]"),
        (r"-2x<6", "(-3, oo)"),
        (r"\sqrt2 x\le 2", "(-1*oo, 2^(1/2)]"),
        (r"1<2x+1\le 5", "(0, 2]"),
        (r"|x-1|\le 2", "[-1, 3]"),
        (r"|2x|>3", "(-1*oo, -3/2) U (3/2, oo)"),
        (r"x>1\text{ and }x<5", "]1, 5["),
        (r"x\ge1, x\le1", "1"),
        (r"x<-1, x>1", "(-1*oo, -1) U (1, oo)"),
        (r"x<1\text{ or }x<2", "(-1*oo, 2)"),
        (r"x>0\text{ and }x\ge0", "(0, oo)"),
        (r"x<2\text{ and }x\le2", "(-1*oo, 2)"),
        (r"(-\infty,1)\text{ or }(2,\infty)", "(-1*oo, 1) U (2, oo)"),
        (r"x\ne1", "(-1*oo, 1) U (1, oo)"),
        ("x+y<3", "-1 + 1/3*x + 1/3*y < 0"),
        (r"|x|+|y|<1", "-1 + fabs(x) + fabs(y) < 0"),
        (r"|x|<|x-1|", "-1*fabs(-1*x + 1) + fabs(x) < 0"),
        (r"|x|<x", "-1*x + fabs(x) < 0"),
        (r"2<3<4", "2 < 3 < 4"),
        (r"4>3", "3 < 4"),
        # names
        (r"x=1, y=2", "(1, 2)"),
        (r"(b,a)=(1,2)", "(2, 1)"),
        (r"(x=2, y=1)", "(2, 1)"),
        (r"x_2=5, x_{10}=3", "(5, 3)"),
        (r"\{x=1, y=2\}", "(1, 2)"),
        (r"f(x)=x, g(x)=2x", "(x, 2*x)"),
        (r"x=1, y>2", "x = 1, y = (2, oo)"),
        (r"x\ne0, x\ne1", "x = (-1*oo, 0) U (0, oo), x = (-1*oo, 1) U (1, oo)"),
        (r"a\in(0,1), b\in(2,3)", "a = ]0, 1[, b = ]2, 3["),
        (r"a:b=3:4", "3:4"),
        (r"b:a=3:4", "4:3"),
        (r"5\text{ boys}, 3\text{ girls}", "boys = 5, girls = 3"),
        (r"\text{Area}=12", "area = 12"),
        (r"\text{Answer}: 5", "5"),
        (r"(A) 3 (B) 5", "(A) = 3, (B) = 5"),
        (r"(1) 3, (2) 5", "(1) = 3, (2) = 5"),
        # conditions and cases
        (r"2\pi k, k\in\mathbb{Z}", "2*k*pi | k in Z"),
        (r"2\pi k\ (k\in\mathbb{Z})", "2*k*pi | k in Z"),
        (r"2\pi k \text{ where } k \text{ is an integer}", "2*k*pi | k in Z"),
        (r"\frac1x \text{ for } x\ne0", "x^(-1) | x in (-1*oo, 0) U (0, oo)"),
        (r"3 \text{ if } a=2", "3 | a = 2"),
        (r"3 \text{ if } x>0, x\ne1", "3 | x: x = (-1*oo, 1) U (1, oo), x = (0, oo)"),
        (r"\begin{cases} x & x>0 \\ -x & \text{otherwise} \end{cases}", "{-1*x | otherwise, x | x in (0, oo)}"),
        (r"\begin{cases} x=1 \\ y=2 \end{cases}", "(1, 2)"),
        # sequences and sets
        (r"1, 3, 5, \ldots", "1, 3, 5, ..."),
        (r"\{2, 4, \dots\}", r"\{2, 4, ...\}"),
        (r"\{\emptyset\}", "{{}}"),
        ("1,2; 3", "{3, {1, 2}}"),
        (r"(3,3),(1,1),(3,3)", "{(1, 1), (3, 3)}"),
        (r"A\cup B", "A U B"),
        (r"B\cap A", "A ∩ B"),
        (r"A\text{ or }B", "any of {A, B}"),
        # matrices
        (r"2\begin{pmatrix}1\\2\end{pmatrix}", "matrix 2; 4"),
        (r"\begin{pmatrix}1&2\end{pmatrix}\begin{pmatrix}3\\4\end{pmatrix}", "matrix 11"),  # 1·3 + 2·4
        (r"-\begin{pmatrix}1&x\end{pmatrix}+\begin{pmatrix}1&1\end{pmatrix}", "matrix 0, -1*x + 1"),
        (r"\begin{pmatrix}1&2\end{pmatrix}\cdot\frac12", "matrix 1/2, 1"),
        # functions of no name of their own
        ("T(n/2)+f(2)", None),
        ("L(L-1)", "-1*L + L^(2)"),
        ("y^{(4)}", "y^[4]"),
        ("C_5^2", "C_5^2"),
        ("dy/dx", "derivative(d y, d x)"),
        (r"\frac{\Delta y}{\Delta x}", "Delta x^(-1)*Delta y"),
        ("AB-BA", "(A B) + -1*(B A)"),
        (r"\lceil \pi \rceil", "4"),
        ("|0|", "0"),
        (r"|\ln(-2)|", "fabs(ln(-2))"),
        (r"\lfloor \ln(-1) \rfloor", "floor(ln(-1))"),
        (r"|\sqrt2 - 2|", "-1*2^(1/2) + 2"),
    ],
)  # fmt: skip
def test_golden_structures(answer, key):
    found = canonical_form(answer)
    assert found.key == key if key is not None else found.decided_by == "fingerprint"


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
