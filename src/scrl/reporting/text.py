"""Numbers and foreign text as the page shows them."""

from __future__ import annotations

import re

from markupsafe import Markup

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"


def printable(value: object) -> object:
    """Text with every character that hides, reorders or breaks text written out; anything else as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _INVISIBLE.sub(_spelled_out, value.replace("\r\n", "\n"))


def _spelled_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def shorten(text: str, head: int, tail: int = 0) -> str:
    """The beginning and the end of a long text, saying how much is left out between."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return text
    end = text[-tail:] if tail else ""
    return f"{text[:head]} … [{left_out:,} characters left out] … {end}".rstrip()


def counted(number: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """0.4375 → 43.8 %."""
    return f"{100 * share:.1f}{THIN}%"


def signed(value: float, digits: int) -> str:
    """+1.25, −0.50, and 0.00 without a sign."""
    text = f"{value:+.{digits}f}".replace("-", MINUS)
    return text[1:] if not text.strip(f"+{MINUS}0.") else text


def plain(value: float) -> str:
    """A number with three digits, or all of them left of the point."""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.3g}".replace("-", MINUS)
