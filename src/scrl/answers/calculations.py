r"""Calculations in a completion: do they hold, and do they leave anything out?

    "16 - 3 - 4 = 9, and 9 × $2 = $18"    both hold: sound
    "16 - 3 - 4 = 11"                     does not hold
    "She has 11 eggs left."               nothing to check: not sound either
    "16 × $2 = $32"                       sound, but where others also calculate with 3 and 4, not complete

A completion that miscalculates is hardly ever right, however many others agree with it, and so is one that leaves out
a number. Only equations between plain numbers are looked at, with `\text{…}`, boxes and money signs left out; each side
is worked out by the equality of answers (`forms.py`). Whole numbers must be equal, a rounded right side may be off by
one in its last digit, and one that is a fraction or a calculation by 1 %. 75 % is 0.75 or 75.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from scrl.answers.forms import canonical_form

_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
_SPELLINGS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\(?:times|cdot|ast)(?![A-Za-z])|[×·∗]|(?<=\d)(?:[ \t]|(?<![^\d.]0)(?<!^0))x[ \t]?(?=[$\d(])", "*"),
        (r"\\div(?![A-Za-z])|÷", "/"),
        (r"[−–]", "-"),
        (r"\\(?:text|mathrm|textbf|mathbf)\s*\{[^{}]*\}", " "),
        (r"\\boxed\{([^{}]*)\}", r"\1"),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"),
        (r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))", ""),
        (r"\\?\$|\\[()\[\],!; ]|\*\*|\\left|\\right|[&€£]", ""),
        (rf"(?<![\d.])({_NUMBER})\s?\\?%", r"(\1/100)"),
    )
)
_EQUALS = re.compile(r"(?<![<>=!:\\])=(?![=<>])")
_SUM = re.compile(rf"[-\s(]*{_NUMBER}[\s)]*(?:[-+*/][-\s(]*{_NUMBER}[\s)]*)*")
_SUM_AT_END = re.compile(rf"(?<![\w^{{}}\\|\[\]!.)√]){_SUM.pattern}$")
_BULLET = re.compile(r"^\s*[-*•]\s+")
_OPERATOR = re.compile(r"\d[\s)]*[-+*/]")
_AFTER = re.compile(r"\s*[*/^+({\[!\\-]|_|\d|[A-Za-z](?![A-Za-z])")
"""What would belong to a sum that ends before it: 3x, 3(…, 3 +, the 1/2 of 3 1/2."""
_BEFORE = re.compile(r"(?:[-+*/^(\d]|\b(?:of|times|twice|[xX]))$")
"""What ends a part of a sum that is not looked at: n *, 20% of, the 3 of 3 1/2."""
_VALUE = re.compile(r"-?\d+(?:/\d+)?")
_LONGEST = 120
"""Characters of a side that are looked at."""
_PERCENT = re.compile(rf"\(({_NUMBER})/100\)")
_ANY_NUMBER = re.compile(_NUMBER)
_MANY = Fraction(1, 3)
"""A number that this share of the sound completions starts from must not be left out."""


class Claim(NamedTuple):
    """An equation between numbers."""

    left: str
    right: str
    holds: bool


class Calculations(NamedTuple):
    """What a completion calculates with."""

    are_sound: bool
    """Whether there are any, and all hold."""
    given: frozenset[Fraction]
    """Numbers it starts from: no calculation before came to them."""
    used: frozenset[Fraction]
    results: frozenset[Fraction]


def voters(texts_G: Sequence[str], answers_G: Sequence[str | None]) -> list[bool]:
    """Which completions of a question vote: the complete ones, or the sound ones where none is complete.

    Sound: it has calculations, and all of them hold. Complete: besides, it calculates with every number that a third
    of the sound completions start from, but for 100, which comes with percentages, and each of its results is used
    again or is its answer.
    """
    found_G = [calculations_of(text) for text in texts_G]
    sound_G = [found.are_sound and a is not None for found, a in zip(found_G, answers_G, strict=True)]
    starts = Counter(n for found, is_sound in zip(found_G, sound_G, strict=True) if is_sound for n in found.given)
    needed = [number for number, count in starts.items() if count >= _MANY * sum(sound_G) and number != 100]
    complete_G = []
    for found, answer, is_sound in zip(found_G, answers_G, sound_G, strict=True):
        last = value_of(answer) if is_sound and answer is not None else None
        ends = found.used if last is None else found.used | {abs(last)}
        complete_G.append(is_sound and _are_among(needed, found.used) and _are_among(found.results, ends))
    return complete_G if any(complete_G) else sound_G


def calculations_of(text: str) -> Calculations:
    """What the calculations of a text start from, use and come to."""
    claims, given, used, results, written = list(claims_of(text)), set(), set(), set(), set[Fraction]()
    for claim in claims:
        left, right = (_PERCENT.sub(r"\1", side) for side in (claim.left, claim.right))
        numbers, after = ({Fraction(number) for number in _ANY_NUMBER.findall(side)} for side in (left, right))
        used |= numbers
        given |= numbers - written
        written |= after
        results |= after if not _OPERATOR.search(right) else set()
    are_sound = bool(claims) and all(claim.holds for claim in claims)
    return Calculations(are_sound, frozenset(given), frozenset(used), frozenset(results))


def _are_among(numbers: Collection[Fraction], others: Collection[Fraction]) -> bool:
    """Whether all of them are among others, as they are or as percentages."""
    return all(n in others or n * 100 in others or n / 100 in others for n in numbers)


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
            if (len(first) > _LONGEST and left.start() == 0) or right.end() == _LONGEST:
                continue  # the rest of it is not looked at
            words = before[: left.start()].rstrip()
            is_part = _BEFORE.search(words) is not None or left[0].lstrip().startswith("-")  # of x - 2, x * (1 - 0.3)
            if words and (is_part or not _OPERATOR.search(left[0])):  # nor is 20 a side of: a fifth of 20 = 4
                continue
            if not _OPERATOR.search(f"{left[0]} = {right[0]}"):
                continue
            a, b = value_of(left[0]), value_of(right[0])
            if a is not None and b is not None:
                yield Claim(left[0].strip(), right[0].strip(), _equal(a, b, left[0], right[0].strip()))


def value_of(calculation: str) -> Fraction | None:
    """What it comes to; None if it is not one number."""
    form = canonical_form(calculation.strip())
    return Fraction(form.key) if form is not None and _VALUE.fullmatch(form.key) else None


def _equal(a: Fraction, b: Fraction, left: str, right: str) -> bool:
    """Equal, up to what the right side leaves open, its last digit; of a percentage 75 may be 0.75."""
    decimals = re.fullmatch(r"-?\d+(?:\.(\d+))?", right)
    if a.denominator == b.denominator == 1:
        slack = Fraction(0)
    elif decimals:
        slack = Fraction(1, 10 ** len(decimals[1] or ""))
    else:
        slack = abs(a) / 100
    return abs(a - b) <= slack or (b in (a * 100, a / 100) and _PERCENT.search(left + right) is not None)
