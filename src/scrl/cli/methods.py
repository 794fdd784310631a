"""`scrl methods`: every way to turn votes into credit, and the settings of each."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table as RichTable

from scrl.cli.terminal import plain_console, say
from scrl.config import DEFAULT_METHOD
from scrl.credit.method import NEEDS, CreditSettings, Method
from scrl.credit.methods import METHODS, find_method
from scrl.reporting.tables import Table, as_terminal
from scrl.settings import leaves

BEYOND_REWARDS = {"advantage": "the advantages", "plan": "how completions are drawn"}
"""What a method may decide besides labels and rewards, by its field."""


def methods(name: str | None = None, /) -> None:
    """List every method: its idea, its equation, what it needs and where it comes from; or all about one.

    Example: scrl methods
    Example: scrl methods scrl

    Parameters
    ----------
    name
        Only this method, with its settings; module:NAME for your own.
    """
    console = plain_console()
    if name is None:
        console.print(overview(list(METHODS.values())))
        console.print(f"All about one: scrl methods NAME. The default of scrl train: {DEFAULT_METHOD}", soft_wrap=True)
        return
    method = find_method(name)
    say(console, *about(method))
    console.print(settings_table(method.settings))


def overview(methods: list[Method]) -> RichTable:
    """One row per method."""
    rows = tuple(
        (f"{each.name}\n{each.paper}\n{', '.join(_needs(each)) or 'nothing'}", f"{each.idea}\n{each.equation}")
        for each in methods
    )
    table = as_terminal(Table(("method, paper, needs besides votes", "idea and equation"), rows), wraps=True)
    table.columns[0].no_wrap, table.columns[0].max_width = False, max(len(method.name) for method in methods)
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
    yield f"decides: {', '.join([*(['labels'] if method.has_labels else []), 'rewards', *beyond])}"
    yield f"defaults of a run: {', '.join(f'{name} {value}' for name, value in leaves(method.run_settings))}"
    yield "settings: --credit.NAME VALUE in scrl train, --NAME VALUE in scrl label"


def _needs(method: Method) -> list[str]:
    """With its settings at their defaults."""
    return sorted(method.needs(method.settings()))


def settings_table(settings: type[CreditSettings]) -> RichTable:
    """The method's own settings first, then those that all methods share."""
    fields = sorted(settings.model_fields.items(), key=lambda item: item[0] in CreditSettings.model_fields)
    rows = tuple((name.replace("_", "-"), str(field.default), field.description or "") for name, field in fields)
    return as_terminal(Table(("setting", "default", ""), rows), wraps=True)
