"""Text from outside made safe to print: model output, file names, settings and columns may hold terminal escapes."""

from __future__ import annotations

import re

from markupsafe import Markup

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_FORMULA = re.compile(r"\s*[=+\-@]")
_NUMBER = re.compile(r"\s*[+-]?[\d.,]+(?:[eE][+-]?\d+)?\s*")


def printable(value: object) -> object:
    """Text with every character spelled out that hides, reorders or breaks text; other values unchanged."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _INVISIBLE.sub(_spelled_out, value.replace("\r\n", "\n"))


def _spelled_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def csv_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: text that begins like one gets an apostrophe in front."""
    if not isinstance(value, str):
        return value
    text = str(printable(value))
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
