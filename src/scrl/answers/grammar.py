r"""Tokens of one expression → its exact value: `3\frac{1}{2}` → 7/2, `2\sqrt{12}` → 4·3^(1/2).

A recursive descent over sums, products, powers and atoms. It computes; it never calls, imports or evaluates
anything that the text names. What it does not know raises `Unreadable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from scrl.answers import exact
from scrl.answers.exact import Expr, Incomputable, Unreadable
from scrl.answers.tokens import FUNCTIONS, Token

MAX_DEPTH = 40
MAX_EXPONENT = 5_000

_ALIASES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "lg": "log"}
_CLOSING = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil", "|": "|"}
_WRAPPERS = {r"\lfloor": "floor", r"\lceil": "ceil", "|": "fabs"}
_ACCENTS = frozenset(r"\overline \bar \hat \tilde \vec \dot \ddot \overrightarrow \widehat \mathbb \mathcal".split())
_OPAQUE = frozenset([r"\angle", r"\triangle", r"\odot", r"\circ", r"\partial", r"\nabla"])
_CALLED_LETTERS = frozenset("fghFGPu")
"""Letters that a bracket turns into a function: f(1) + f(2) is not f(3)."""


def evaluate(tokens: Sequence[Token]) -> Expr:
    """The exact value of one expression, or `Unreadable`."""
    parser = _Parser(tokens)
    value = parser.sum(0)
    if not parser.at_end():
        raise Unreadable(f"unexpected {parser.peek()!r}")
    return value


class _Parser:
    """The cursor of the descent; `depth` bounds nesting."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.position = 0

    def at_end(self) -> bool:
        return self.position >= len(self.tokens)

    def peek(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].text if index < len(self.tokens) else ""

    def kind(self, ahead: int = 0) -> str:
        index = self.position + ahead
        return self.tokens[index].kind if index < len(self.tokens) else ""

    def take(self) -> Token:
        if self.at_end():
            raise Unreadable("ends too early")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unreadable(f"expected {text}")

    def sum(self, depth: int) -> Expr:
        """Term (± term)*; `{a \\over b}` divides everything before it by everything after it."""
        total = self.signed_product(depth)
        while self.peek() in ("+", "-") and self.kind() == "mark":
            total = exact.add(total, self.signed_product(depth))
        if self.peek() == r"\over":
            self.take()
            total = exact.divide(total, self.sum(depth + 1))
        return total

    def signed_product(self, depth: int) -> Expr:
        negative = False
        while self.peek() in ("+", "-") and self.kind() == "mark":
            negative ^= self.take().text == "-"
        value = self.product(depth)
        return exact.negate(value) if negative else value

    def product(self, depth: int) -> Expr:
        """Factors joined by *, /, or nothing; a whole number before a proper fraction is a mixed number."""
        mixed = self.mixed_number(depth)
        value = mixed if mixed is not None else self.factor(depth)
        while not self.at_end():
            if self.peek() == "*":
                self.take()
                value = exact.multiply(value, self.signed_factor(depth))
            elif self.peek() == "/":
                self.take()
                value = exact.divide(value, self.signed_factor(depth))
            elif self.starts_factor():
                if self.kind() == "number" and self.tokens[self.position - 1].kind == "number":
                    raise Incomputable("two numbers side by side")
                value = exact.multiply(value, self.factor(depth))
            else:
                break
        return value

    def starts_factor(self) -> bool:
        kind, text = self.kind(), self.peek()
        if kind == "command":
            return text not in (r"\over", r"\rfloor", r"\rceil")
        return kind in ("number", "repeating", "letter", "word", "unit") or text in ("(", "[", "{")

    def mixed_number(self, depth: int) -> Expr | None:
        """`3\\frac{1}{2}` or `3 1/2`: a whole number plus a proper fraction of whole numbers."""
        if self.kind() != "number" or not self.peek().isdigit():
            return None
        start = self.position
        whole = exact.number(int(self.take().text))
        if self.peek() == r"\frac":
            part = self.factor(depth)
        elif self.kind() == "number" and self.peek(1) == "/" and self.kind(2) == "number":
            part = exact.divide(self.factor(depth), (self.take(), self.factor(depth))[1])
        else:
            self.position = start
            return None
        written_plainly = all(
            (t.kind == "number" and t.text.isdigit()) or t.text in (r"\frac", "{", "}", "/")
            for t in self.tokens[start : self.position]
        )
        if written_plainly and part.rational is not None and 0 < part.rational < 1:
            return exact.add(whole, part)
        self.position = start
        return None

    def signed_factor(self, depth: int) -> Expr:
        if self.peek() in ("-", "+") and self.kind() == "mark":
            sign = self.take().text
            value = self.signed_factor(depth)
            return exact.negate(value) if sign == "-" else value
        return self.factor(depth)

    def factor(self, depth: int) -> Expr:
        """An atom with its primes, factorials and powers."""
        value = self.atom(depth)
        while self.peek() in ("^", "!", "'"):
            mark = self.take().text
            if mark == "!":
                value = exact.factorial(value)
            elif mark == "'" or self.is_prime_power():
                value = exact.symbol(f"{value.text}'")
            else:
                value = exact.power(value, self.argument(depth))
        return value

    def is_prime_power(self) -> bool:
        """`^{\\prime}`, `^\\prime`: part of the name, not a power."""
        width = 3 if self.peek() == "{" else 1
        inner = [token.text for token in self.tokens[self.position : self.position + width]]
        if inner not in (["'"], ["{", "'", "}"]):
            return False
        self.position += width
        return True

    def argument(self, depth: int) -> Expr:
        """What a `^` takes: a braced sum, or one signed atom."""
        if self.peek() == "-" and self.kind() == "mark":
            self.take()
            return exact.negate(self.argument(depth))
        if self.kind() == "command" and self.peek()[1:] in FUNCTIONS:
            return self.factor(depth)
        return self.atom(depth + 1)

    def slot(self, depth: int) -> Expr:
        """What a command such as \\frac takes: a braced sum, or one digit, letter or command."""
        if self.kind() == "number" and len(self.peek()) > 1:
            digits = self.take().text
            if not digits.isdigit():
                raise Unreadable("expected a digit")
            self.position -= 1
            self.tokens[self.position] = Token("number", digits[1:])
            return exact.number(int(digits[0]))
        return self.atom(depth + 1)

    def atom(self, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise Unreadable("nested too deeply")
        token = self.take()
        if token.kind == "number":
            return exact.number(decimal(token.text))
        if token.kind == "repeating":
            return exact.number(repeating_decimal(token.text))
        if token.kind in ("letter", "word", "unit"):
            if self.is_applied(token):
                return exact.call(exact.APPLY + token.text, self.bracketed(self.take().text, depth))
            return exact.symbol(token.text)
        if token.text in _CLOSING:
            inner = self.bracketed(token.text, depth)
            wrapper = _WRAPPERS.get(token.text)
            return exact.call(wrapper, inner) if wrapper else inner
        return self.command(token.text, depth)

    def is_applied(self, token: Token) -> bool:
        """f(…) and x(t), I(0) are function values; x(x+1) and a(b-c) are products."""
        if self.peek() != "(":
            return False
        return token.text in _CALLED_LETTERS or (self.peek(2) == ")" and self.kind(1) in ("letter", "number"))

    def bracketed(self, opening: str, depth: int) -> Expr:
        value = self.sum(depth + 1)
        self.expect(_CLOSING[opening])
        return value

    def command(self, name: str, depth: int) -> Expr:
        if name == r"\frac":
            return exact.divide(self.slot(depth), self.slot(depth))
        if name == r"\sqrt":
            return self.root(depth)
        if name == r"\binom":
            return exact.binomial(self.slot(depth), self.slot(depth))
        if name in (r"\pi", r"\infty"):
            return exact.symbol("pi" if name == r"\pi" else "oo")
        if name in _ACCENTS:
            return exact.symbol(f"{name[1:]}({self.accented()}){self.subscript()}")
        if name in _OPAQUE:
            return exact.symbol(name[1:])
        if name[1:] in FUNCTIONS:
            return self.function(name[1:], depth)
        raise Unreadable(f"unknown {name}")

    def accented(self) -> str:
        """The name under an accent: letters only."""
        if self.peek() != "{":
            return self.take().text
        self.take()
        inner = []
        while self.peek() != "}":
            inner.append(self.take().text)
        self.take()
        return "".join(inner)

    def subscript(self) -> str:
        """A subscript behind an accent: part of the name."""
        if self.peek() != "_":
            return ""
        self.take()
        return f"_{self.accented()}"

    def root(self, depth: int) -> Expr:
        index = 2
        if self.peek() == "[":
            self.take()
            degree = self.bracketed("[", depth).rational
            if degree is None or degree.denominator != 1 or not 1 < degree < 100:
                raise Unreadable("root index")
            index = int(degree)
        return exact.power(self.slot(depth), exact.number(Fraction(1, index)))

    def function(self, name: str, depth: int) -> Expr:
        """Sin x, sin^2 x, sin^{-1} x, \\log_b x, with or without brackets."""
        base = self.log_base(depth) if name in ("log", "lg") else None
        exponent = None
        if self.peek() == "^":
            self.take()
            exponent = self.argument(depth)
        if exponent is not None and exponent.rational == -1 and name in ("sin", "cos", "tan"):
            name, exponent = f"arc{name}", None
        argument = self.function_argument(depth)
        name = _ALIASES.get(name, name)
        if name == "exp":
            value = exact.power(exact.symbol("e"), argument)
        elif name == "log":
            value = exact.call("log", base or exact.number(10), argument)
        else:
            value = exact.call(name, argument)
        return exact.power(value, exponent) if exponent is not None else value

    def log_base(self, depth: int) -> Expr | None:
        if self.peek() != "_":
            return None
        self.take()
        return self.slot(depth)

    def function_argument(self, depth: int) -> Expr:
        """A bracket, or the factors up to the next sum or function: `\\sin 2x \\cos x` is sin(2x)·cos(x)."""
        if self.peek() in ("(", "[", "{"):
            return self.factor(depth + 1)
        if self.peek() == "-" and self.kind() == "mark":
            self.take()
            return exact.negate(self.function_argument(depth))
        value = self.factor(depth + 1)
        while self.kind() in ("number", "letter") or self.peek() in (r"\pi", r"\frac", r"\sqrt"):
            value = exact.multiply(value, self.factor(depth + 1))
        return value


def decimal(text: str) -> Fraction:
    """`025`, `142.0`, `.5`, `4.5e33`, exactly."""
    _, _, exponent = text.lower().partition("e")
    if exponent and abs(int(exponent)) > MAX_EXPONENT:
        raise Incomputable("exponent too large")
    return Fraction(text if text[-1] != "." else text[:-1])


def repeating_decimal(text: str) -> Fraction:
    r"""`0.1\overline{6}` = 1/10 + 6/90."""
    head, _, tail = text.partition(r"\overline")
    period = tail.strip(" {}")
    whole, _, fixed = head.partition(".")
    scale = 10 ** len(fixed)
    return Fraction(int((whole + fixed) or "0"), scale) + Fraction(int(period), scale * (10 ** len(period) - 1))
