"""`scrl report`: run folders or files of completions → one HTML page, or a table of results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from scrl.cli.file_options import DEFAULTS, AsOptions, check_outputs
from scrl.cli.terminal import print_text
from scrl.credit.rule import credit_rule
from scrl.errors import InputError
from scrl.files.whole_files import write_whole
from scrl.reporting.evaluations import read_place
from scrl.reporting.result_rows import result_rows, result_table
from scrl.reporting.sources import is_run_folder
from scrl.reporting.tables import FORMATS

TABLE_SUFFIXES = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


def report(
    *places: str,
    format: Literal["html", "markdown", "csv", "latex"] = "html",
    out: Path | None = None,
    file: AsOptions = DEFAULTS,
) -> None:
    """Write one self-contained HTML page about runs or files of completions; or a table of results.

    Example: scrl report runs/001/scrl runs/001/ttrl --out comparison.html
    Example: scrl report rollouts.jsonl --reader number
    Example: scrl report runs/001/scrl runs/001/ttrl --format markdown

    Parameters
    ----------
    places
        Folders of runs, or files of completions as for scrl audit; for a table also folders of scrl evaluate, and
        runs/001@40 for one step alone.
    format
        html: a page. markdown, csv or latex: a table with the start, the best, the peak and the last evaluation on
        each benchmark; runs that differ only in the seed share a row.
    out
        The file; by default report.html in the folder of the only run, FILE.html beside the only file, and the terminal
        for a table.
    """
    if not places:
        raise InputError("give the folder of a run or a file of completions, for instance: scrl report runs/001")
    if format != "html":
        _write_table(places, format, out)
        return
    if out is not None and (table := TABLE_SUFFIXES.get(out.suffix.lower())):
        raise InputError(f"--out: {out} would be a web page; add --format {table}, or give a name that ends in .html")
    from scrl.reporting.report import write_report

    paths = [Path(place) for place in places]
    if out is None and len(paths) > 1:
        raise InputError("--out: several runs go into one page; say where to write it")
    for path in paths:
        if out is not None and path.is_file():
            check_outputs(path, out)
    files = [path for path in paths if not is_run_folder(path)]
    rule = credit_rule("ttrl", **file.reading(files[0])) if files else None  # the files of a run need no reading
    sources = [file.open(path) if path in files else path for path in paths]
    default = paths[0] / "report.html" if paths[0].is_dir() else paths[0].with_suffix(".html")
    print_text(f"wrote {write_report(sources, out or default, rule)}")


def _write_table(names: tuple[str, ...], format: str, out: Path | None) -> None:
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
