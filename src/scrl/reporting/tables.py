"""The one table type, and its formats: terminal, Markdown, LaTeX, CSV, and HTML cell by cell.

Any table can be printed: `as_markdown(Table(("method", "pass@1"), (("scrl", Share(0.452)),)))`. Shares are fractions;
text shows them in % with one digit, CSV has them in full, each bound in its own column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple

from scrl.evaluation.statistics import Difference
from scrl.files.printable import csv_cell, printable
from scrl.reporting.text import percent, plain, signed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

NOTHING = "–"
BOUNDS = ("low", "high", "least", "most")


@dataclass(frozen=True, slots=True)
class Share:
    """A fraction, shown in %; with its interval, and with the lowest and the highest seed, where there are some."""

    value: float
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How a number moved; for shares, in percentage points."""

    value: float
    is_share: bool


Cell = str | int | float | Share | Difference | Change | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table before it is printed; None is shown as a dash."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    @property
    def columns(self) -> list[list[Cell]]:
        return [[row[place] for row in self.rows] for place in range(len(self.header))]

    @property
    def texts(self) -> list[list[str]]:
        return [[cell_text(cell) for cell in row] for row in self.rows]

    @property
    def is_number(self) -> list[bool]:
        return [
            not any(isinstance(cell, str) for cell in cells) and any(cell is not None for cell in cells)
            for cells in self.columns
        ]


