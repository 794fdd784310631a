r"""Tokens of one expression → its exact value: `3\frac{1}{2}` → 7/2, `2\sqrt{12}` → 4·3^(1/2).

A recursive descent over sums, products, powers and atoms. It computes; it never calls, imports or evaluates
anything that the text names. What it does not know raises `Unreadable`, what has no single meaning `Incomputable`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from scrl.answers import exact, functions, powers
from scrl.answers.exact import Expr, Incomputable, Unreadable
from scrl.answers.tokens import FUNCTIONS, Token, text_of

MAX_DEPTH = 40
MAX_PRIMES = 4
MAX_EXPANDED = 32

_TRIGONOMETRIC = frozenset("sin cos tan cot sec csc".split())
_INVERTIBLE = _TRIGONOMETRIC | frozenset("sinh cosh tanh coth".split())
_ALIASES = {f"arc{name}": f"a{name}" for name in _TRIGONOMETRIC} | {"lg": "log"}
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", "|": "|"}
_ACCENTS = frozenset(
    r"\overline \bar \hat \tilde \vec \dot \ddot \overrightarrow \widehat \bold \mathbb \mathcal".split()
)
_OPAQUE = frozenset(r"\odot \partial \nabla".split())
_DIFFERENTIALS = frozenset({"d", r"\partial"})
_FIGURES = frozenset(r"\angle \triangle".split())
_CALLED = frozenset("f g F G Gamma zeta".split())
"""Names that a bracket turns into a function: f(1) + f(2) is not f(3)."""
_SUM_OF_CAPITALS = re.compile(r"[A-Z](?:[+-][A-Z])+")
_PLAIN_FRACTION = re.compile(
    r"(?:\\frac (?:(\d)(\d)|(?:\{ (\d+) \}|(\d)) (?:\{ (\d+) \}|(\d)))|(\d+) / (\d+))(?= |$)", re.ASCII
)
"""\\frac12, \\frac{1}{2}, \\frac1{2} or 1/2 in whole numbers, as tokens with spaces between."""
_NO_NUMBER_AFTER = frozenset("number repeating letter unit word".split())
"""`12 34`, `x2`, `4 R 3` have no single meaning."""


def evaluate(tokens: Sequence[Token]) -> Expr:
    """The exact value of one expression, or `Unreadable`."""
    parser = _Parser(tokens)
    value = parser.sum(0)
    if parser.peek():
        raise Unreadable(f"unexpected {parser.peek()!r}")
    return value


class _Parser:
    """Moves from token to token; after the last one there is nothing. `depth` bounds nesting."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0
        self.open_angles = 0
        """How many trigonometric functions are being read: inside them a degree is π/180."""
        self.expanded = 0
        self.open_bars = 0
        """How many |…| are being read: outside them a bar opens one."""

    def peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def take(self) -> Token:
        if self.position >= len(self.tokens):
            raise Unreadable("ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def takes(self, *texts: str) -> bool:
        """Take these tokens if they are next."""
        is_next = all(self.peek(ahead) == text for ahead, text in enumerate(texts))
        self.position += len(texts) * is_next
        return is_next

    def is_sign(self) -> bool:
        return self.kind() == "mark" and self.peek() in ("+", "-")

    def signed(self, read: Callable[[int], Expr], depth: int) -> Expr:
        """All signs at this position, and what follows them."""
        is_negative = False
        while self.is_sign():
            is_negative ^= self.take().text == "-"
        value = read(depth)
        return -value if is_negative else value

    def group_text(self) -> str:
        """A braced group, or one token, as text."""
        texts = [self.take().text]
        depth = int(texts[0] == "{")
        while depth:
            texts.append(self.take().text)
            depth += (texts[-1] == "{") - (texts[-1] == "}")
        return " ".join(texts[1:-1] if texts[0] == "{" else texts)

    def sum(self, depth: int) -> Expr:
        """Term (± term)*; `{a \\over b}` divides everything before it by everything after it."""
        total = self.signed(self.product, depth)
        while self.is_sign():
            total += self.signed(self.product, depth)
        return powers.divide(total, self.sum(depth + 1)) if self.takes(r"\over") else total

    def product(self, depth: int) -> Expr:
        """Factors joined by *, /, or nothing."""
        factors = [self.number_or_factor(depth)]
        while True:
            if self.takes("*"):
                factors.append(self.signed(self.number_or_factor, depth))
            elif self.takes("/"):
                factors = [powers.divide(numerator := powers.product(factors), self.divisor(numerator, depth))]
            elif self.starts_factor():
                factors.append(self.next_factor(depth))
            else:
                return powers.product(factors)

    def divisor(self, numerator: Expr, depth: int) -> Expr:
        """A slash divides by all that is written without a sign: a/bc is a/(bc); but 4/3 πr³ starts with 4/3."""
        factors = [self.signed(self.number_or_factor, depth)]
        is_number = not numerator.symbols and factors[0].rational is not None
        if is_number and numerator.rational is None and self.starts_factor():
            raise Incomputable("√3/2x is read in two ways")
        while not is_number and self.starts_factor():
            factors.append(self.next_factor(depth))
        return powers.product(factors)

    def next_factor(self, depth: int) -> Expr:
        are_powers = self.peek(-2) == "^" and "^" in (self.peek(1), self.peek(-5))  # 2^3 3^2 5
        if self.kind() == "number" and self.tokens[self.position - 1].kind in _NO_NUMBER_AFTER and not are_powers:
            raise Incomputable("a number right after a number or a letter")
        return self.factor(depth)

    def starts_factor(self) -> bool:
        kind, text = self.kind(), self.peek()
        if kind == "command":
            return text not in (r"\over", r"\rfloor", r"\rceil")
        opens = text in ("(", "[", "{") or (text == "|" and not self.open_bars)
        return opens or kind in ("number", "repeating", "letter", "word", "unit")

    def number_or_factor(self, depth: int) -> Expr:
        """A factor, or a whole number and a proper fraction: `3\\frac{1}{2}`, `3 1/2`."""
        if self.kind() == "number" and self.peek().isdecimal():
            ahead = " ".join(token.text for token in self.tokens[self.position + 1 : self.position + 8])
            if match := _PLAIN_FRACTION.match(ahead):
                numerator, denominator = (int(digits) for digits in match.groups() if digits)
                if 0 < numerator < denominator:
                    whole = int(self.take().text)
                    self.position += match[0].count(" ") + 1
                    return exact.number(whole + Fraction(numerator, denominator))
        return self.factor(depth)

    def factor(self, depth: int) -> Expr:
        """An atom with its degree sign, factorial and power; each once, so that `2^3^2` and `n!!` are refused."""
        value = self.atom(depth)
        seen: set[str] = set()
        while self.kind() == "mark" and self.peek() in ("^", "!", "°"):
            mark = self.take().text
            Incomputable.when(mark in seen, "repeated powers or factorials")
            seen.add(mark)
            self.expanded += len(value.terms) > 1
            Incomputable.when(self.expanded > MAX_EXPANDED, "too many powers of sums")
            if mark == "!":
                value = functions.factorial(value)
            elif mark == "^":
                value = powers.power(value, self.signed(self.exponent, depth))
            elif self.open_angles:
                value *= exact.symbol("pi") * Fraction(1, 180)
        return value

    def exponent(self, depth: int) -> Expr:
        """What a `^` takes: a braced sum, or one atom."""
        is_function = self.kind() == "command" and self.peek()[1:] in FUNCTIONS
        return self.factor(depth) if is_function else self.bare_atom(depth)

    def slot(self, depth: int) -> Expr:
        """What a command such as \\frac takes: a braced sum, or one digit, letter or command."""
        if self.kind() == "number" and len(self.peek()) > 1:
            digits = self.peek()
            Unreadable.when(not digits.isdecimal(), "expected a digit")
            self.tokens[self.position] = Token("number", digits[1:])
            return exact.number(int(digits[0]))
        return self.bare_atom(depth)

    def bare_atom(self, depth: int) -> Expr:
        """One atom; a letter stays a letter, whatever follows: e^u(u-1) is e^u times u-1."""
        if self.kind() in ("letter", "unit"):
            return exact.symbol(self.take().text)
        return self.atom(depth + 1)

    def atom(self, depth: int) -> Expr:
        Unreadable.when(depth > MAX_DEPTH, "nested too deeply")
        token = self.take()
        if token.kind == "number":
            return exact.number(exact.decimal(token.text))
        if token.kind == "repeating":
            return exact.number(exact.repeating_decimal(token.text))
        if token.kind in ("letter", "word", "unit"):
            return self.named(token, depth)
        if token.text in _CLOSING:
            inner = self.bracketed(token.text, depth)
            if token.text == "|":
                return functions.absolute(inner)
            is_rounded = token.text in (r"\lfloor", r"\lceil")
            return functions.rounded(token.text.removeprefix(r"\l"), inner) if is_rounded else inner
        return self.command(token.text, depth)

    def bracketed(self, opening: str, depth: int) -> Expr:
        bars, self.open_bars = self.open_bars, int(opening == "|")
        value = self.sum(depth + 1)
        if not self.takes(_CLOSING[opening]):
            raise Unreadable(f"expected {_CLOSING[opening]}")
        self.open_bars = bars
        return value

    def named(self, token: Token, depth: int) -> Expr:
        """A symbol with its primes; f(…), T(n/2), E[X] are function values, x(x+1) and a(b-c) are products."""
        if differential := self.differential(token):
            return differential
        name = token.text + self.primes() + self.order()
        if token.text in _CALLED and self.takes("^", "{", "-", "1", "}"):
            name += "^-1"
        if self.peek() == "[" or (self.peek() == "(" and self.is_applied(token)):
            return exact.call(exact.APPLY + name, self.bracketed(self.take().text, depth))
        return exact.symbol(name)

    def is_applied(self, token: Token) -> bool:
        """Whether a bracket after a name is its argument: of f, capitals, Greek letters; x(t); u(t-1) - u(t-2)."""
        if token.text in _CALLED or (self.peek(2) == ")" and self.kind(1) in ("letter", "number")):
            return True
        starts = [i for i, pair in enumerate(itertools.pairwise(self.tokens)) if pair == (token, Token("mark", "("))]
        arguments = [self.tokens[start + 2 : self.tokens.index(Token("mark", ")"), start)] for start in starts]
        is_sum = token.text not in "PE" and any(_SUM_OF_CAPITALS.fullmatch(text_of(each)) for each in arguments)
        if is_sum or any(token in argument for argument in arguments):  # A(B+C), L(L-1)
            return False
        return len(starts) > 1 or not (len(token.text) == 1 and token.text.islower())

    def differential(self, token: Token) -> Expr | None:
        """dy/dx and Δy are names: nothing cancels in them."""
        if token.text == "Delta" and self.kind() == "letter":
            return exact.symbol(f"Delta {self.take().text}")
        if token.text == "d" and self.kind() == "letter" and self.peek(1) == "/" and self.peek(2) == "d":
            above, _, _, below = (self.take().text for _ in range(4))
            return exact.symbol(f"derivative(d {above}, d {below})")
        return None

    def order(self) -> str:
        """`^{(4)}`, the fourth derivative, and the upper index of `C_5^3`: parts of a name."""
        if self.takes("^", "{", "(", order := self.peek(3), ")", "}"):
            return f"^[{order}]"
        is_indexed = re.fullmatch(r"[CA]_\w+", self.peek(-1)) and self.takes("^")
        return f"^{self.group_text()}" if is_indexed else ""

    def primes(self) -> str:
        """The primes after a name: y', y'', y^\\prime, y^{\\prime}."""
        spellings = [("'",), ("^", "'"), ("^", "{", "'", "}")] * MAX_PRIMES
        return "".join("'" for spelling in spellings if self.takes(*spelling))

    def command(self, name: str, depth: int) -> Expr:
        if name == r"\frac":
            return self.derivative() or powers.divide(self.slot(depth), self.slot(depth))
        if name == r"\sqrt":
            return self.root(depth)
        if name == r"\binom":
            return functions.binomial(self.slot(depth), self.slot(depth))
        if name in (r"\pi", r"\infty"):
            return exact.symbol("pi" if name == r"\pi" else "oo")
        if name in _ACCENTS:
            symbol = f"{name[1:]}({self.group_text()})"
            return exact.symbol(f"{symbol}_{self.group_text()}" if self.takes("_") else symbol)
        if name in _FIGURES:
            return exact.symbol(f"{name[1:]}({self.letters()})")
        if name in _OPAQUE:
            return exact.symbol(name[1:])
        if name[1:] in FUNCTIONS:
            return self.function(name[1:], depth)
        raise Unreadable(f"unknown {name}")

    def derivative(self) -> Expr | None:
        """`\\frac{dy}{dx}` and `\\frac{\\partial^2 u}{\\partial x^2}` are names: nothing cancels in them."""
        start = self.position
        if self.peek() == "{" and self.peek(1) in _DIFFERENTIALS:
            numerator = self.group_text()
            if self.peek() == "{" and self.peek(1) in _DIFFERENTIALS and self.kind(2) == "letter":
                return exact.symbol(f"derivative({numerator}, {self.group_text()})")
        self.position = start
        return None

    def letters(self) -> str:
        """The letters or the number that name an angle or a triangle, in order."""
        if self.peek() == "{" or self.kind() == "number":
            return self.group_text()
        start = self.position
        while self.kind() == "letter":
            self.take()
        Unreadable.when(self.position == start, "a figure without a name")
        return " ".join(token.text for token in self.tokens[start : self.position])

    def root(self, depth: int) -> Expr:
        """`\\sqrt{…}`, `\\sqrt[3]{…}`; `\\sqrt12` is √1 · 2 to TeX and √12 to most who write it."""
        index = Fraction(2)
        if self.takes("["):
            index = self.bracketed("[", depth).rational or Fraction(0)
            Unreadable.when(index.denominator != 1 or not 1 < index < 100, "root index")
        Incomputable.when(self.kind() == "number" and len(self.peek()) > 1, "a root without braces")
        return powers.power(self.slot(depth), exact.number(1 / index))

    def function(self, name: str, depth: int) -> Expr:
        """sin x, sin^2 x, sin^{-1} x, \\log_b x, with or without brackets."""
        base = self.log_base(depth) if name in ("log", "lg") else None
        exponent = self.signed(self.exponent, depth) if self.takes("^") else None
        if exponent is not None and exponent.rational == -1:
            Unreadable.when(name not in _INVERTIBLE, "the inverse of this function")
            name, exponent = f"a{name}", None
        self.open_angles += name in _TRIGONOMETRIC
        is_bare = self.peek() not in ("(", "[", "{")
        argument = self.signed(self.function_argument, depth)
        self.open_angles -= name in _TRIGONOMETRIC
        Incomputable.when(is_bare and self.peek() == "/", "cos 2π/3 is read in two ways")
        name = _ALIASES.get(name, name)
        if name == "exp":
            value = powers.power(exact.symbol("e"), argument)
        elif name == "log":
            value = exact.call("log", base or exact.number(10), argument)
        else:
            value = functions.elementary(name, argument)
        return powers.power(value, exponent) if exponent is not None else value

    def log_base(self, depth: int) -> Expr | None:
        """`\\log_2 8`, `\\log_{10} 5`, `\\log_10 5`; `\\log_28` is log₂ 8."""
        if not self.takes("_"):
            return None
        has_more = self.position + 1 < len(self.tokens)
        return self.atom(depth + 1) if self.kind() == "number" and has_more else self.slot(depth)

    def function_argument(self, depth: int) -> Expr:
        """A bracket, or the factors up to the next sum or function: `\\sin 2x \\cos x` is sin(2x)·cos(x)."""
        if self.peek() in ("(", "[", "{"):
            return self.atom(depth + 1)
        value = self.factor(depth + 1)
        while self.kind() in ("number", "letter") or self.peek() in (r"\pi", r"\frac", r"\sqrt"):
            Incomputable.when(self.kind() == "number", "a number right after a function's argument")
            value *= self.factor(depth + 1)
        return value
