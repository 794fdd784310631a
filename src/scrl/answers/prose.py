"""Answers in plain words, and clock times: case and spacing do not matter, the order of a list does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scrl.answers.spelling import TEXT, unwrap_text
from scrl.answers.tokens import FUNCTIONS, GREEK, NAMES, SMALL_WORDS, fold
from scrl.answers.units import SHORT_UNITS, UNIT_WORDS, scale_of

_TIME = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?\s*([ap])m", re.IGNORECASE)
_LETTERS = re.compile(r"[^\W\d_]+")
_PROSE = re.compile(r"(?:[^\W\d_]|[\s.,;&!?()]|(?<=[^\W\d_]{3})['-](?=[^\W\d_])|(?<=n)'(?=t))+")
_KNOWN = frozenset("yes no odd one two six ten red all any up cup dne mon tue wed thu fri sat sun".split())
"""Short words that are read as words even outside \\text{…}."""
_SAYABLE = re.compile(r"(?=[a-z]{3}$)(?:.[aeiou].|[aeiou].[aeiou])")
"""Three letters that are rather a word than a product: cat, tea, ice; not abc or mgh."""
_IN_FORMULAS = SMALL_WORDS | SHORT_UNITS | UNIT_WORDS
_UP_TO_29 = r"X{0,2}(?:IX|IV|V?I{0,3})"
_NUMERAL = re.compile(rf"[A-Z]{{3}}|(?=[IVX]{{2,4}}$){_UP_TO_29}|(?:ii|iii|iv|vi{{1,3}}|ix)")
"""HTH, ABC, IV, iii: read letter by letter, in their order."""
_ROMAN = re.compile(rf"(?=[IVX]+$){_UP_TO_29}|(?=[ivx]+$){_UP_TO_29.lower()}")
"""One of a list of statements: I, II and IV."""
_SHORT = {"T": "true", "F": "false", "Y": "yes", "N": "no"}
_LABELS = re.compile(r"[,;\s]*\(([a-h]|[1-8])\)\s")
_SAME = {
    "dne": "does not exist", "all reals": "all real numbers", "all real number": "all real numbers",
    "no solutions": "no solution", "there is no solution": "no solution", "there are no solutions": "no solution",
}  # fmt: skip
FORMULAS = {"all real numbers": r"\mathbb{R}", "infinity": r"\infty"}
"""Words for which there is a sign."""
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_ARTICLE = re.compile(r"^(?:[Tt]he|a|[Aa]n)\s+(?=\S)")
_ONES = dict(zip(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen".split(), range(20), strict=True,
))  # fmt: skip
_TENS = dict(zip("twenty thirty forty fifty sixty seventy eighty ninety".split(), range(20, 100, 10), strict=True))
_NUMBER_WORDS = re.compile(
    rf"(?i)(?:(?P<hundreds>{'|'.join(list(_ONES)[1:10])})\s+hundred(?:\s+and)?\s+)?"
    rf"(?:(?P<tens>{'|'.join(_TENS)})(?:[\s-](?P<unit>{'|'.join(list(_ONES)[1:10])}))?|(?P<ones>{'|'.join(_ONES)}))"
    r"(?P<rest>(?:\s+[a-z]+)*)"
)
_PARTS = {"half": 2, "halve": 2, "quarter": 4} | {
    word: n for n, word in enumerate("third fourth fifth sixth seventh eighth ninth tenth".split(), start=3)
}
_FRACTION_WORDS = re.compile(rf"({'|'.join(list(_ONES)[1:10])})-({'|'.join(_PARTS)})s?", re.IGNORECASE)
_NEGATIVE = re.compile(r"(?:negative|minus) (?:(?P<number>\d[\d.,/]*)|(?P<words>[a-z -]+))", re.IGNORECASE)
_CHOICE = re.compile(r"(?:(?i:option|choice)\s+\(?([A-J])|([A-J])(?=[).:]))[).:]{0,2}")


@dataclass(frozen=True, slots=True)
class Words:
    """The parts of an answer in words, with case and punctuation removed."""

    parts: list[str]
    is_either: bool = False
    """Whether they are joined by "or", not by "and"."""
    is_ordered: bool = True
    """As answers to one question after another are: true, false. Alternatives and numbers of statements are not."""


def read_formula(text: str) -> str | None:
    """What is said in words: `twelve days` → `12 days`, `two-thirds` → `2/3`, `minus 5` → `-5`, `Option D` → `D`."""
    text = " ".join(text.split())
    if choice := _CHOICE.fullmatch(text):
        return choice[1] or choice[2]
    if negative := _NEGATIVE.fullmatch(text):
        value = negative["number"] or FORMULAS.get(negative["words"].lower()) or read_formula(negative["words"])
        return value and f"-{value}"
    if fraction := _FRACTION_WORDS.fullmatch(text):
        return f"{_ONES[fraction[1].lower()]}/{_PARTS[fraction[2].lower()]}"
    words = _NUMBER_WORDS.fullmatch(text.rstrip("."))
    counted = words["rest"].split() if words else []
    if words is None or (counted and scale_of([word.lower() for word in counted]) is None):
        return None
    values = _ONES | _TENS | {"": 0}
    hundreds, *others = (values[(words[name] or "").lower()] for name in ("hundreds", "tens", "unit", "ones"))
    return " ".join([str(100 * hundreds + sum(others)), *counted])


def read_time(cleaned: str) -> str | None:
    """`3:05 PM` → `3:05:00 p`."""
    match = _TIME.fullmatch(" ".join(unwrap_text(cleaned).split()))
    if match is None:
        return None
    hour, minute, second, half = match.groups()
    return f"{int(hour)}:{minute or '00'}:{second or '00'} {half.lower()}"


def read_words(cleaned: str) -> Words | None:
    """The parts of an answer in words; None when it is not prose."""
    text = " ".join(unwrap_text(cleaned).split())
    bare = text.strip("() ")
    if _NUMERAL.fullmatch(bare) and bare.casefold() not in _KNOWN:
        return Words([bare])
    listed = [part for part in re.split(r"[,;&\s()]+(?:(?:and|or)\b\s*)?|\b(?:and|or)\b", bare) if part]
    if len(listed) > 1 and set(listed) in ({"T"}, {"T", "F"}, {"Y"}, {"Y", "N"}):
        return Words([_SHORT[part] for part in listed])
    labels = "".join(_LABELS.findall(text))
    if len(labels) > 1 and ("abcdefgh".startswith(labels) or "12345678".startswith(labels)):  # (a) true, (b) false
        answers = read_words(_LABELS.sub(",", text))
        if answers is not None and answers.is_ordered and len(answers.parts) == len(labels):
            return answers
    if len(listed) > 1 and any(len(part) > 1 for part in listed) and all(_ROMAN.fullmatch(part) for part in listed):
        return Words(listed, is_either=bool(_OR.search(bare)), is_ordered=False)
    if not _PROSE.fullmatch(text) or re.match(r"[(\[].*,", text):
        return None
    upright = {run for content in TEXT.findall(cleaned) for run in _LETTERS.findall(content) if len(run) > 1}
    runs = [run for run in _LETTERS.findall(text) if run.casefold() not in ("and", "or")]
    maths = (FUNCTIONS | GREEK | NAMES.keys() | {"sqrt"}).intersection(set(runs) - upright)
    if maths or not (any(_is_word(run, upright) for run in runs) or _has_short_words(text)):
        return None
    has_both = re.search(r"\band\b", text, re.IGNORECASE) and _OR.search(text)
    if has_both or (";" in text and "," in text):
        return Words([" ".join(_LETTERS.sub(lambda match: _fold(match[0]), text).split())])
    parts = re.split(r",|;|\band\b|\bor\b", _LETTERS.sub(lambda match: _fold(match[0]), _ARTICLE.sub("", text)))
    plain = (_ARTICLE.sub("", re.sub(r"[\s.,;&!?()-]+", " ", part).strip()) for part in parts)
    named = [_SAME.get(part, part) for part in plain if part]
    is_either = bool(_OR.search(text))
    return Words(named, is_either, is_ordered=not is_either)


def _fold(run: str) -> str:
    """Case does not matter, except in short names and in those that mix it: Aa, CO, AaBb."""
    is_code = run.isupper() and (len(run) <= 4 or 2 * len(set(run)) <= len(run))  # ABCD, AABBCC
    is_short_name = (len(run) <= 2 or is_code) and run.casefold() not in (*_KNOWN, "or", "and", "true")
    return run if is_short_name else fold(run)


def _is_word(run: str, upright: set[str]) -> bool:
    is_name = len(run) == 3 and run.istitle() and re.search("[aeiouy]", run.casefold())  # Tom, not Bqv
    return len(run) >= 4 or bool(is_name) or not run.isascii() or run in upright or run.casefold() in _KNOWN


def _has_short_words(text: str) -> bool:
    """`cat`, `A but not B`, `m by n` are no products; `xy`, `abc` and `max(a, b)` are maths."""
    if re.search(r"[^\W\d_]\(", text):
        return False
    for part in re.split(r"[,;&]|\b(?:and|or)\b", text):
        words = part.split()
        short = [word for word in words if re.fullmatch(r"[a-z]{2,3}", word) and word not in _IN_FORMULAS]
        if any(_SAYABLE.fullmatch(word) or (len(words) > 1 and re.search(r"[aeiou]|by", word)) for word in short):
            return True
    return False
