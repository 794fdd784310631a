r"""Answer text → canonical form: the equality of answers.

`\dfrac{1}{2}`, `0.50` and `1/2` have the key `1/2`; `\{2, 1\}`, `1,2` and `x=1 \text{ or } x=2` have the key `{1, 2}`.
Equal keys are equal answers, so the relation is an equivalence by construction. Nothing here calls or evaluates what a
text names, and every text has a form or is no answer at all.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from scrl.answers.exact import Refused, fraction_text
from scrl.answers.grammar import MAX_DEPTH
from scrl.answers.prose import FORMULAS, read_formula, read_time, read_words
from scrl.answers.relations import Form, set_form
from scrl.answers.spelling import clean, squeeze, unwrap_text
from scrl.answers.structure import Structure
from scrl.answers.tokens import MAX_ANSWER_CHARS, depths, tokenize
from scrl.errors import ConfigError

_PLAIN = re.compile(r"([+-]?)(?:\\[dt]?frac\{(\d{1,99})\}\{(\d{1,99})\}|(\d{1,300})(?:\.(\d{0,99}))?)", re.ASCII)
"""Whole numbers, decimals and fractions: most answers, and no need to parse."""
_VECTORS = re.compile(r"\\(?:vec|overrightarrow|hat|nabla|mathbf|boldsymbol|bm)(?![A-Za-z])")
_PRODUCTS = re.compile(r"\\(?:times|cdot)(?![A-Za-z])")
"""Products of vectors do not commute, and \\times is not \\cdot: compared as text."""
MAX_DIGITS = 15


@dataclass(frozen=True, slots=True)
class Explanation:
    """How an answer is read."""

    answer: str
    read_as: str
    """The text without what never changes a meaning."""
    form: Form | None
    """None: there is no answer in it."""


def canonical_form(answer: str, significant_digits: int | None = None) -> Form | None:
    """The form of an answer; None when there is nothing in it (an empty box is no answer)."""
    check_digits(significant_digits)
    if len(answer) <= MAX_ANSWER_CHARS:
        return _form(answer, significant_digits)
    text = " ".join(answer.split())
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    return Form(f"text {digest} {text[:40]}", "text") if text else None


def check_digits(significant_digits: int | None) -> None:
    """Refuse to round to no digits, or to more than numbers are known to."""
    if significant_digits is not None and not 1 <= significant_digits <= MAX_DIGITS:
        raise ConfigError(f"significant_digits: must be from 1 to {MAX_DIGITS}, or left out; got {significant_digits}")


def explain_answer(answer: str, significant_digits: int | None = None) -> Explanation:
    """What is read, its structure and its key."""
    return Explanation(answer, spelling_of(answer), canonical_form(answer, significant_digits))


def spelling_of(answer: str) -> str:
    """The answer in one spelling of everything that is only typed differently."""
    return squeeze(unwrap_text(clean(answer[:MAX_ANSWER_CHARS])))


@lru_cache(maxsize=1 << 16)
def _form(answer: str, significant_digits: int | None) -> Form | None:
    plain = _PLAIN.fullmatch(answer) if significant_digits is None else None
    if plain and int(plain[3] or 1):
        sign, above, below, whole, decimals = plain.groups()
        if whole and decimals is None:
            return Form(str(int(answer)), "expression")
        value = Fraction(int(above), int(below)) if above else Fraction(f"{whole}.{decimals or 0}")
        return Form(fraction_text(-value if sign == "-" else value), "expression")
    cleaned = clean(answer)
    bare = unwrap_text(cleaned)
    if not re.search(r"[^\s{}.,;:]", bare):
        return None
    formula = read_formula(bare)
    if formula is not None:
        return _form(formula, significant_digits)
    time, words = read_time(cleaned), read_words(cleaned)
    if time is not None:
        return Form(f"time {time}", "words")
    if words is not None and len(words.parts) == 1 and words.parts[0] in FORMULAS:
        return _form(FORMULAS[words.parts[0]], significant_digits)
    if words is not None:
        parts = tuple(Form(f'"{part}"', "words") for part in words.parts)
        form = set_form(parts)
        if words.is_ordered and len(parts) > 1:
            return Form(f"({', '.join(part.key for part in parts)})", "words", parts)
        return Form(f"any of {form.key}", "words", form.parts) if words.is_either else form
    text = Form(f"text {squeeze(bare)}", "text")
    tokens = tokenize(cleaned)
    is_vector_product = _VECTORS.search(answer) and _PRODUCTS.search(answer)
    if is_vector_product or len(tokens) > MAX_ANSWER_CHARS or max(depths(tokens), default=0) > MAX_DEPTH:
        return text
    try:
        return Structure(significant_digits).form(tokens)
    except (Refused, RecursionError, ValueError):
        return text
