"""`scrl recipes`: every number of the paper, and the run that measures it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

if TYPE_CHECKING:
    from scrl.recipes.paper_records import Cell, Table

WIDTH = 200
"""Columns where the output is no terminal: tables are as wide as they need there, and lines are not broken."""
COPIED = {"COMPASS": "†", "RESTRAIN": "‡"}


def recipes(table: str | None = None, /, *, experiment: str | None = None, scale: str = "paper") -> None:
    """List every table and figure of the paper with its values and the experiments that reproduce them.

    Example: scrl recipes table-main
    Example: scrl recipes --experiment qwen2.5-3b/aime25/32-16/scrl > run.yaml

    Parameters
    ----------
    table
        Only this table or figure.
    experiment
        Print the settings of this experiment instead, as a YAML file for scrl train.
    scale
        With --experiment: paper, or demo (the same run with the embedded model).
    """
    from scrl.errors import ConfigError
    from scrl.recipes.catalogue import find_table
    from scrl.recipes.paper import TABLES

    if table is not None and experiment is not None:
        raise ConfigError("--experiment: give a table or an experiment, not both")
    if scale != "paper" and experiment is None:
        raise ConfigError("--scale: the paper's values have one scale; with --experiment NAME it scales the settings")
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    if experiment is not None:
        console.print(Text("\n".join(settings_lines(experiment, scale))), soft_wrap=True)
        return
    for shown in TABLES.values() if table is None else (find_table(table),):
        _say(console, (f"{shown.name}: {shown.title} ({shown.label})", shown.caption))
        _show(console, shown)
        _say(console, (*notes(shown), ""))
    if table is None:
        console.print(settings_grid() if _fits(console, settings_grid()) else narrow_settings_grid())
        _say(console, closing_lines())


def _say(console: Console, lines: Sequence[str] | Iterator[str]) -> None:
    """On a terminal, lines are broken between words."""
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)


def _show(console: Console, table: Table) -> None:
    """The table; where it is wider than the terminal, what measures its rows stands below it."""
    whole = grid(table)
    if _fits(console, whole):
        console.print(whole)
        return
    console.print(narrow_grid(table))
    for line in source_lines(table, console.width):
        console.print(Text(line), soft_wrap=True)  # a long name stays one, to be copied


def _fits(console: Console, made: Grid) -> bool:
    return console.measure(made, options=console.options.update_width(WIDTH)).maximum <= console.width


def settings_lines(name: str, scale: str) -> Iterator[str]:
    """An experiment's settings as YAML, and what of them the paper does not state."""
    import yaml

    from scrl.recipes.catalogue import NOT_IN_PAPER, UNSTATED_EVERYWHERE, find_experiment
    from scrl.recipes.scales import config_at, mapping

    experiment = find_experiment(name)
    config = config_at(experiment, scale)
    yield f"# {name}"
    if scale == "paper":
        unstated = (*experiment.not_in_paper, *UNSTATED_EVERYWHERE)
        yield from (f"# not in the paper: {key}: {NOT_IN_PAPER[key]}" for key in unstated)
    else:
        yield from (f"# {line}" for line in mapping(scale))
    yield yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True).rstrip()


class Line(NamedTuple):
    """A row as it is shown."""

    label: str
    values: tuple[str, ...] = ()
    source: str = ""
    """What measures it; nothing for the name of a section."""


def lines_of(table: Table) -> Iterator[Line]:
    """Each section's name, and its rows."""
    sections = [section for section, _ in table.rows]
    for number, (section, row) in enumerate(table.rows):
        if section not in sections[:number]:
            yield Line(section)
        cells = [cell for cell in table.cells if (cell.section, cell.row) == (section, row)]
        absent = "curve" if table.measured_with == "training" else "in words"
        values = tuple(_shown(cells, column, absent) for column in table.columns)
        yield Line(f"  {row}", values, _source(cells))


def grid(table: Table) -> Grid:
    """The table as printed, with the experiments behind each row."""
    made = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", *table.columns, "experiments"):
        made.add_column(column, no_wrap=True)
    for line in lines_of(table):
        made.add_row(line.label, *line.values, line.source)
    return made


def narrow_grid(table: Table) -> Grid:
    """The table without the experiments; its head may take several lines."""
    made = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    made.add_column("", no_wrap=True)
    for column in table.columns:
        made.add_column(re.sub(r"[ _](?=\w\w)", "\n", column))  # a word a line
    for line in lines_of(table):
        made.add_row(line.label, *line.values)
    return made


