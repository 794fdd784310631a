"""Equations: `$…$` and `$$…$$` of a page become MathML, which browsers draw without a script.

GitHub draws the same Markdown. Code is left alone, and so is a dollar sign before a digit or a space, which is money.
"""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

CODE = r"^```.*?^```$|(?P<ticks>`+).*?(?P=ticks)(?!`)"
BLOCK = r"\$\$(?P<block>.+?)(?:\\tag\{(?P<number>\w+)\})?\s*\$\$"
INLINE = r"(?<![\\\w$])\$(?P<inline>[^\s\d$][^$\n]*?)(?<![\s\\])\$(?!\w)"
PARTS = re.compile(f"{CODE}|{BLOCK}|{INLINE}", re.DOTALL | re.MULTILINE)


def as_mathml(part: re.Match[str]) -> str:
    """An equation, or a piece of code as it is."""
    if part["block"]:
        number = f"<span>({part['number']})</span>" if part["number"] else ""
        return f'<div class="equation">{convert(part["block"].strip(), display="block")}{number}</div>'
    if part["inline"]:
        return f"<span>{convert(part['inline'])}</span>"  # a line that begins with <math> would end its paragraph
    return part[0]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the equations of a page."""
    return PARTS.sub(as_mathml, markdown)
