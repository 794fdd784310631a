"""`scrl report`: run folders → one HTML page, or a table of their results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from scrl.cli.terminal import print_text
from scrl.data.whole_files import write_whole
from scrl.errors import InputError


def report(*runs: str, format: Literal["html", "markdown", "csv", "latex"] = "html", out: Path | None = None) -> None:
    """Write one self-contained HTML page about one run, or about several side by side; or a table of results.

    Example: scrl report runs/001/scrl runs/001/ttrl --out comparison.html

    Example: scrl report runs/001/scrl runs/001/ttrl --format markdown

    Parameters
    ----------
    runs
        Folders of runs; for a table also folders of scrl evaluate, and runs/001@40 for one step alone.
    format
        html: a page. markdown, csv or latex: a table with the start, the best, the peak and the last evaluation on
        each benchmark; runs that differ in the seed alone share a row.
    out
        The file; by default report.html in the folder of the only run, and the terminal for a table.
    """
    if not runs:
        raise InputError("give the folder of a run, for instance: scrl report runs/001")
    if format == "html":
        _write_page([Path(run) for run in runs], out)
    else:
        _write_table(runs, format, out)


def _write_page(runs: list[Path], out: Path | None) -> None:
    from scrl.reporting.report import write_report

    if out is None and len(runs) > 1:
        raise InputError("--out: several runs go into one page; say where to")
    if not runs[0].is_dir():
        reason = "is a file" if runs[0].exists() else "there is no such folder"
        raise InputError(f"{runs[0]}: {reason}; give the folder of a run")
    print_text(f"wrote {write_report(runs, out or runs[0] / 'report.html')}")


def _write_table(names: tuple[str, ...], format: str, out: Path | None) -> None:
    from scrl.reporting.evaluations import read_place
    from scrl.reporting.result_rows import result_rows, result_table
    from scrl.reporting.tables import FORMATS

    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise InputError(f"{out}: give a file in a folder that exists")
    places = [read_place(name) for name in names]
    table = FORMATS[format](result_table(result_rows(places)))
    for note in (note for place in places for note in place.notes):
        print_text(f"note: {note}", file=sys.stderr)
    if out is None:
        print_text(table, end="")
        return
    write_whole(out, table)
    print_text(f"wrote {out}")
