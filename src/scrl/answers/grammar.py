r"""Tokens of one expression → its exact value: `3\frac{1}{2}` → 7/2, `2\sqrt{12}` → 4·3^(1/2).

A recursive descent over sums, products, powers and atoms. It computes; it never calls, imports or evaluates
anything that the text names. What it does not know raises `Unreadable`, what has no single meaning `Incomputable`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from fractions import Fraction

from scrl.answers import exact, functions, powers
from scrl.answers.exact import Expr, Incomputable, Unreadable
from scrl.answers.tokens import FUNCTIONS, Token, text_of


class Cursor:
    """Moves from token to token; after the last one there is nothing."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0

    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].text if 0 <= index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def sees(self, *texts: str) -> bool:
        """Whether these are the next tokens."""
        return [token.text for token in self.tokens[self.position : self.position + len(texts)]] == list(texts)

    def is_sign(self) -> bool:
        return self.kind() == "mark" and self.peek() in ("+", "-")

    def take_minus(self) -> bool:
        """Take all signs at this position; whether they make a minus."""
        negative = False
        while self.is_sign():
            negative ^= self.take().text == "-"
        return negative

    def take(self) -> Token:
        if self.at_end():
            raise Unreadable("ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unreadable(f"expected {text}")

    def group_text(self) -> str:
        """A braced group, or one token, as text."""
        texts = [self.take().text]
        depth = int(texts[0] == "{")
        while depth:
            texts.append(self.take().text)
            depth += (texts[-1] == "{") - (texts[-1] == "}")
        return " ".join(texts[1:-1] if texts[0] == "{" else texts)


MAX_DEPTH = 40
MAX_PRIMES = 4
MAX_EXPANDED = 32

_TRIGONOMETRIC = frozenset("sin cos tan cot sec csc".split())
_INVERTIBLE = _TRIGONOMETRIC | frozenset("sinh cosh tanh coth".split())
_ALIASES = {f"arc{name}": f"a{name}" for name in _TRIGONOMETRIC} | {"lg": "log"}
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", "|": "|"}
_WRAPPERS = {r"\lfloor": "floor", r"\lceil": "ceil"}
_ACCENTS = frozenset(
    r"\overline \bar \hat \tilde \vec \dot \ddot \overrightarrow \widehat \bold \mathbb \mathcal".split()
)
_OPAQUE = frozenset(r"\odot \partial \nabla".split())
_DIFFERENTIALS = frozenset({"d", r"\partial"})
_FIGURES = frozenset(r"\angle \triangle".split())
_CALLED = frozenset("f g F G Gamma zeta".split())
"""Names that a bracket turns into a function: f(1) + f(2) is not f(3)."""
_SUM_OF_CAPITALS = re.compile(r"[A-Z](?:[+-][A-Z])+")
_INVERSE = ["^", "{", "-", "1", "}"]
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
    if not parser.at_end():
        raise Unreadable(f"unexpected {parser.peek()!r}")
    return value


class _Parser(Cursor):
    """The descent; `depth` bounds nesting."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        super().__init__(tokens)
        self.open_angles = 0
        """How many trigonometric functions are being read: inside them a degree is π/180."""
        self.expanded = 0
        self.open_bars = 0
        """How many |…| are being read: outside them a bar opens one."""

    def sum(self, depth: int) -> Expr:
        """Term (± term)*; `{a \\over b}` divides everything before it by everything after it."""
        total = self.signed_product(depth)
        while self.is_sign():
            total += self.signed_product(depth)
        if self.peek() == r"\over":
            self.take()
            total = powers.divide(total, self.sum(depth + 1))
        return total

    def signed_product(self, depth: int) -> Expr:
        negative = self.take_minus()
        value = self.product(depth)
        return -value if negative else value

    def product(self, depth: int) -> Expr:
        """Factors joined by *, /, or nothing."""
        factors = [self.number_or_factor(depth)]
        while not self.at_end():
            if self.peek() == "*":
                self.take()
                factors.append(self.signed_factor(depth))
            elif self.peek() == "/":
                self.take()
                factors = [powers.divide(numerator := powers.product(factors), self.divisor(numerator, depth))]
            elif self.starts_factor():
                factors.append(self.next_factor(depth))
            else:
                break
        return powers.product(factors)

    def divisor(self, numerator: Expr, depth: int) -> Expr:
        """A slash divides by all that is written without a sign: a/bc is a/(bc); but 4/3 πr³ starts with 4/3."""
        factors = [self.signed_factor(depth)]
        is_number = not numerator.symbols and factors[0].rational is not None
        if is_number and numerator.rational is None and self.starts_factor():
            raise Incomputable("√3/2x is read in two ways")
        while not is_number and not self.at_end() and self.starts_factor():
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

    def signed_factor(self, depth: int) -> Expr:
        negative = self.take_minus()
        value = self.number_or_factor(depth)
        return -value if negative else value

    def number_or_factor(self, depth: int) -> Expr:
        mixed = self.mixed_number()
        return self.factor(depth) if mixed is None else mixed

    def mixed_number(self) -> Expr | None:
        """`3\\frac{1}{2}` or `3 1/2`: a whole number and a proper fraction, looked up before parsing."""
        if self.kind() != "number" or not self.peek().isdecimal():
            return None
        ahead = " ".join(token.text for token in self.tokens[self.position + 1 : self.position + 8])
        match = _PLAIN_FRACTION.match(ahead)
        if match is None:
            return None
        numerator, denominator = (int(digits) for digits in match.groups() if digits)
        if not 0 < numerator < denominator:
            return None
        whole = int(self.take().text)
        self.position += match[0].count(" ") + 1
        return exact.number(whole + Fraction(numerator, denominator))

    def factor(self, depth: int) -> Expr:
        """An atom with its degree sign, factorial and power; each once, so that `2^3^2` and `n!!` are refused."""
        value = self.atom(depth)
        seen: set[str] = set()
        while self.kind() == "mark" and self.peek() in ("^", "!", "°"):
            mark = self.take().text
            if mark in seen:
                raise Incomputable("repeated powers or factorials")
            seen.add(mark)
            self.expanded += len(value.terms) > 1
            if self.expanded > MAX_EXPANDED:
                raise Incomputable("too many powers of sums")
            if mark == "!":
                value = functions.factorial(value)
            elif mark == "^":
                value = powers.power(value, self.argument(depth))
            elif self.open_angles:
                value *= exact.symbol("pi") * Fraction(1, 180)
        return value

    def argument(self, depth: int) -> Expr:
        """What a `^` takes: a braced sum, or one signed atom."""
        negative = self.take_minus()
        is_function = self.kind() == "command" and self.peek()[1:] in FUNCTIONS
        value = self.factor(depth) if is_function else self.bare_atom(depth)
        return -value if negative else value

    def slot(self, depth: int) -> Expr:
        """What a command such as \\frac takes: a braced sum, or one digit, letter or command."""
        if self.kind() == "number" and len(self.peek()) > 1:
            digits = self.peek()
            if not digits.isdecimal():
                raise Unreadable("expected a digit")
            self.tokens[self.position] = Token("number", digits[1:])
            return exact.number(int(digits[0]))
        return self.bare_atom(depth)

    def bare_atom(self, depth: int) -> Expr:
        """One atom; a letter stays a letter, whatever follows: e^u(u-1) is e^u times u-1."""
        if self.kind() in ("letter", "unit"):
            return exact.symbol(self.take().text)
        return self.atom(depth + 1)

    def atom(self, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
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
            wrapper = _WRAPPERS.get(token.text)
            return functions.rounded(wrapper, inner) if wrapper else inner
        return self.command(token.text, depth)

    def bracketed(self, opening: str, depth: int) -> Expr:
        bars, self.open_bars = self.open_bars, int(opening == "|")
        value = self.sum(depth + 1)
        self.expect(_CLOSING[opening])
        self.open_bars = bars
        return value

    def named(self, token: Token, depth: int) -> Expr:
        """A symbol with its primes; f(…), T(n/2), E[X] are function values, x(x+1) and a(b-c) are products."""
        differential = self.differential(token)
        if differential is not None:
            return differential
        name = token.text + self.primes() + self.order()
        if token.text in _CALLED and self.sees(*_INVERSE):
            self.position += len(_INVERSE)
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
        if self.sees("^", "{", "(") and self.peek(4) == ")" and self.peek(5) == "}":
            self.position += 6
            return f"^[{self.tokens[self.position - 3].text}]"
        if re.fullmatch(r"[CA]_\w+", self.tokens[self.position - 1].text) and self.peek() == "^":
            self.take()
            return f"^{self.group_text()}"
        return ""

    def primes(self) -> str:
        """The primes after a name: y', y'', y^\\prime, y^{\\prime}."""
        primes = ""
        for spelling in [("'",), ("^", "'"), ("^", "{", "'", "}")] * MAX_PRIMES:
            if self.sees(*spelling):
                self.position += len(spelling)
                primes += "'"
        return primes

    def command(self, name: str, depth: int) -> Expr:
        if name == r"\frac":
            derivative = self.derivative()
            return derivative if derivative is not None else powers.divide(self.slot(depth), self.slot(depth))
        if name == r"\sqrt":
            return self.root(depth)
        if name == r"\binom":
            return functions.binomial(self.slot(depth), self.slot(depth))
        if name in (r"\pi", r"\infty"):
            return exact.symbol("pi" if name == r"\pi" else "oo")
        if name in _ACCENTS:
            symbol = f"{name[1:]}({self.group_text()})"
            if self.peek() == "_":  # a subscript is part of the name
                self.take()
                symbol += f"_{self.group_text()}"
            return exact.symbol(symbol)
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
        if self.position == start:
            raise Unreadable("a figure without a name")
        return " ".join(token.text for token in self.tokens[start : self.position])

    def root(self, depth: int) -> Expr:
        """`\\sqrt{…}`, `\\sqrt[3]{…}`; `\\sqrt12` is √1 · 2 to TeX and √12 to most who write it."""
        index = Fraction(2)
        if self.peek() == "[":
            self.take()
            index = self.bracketed("[", depth).rational or Fraction(0)
            if index.denominator != 1 or not 1 < index < 100:
                raise Unreadable("root index")
        if self.kind() == "number" and len(self.peek()) > 1:
            raise Incomputable("a root without braces")
        radicand = self.slot(depth)
        return powers.power(radicand, exact.number(1 / index))

    def function(self, name: str, depth: int) -> Expr:
        """sin x, sin^2 x, sin^{-1} x, \\log_b x, with or without brackets."""
        base = self.log_base(depth) if name in ("log", "lg") else None
        exponent = None
        if self.peek() == "^":
            self.take()
            exponent = self.argument(depth)
        if exponent is not None and exponent.rational == -1:
            if name not in _INVERTIBLE:
                raise Unreadable("the inverse of this function")
            name, exponent = f"a{name}", None
        self.open_angles += name in _TRIGONOMETRIC
        is_bare = self.peek() not in ("(", "[", "{")
        argument = self.function_argument(depth)
        self.open_angles -= name in _TRIGONOMETRIC
        if is_bare and self.peek() == "/":
            raise Incomputable("cos 2π/3 is read in two ways")
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
        if self.peek() != "_":
            return None
        self.take()
        has_more = self.position + 1 < len(self.tokens)
        return self.atom(depth + 1) if self.kind() == "number" and has_more else self.slot(depth)

    def function_argument(self, depth: int) -> Expr:
        """A bracket, or the factors up to the next sum or function: `\\sin 2x \\cos x` is sin(2x)·cos(x)."""
        negative = self.take_minus()
        if self.peek() in ("(", "[", "{"):
            value = self.atom(depth + 1)
        else:
            value = self.factor(depth + 1)
            while self.kind() in ("number", "letter") or self.peek() in (r"\pi", r"\frac", r"\sqrt"):
                if self.kind() == "number":
                    raise Incomputable("a number right after a function's argument")
                value *= self.factor(depth + 1)
        return -value if negative else value