def source_lines(table: Table, width: int) -> Iterator[str]:
    """What measures each row, in lines that are broken between words."""
    yield "experiments:"
    for line in lines_of(table):
        text = f"{line.label.strip()}: {line.source}" if line.source else line.label
        indent = "  " if line.source else " "
        yield from wrap(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=f"{indent}  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def _shown(cells: Sequence[Cell], column: str, absent: str) -> str:
    """The numbers of a row in one column: the value, and beside it an arrow's."""
    return " ".join(absent if cell.paper is None else number(cell) for cell in cells if cell.column == column)


def number(cell: Cell) -> str:
    """A printed number as the paper prints it, with its marks."""
    from scrl.recipes.paper_records import GAIN

    form = "+.1f" if cell.metric == GAIN else ".3f" if cell.metric.startswith("entropy") else ".1f"
    return f"{cell.paper:{form}}{'*' if cell.is_peak else ''}{COPIED.get(cell.copied_from or '', '')}"


def _source(cells: Sequence[Cell]) -> str:
    """What measures a row."""
    names = list(dict.fromkeys(cell.experiment for cell in cells if cell.experiment is not None))
    if names:
        return folded(names)
    return "computed" if all(cell.derived and cell.copied_from is None for cell in cells) else "none: copied"


def folded(names: Sequence[str]) -> str:
    """`a/x/b`, `a/y/b` → `a/{x,y}/b`: names that differ in one part, as a shell spells them."""
    parts = [name.split("/") for name in names]
    choices = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
    return "/".join(choice[0] if len(choice) == 1 else f"{{{','.join(choice)}}}" for choice in choices)


def notes(table: Table) -> Iterator[str]:
    """What a reader of the table should know."""
    yield f"scrl reproduce {table.name}"
    if any(cell.is_peak for cell in table.cells):
        yield "* the best value before the run degraded, not the last"
    for work in dict.fromkeys(cell.copied_from for cell in table.cells if cell.copied_from):
        yield f"{COPIED[work]} the paper copied it from {work}; where an experiment is named, it is a run of our own"
    yield from (f"{series.name}: {series.meaning}" for series in table.series)
    yield from _unstated(table)
    for odd in _inconsistencies(table):
        yield f"inconsistent: {odd}"


def _unstated(table: Table) -> Iterator[str]:
    """What the paper leaves open: about the table, and about some of its experiments."""
    from scrl.recipes.catalogue import EXPERIMENTS, NOT_IN_PAPER

    yield from (f"not in the paper: {key}: {NOT_IN_PAPER[key]}" for key in table.not_in_paper)
    experiments = [EXPERIMENTS[name] for name in table.experiments]
    for key in dict.fromkeys(key for experiment in experiments for key in experiment.not_in_paper):
        number = sum(key in experiment.not_in_paper for experiment in experiments)
        yield f"not in the paper: {key}: {NOT_IN_PAPER[key]} ({number} of {len(experiments)} experiments)"


def _inconsistencies(table: Table) -> Iterator[str]:
    from scrl.recipes.paper import KNOWN_INCONSISTENCIES

    for odd in KNOWN_INCONSISTENCIES:
        if odd.table == table.name:
            section, row, column, _ = odd.place
            yield f"{section}, {row}, {column}: {odd.printed:g} is printed, {odd.implied:g} implied: {odd.reason}"


def settings_grid() -> Grid:
    """The appendix's settings (tab:parameter), and the number of passes."""
    from scrl.recipes.catalogue import EPISODES, HYPERPARAMETERS, SHORTER
    from scrl.recipes.paper_cells import PRINTED

    made = Grid(title="settings: tab:parameter and text", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "Qwen2.5-3B", "Qwen2.5-Math-7B", "setting"):
        made.add_column(column, no_wrap=True)
    for row in HYPERPARAMETERS:
        made.add_row(row.printed, str(row.small), str(row.large), row.setting or row.note)
    for benchmark, episodes in EPISODES.items():
        shorter = [f"{fewer} at {n}/{m}" for (_, name, n, m), fewer in SHORTER.items() if name == benchmark]
        small = f"{episodes} ({', '.join(shorter)})" if shorter else str(episodes)
        made.add_row(f"Episodes, {PRINTED[benchmark]}", small, str(episodes), "steps")
    return made


def narrow_settings_grid() -> Grid:
    """The same with room for every word in 80 columns."""
    made = settings_grid()
    made.columns[0].no_wrap, made.columns[0].max_width = False, 18
    made.columns[-1].no_wrap = False
    return made


def closing_lines() -> Iterator[str]:
    """What holds for all runs, and the totals."""
    from scrl.recipes.catalogue import EXPERIMENTS, NOT_IN_PAPER, UNSTATED_EVERYWHERE
    from scrl.recipes.own_tables import OWN_TABLES
    from scrl.recipes.paper import ILLUSTRATIONS, TABLES

    yield from (f"not in the paper, for all: {key}: {NOT_IN_PAPER[key]}" for key in UNSTATED_EVERYWHERE)
    yield from (f"{label}: {what}; nothing to reproduce" for label, what in ILLUSTRATIONS.items())
    yield from (f"scrl reproduce {own.name}: {own.title}; {own.label}" for own in OWN_TABLES.values())
    rows, cells = sum(len(table.rows) for table in TABLES.values()), sum(len(table.cells) for table in TABLES.values())
    yield f"{len(TABLES)} tables and figures, {rows} rows, {cells} numbers and curves, {len(EXPERIMENTS)} experiments"
