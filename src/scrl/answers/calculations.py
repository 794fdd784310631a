r"""Calculations in a completion: do they hold?

    "16 - 3 - 4 = 9, and 9 × $2 = $18"    both hold: sound
    "16 - 3 - 4 = 11"                     does not hold
    "She has 11 eggs left."               nothing to check: not sound either

A completion that miscalculates is hardly ever right, however many others agree with it. Only equations between plain
numbers are looked at, with `\text{…}` and money signs left out; each side is worked out by the equality of answers
(`forms.py`). Whole numbers must be equal, a rounded right side may be off by one in its last digit, and one that is
a fraction or a calculation by a hundredth. 75 % is 0.75 or 75.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from scrl.answers.forms import canonical_form

_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
_SPELLINGS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\(?:times|cdot|ast)(?![A-Za-z])|[×·∗]", "*"),
        (r"\\div(?![A-Za-z])|÷", "/"),
        (r"[−–]", "-"),
        (r"\\(?:text|mathrm|textbf|mathbf)\s*\{[^{}]*\}", " "),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"),
        (r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))", ""),
        (r"\\?\$|\\[()\[\],!; ]|\*\*|\\left|\\right|[&€£]", ""),
        (rf"(?<![\d.])({_NUMBER})\s?\\?%", r"(\1/100)"),
    )
)
_EQUALS = re.compile(r"(?<![<>=!:\\])=(?![=<>])")
_SUM = re.compile(rf"[-\s(]*{_NUMBER}[\s)]*(?:[-+*/][-\s(]*{_NUMBER}[\s)]*)*")
_SUM_AT_END = re.compile(rf"(?<![\w^{{}}\\|\[\]!.)]){_SUM.pattern}$")
_BULLET = re.compile(r"^\s*[-*•]\s+")
_OPERATOR = re.compile(r"\d[\s)]*[-+*/]")
_AFTER = re.compile(r"\s*[*/^+({\[!\\-]|_|[A-Za-z](?![A-Za-z])")
"""What would belong to a sum that ends before it: 3x, 3(…, 3 +."""
_VALUE = re.compile(r"-?\d+(?:/\d+)?")
_LONGEST = 120
"""Characters of a side that are looked at."""


class Claim(NamedTuple):
    """An equation between numbers."""

    left: str
    right: str
    holds: bool


def is_sound(text: str) -> bool:
    """Whether the text calculates something, and all its calculations hold."""
    claims = list(claims_of(text))
    return bool(claims) and all(claim.holds for claim in claims)


def claims_of(text: str) -> Iterator[Claim]:
    """The equations of a text that have a calculation on at least one side."""
    for pattern, plain in _SPELLINGS:
        text = pattern.sub(plain, text)
    for line in text.split("\n"):
        sides = _EQUALS.split(_BULLET.sub("", line))
        for first, after in pairwise(sides):
            before = first[-_LONGEST:]
            left, right = _SUM_AT_END.search(before), _SUM.match(after[:_LONGEST])
            if left is None or right is None or _AFTER.match(after, right.end()):
                continue
            words = before[: left.start()].rstrip()
            is_part = words.endswith(tuple("+-*/^(")) or left[0].lstrip().startswith("-")  # of x - 2, x * (1 - 0.3)
            if words and (is_part or not _OPERATOR.search(left[0])):  # nor is 20 a side of: a fifth of 20 = 4
                continue
            if not _OPERATOR.search(f"{left[0]} = {right[0]}"):
                continue
            a, b = value_of(left[0]), value_of(right[0])
            if a is not None and b is not None:
                yield Claim(left[0].strip(), right[0].strip(), _equal(a, b, right[0].strip()))


def value_of(calculation: str) -> Fraction | None:
    """What it comes to; None if it is not one number."""
    form = canonical_form(calculation.strip())
    return Fraction(form.key) if form is not None and _VALUE.fullmatch(form.key) else None


def _equal(a: Fraction, b: Fraction, right: str) -> bool:
    """Equal, up to what the right side leaves open: its last digit, or whether it is a percentage."""
    decimals = re.fullmatch(r"-?\d+(?:\.(\d+))?", right)
    if a.denominator == b.denominator == 1:
        slack = Fraction(0)
    elif decimals:
        slack = Fraction(1, 10 ** len(decimals[1] or ""))
    else:
        slack = abs(a) / 100
    return abs(a - b) <= slack or b in (a * 100, a / 100)
