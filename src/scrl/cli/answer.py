"""`scrl answer`: how answers are read, and which of them are the same."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from scrl.answers.forms import explain_answer
from scrl.answers.values import Form
from scrl.errors import InputError


def answer(*texts: str, significant_digits: int | None = None) -> None:
    r"""Show how each answer is read: its spelling, its structure, its key. Equal keys are equal answers.

    Example: scrl answer '\frac12' 0.50 'x = 1/2'

    Parameters
    ----------
    texts
        Answers as they appear in a box.
    significant_digits
        Round real constants to this many digits first.
    """
    if not texts:
        raise InputError(r"give at least one answer, for instance: scrl answer '\frac12' 0.5")
    lines = Text()
    classes: dict[str, list[str]] = {}
    for text in texts:
        reading = explain_answer(text, significant_digits)
        lines.append(f"{text}\n")
        if reading.form is None:
            lines.append("  no answer\n")
            continue
        lines.append(f"  read as  {reading.read_as}\n")
        lines.append(f"  key      {reading.form.key}  ({reading.form.decided_by})\n")
        lines.append("".join(f"  {line}\n" for line in _tree(reading.form)))
        classes.setdefault(reading.form.key, []).append(text)
    if len(texts) > 1:
        lines.append("\n".join(f"same: {'   '.join(same)}" for same in classes.values() if len(same) > 1))
        lines.append("" if any(len(same) > 1 for same in classes.values()) else "all different")
    Console(soft_wrap=True).print(lines)


def _tree(form: Form, depth: int = 0) -> Iterator[str]:
    """One line per part; nested parts are indented."""
    name = "is a     " if depth == 0 else "  " * depth + "- "
    yield f"{name}{form.kind}" if depth == 0 else f"{name}{form.key}  ({form.kind})"
    for part in form.parts:
        yield from _tree(part, depth + 1)
