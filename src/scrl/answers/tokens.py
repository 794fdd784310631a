r"""Answer text → tokens: spacing, styling and synonyms are gone after this step.

`\left( \dfrac{1}{2}, 3\,\text{cm} \right)` → `( \frac { 1 } { 2 } , 3 «cm» )`.

Token kinds: `number`, `letter` (one symbol, subscript included), `word` (several letters that stand together),
`unit` (a single upright letter: a symbol, or metres), `command` (a LaTeX command we compute with), `mark` (everything
else: brackets, operators, separators, relations).
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_ANSWER_CHARS = 1_000
"""Longer texts are compared as text only."""


class Token(NamedTuple):
    """One token of an answer."""

    kind: str
    text: str


FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh coth log ln lg exp".split())
_WORD_COMMANDS = FUNCTIONS | {"sqrt", "frac", "binom"}
_GREEK = frozenset(
    (
        "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho "
        "sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi "
        "Omega hbar ell"
    ).split()
)
SHORT_UNITS = frozenset(
    (
        "mm cm dm km nm kg mg ml cl dl ft yd mi lb lbs oz hr hrs min mins sec secs mph kph kmh inch hz khz "
        "mhz kw kj kcal cal mol am pm"
    ).split()
)
_STYLES = (
    "left|right|middle|bigl?|bigr|Bigl?|Bigr|biggl?|biggr|Biggl?|Biggr|displaystyle|textstyle|scriptstyle|limits|"
    "mathbf|boldsymbol|bm|mathit|mathsf|mathtt|mathnormal|bf|rm|it|mathopen|mathclose|mathord|phantom"
)
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "÷": r"\div ",
    "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ",
    "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "≈": r"\approx ", "°": "",
    "½": r"\frac12", "⅓": r"\frac13", "¼": r"\frac14", "⅔": r"\frac23", "¾": r"\frac34", "⁄": "/", "∠": r"\angle ",
    "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "δ": r"\delta ", "θ": r"\theta ", "λ": r"\lambda ",
    "μ": r"\mu ", "σ": r"\sigma ", "φ": r"\phi ", "ω": r"\omega ", "ℝ": r"\mathbb{R}", "’": "'", "′": "'",
    "€": "", "£": "", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "：": ":", "，": ",", "。": ".",
    "（": "(", "）": ")",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_FULLWIDTH = {0xFF10 + digit: str(digit) for digit in range(10)}
_UNICODE = str.maketrans(_SYMBOLS) | _FULLWIDTH

_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<=\d)\s*(?:\{,\}|,\\!|\\,|\\!|\\ )\s*(?=\d{3}(?!\d))", ""),  # 1{,}000  1,\!000  1\,000
        (rf"\\(?:{_STYLES})(?![A-Za-z])", " "),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", " "),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\[dt]binom(?![A-Za-z])", r"\\binom"),
        (r"(?<!\\)\\(?:[,;:! ]|quad|qquad|hspace\{[^{}]*\}|hfill)(?![A-Za-z])|~|\\\n", " "),
        (r"\\?%|\\?\$|\\[()\[\]]|\\(?:percent|euro|pounds)(?![A-Za-z])", " "),
        (r"(?<![\w.])(?:np|math|sympy|numpy)\.(?=[a-z])", ""),
        (r"\*\*", "^"),
    ]
]
_SYNONYMS = {
    r"\cdot": "*", r"\times": "*", r"\ast": "*", r"\div": "/", r"\over": r"\over",
    r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=", r"\geqslant": ">=",
    r"\lt": "<", r"\gt": ">", r"\ne": "!=", r"\neq": "!=", r"\approx": "~=", r"\simeq": "~=", r"\doteq": "~=",
    r"\colon": ":", r"\lbrace": r"\{", r"\rbrace": r"\}", r"\lbrack": "[", r"\rbrack": "]",
    r"\langle": "(", r"\rangle": ")", r"\vert": "|", r"\lvert": "|", r"\rvert": "|", r"\mid": "|",
    r"\infin": r"\infty", r"\varnothing": r"\emptyset", r"\lor": "or", r"\vee": "or", r"\land": "and",
    r"\neg": "-", r"\prime": "'", "==": "=", "≡": "=",
}  # fmt: skip
_NAMES = {"pi": r"\pi", "infty": r"\infty", "infinity": r"\infty", "inf": r"\infty", "oo": r"\infty"}
_BASES = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
          "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip

_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mbox|hbox|operatorname\*?|emph)\s*\{([^{}]*)\}"
)
_TOKEN = re.compile(
    rf"""
    (?P<space>\s+)
  | (?P<repeating>\d*\.\d*\\overline\s*\{{\d+\}})
  | (?P<thousands>(?<![\d.,])\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?![\d.]|,\d))
  | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{{1,6}}(?!\w))?)
  | (?P<text>{_TEXT.pattern})
  | (?P<environment>\\(?:begin|end)\s*\{{\s*\w+\*?\s*\}})
  | (?P<command>\\[A-Za-z]+)
  | (?P<letters>[A-Za-z]+)
  | (?P<mark>\\[{{}}\\|]|<=|>=|!=|==|[^\s])
    """,
    re.VERBOSE,
)
_SUBSCRIPT = re.compile(r"\s*_\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\d+|\\?[A-Za-z]+|\S))")


def clean(text: str) -> str:
    """Spacing, styling, currency, percent and degree signs removed; synonyms unified."""
    text = _SUPERSCRIPT.sub(lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text.translate(_UNICODE))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text.strip().rstrip(".").rstrip()


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
        elif kind == "number":
            subscript, position = _subscript(text, position)
            tokens.append(
                Token("letter", f"{piece.lstrip('0') or '0'}{subscript}") if subscript else Token(kind, piece)
            )
        elif kind in ("letters", "command"):
            position = _append_name(tokens, text, piece, position)
        elif kind == "text":
            tokens.extend(_text_tokens(_TEXT.sub(r"\1", piece)))
        elif kind != "space":
            piece = _SYNONYMS.get(piece, piece)
            depth += piece in ("(", "[", r"\{") or -(piece in (")", "]", r"\}"))
            tokens.append(Token("mark" if kind == "environment" else kind, piece))
    return tokens


def unwrap_text(text: str) -> str:
    """`\\text{east}` → ` east `."""
    return _TEXT.sub(r" \1 ", text)


def is_wordy(letters: str) -> bool:
    """A run of letters that reads as a word rather than a product of symbols."""
    return len(letters) >= 4 or (len(letters) >= 2 and bool(re.search("[aeiouAEIOU]", letters)))


def _append_name(tokens: list[Token], text: str, piece: str, position: int) -> int:
    """A run of letters or a command becomes a function, a constant, a word, or one symbol after another."""
    name = piece.removeprefix("\\")
    after_number = bool(tokens) and (tokens[-1].kind == "number" or tokens[-1].text == "}")
    if piece.startswith("\\") and name not in _GREEK and name not in _NAMES:
        synonym = _SYNONYMS.get(piece, piece)
        tokens.append(Token("mark" if not synonym.startswith("\\") or synonym in r"\{\}" else "command", synonym))
    elif name in _WORD_COMMANDS:
        tokens.append(Token("command", f"\\{name}"))
    elif name.lower() in ("and", "or"):
        tokens.append(Token("mark", name.lower()))
    elif name in _NAMES:
        tokens.append(Token("command", _NAMES[name]))
    elif name in _GREEK or len(name) == 1:
        subscript, position = _subscript(text, position)
        tokens.append(Token("letter", name + subscript))
    elif len(name) >= 4 or (after_number and name.lower() in SHORT_UNITS):
        tokens.append(Token("word", name.casefold()))
    else:
        tokens.extend(Token("letter", letter) for letter in name[:-1])
        position = _append_name(tokens, text, name[-1], position)
    return position


def _subscript(text: str, position: int) -> tuple[str, int]:
    """`_1`, `_{1}`, `_{\\text{max}}` after a symbol, as part of its name."""
    match = _SUBSCRIPT.match(text, position)
    if match is None:
        return "", position
    inner = _TEXT.sub(r"\1", match[1] if match[1] is not None else match[2])
    inner = re.sub(r"[\s{}\\]", "", inner)
    return f"_{_BASES.get(inner, inner)}", match.end()


def _text_tokens(content: str) -> list[Token]:
    """What stands inside \\text{…}: one word a run of letters; a lone letter may be a unit (m, g, s)."""
    tokens: list[Token] = []
    for piece in re.findall(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*|\d+(?:\.\d+)?|\S", content):
        name = piece.casefold()
        if name in ("and", "or"):
            tokens.append(Token("mark", name))
        elif piece[0].isdigit():
            tokens.append(Token("number", piece))
        elif not piece[0].isalpha():
            tokens.append(Token("mark", piece))
        elif len(piece) == 1:
            tokens.append(Token("letter" if piece in "ie" else "unit", piece))
        else:
            tokens.append(Token("command", f"\\{name}") if name in FUNCTIONS else Token("word", name))
    return tokens
