r"""Backslashes that JSON or Python has taken for an escape: `\times` is then a tab and `imes`.

Only what hardly occurs in ordinary text is taken for one. A new line before `u` or `ot`, or a tab before `o` or `an`,
may be meant: a lost `\nu`, `\not`, `\to` or `\tan x` is not noticed.
"""

from __future__ import annotations

import re

_LOST = re.compile(
    "\b(?=[a-z])"
    "|\f(?=rac|orall)"
    "|\t(?=imes|heta|herefore|riangle|ext(?:bf|it|rm)?{|ilde{|frac[0-9{]|anh?[(^]|au[$_^}])"
    "|\n(?=(?:abla|otin)(?![A-Za-z])|eq ?(?:[-0-9]|[A-Za-z][$]))"
    "|\r(?=ight|ho[$_^}])"
)
_ESCAPES = {"\b": r"\b", "\f": r"\f", "\t": r"\t", "\n": r"\n", "\r": r"\r"}


def lost_command(text: str) -> str | None:
    r"""The first command without its backslash, as it should be: `\times`; None if there is none."""
    lost = _LOST.search(text)
    if lost is None:
        return None
    letters, *_ = re.split("[^A-Za-z]", text[lost.end() :], maxsplit=1)
    return _ESCAPES[lost[0]] + letters


def with_backslashes(text: str) -> str:
    """The text with every lost backslash put back."""
    return _LOST.sub(lambda lost: _ESCAPES[lost[0]], text)
