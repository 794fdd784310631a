"""Every number of the paper as `scrl reproduce` lists it, and the run that measures it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import TextWrapper

from rich.console import Console
from rich.text import Text

from scrl.cli.terminal import say
from scrl.recipes import paper
from scrl.recipes.catalogue import EXPERIMENTS, OWN_TABLES
from scrl.recipes.paper import NOT_IN_PAPER, TABLES, UNSTATED_EVERYWHERE, Cell, PaperTable
from scrl.reporting.tables import Table, as_terminal

COPIED = {"COMPASS": "†", "RESTRAIN": "‡"}


def show_all(console: Console) -> None:
    """Every table and figure, the appendix's settings, and what holds for all runs."""
    for table in TABLES.values():
        show(table, console)
    settings = as_terminal(settings_table())
    settings.columns[0].no_wrap, settings.columns[0].max_width = False, 18  # in 80 columns there is room for every word
    settings.columns[-1].no_wrap = False
    console.print(settings)
    say(console, *closing_lines())


def show(table: PaperTable, console: Console) -> None:
    """A table as the paper prints it, what measures its rows, and what a reader should know."""
    say(console, f"{table.name}: {table.title} ({table.label})", table.caption)
    wrapper = TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = "  ", "    "
    absent = "curve" if table.is_figure else "in words"
    rows, sources = [], ["experiments:"]
    for section in dict.fromkeys(section for section, _ in table.rows):
        rows.append((section, *[""] * len(table.columns)))
        sources.append(f" {section}")
        for row in dict.fromkeys(cell.row for cell in table.cells if cell.section == section):
            cells = [cell for cell in table.cells if (cell.section, cell.row) == (section, row)]
            values = (
                " ".join(absent if cell.paper is None else number_text(cell) for cell in cells if cell.column == column)
                for column in table.columns
            )
            rows.append((f"  {row}", *values))
            names = list(dict.fromkeys(cell.experiment for cell in cells if cell.experiment is not None))
            is_computed = all(cell.derived and cell.copied_from is None for cell in cells)
            source = folded(names) if names else "computed" if is_computed else "none: copied"
            sources += wrapper.wrap(f"{row}: {source}")
    headings = (re.sub(r"[ _](?=\w\w)", "\n", column) for column in table.columns)  # one word per line
    console.print(as_terminal(Table(("", *headings), tuple(rows)), wraps=True))
    for text in sources:
        console.print(Text(text), soft_wrap=True)  # a long name stays on one line, to be copied
    say(console, *notes(table), "")


def number_text(cell: Cell) -> str:
    form = "+.1f" if cell.metric == paper.GAIN else ".3f" if cell.metric.startswith("entropy") else ".1f"
    return f"{cell.paper:{form}}{'*' if cell.is_peak else ''}{COPIED.get(cell.copied_from or '', '')}"


def folded(names: Sequence[str]) -> str:
    """`a/x/b`, `a/y/b` → `a/{x,y}/b`: names that differ in one part, as a shell spells them."""
    parts = [name.split("/") for name in names]
    choices = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
    return "/".join(choice[0] if len(choice) == 1 else f"{{{','.join(choice)}}}" for choice in choices)


def notes(table: PaperTable) -> Iterator[str]:
    """What a reader of the table should know."""
    if any(cell.is_peak for cell in table.cells):
        yield "* the best value before the run degraded, not the last"
    for work in dict.fromkeys(cell.copied_from for cell in table.cells if cell.copied_from):
        yield f"{COPIED[work]} the paper copied it from {work}; where an experiment is named, it is a run of our own"
    yield from (f"{name}: {paper.SERIES[name]}" for name in table.series)
    yield from (f"not in the paper: {key}: {NOT_IN_PAPER[key]}" for key in table.not_in_paper)
    experiments = [EXPERIMENTS[name] for name in table.experiments]
    for key in dict.fromkeys(key for experiment in experiments for key in experiment.not_in_paper):
        number = sum(key in experiment.not_in_paper for experiment in experiments)
        yield f"not in the paper: {key}: {NOT_IN_PAPER[key]} ({number} of {len(experiments)} experiments)"
    for each in paper.KNOWN_INCONSISTENCIES:
        if each.table == table.name:
            where = ", ".join(each.place[:3])
            yield f"inconsistent: {where}: {each.printed:g} is printed, {each.implied:g} implied: {each.reason}"


def settings_table() -> Table:
    """The appendix's settings (tab:parameter), and the number of passes."""
    rows = [(row.printed, str(row.small), str(row.large), row.setting or row.note) for row in paper.HYPERPARAMETERS]
    for benchmark, episodes in paper.EPISODES.items():
        places = ((place.split("/"), fewer) for place, fewer in paper.SHORTER.items())
        shorter = [f"{fewer} at {budget.replace('-', '/')}" for (_, name, budget), fewer in places if name == benchmark]
        small = f"{episodes} ({', '.join(shorter)})" if shorter else str(episodes)
        rows.append((f"Episodes, {paper.PRINTED[benchmark]}", small, str(episodes), "steps"))
    header = ("", "Qwen2.5-3B", "Qwen2.5-Math-7B", "setting")
    return Table(header, tuple(rows), "settings: tab:parameter and text")


def closing_lines() -> Iterator[str]:
    """What holds for all runs, and the totals."""
    yield from (f"not in the paper, for all: {key}: {NOT_IN_PAPER[key]}" for key in UNSTATED_EVERYWHERE)
    yield from (f"{label}: {what}; nothing to reproduce" for label, what in paper.ILLUSTRATIONS.items())
    yield from (f"{own.name}: {own.title}; {own.label}" for own in OWN_TABLES.values())
    rows, cells = sum(len(table.rows) for table in TABLES.values()), sum(len(table.cells) for table in TABLES.values())
    yield f"{len(TABLES)} tables and figures, {rows} rows, {cells} numbers and curves, {len(EXPERIMENTS)} experiments"
    yield "scrl reproduce NAME shows one of them, and what --run would do"
