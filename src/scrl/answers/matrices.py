r"""Sums and products of matrices: `2\begin{pmatrix}1\\2\end{pmatrix}` is `\begin{pmatrix}2\\4\end{pmatrix}`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, mul, neg

from scrl.answers.exact import Expr, Incomputable, Unreadable, number
from scrl.answers.powers import cancel
from scrl.answers.tokens import Tokens, depths, split

MATRICES = frozenset(rf"\begin{{{name}}}" for name in "array pmatrix bmatrix Bmatrix matrix smallmatrix".split())
MAX_CELLS = 64
Matrix = list[list[Expr]]
Value = Callable[[Tokens], Expr]


def is_matrix_expression(tokens: Tokens) -> bool:
    """Whether a matrix is outside all brackets."""
    levels = zip(tokens, depths(tokens), strict=True)
    return any(token.text in MATRICES and depth == 1 for token, depth in levels)


def evaluate_matrix(tokens: Tokens, value: Value) -> Matrix:
    """A sum of products of numbers and matrices."""
    terms, marks = split(tokens, {"+", "-"})
    signs = ["+", *marks]
    if not terms[0]:
        terms, signs = terms[1:], signs[1:]
    products = (_product(term, value) for term in terms)
    return reduce(_combine, (m if sign == "+" else _map(m, neg) for m, sign in zip(products, signs, strict=True)))


def _product(term: Tokens, value: Value) -> Matrix:
    """Numbers before, between and after matrices scale the product."""
    scale, rest = number(1), list(term)
    matrices: list[Matrix] = []
    while rest:
        start = next((i for i, token in enumerate(rest) if token.text in MATRICES), len(rest))
        scalar = [token for token in rest[:start] if token.text != "*"]
        if scalar:
            number_ = value(scalar)
            if any(name[0].isupper() for name in number_.symbols):
                raise Incomputable("a matrix by name among matrices")
            scale *= number_
        if start == len(rest):
            break
        closing = rest[start].text.replace("begin", "end")
        end = next((i for i, token in enumerate(rest) if i > start and token.text == closing), None)
        if end is None:
            raise Unreadable("a matrix without an end")
        rows = [row for row in split(rest[start + 1 : end], {"\\\\"})[0] if row]
        matrices.append([[value(cell) for cell in split(row, {"&"})[0]] for row in rows])
        rest = rest[end + 1 :]
    if not matrices:
        raise Unreadable("a number among matrices")
    return _map(reduce(_times, matrices), lambda cell: cell * scale)


def _times(a: Matrix, b: Matrix) -> Matrix:
    """Σ a_ij b_jk."""
    if any(len(row) != len(b) for row in a) or len(a) * len(b) > MAX_CELLS:
        raise Incomputable("sizes that do not fit")
    return [[reduce(add, map(mul, row, column)) for column in zip(*b, strict=True)] for row in a]


def _combine(a: Matrix, b: Matrix) -> Matrix:
    if [len(row) for row in a] != [len(row) for row in b]:
        raise Incomputable("sizes that do not fit")
    return [list(map(add, *rows)) for rows in zip(a, b, strict=True)]


def _map(matrix: Matrix, function: Callable[[Expr], Expr]) -> Matrix:
    return [[cancel(function(cell)) for cell in row] for row in matrix]