def cell_text(cell: Cell) -> str:
    """A cell as text shows it: shares in % and differences in percentage points, to one digit."""
    if cell is None:
        return NOTHING
    if isinstance(cell, Difference):
        mean, low, high = (signed(100 * value, 1) for value in (cell.mean, cell.low, cell.high))
        return f"{mean} [{low}, {high}]"
    if isinstance(cell, Share):
        interval = "" if cell.low is None or cell.high is None else f" [{100 * cell.low:.1f}, {100 * cell.high:.1f}]"
        spread = "" if cell.least is None or cell.most is None else f", {100 * cell.least:.1f} to {100 * cell.most:.1f}"
        return f"{100 * cell.value:.1f}{interval}{spread}"
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def as_terminal(table: Table, *, wraps: bool = False, justify: Literal["left", "right"] = "left") -> RichTable:
    """A table for a rich console, its caption above it; with `wraps` words may take several lines, numbers never.

    `justify` is for all columns but the first.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    rich_table = RichTable(title=table.caption or None, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    rich_table.show_header = any(table.header)
    for place, (name, is_number) in enumerate(zip(table.header, table.is_number, strict=True)):
        has_words = place > 0 and not is_number and any(" " in row[place] for row in table.texts)
        rich_table.add_column(name, justify=justify if place else "left", no_wrap=not (wraps and has_words))
    for row in table.texts:
        rich_table.add_row(*row)
    return rich_table


def is_too_wide(table: RichTable, console: Console) -> bool:
    """Whether a console would have to break or cut its lines."""
    return _whole_width(table, console) > console.width


def show_whole(table: RichTable, console: Console) -> None:
    """Print a table without cutting a cell: where the console is too narrow, lines are longer than it is wide."""
    if is_too_wide(table, console):
        table.width = _whole_width(table, console)
    console.print(table, crop=False)


def _whole_width(table: RichTable, console: Console) -> int:
    return console.measure(table, options=console.options.update_width(10_000)).maximum


def show_table(table: Table, console: Console) -> None:
    """Print a table as Markdown; on a terminal that is too narrow for it, without breaking a number."""
    from rich.text import Text

    text = as_markdown(table)
    if console.is_terminal and max(map(len, text.splitlines())) > console.width:
        console.print(as_terminal(table, wraps=True))
    else:
        console.print(Text(text), soft_wrap=True, end="")


def as_markdown(table: Table) -> str:
    """A table that reads well as plain text too; the caption goes above it."""
    columns = zip(*([_markdown(text) for text in line] for line in (table.header, *table.texts)), strict=True)
    padded = []
    for (heading, *cells), is_number in zip(columns, table.is_number, strict=True):
        width = max(3, *map(len, (heading, *cells)))
        pad = str.rjust if is_number else str.ljust
        rule = "-" * (width - 1) + ":" if is_number else "-" * width
        padded.append([pad(heading, width), rule, *(pad(cell, width) for cell in cells)])
    rows = "".join(f"| {' | '.join(line)} |\n" for line in zip(*padded, strict=True))
    return f"{_markdown(table.caption)}\n\n{rows}" if table.caption else rows


_MARKUP = re.compile(r"[\\|`*]|<(?=[a-zA-Z/!?])|(?<!\w)_|_(?!\w)")


def _markdown(text: str) -> str:
    """Text that stays within its cell and is not read as markup."""
    return _MARKUP.sub(r"\\\g<0>", _one_line(text))


def _one_line(text: str) -> str:
    return re.sub(r"[ \t\n]+", " ", str(printable(text))).strip()


_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "%_&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "–": "--", "—": "---", "…": r"\dots{}", "−": "$-$"}
    | {"±": r"$\pm$", "→": r"$\rightarrow$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "Δ": r"$\Delta$"}
    | {"τ": r"$\tau$", "λ": r"$\lambda$", "\N{NO-BREAK SPACE}": "~", "\N{NARROW NO-BREAK SPACE}": r"\,"}
)


def as_latex(table: Table) -> str:
    """A table environment in the style of booktabs (`\\usepackage{booktabs}`)."""
    sides = "".join("r" if right else "l" for right in table.is_number)
    lines = [" & ".join(map(latex_escape, texts)) for texts in (table.header, *table.texts)]
    # after \\, [ and * would be its arguments
    header, *rows = (f"{'{}' if line.startswith(('[', '*')) else ''}{line} \\\\" for line in lines)
    caption = [f"\\caption{{{latex_escape(table.caption)}}}"] if table.caption else []
    begin = ["\\begin{table}[t]", "\\centering", *caption, f"\\begin{{tabular}}{{{sides}}}", "\\toprule"]
    end = ["\\bottomrule", "\\end{tabular}", "\\end{table}"]
    return "\n".join([*begin, header, "\\midrule", *rows, *end]) + "\n"


def latex_escape(text: str) -> str:
    """Text that LaTeX prints verbatim."""
    return _one_line(text).translate(_LATEX)


def as_csv(table: Table) -> str:
    """Numbers in full; `pass@1` becomes `pass@1, pass@1_low, pass@1_high` where a cell has bounds. No caption."""
    bounds = [
        [name for name in BOUNDS if any(getattr(cell, name, None) is not None for cell in cells)]
        for cells in table.columns
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = ([name, *(f"{name}_{bound}" for bound in own)] for name, own in zip(table.header, bounds, strict=True))
    writer.writerow(map(csv_cell, chain.from_iterable(names)))
    for row in table.rows:
        numbers: list[object] = []
        for cell, own in zip(row, bounds, strict=True):
            mean = cell.value if isinstance(cell, Share) else cell.mean if isinstance(cell, Difference) else cell
            numbers += [mean, *(getattr(cell, bound, None) for bound in own)]
        writer.writerow(map(csv_cell, numbers))
    return text.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {"markdown": as_markdown, "csv": as_csv, "latex": as_latex}


class HtmlCell(NamedTuple):
    """A cell for the page's template, with its number in full."""

    text: str
    value: float | None = None
    detail: str = ""


def as_html(cell: Cell) -> HtmlCell:
    if isinstance(cell, Share):
        interval = "" if cell.low is None or cell.high is None else f"{100 * cell.low:.1f} to {percent(cell.high)}"
        return HtmlCell(percent(cell.value), cell.value, interval)
    if isinstance(cell, Change):
        text = f"{signed(100 * cell.value, 1)} pp" if cell.is_share else signed(cell.value, 3)
        return HtmlCell(text, round(cell.value, 6))
    if isinstance(cell, int | float):
        return HtmlCell(plain(cell), cell)
    return HtmlCell(cell if isinstance(cell, str) else NOTHING)
