r"""Calculations in a completion: do they hold, and do they leave anything out?

    "16 - 3 - 4 = 9, and 9 × $2 = $18"    both hold: sound
    "16 - 3 - 4 = 11"                     does not hold
    "She has 11 eggs left."               nothing to check: not sound either
    "16 × $2 = $32"                       sound, but where others also calculate with 3 and 4, not complete

A completion that miscalculates is hardly ever right, however many others agree with it, and so is one that leaves out
a number. Only equations between plain numbers are looked at, with boxes, money signs and units left out, and never a
part of something larger; each side is worked out by the equality of answers (`forms.py`). A right side may be off by
one in its last digit if the exact value has more digits, and by 1 % if it calculates with rounded numbers. 75 % is 0.75
or 75. Where measures differ, as in `2 hours = 2 * 60 minutes`, only equations that hold are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from scrl.answers.forms import canonical_form
from scrl.answers.units import SCALES, SHORT_UNITS, UNIT_WORDS

_NUMBER = r"\d{1,30}(?:\.\d{1,30})?"
_SPELLINGS = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"(?m)^[ \t]*[-*•][ \t]+", ""),
        (r"\\\\(?:\[-?[\d.]+[a-z]{2}\]|(?![A-Za-z()\[\]]))|\\(?:begin|end)\{[^{}]*\}", "\n"),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])|[×·∗]|(?<=\d)(?:[ \t]|(?<![^\d.]0)(?<!^0))x[ \t]?(?=[$\d(])", "*"),
        (r"\\div(?![A-Za-z])|÷", "/"),
        (r"[−–]", "-"),
        (r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox)\s*\{([^{}]*)\}", r" \1"),
        (r"\\boxed\{([^{}]*)\}", r" \1 "),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))"),
        (r"(?<=\d)(?:,|\{,\}|,?\\[,!])(?=\d{3}(?!\d))", ""),
        (r"(?<=[\d)])( ?)\*\*\1(?=[\d(])", "^"),
        (r"\\[()\[\],; ]|&", " "),
        (r"\\?\$|\\!|\*\*|\\(?:left|right)(?![A-Za-z])|[€£]", ""),
        (rf"(?<![\d.])({_NUMBER})\s{{0,3}}(?:\\?%|percent\b)", r"(\1/100)"),
    )
)
_EQUALS = re.compile(r"(?<![<>=!:\\])=(?![=<>])")
_UNIT = re.compile(r"(?<=\s)(?:square\s+|cubic\s+)?[A-Za-z][a-z]+(?:(?:/|\s+per\s+)[A-Za-z]+)?")
_END = rf"(?:{_UNIT.pattern}[\s)]*)?"
_SUM = re.compile(rf"[-\s(]*{_NUMBER}[\s)]*(?:{_END}[-+*/][-\s(]*{_NUMBER}[\s)]*)*")
_SUM_AT_END = re.compile(rf"(?<![\w^{{}}\\|\[\]!.)√])(?<!\d[,:]){_SUM.pattern}{_END}$")
_OPERATOR = re.compile(r"\d[\s)]*[-+*/]")
_MEASURES = UNIT_WORDS | SHORT_UNITS
_UNITS = "|".join(sorted(_MEASURES - {"in"}))
_AFTER = re.compile(
    r"\s*[*/^+({\[!\\%-]|[,:]?\d|(?<=\s):\s*[\d(]|_|[A-Za-z](?![a-z])|[½¼¾²³√π]"
    rf"|(?<=[\d)])(?!(?:{_UNITS})\b)[a-z]{{2,3}}\b|(?:{'|'.join(SCALES)}|dozen|(?:mod|base|squared|cubed)\b)"
    rf"|(?:times|plus|minus|of|over)\s+\d|(?:{_UNITS}),?\s+(?:and\s+)?\d+(?![\d.]*\s*[-+*/=])"
)
"""What would belong to a sum that ends before it: 3x, 3(…, 3 +, the 1/2 of 3 1/2, 3,5, 3 million, 3 hours 20."""
_BEFORE = re.compile(
    r"(?:[-+*/^(\d}±√π]"
    r"|\b(?:of(?: [\d.]+ and)?|times|twice|half|plus|minus|(?<!given )by|than|from|over|mod|choose|[xX])"
    r"|\\(?!approx|equiv|implies|iff|q?quad|[lgn]eq?\b|to\b|\w*arrow|therefore|because)[A-Za-z]+(?:_\w+)?) .$"
    r"|-$|(?:\)|(?<![A-Za-z])[A-Za-z]) \($"
)
"""What ends a part of a sum that is not looked at, and the first sign of it: n * 2, 20% of 2, the 3 of 3 1/2, P (."""
_TAKEN_OFF = re.compile(rf"(?<![\d.])(?!1\s){_NUMBER}\s*[-+]\s*\({_NUMBER}/100\)(?!\s*[*/])")
"""50 - 10%: 10 % of 50."""
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
        sides = _EQUALS.split(line)
        for first, after in pairwise(sides):
            before = first[-_LONGEST:]
            left, right = _SUM_AT_END.search(before), _SUM.match(after[:_LONGEST])
            if left is None or right is None or _AFTER.match(after, right.end()):
                continue
            if (len(first) > _LONGEST and left.start() == 0) or right.end() == _LONGEST:
                continue  # the rest of it is not looked at
            words = before[: left.start()].rstrip()
            plain, result = (" ".join(_UNIT.sub("", side[0]).split()) for side in (left, right))
            is_sum, both = _OPERATOR.search(plain) is not None, f"{plain} = {result}"
            is_part = _BEFORE.search(f"{words} {plain[0]}")  # of x - 2, x * (1 - 0.3)
            if words and (is_part or not is_sum):  # nor is 20 a side of: a fifth of 20 = 4
                continue
            if not _OPERATOR.search(both) or _TAKEN_OFF.search(both):
                continue
            a, b = (value_of(re.sub("[-/]", r" \g<0> ", side)) for side in (plain, result))  # 1200-50-25 is no date
            if a is None or b is None:
                continue
            units = _UNIT.match(after, right.end())
            named = re.findall(r"[A-Za-z]+", f"{left[0]} {right[0]} {units[0] if units else ''}")
            measures = {word.rstrip("s") for word in named if word in _MEASURES}
            # What looks false may be a conversion: 2 hours + 30 minutes = 150 minutes, 2 boxes = 12 + 12
            if (holds := _equal(a, b, plain, result)) or (len(measures) <= 1 and (is_sum or plain == left[0].strip())):
                yield Claim(plain, result, holds)


def value_of(calculation: str) -> Fraction | None:
    """What it comes to; None if it is not one number."""
    form = canonical_form(calculation.strip())
    return Fraction(form.key) if form is not None and _VALUE.fullmatch(form.key) else None


def _equal(a: Fraction, b: Fraction, left: str, right: str) -> bool:
    """Equal, up to the last digit of a right side that is rounded; of a percentage 75 may be 0.75."""
    percent = _PERCENT.fullmatch(right)
    number = re.fullmatch(r"-?\d+(?:\.(\d+))?", percent[1] if percent else right)
    scale = Fraction(1, 100) if percent else Fraction(100)
    last = Fraction(1, 10 ** len((number and number[1]) or "")) * (scale if percent else 1)
    for value in (a, a * scale) if _PERCENT.search(left + right) else (a,):
        is_open = (value / last).denominator > 1 if number else "." in left + right or "/" not in right
        is_whole = value.denominator == b.denominator == 1
        if value == b or (is_open and not is_whole and abs(value - b) <= (last if number else abs(value) / 100)):
            return True
    return False
