r"""Tokens → structure: lists, tuples, sets, cases, conditions, relations, and last expressions.

Every structure has a key; equal keys are equal answers. Names keep values apart (`x=1, y=2` is the tuple (1, 2) of x
and y in alphabetical order; `gain: 5` is not `loss: 5`), and nothing that was written is dropped: what has no place in
a structure makes the whole answer text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add, mul

from scrl.answers.exact import Expr, Incomputable, Unreadable, number
from scrl.answers.names import (
    assignments,
    domain_of,
    free_names,
    in_order,
    is_run,
    is_words,
    numbered_parts,
    trailing_words,
    without_preamble,
)
from scrl.answers.powers import cancel
from scrl.answers.real_sets import EVERYTHING
from scrl.answers.relations import (
    EQUALITIES,
    FLIPPED,
    REALS,
    Form,
    Relations,
    labelled,
    real_form,
    relations_in,
    set_form,
)
from scrl.answers.tokens import Token, Tokens, depths, inside, outside, split, text_of
from scrl.answers.units import is_measure

_SEPARATORS = frozenset({",", ";", "and", "or"})
_CONDITIONS = frozenset(Token("word", text) for text in "for where with when if".split())
_SYSTEMS = frozenset("cases aligned align align* gathered split".split())
MAX_PARTS = 64
MATRICES = frozenset(rf"\begin{{{name}}}" for name in "array pmatrix bmatrix Bmatrix matrix smallmatrix".split())
MAX_CELLS = 64
Matrix = list[list[Expr]]
Value = Callable[[Tokens], Expr]


class Structure(Relations):
    """Token lists → forms, under one numeric tolerance."""

    def form(self, tokens: Tokens) -> Form:
        """A list of answers, one answer, or either with a condition."""
        tokens = without_preamble(tokens)
        if numbered := numbered_parts(tokens):
            return labelled([(label, self.form(part)) for label, part in numbered])
        if domain := _bracketed_domain(tokens):
            return self.conditional(tokens[: -len(domain) - 2], domain)
        levels = zip(tokens, depths(tokens), strict=True)
        if place := next((i for i, (token, depth) in enumerate(levels) if depth == 0 and token in _CONDITIONS), 0):
            return self.conditional(tokens[:place], tokens[place + 1 :])
        if _is_grouped(tokens):
            return set_form([self.form(group) for group in split(tokens, {"or", ";"})[0]])  # x=1, y=2 or x=2, y=1
        parts, marks = split(tokens, _SEPARATORS)
        if {"and", "or"} <= set(marks) or len(parts) > MAX_PARTS:
            raise Incomputable("and with or, or a list too long to compare")
        parts = [part for part in parts if part]
        Unreadable.when(not parts, "nothing but separators")
        if len(parts) == 1:
            return set_form(self.variants(parts[0]))
        has_order = "or" not in marks and sum(map(is_words, parts)) > 1  # True, False, 5
        if has_order or "..." in map(text_of, parts):
            return self.sequence(parts, "", "")
        return self.listed(parts, marks)

    def listed(self, parts: list[Tokens], marks: list[str]) -> Form:
        """Several answers: values in no order, values of several names, inequalities, or a value and a domain."""
        if domain_of(parts[-1]) and "or" not in marks and not any(map(domain_of, parts[:-1])):
            value = [token for part in parts[:-1] for token in (*part, Token("mark", ","))]
            return self.conditional(value[:-1], parts[-1])
        relations = [relations_in(part) for part in parts]
        if any(relations):
            return self.related(parts, marks, relations)
        words = [trailing_words(part) for part in parts]
        is_shared = not any(words[:-1]) and ("or" in marks or is_measure(words[-1]))  # 2 or 3 cm; 5, 12, 13 cm
        if len(set(words)) > 1 and not is_shared:
            Incomputable.when("or" in marks, "alternatives of different things")
            return labelled([(word, set_form(self.variants(part))) for word, part in zip(words, parts, strict=True)])
        forms = [_member(part, form) for part in parts for form in self.variants(part)]
        if all(form.kind == "sequence" for form in forms):  # solutions, which are not counted twice
            forms = _distinct(forms)
        if "or" not in marks:
            return set_form(forms)
        is_unbounded = all(any(token.text == r"\infty" for token in part) for part in parts)
        if is_unbounded and len(forms) == len(parts) and all(form.kind in ("sequence", "real set") for form in forms):
            return self.union(parts)
        either = set_form(_distinct(forms))
        is_choice = all(len(part) == 1 and len(part[0].text) == 1 and part[0].text.isupper() for part in parts)
        return Form(f"any of {either.key}", "set", either.parts) if is_choice else either

    def related(self, parts: list[Tokens], marks: list[str], relations: list[set[str]]) -> Form:
        """Values of several names, values and inequalities of one, or relations that keep their names."""
        pairs = [assignments(part) for part in parts]
        names = [name for found in pairs for name, _ in found]
        variables = {name for part in parts for name in free_names(part)} | set(names)
        if all(pairs) and len(set(names)) == len(names) > 1:
            if "or" in marks or sum(_has_signs(part) for part in parts) > 1:
                raise Incomputable("several values of several names")
            if names == ["x_1", "x_2"]:  # two roots
                return set_form([form for ((_, value),) in pairs for form in self.variants(value)])
            named = {name: value for found in pairs for name, value in found}
            if is_run(names):
                return self.mapping([(name, named[name]) for name in in_order(names)])
            return labelled([(name, set_form(self.variants(value))) for name, value in named.items()])  # r = 3, h = 5
        solutions = {tuple(name for name, _ in found) for found in pairs}
        if len(solutions) == 1 and len(pairs[0]) > 1 and not any(map(_has_signs, parts)):
            return set_form(_distinct(map(self.mapping, pairs)))
        if all(found and found <= FLIPPED.keys() for found in relations) and len(variables) == 1:
            return self.inequalities(parts, marks)
        is_first = bool(pairs[0]) and not any(relations[1:])
        if (all(pairs) and len(set(names)) == 1) or (is_first and names == in_order(names)):
            return set_form([form for part in parts for form in self.variants(part)])  # x = 1, 2; (x,y) = (1,2), (2,1)
        if not all(relations) or "or" in marks or any(map(_has_signs, parts)):
            raise Incomputable("values of several names in no clear order")
        if len(variables) == 1:
            return labelled([(min(variables), self.single(part)) for part in parts])
        subjects = [",".join(sorted(free_names(part))) or text_of(part) for part in parts]  # `x` of x > 0, of x = 1
        return labelled([(subject, self.single(part)) for subject, part in zip(subjects, parts, strict=True)])

    def conditional(self, value: Tokens, condition: Tokens) -> Form:
        """`2\\pi k \\text{ for } k \\in \\mathbb{Z}`: the value and its condition."""
        form = self.form(value)
        return Form(f"{form.key} | {self.condition(condition)}", "conditional", (form,))

    def condition(self, tokens: Tokens) -> str:
        """`k in Z`, `x in (0, oo)`, or the key of what else is said."""
        if domain := domain_of(tokens):
            return domain
        marks = relations_in(tokens)
        names = free_names(tokens)
        is_single = len(split(tokens, _SEPARATORS)[0]) == 1
        if marks and marks <= {*FLIPPED, "!="} and len(names) == 1 and is_single:
            return f"{min(names)} in {self.inequality(tokens).key}"
        Unreadable.when(any(token.kind == "word" for token in tokens), "a condition in words")
        if marks == {"="} and assignments(tokens):
            return ", ".join(f"{name} = {self.single(value).key}" for name, value in assignments(tokens))
        key = self.form(tokens).key
        return f"{min(names)}: {key}" if len(names) == 1 else key

    def variants(self, tokens: Tokens) -> list[Form]:
        """The readings of ±: `3 \\pm x` is 3 + x and 3 - x."""
        places = [index for index, token in enumerate(tokens) if token.text in (r"\pm", r"\mp")]
        if not places or inside(tokens, {r"\{"}, {r"\}"}) is not None:
            return [self.single(tokens)]
        Unreadable.when(len(places) > 3, "too many ±")
        choices: Iterable[tuple[bool, ...]] = itertools.product((True, False), repeat=len(places))
        if any(tokens[index].text == r"\mp" for index in places):
            choices = [(first,) * len(places) for first in (True, False)]
        forms = []
        for choice in choices:
            signed = list(tokens)
            for place, is_upper in zip(places, choice, strict=True):
                signed[place] = Token("mark", "+" if (tokens[place].text == r"\pm") == is_upper else "-")
            forms.append(self.single(signed))
        return _distinct(forms)

    def single(self, tokens: Tokens) -> Form:
        """One answer without list or ±."""
        if (braced := inside(tokens, {"{"}, {"}"})) is not None:
            is_builder = [token.text for token in outside(braced)].count("|") == 1
            return self.braced_set(braced) if is_builder else self.form(braced)
        marks = {token.text for token in outside(tokens)}
        Unreadable.when(r"\not" in marks, "a negated relation")
        if r"\cap" in marks:
            return self.intersection(split(tokens, {r"\cap"})[0])
        if r"\in" in marks:
            return self.membership(tokens)
        if marks & EQUALITIES:
            Unreadable.when(marks & {*FLIPPED, "!="}, "mixed relations")
            return self.equation(tokens)
        if marks & {*FLIPPED, "!="}:
            return self.inequality(tokens)
        if marks & {r"\cup", r"\setminus"}:
            return self.union(split(tokens, {r"\cup"})[0])
        if ":" in marks:
            return self.ratio_or_label(split(tokens, {":"})[0])
        return self.structure(tokens)

    def structure(self, tokens: Tokens) -> Form:
        """Sets, tuples, intervals, matrices, and last a plain expression."""
        if text_of(tokens) == r"\emptyset":
            return Form("{}", "set")
        if text_of(tokens) == REALS:
            return real_form(EVERYTHING)
        if is_matrix_expression(tokens):
            cells = [[self.formed(cell) for cell in row] for row in evaluate_matrix(tokens, self.value)]
            key = "; ".join(", ".join(cell.key for cell in row) for row in cells)
            return Form(f"matrix {key}", "matrix", tuple(cell for row in cells for cell in row))
        if tokens and tokens[0].text.startswith(r"\begin{"):
            return self.environment(tokens)
        inner = inside(tokens, {"(", "[", r"\{"}, {")", "]", r"\}"})
        bracketed = None if inner is None else self.bracketed(inner, tokens[0].text, tokens[-1].text)
        return bracketed or self.expression(tokens)

    def bracketed(self, inner: Tokens, opening: str, closing: str) -> Form | None:
        """What one pair of brackets holds; None if they do not match."""
        if opening == r"\{":
            return self.braced_set(inner)
        parts, marks = split(inner, {",", ";"})
        Incomputable.when(len(set(marks)) > 1, "rows in brackets")
        if len(parts) > 1:
            is_mapping = all(map(assignments, parts))
            return self.listed(list(parts), marks) if is_mapping else self.sequence(parts, opening, closing)
        if (opening, closing) == ("(", ")") or is_matrix_expression(inner) or text_of(inner).isdecimal():
            return self.single(inner) if (opening, closing) in (("(", ")"), ("[", "]")) else None
        Incomputable.when((opening, closing) == ("[", "]"), "a bracket, or the whole part of a number")
        return None

    def sequence(self, parts: Sequence[Tokens], opening: str, closing: str) -> Form:
        """Parts in order: tuples, intervals, and lists that continue."""
        forms = [Form("...", "text") if text_of(part) == "..." else _member(part, self.single(part)) for part in parts]
        return Form(f"{opening}{', '.join(form.key for form in forms)}{closing}", "sequence", tuple(forms))

    def braced_set(self, inner: Tokens) -> Form:
        """`\\{1, 2, 2\\}`: order and repetition do not matter; `\\{x \\mid x > 3\\}` is its condition."""
        head, bars = split(inner, {"|", ":"})
        if bars:
            names, domain = split(head[0], {r"\in"})
            is_real = not domain or text_of(names[1]) == REALS
            is_solved = len(bars) == 1 and len(names[0]) == 1 and free_names(head[1]) == {names[0][0].text}
            Unreadable.when(not is_real or not is_solved, "set builder")
            return self.form(head[1])
        parts, marks = split(inner, {",", ";"})
        if "..." in map(text_of, parts):
            return self.sequence(parts, r"\{", r"\}")
        if any(assignments(part) for part in parts):
            return self.listed([part for part in parts if part], marks)
        Incomputable.when(len({trailing_words(part) for part in parts if part}) > 1, "a set of different things")
        forms = _distinct(_member(part, form) for part in parts if part for form in self.variants(part))
        if len(forms) == 1 and forms[0].kind == "set":
            return Form(f"{{{forms[0].key}}}", "set", tuple(forms))  # a set in a set
        return set_form(forms)

    def environment(self, tokens: Tokens) -> Form:
        """Cases, in no order; a system of equations as a list."""
        name = tokens[0].text[len(r"\begin{") : -1]
        Unreadable.when(tokens[-1].text != rf"\end{{{name}}}", "not an environment")
        inner = [token for token in tokens[1:-1] if name == "cases" or token.text != "&"]  # which aligns
        pairs = itertools.zip_longest(inner, inner[1:], fillvalue=tokens[0])
        inner = [token for token, behind in pairs if token.text != "\\\\" or behind.text not in EQUALITIES]
        rows = [row for row in split(inner, {"\\\\"})[0] if row]
        Unreadable.when(name not in _SYSTEMS or not rows, "unknown environment, or nothing in it")
        if len(rows) == 1 and name != "cases":
            return self.form(rows[0])
        if not any(token.text == "&" for token in inner):
            return self.listed([_without_comma(row) for row in rows], [","] * (len(rows) - 1))
        return set_form([self.case(*split(row, {"&"})[0]) for row in rows], kind="cases")

    def case(self, value: Tokens, *conditions: Tokens) -> Form:
        Unreadable.when(len(conditions) != 1, "not a case")
        form = self.form(_without_comma(value))
        words = [token for token in conditions[0] if token not in _CONDITIONS]
        is_rest = [token.text for token in words] in (["otherwise"], ["else"])
        condition = "otherwise" if is_rest else self.condition(_without_comma(words))
        return Form(f"{form.key} | {condition}", "conditional", (form,))


def _distinct(forms: Iterable[Form]) -> list[Form]:
    return list({form.key: form for form in forms}.values())


def _member(tokens: Tokens, form: Form) -> Form:
    """Part of something larger, where the set of one number is not the number: `\\{1, \\{2\\}\\}`."""
    inner = inside(tokens, {r"\{"}, {r"\}"})
    if inner is None or form.kind == "set" or split(inner, {"|", ":"})[1] or assignments(inner):
        return form
    return Form(f"{{{form.key}}}", "set", (form,))


def _is_grouped(tokens: Tokens) -> bool:
    """Whether "or" and semicolons separate lists with commas: 1, 2; 3."""
    groups, marks = split(tokens, {"or", ";"})
    commas = [len([part for part in split(group, {","})[0] if part]) > 1 for group in groups]
    return any(commas) and (";" in marks or sum(commas) > 1)


def _has_signs(tokens: Tokens) -> bool:
    return any(token.text in (r"\pm", r"\mp") for token in tokens)


def _bracketed_domain(tokens: Tokens) -> Tokens | None:
    """`k \\in \\mathbb{Z}` of `2\\pi k\\ (k \\in \\mathbb{Z})`."""
    if not tokens or tokens[-1].text != ")":
        return None
    start = max((i for i, token in enumerate(tokens) if token.text == "("), default=0)
    return tokens[start + 1 : -1] if start and domain_of(tokens[start + 1 : -1]) else None


def _without_comma(tokens: Tokens) -> Tokens:
    return tokens[:-1] if tokens and tokens[-1].text in (",", ";", ".") else tokens


# Sums and products of matrices


def is_matrix_expression(tokens: Tokens) -> bool:
    """Whether a matrix is outside all brackets."""
    return any(token.text in MATRICES and depth == 1 for token, depth in zip(tokens, depths(tokens), strict=True))


def evaluate_matrix(tokens: Tokens, value: Value) -> Matrix:
    """A sum of products of numbers and matrices."""
    terms, marks = split(tokens, {"+", "-"})
    signed = list(zip(["+", *marks], terms, strict=True))[not terms[0] :]
    return reduce(_combine, (_product(term, value, number(-1 if sign == "-" else 1)) for sign, term in signed))


def _product(rest: Tokens, value: Value, scale: Expr) -> Matrix:
    """Numbers before, between and after matrices scale the product."""
    matrices: list[Matrix] = []
    while rest:
        start = next((i for i, token in enumerate(rest) if token.text in MATRICES), len(rest))
        scalar = [token for token in rest[:start] if token.text != "*"]
        if scalar:
            factor = value(scalar)
            Incomputable.when(any(name[0].isupper() for name in factor.symbols), "a matrix by name among matrices")
            scale *= factor
        if start == len(rest):
            break
        closing = rest[start].text.replace("begin", "end")
        end = next((i for i, token in enumerate(rest) if i > start and token.text == closing), None)
        if end is None:
            raise Unreadable("a matrix without an end")
        rows = [row for row in split(rest[start + 1 : end], {"\\\\"})[0] if row]
        matrices.append([[value(cell) for cell in split(row, {"&"})[0]] for row in rows])
        rest = rest[end + 1 :]
    Unreadable.when(not matrices, "a number among matrices")
    return [[cancel(cell * scale) for cell in row] for row in reduce(_times, matrices)]


def _times(a: Matrix, b: Matrix) -> Matrix:
    """Σ a_ij b_jk."""
    Incomputable.when(any(len(row) != len(b) for row in a) or len(a) * len(b) > MAX_CELLS, "sizes that do not fit")
    return [[reduce(add, map(mul, row, column)) for column in zip(*b, strict=True)] for row in a]


def _combine(a: Matrix, b: Matrix) -> Matrix:
    Incomputable.when([len(row) for row in a] != [len(row) for row in b], "sizes that do not fit")
    return [list(map(add, *rows)) for rows in zip(a, b, strict=True)]
