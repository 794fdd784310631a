r"""Cleaned answer text → tokens, and token lists cut where no bracket is open.

`( \frac{1}{2} , 3 \text{ cm} )` → `( \frac { 1 } { 2 } , 3 «cm» )`.

Token kinds: `number`, `repeating` (0.1\overline{6}), `letter` (one symbol, subscript included), `word` (several letters
in a row), `unit` (a single upright letter: a symbol, or metres), `command` (a LaTeX command we compute
with), `mark` (everything else: brackets, operators, separators, relations).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from scrl.answers.spelling import TEXT
from scrl.answers.units import ALSO_PRODUCTS, PRODUCTS, SHORT_UNITS, UNIT_WORDS, WITHOUT_POWERS

MAX_ANSWER_CHARS = 1_000
"""Longer texts are compared as text only."""


class Token(NamedTuple):
    kind: str
    text: str


Tokens = Sequence[Token]
_OPENING = frozenset({"(", "[", "{", r"\{"})
_CLOSING = frozenset({")", "]", "}", r"\}"})
_PART_ENDS = frozenset({"(", "[", r"\{", ",", ";", "=", "<", ">", "<=", ">=", "~=", ":", "and", "or"})
FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth log ln lg exp".split()
)
_WORD_COMMANDS = FUNCTIONS | {"sqrt", "frac", "binom"}
GREEK = frozenset(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho
    sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi
    Omega hbar ell""".split()
)
SMALL_WORDS = frozenset("mod of to is in per out than the gcd lcm max min det dim deg am pm old".split())
"""Short words that are not products of symbols."""
_SYNONYMS = {
    r"\cdot": "*", r"\times": "*", r"\ast": "*", r"\div": "/",
    r"\le": "<=", r"\ge": ">=", r"\lt": "<", r"\gt": ">", r"\ne": "!=",
    r"\approx": "~=", r"\simeq": "~=", r"\doteq": "~=", r"\colon": ":", r"\lbrace": r"\{", r"\rbrace": r"\}",
    r"\lbrack": "[", r"\rbrack": "]", r"\vert": "|", r"\lvert": "|", r"\rvert": "|", r"\mid": "|",
    r"\infin": r"\infty", r"\varnothing": r"\emptyset", r"\prime": "'", "==": "=",
}  # fmt: skip
NAMES = {"pi": r"\pi", "infty": r"\infty", "infinity": r"\infty", "inf": r"\infty", "oo": r"\infty"}
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip

