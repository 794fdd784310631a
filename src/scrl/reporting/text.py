"""Numbers and long text as the page shows them, and the templates of pages and cards."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

MINUS = "\N{MINUS SIGN}"
THIN = "\N{NARROW NO-BREAK SPACE}"


def shorten(text: str, head: int, tail: int = 0) -> str:
    """The beginning and the end of a long text, saying how much is left out between."""
    left_out = len(text) - head - tail
    if left_out <= 0:
        return text
    end = text[-tail:] if tail else ""
    return f"{text[:head]} … [{left_out:,} characters left out] … {end}".rstrip()


def sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return f"{words[:1].upper()}{words[1:]}."


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


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@cache
def templates(folder: str, **options: Any) -> Environment:
    """The templates in a folder of the package, each compiled once; lines of control leave nothing, HTML is escaped."""
    return Environment(
        loader=PackageLoader("scrl", folder),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **options,
    )
