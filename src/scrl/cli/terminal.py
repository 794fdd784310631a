"""What commands print, made printable: no text from elsewhere moves the cursor, hides a line or sets a title."""

from __future__ import annotations

import logging
import re
import warnings
from typing import TextIO

import rich.text
from rich.console import Console
from rich.text import Text

from scrl.files.printable import printable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_message, _warning = logging.LogRecord.getMessage, warnings.formatwarning


def make_printable() -> None:
    """All that rich prints, and all that libraries log or warn about, goes through `printable`; their colours go.

    Rich's own function, called wherever a text is made, strips five characters and leaves escapes in.
    """
    logging.LogRecord.getMessage = lambda record: _clean(_message(record))  # type: ignore[method-assign, assignment]
    warnings.formatwarning = lambda *about, **more: _clean(_warning(*about, **more))
    rich.text.strip_control_codes = lambda text, *_: str(printable(text))  # type: ignore[attr-defined]


def _clean(text: str) -> str:
    return str(printable(_COLOURS.sub("", text)))


def plain_console() -> Console:
    """A console that prints text as it is: [brackets] and :words: mean nothing, and numbers get no colour."""
    return Console(highlight=False, markup=False, emoji=False)


def say(console: Console, *lines: str) -> None:
    """Print lines; on a terminal they are broken between words."""
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)


def print_text(text: str = "", *, file: TextIO | None = None, end: str = "\n") -> None:
    """`print`, for text without colours."""
    print(printable(text), file=file, end=end)