_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<repeating>\d*\.\d*(?:\\(?:overline|bar|dot)\s*(?:\{{\d+\}}|\d)|\(\d+\)))
  | (?P<thousands>(?<![\d.,])[1-9]\d{{0,2}}(?:,\d{{3}})+(?:\.\d+)?(?![\d.]|,\d))
  | (?P<digits>(?=\d*[A-F])(?=[A-F]*\d)[\dA-F]+(?=\s*_))
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{{1,6}}(?!\w))?)
  | (?P<text>{TEXT.pattern})
  | (?P<environment>\\(?:begin|end)\s*\{{\s*\w+\*?\s*\}})
  | (?P<command>\\[A-Za-z]+)
  | (?P<letters>[A-Za-z]+)
  | (?P<mark>\\[{{}}\\|]|<=|>=|(?<=\s)!=|==|\.\.+|[^\s])
    """,
    re.VERBOSE,
)
_SUBSCRIPT = re.compile(r"\s*_\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\d+|\\[A-Za-z]+|\S))")
_FACTOR = re.compile(r"\s*(?:[({\[\d]|\\(?!cdot|text|mathrm|,|;|\s|cup|quad|q?quad|\}|\\|le|ge|end))")
"""What makes letters before it a product and no unit."""
_ONE_NUMBER = re.compile(
    r"[-+]?(?:[\d.]+(?:[eE][-+]?\d+)?(?:\*10\^(?:\d+|\{[-+]?\d+\}))?|\d+/\d+|\\frac\{\d+\}\{\d+\})"
)
"""5, -0.5, 3*10^{-8}, 3/4."""
_TEXT_PIECE = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d{1,3}(?:,\d{3})+(?![\d,])|\d+(?:\.\d+)?|\S")


def tokenize(text: str) -> list[Token]:
    """Tokens of a cleaned answer; inside brackets a comma always separates."""
    tokens: list[Token] = []
    position, depth = 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None  # the last alternative takes any character
        kind, piece = str(match.lastgroup), match[0]
        position = match.end()
        if kind == "thousands":
            if depth:
                piece = piece[: piece.index(",")]
                position = match.start() + len(piece)
            tokens.append(Token("number", piece.replace(",", "")))
        elif kind in ("number", "digits"):
            subscript, position = _subscript(text, position)
            base = re.sub(r"\W|_|base", "", subscript)
            numeral = Token("letter", f"{piece.lstrip('0') or '0'}_{_BASES.get(base, base)}")
            tokens.append(numeral if subscript else Token("number", piece))
        elif kind in ("letters", "command"):
            position = _append_name(tokens, text, piece, position)
        elif kind == "text":
            tokens.extend(_text_tokens(TEXT.sub(r"\1", piece)))
        elif kind != "space":
            piece = "..." if piece.startswith("..") else _SYNONYMS.get(piece, piece)
            depth += (piece in ("(", "[", r"\{")) - (piece in (")", "]", r"\}"))
            tokens.append(Token("mark" if kind == "environment" else kind, piece))
    return tokens


def _append_name(tokens: list[Token], text: str, piece: str, position: int) -> int:
    """A run of letters or a command becomes a function, a constant, a word, or one symbol after another."""
    name = piece.removeprefix("\\")
    before = text[position - len(piece) - 1] if position > len(piece) else ""
    if piece.startswith("\\") and name not in GREEK and name not in NAMES:
        synonym = _SYNONYMS.get(piece, piece)
        tokens.append(Token("mark" if not synonym.startswith("\\") or synonym in r"\{\}" else "command", synonym))
    elif name in _WORD_COMMANDS:
        tokens.append(Token("command", f"\\{name}"))
    elif name.lower() in ("and", "or"):
        tokens.append(Token("mark", name.lower()))
    elif name in NAMES:
        tokens.append(Token("command", NAMES[name]))
    elif name in GREEK or len(name) == 1:
        subscript, position = _subscript(text, position)
        tokens.append(Token("letter", name + subscript))
    elif _is_word(name, tokens, before, text[position:]):
        tokens.append(Token("word", fold(name)))
    elif name[:3] in FUNCTIONS and len(name) <= 5:
        tokens.append(Token("command", f"\\{name[:3]}"))
        position = _append_name(tokens, text, name[3:], position)
    else:
        tokens.extend(Token("letter", letter) for letter in name[:-1])
        position = _append_name(tokens, text, name[-1], position)
    return position


def _is_word(name: str, tokens: list[Token], before: str, rest: str) -> bool:
    """`apples`, and after a value `cm`; but `2abcd` is a product, as are `xy`, `3sinx` and `2mg\\sin x`."""
    low = name.casefold()
    last = tokens[-1] if tokens else Token("", "")
    is_behind_value = last.kind == "number" or last.text in ("}", ")", r"\pi", "/", "*")
    is_glued = before.isalnum() or before == "}"
    if low in SMALL_WORDS or low in UNIT_WORDS:
        return not (low in ALSO_PRODUCTS and is_glued)
    if low in SHORT_UNITS and not _FACTOR.match(rest) and is_behind_value:
        if name in PRODUCTS or (low in WITHOUT_POWERS and rest.lstrip().startswith("^")):
            return False
        start = max((i for i, token in enumerate(tokens) if token.text in _PART_ENDS), default=-1)
        return low not in ALSO_PRODUCTS or (not is_glued and is_one_number(tokens[start + 1 :]))
    return len(name) >= 4 and not before.isalnum() and name[:3] not in FUNCTIONS


def is_one_number(tokens: Tokens) -> bool:
    """A whole or decimal number, perhaps in scientific notation, or a fraction of whole numbers; no sum, no root."""
    return bool(_ONE_NUMBER.fullmatch(text_of(tokens)))


def _subscript(text: str, position: int) -> tuple[str, int]:
    """`_1`, `_{1}`, `_{\\text{max}}` after a symbol, as part of its name."""
    match = _SUBSCRIPT.match(text, position)
    if match is None:
        return "", position
    inner = TEXT.sub(r"\1", match[1] if match[1] is not None else match[2])
    inner = re.sub(r"[\s{}\\]", "", inner)
    inner = _BASES.get(inner, inner)
    return (f"_{inner}" if inner.isalnum() else f"_{{{inner}}}"), match.end()


def _text_tokens(content: str) -> list[Token]:
    """The content of \\text{…}: a word per run of letters; a lone letter may be a unit (m, g, s)."""
    tokens: list[Token] = []
    for piece in _TEXT_PIECE.findall(content):
        name = piece.casefold()
        if name in ("and", "or"):
            tokens.append(Token("mark", name))
        elif piece[0].isdecimal():
            tokens.append(Token("number", piece.replace(",", "")))
        elif not piece[0].isalpha():
            if piece != ".":  # of an abbreviation
                tokens.append(Token("mark", piece))
        elif len(piece) == 1:
            tokens.append(Token("letter" if piece in "ie" else "unit", piece))
        else:
            tokens.append(Token("command", f"\\{name}") if name in FUNCTIONS else Token("word", fold(piece)))
    return tokens


def fold(word: str) -> str:
    """Case does not matter, except in words that mix it: mW, Aabb."""
    return word.casefold() if word.islower() or word.isupper() or word.istitle() else word


# Token lists cut where no bracket is open


def depths(tokens: Tokens) -> list[int]:
    """For each token, how many brackets are open around it; a bracket counts as inside itself."""
    levels, depth = [], 0
    for token in tokens:
        is_mark = token.kind == "mark"
        depth += is_mark and (token.text in _OPENING or token.text.startswith(r"\begin{"))
        levels.append(depth)
        depth -= is_mark and (token.text in _CLOSING or token.text.startswith(r"\end{"))
    return levels


def outside(tokens: Tokens) -> list[Token]:
    """The tokens outside all brackets."""
    return [token for token, depth in zip(tokens, depths(tokens), strict=True) if depth == 0]


def split(tokens: Tokens, marks: Collection[str]) -> tuple[list[Tokens], list[str]]:
    """Cut at these marks where they are outside all brackets; returns the parts and the marks found."""
    parts: list[Tokens] = []
    cuts: list[str] = []
    start = 0
    for index, (token, depth) in enumerate(zip(tokens, depths(tokens), strict=True)):
        if depth == 0 and token.kind in ("mark", "command") and token.text in marks:
            parts.append(tokens[start:index])
            cuts.append(token.text)
            start = index + 1
    return [*parts, tokens[start:]], cuts


def inside(tokens: Tokens, opening: Collection[str], closing: Collection[str]) -> Tokens | None:
    """What is inside one pair of brackets around everything, if there is one."""
    if len(tokens) < 2 or tokens[0].text not in opening or tokens[-1].text not in closing:
        return None
    if (tokens[0].text == r"\{") != (tokens[-1].text == r"\}"):
        return None
    levels = itertools.accumulate((token.text in _OPENING) - (token.text in _CLOSING) for token in tokens[:-1])
    return tokens[1:-1] if all(levels) else None


def text_of(tokens: Tokens) -> str:
    """The tokens without spaces."""
    return "".join(token.text for token in tokens)
