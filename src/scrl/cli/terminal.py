"""What commands print, made printable: no text from elsewhere moves the cursor, hides a line or sets a title."""

from __future__ import annotations

from typing import TextIO

import rich.text
from rich.console import Console
from rich.text import Text

from scrl.files.printable import printable


def make_rich_printable() -> None:
    """All text that rich prints goes through `printable`.

    Rich's own function, called wherever a text is made, strips five characters and leaves escapes in.
    """
    rich.text.strip_control_codes = lambda text, *_: str(printable(text))  # type: ignore[attr-defined]


def plain_console(*, width: int | None = None) -> Console:
    """A console that prints text as it is: [brackets] and :words: mean nothing, and numbers get no colour."""
    return Console(highlight=False, markup=False, emoji=False, width=width)


def say(console: Console, *lines: str) -> None:
    """Print lines; on a terminal they are broken between words."""
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)


def print_text(text: str = "", *, file: TextIO | None = None, end: str = "\n") -> None:
    """`print`, for text without colours."""
    print(printable(text), file=file, end=end)
