"""`scrl methods`: every way to turn votes into credit, and the settings of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrl.credit.method import NEEDS, CreditSettings, Method
from scrl.credit.methods import METHODS, find_method

WIDTH = 80
"""Columns where the output is not a terminal."""
NARROW = 120
"""With fewer columns the table has two."""
BEYOND_REWARDS = {
    "choose": "which completions are trained on",
    "advantage": "the advantages",
    "weigh_tokens": "the weight of each token",
    "plan": "how completions are drawn",
}
"""What a method may decide besides labels and rewards, by its field."""


def methods(name: str | None = None, /) -> None:
    """List every method: its idea, its equation, what it needs and where it is from; or all about one.

    Example: scrl methods
    Example: scrl methods scrl

    Parameters
    ----------
    name
        Only this method, with its settings; also module:NAME for one of your own.
    """
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    if name is None:
        console.print(overview(list(METHODS.values()), is_narrow=console.width < NARROW))
        console.print("All about one, with its settings: scrl methods NAME", soft_wrap=True)
        return
    method = find_method(name)
    for line in about(method):
        console.print(Text(line), soft_wrap=not console.is_terminal)
    console.print(settings_table(method.settings))


def overview(methods: list[Method], *, is_narrow: bool) -> Table:
    """One row per method: idea and equation, needs, paper; in two columns if narrow."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    if is_narrow:
        table.add_column("method, paper, needs besides votes", max_width=max(len(method.name) for method in methods))
        table.add_column("idea and equation")
    else:
        table.add_column("method", no_wrap=True)
        table.add_column("idea and equation")
        table.add_column("needs besides votes")
        table.add_column("paper", no_wrap=True)
    for method in methods:
        idea, needs = f"{method.idea}\n{method.equation}", ", ".join(_needs(method)) or "nothing"
        if is_narrow:
            table.add_row(f"{method.name}\n{method.paper}\n{needs}", idea)
        else:
            table.add_row(method.name, idea, needs, method.paper)
    return table


def about(method: Method) -> Iterator[str]:
    """Everything about a method except its settings."""
    yield f"{method.name}: {method.idea}"
    yield f"equation: {method.equation}"
    yield f"paper: {method.paper}"
    for name in _needs(method):
        yield f"needs: {name}: {NEEDS.get(name, 'unknown')}"
    if not _needs(method):
        yield "needs: nothing besides votes"
    beyond = [words for field, words in BEYOND_REWARDS.items() if getattr(method, field) is not None]
    yield f"decides: {', '.join(['labels', 'rewards', *beyond])}"
    yield "settings: --credit.NAME VALUE in scrl train, --NAME VALUE in scrl label"


def _needs(method: Method) -> list[str]:
    """With its settings at their defaults."""
    return sorted(method.needs(method.settings()))


def settings_table(settings: type[CreditSettings]) -> Table:
    """The method's own settings first, then those that all methods share."""
    shared = CreditSettings.model_fields
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("setting", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("")
    for name, field in sorted(settings.model_fields.items(), key=lambda item: item[0] in shared):
        table.add_row(name.replace("_", "-"), str(field.default), field.description or "")
    return table
