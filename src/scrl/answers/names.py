r"""What a value is called: the name before it (`x = 5`, `(A) 5`, `\text{Area}: 12`), the unit after it (`12 cm^2`)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from scrl.answers.tokens import Token, Tokens, inside, is_one_number, outside, split, text_of
from scrl.answers.units import SCALES, UNIT_LETTERS, scale_of

NEUTRAL = frozenset("answer|the answer|final answer|the final answer|ans|result|solution|solutions".split("|"))
"""Labels that say nothing."""
_PREAMBLE = frozenset(
    "the a an is are answer final point points value values number interval set vector line pair ordered equation "
    "function".split()
)
"""Words before a formula that say no more than the formula: the point (1, 2)."""
_UNIT_TAIL = re.compile(r"(?:(?<=n)m/s(?:\^n|\^\{n\})?|(?:[wu](?:\^(?:n|\{-?n\}|-n))?(?:/[lms])?[/*]?)+)$")
_NAME = r"[A-Za-z]\w*(?:_\{[^}]*\})?"
_SINGLE_NAME = re.compile(
    rf"{_NAME}|\{{\w+\}}|[A-Z]{{2,4}}"  # x, x_1, {{v}}, AB, ABCD
    rf"|m?\\(?:angle|triangle|overline|vec|hat|bar|odot)\{{?[A-Za-z]+\}}?|\[[A-Z]{{3,4}}\]|\|[A-Z]{{2}}\|"
)
_FUNCTION_NAME = re.compile(rf"{_NAME}'*|[fgFG](?:\^\{{-1\}})?")
_CHANCES = frozenset("P p E Pr Var Cov".split())
"""Names whose argument is an event or a random variable, whatever is computed with it: P(A + B), P(X = 2), E[X^2]."""
_ALWAYS_FUNCTIONS = frozenset("fgFG")
"""f(-1) is a value of f; x(-1) is a product."""
_TERM = re.compile(r"[A-Za-z]_([a-z])")  # a_n, of a sequence
_NUMBERINGS = [re.compile(numbering) for numbering in (r"\d\d?", "[a-z]", "[A-Z]", "[ivx]+", "[IVX]+")]
_USUAL = [names.split() for names in ("r h", "m b", "theta phi", "r theta phi", "rho theta phi")]
"""Names that are not written in alphabetical order."""
_COMPASS = frozenset("NSEW")
_DOMAINS = frozenset("ZNQRC")
_DOMAIN_WORDS = {"integer": "Z", "integers": "Z", "real": "R", "reals": "R"}
_QUANTIFIERS = frozenset("any all every each is are an where for number numbers be".split())


def without_units(tokens: Tokens) -> tuple[Tokens, int]:
    """`12 cm^2` → 12 and 1; `5 million dollars` → 5 and 10^6. Words that carry meaning stay."""
    shape = "".join(_shape(token) for token in tokens)
    tail = _UNIT_TAIL.search(shape)
    if tail is None or shape[tail.start() - 1 : tail.start()] in ("", *"+-*/^o"):
        return tokens, 1
    value, unit = tokens[: tail.start()], tokens[tail.start() :]
    has_number = any(token.kind == "number" or token.text == r"\pi" for token in value)
    if set("wu") & set(shape[: tail.start()]) or not has_number:
        return tokens, 1
    if all(token.kind not in ("word", "unit") for token in unit) and not is_one_number(value):  # 1 + 2 m/s
        return tokens, 1
    if unit[-1].text in _COMPASS and (len(unit) > 1 or value[-1].text == "°"):
        return tokens, 1
    words = [token.text.casefold() for token in unit if token.kind == "word"]
    scale = scale_of(words) if words else 1
    return (tokens, 1) if scale is None else (value, scale)


def _shape(token: Token) -> str:
    """One letter per token, for `_UNIT_TAIL`."""
    if token.kind == "mark":
        return token.text if len(token.text) == 1 else "o"
    if token.kind in ("letter", "unit") and token.text in UNIT_LETTERS:
        return "u" if token.kind == "unit" else token.text if token.text in "ms" else "l"
    return {"number": "n", "word": "w"}.get(token.kind, "x")


def without_preamble(tokens: Tokens) -> Tokens:
    """`the point (1, 2)` → `(1, 2)`."""
    preamble = list(itertools.takewhile(lambda t: t.text in _PREAMBLE and t.kind in ("word", "letter", "unit"), tokens))
    rest = tokens[len(preamble) :]
    is_formula = bool(rest) and rest[0].kind != "word" and rest[0].text not in ("=", ":", "~=")
    return rest if preamble and preamble[-1].kind == "word" and is_formula else tokens


def is_words(tokens: Tokens) -> bool:
    return bool(tokens) and all(token.kind == "word" for token in tokens)


def is_name(tokens: Tokens) -> bool:
    """A name such as x, x_1, AB or \\angle ABC."""
    if any(token.kind in ("number", "word") for token in outside(tokens)):
        return False
    text = text_of(tokens)
    letters = [token.text for token in tokens if token.kind == "letter"]
    if len(letters) == len(tokens) > 1 and not all(len(letter) == 1 and letter.isupper() for letter in letters):
        return False  # a product: xy, x_1x_2
    return bool(_SINGLE_NAME.fullmatch(text))


def is_function(tokens: Tokens, values: list[Tokens]) -> bool:
    """f(x), f^{-1}(x), P(A), x(t), E[X], or a_n before a value in n: a name with its arguments; not f(x+1), f(f(x))."""
    used = {token.text for value in values for token in value}
    place = next((index for index, token in enumerate(tokens) if token.text in ("(", "[")), 0)
    arguments = inside(tokens[place:], {"(", "["}, {")", "]"})
    if not place or arguments is None:
        text, term = text_of(tokens), _TERM.fullmatch(text_of(tokens))
        return bool(term and term[1] in used and text not in used)
    name = text_of(tokens[:place])
    base = re.split(r"['^]", name)[0]
    is_product = name not in _CHANCES and [token.kind for token in tokens[:place]].count("letter") > 1  # xf(x)
    if is_product or base in used or not _FUNCTION_NAME.fullmatch(name):
        return False
    events = _events(arguments) if name in _CHANCES else set()
    if events and not events & used:
        return True
    parts = split(arguments, {","})[0]
    return len(set(map(text_of, parts))) == len(parts) and all(_is_argument(part, base) for part in parts)


def _events(arguments: Tokens) -> set[str]:
    """The events and random variables in an argument: A and B of `A \\cup B`, X of `X = 2`; none of `Q(x)`."""
    pairs = itertools.zip_longest(arguments, arguments[1:])
    return {
        token.text
        for token, behind in pairs
        if token.kind == "word"
        or (token.kind == "letter" and token.text[0].isupper() and (behind is None or behind.text not in ("(", "[")))
    }


def _is_argument(tokens: Tokens, function: str) -> bool:
    """A name, words or a number; of f also a constant such as -1, 1/2 or g(2)."""
    pairs = itertools.zip_longest(tokens, tokens[1:])
    is_free = any(
        token.kind in ("letter", "unit", "word") and (behind is None or behind.text != "(") for token, behind in pairs
    )
    is_computed = function not in _ALWAYS_FUNCTIONS and bool({"+", "-", "*", "/"} & {token.text for token in tokens})
    return bool(tokens) and (is_name(tokens) or is_words(tokens) or not (is_free or is_computed))


def assignments(tokens: Tokens) -> list[tuple[str, Tokens]]:
    """The names and values of `x = 5`, `x = y = 4` and `(x, y) = (1, 2)`; empty if it is something else."""
    *names, value = split(tokens, {"="})[0]
    if not names or not value or any(not name for name in names):
        return []
    if any(token.text in ("<", "<=", ">", ">=", "!=", "~=", r"\in") for token in tokens):
        return []
    is_functions = all(is_function(name, [value]) for name in names)
    if is_functions or (all(is_name(name) or is_function(name, [value]) for name in names) and not is_name(value)):
        return [(text_of(name), value) for name in names]
    left, right = inside(names[0], {"("}, {")"}), inside(value, {"("}, {")"})
    if len(names) == 1 and left is not None and right is not None:
        keys, values = split(left, {","})[0], split(right, {","})[0]
        if len(keys) == len(values) > 1 and all(map(is_name, keys)):
            return [(text_of(key), item) for key, item in zip(keys, values, strict=True)]
    return []


def in_order(names: Sequence[str]) -> list[str]:
    """Names in the order in which they are usually written: x, y; x_2, x_10; r, h."""

    def order(name: str) -> list[tuple[int, str]]:
        pieces = re.findall(r"\d+|\D+", name)
        return [(int(piece), "") if piece.isdecimal() else (-1, f"{piece.casefold()} {piece}") for piece in pieces]

    return next((usual for usual in _USUAL if set(usual) == set(names)), sorted(names, key=order))


def is_run(names: Sequence[str]) -> bool:
    """Whether names follow one another, as x, y and a, b, c do and r, h do not: then a list of them is a tuple."""
    initials = sorted({name[:1] for name in names})
    return ord(initials[-1]) - ord(initials[0]) == len(initials) - 1


def free_names(tokens: Tokens) -> set[str]:
    """The variables in a part: its symbols, without e, i, units, and the names of sets such as ℝ."""
    value, _ = without_units(tokens)
    return {
        token.text
        for index, token in enumerate(value)
        if token.kind in ("letter", "unit")
        and token.text not in ("e", "i")
        and not token.text[0].isdecimal()
        and not (index > 1 and value[index - 2].text in (r"\mathbb", r"\mathcal"))
    }


def domain_of(tokens: Tokens) -> str:
    """`k in Z` for `k \\in \\mathbb{Z}`, `any integer k`, `k is an integer`; empty if it says no such thing."""
    rest = [token for token in tokens if not (token.kind == "word" and token.text in _QUANTIFIERS)]
    rest = [token for token in rest if not (token.text == "a" and token.kind == "unit")]
    texts = [token.text for token in rest]
    names = [token.text for token in rest if token.kind in ("letter", "unit")]
    words = [_DOMAIN_WORDS[text] for text in texts if text in _DOMAIN_WORDS]
    if len(words) == 1 and len(rest) == 2 and len(names) == 1:
        return f"{names[0]} in {words[0]}"
    if r"\in" not in texts:
        return ""
    left, domain = texts[: texts.index(r"\in")], texts[texts.index(r"\in") + 1 :]
    is_domain = len(domain) > 3 and domain[:2] == [r"\mathbb", "{"] and domain[2] in _DOMAINS
    if not is_domain or any(name in "{}" for name in left):
        return ""
    return f"{''.join(left)} in {''.join(domain[2:]).replace('}', '', 1)}"


def trailing_words(tokens: Tokens) -> str:
    """What a part of a list counts: `boys` of `5 boys`, `cm^2` of `6 cm^2`, `area` of `Area: 12` and `Area = 12`."""
    sides, marks = split(tokens, {":", "="})
    if len(marks) == 1 and is_words(sides[0]):
        return " ".join(token.text for token in sides[0])
    if marks:
        return ""
    if text_of(tokens[-1:]) == "°":
        return "degrees"
    value, _ = without_units(tokens)
    unit = " ".join(token.text for token in tokens[len(value) :] if token.text not in ("{", "}", *SCALES))
    return re.sub(r"\s*([\^/*-])\s*", r"\1", unit)


def numbered_parts(tokens: Tokens) -> list[tuple[str, Tokens]]:
    """`(A) 3 (B) 5` → A and 3, B and 5, in any numbering and order; `(2)(x)` and `(2) 3` are products."""
    ends = {i: _label_end(tokens, i) for i, token in enumerate(tokens) if token.text == "("}
    places = [(start, end) for start, end in ends.items() if end]
    labels = [text_of(tokens[start + 1 : end]) for start, end in places]
    is_single_choice = len(labels) == 1 and labels[0] in [*"ABCDEFGHIJ"]
    is_counted = len(set(labels)) == len(labels) > 1 and any(all(map(n.fullmatch, labels)) for n in _NUMBERINGS)
    if not places or places[0][0] != 0 or not (is_single_choice or is_counted):
        return []
    starts = [*(start for start, _ in places[1:]), len(tokens)]
    parts = [tokens[end + 1 : start] for (_, end), start in zip(places, starts, strict=True)]
    stripped = [part[:-1] if part and part[-1].text in (",", ";", "and") else part for part in parts]
    return [(f"({label})", part) for label, part in zip(labels, stripped, strict=True)]


def _label_end(tokens: Tokens, i: int) -> int:
    """Where the bracket of `(A)` or `(ii)` closes, before a value, if it is no factor of what is around it; else 0."""
    end = next((j for j in range(i + 2, min(i + 7, len(tokens) - 1)) if tokens[j].text == ")"), 0)
    if not end or (i and tokens[i - 1].text in ("+", "-", "*", "/", "^", "=")):
        return 0
    value = tokens[end + 1]
    is_value = value.kind in ("number", "letter", "word", "command", "unit") or value.text in ("-", "[", r"\{")
    return end if is_value else 0
