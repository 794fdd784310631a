"""`report.html`: what one run did, or how several compare, on one page that needs nothing else.

All text on it is foreign until shown otherwise: completions are written by a model. So everything is escaped, the page
has no scripts, and its policy forbids the browser to load or run anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from scrl.errors import InputError
from scrl.reporting.plots import COLOURS, DASHES, draw_plots
from scrl.reporting.question_rows import BAR_STEP, question_rows
from scrl.reporting.run_folder import Run, read_runs
from scrl.reporting.tables import result_tables, settings, total_rows
from scrl.reporting.text import printable


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Read one run folder, or several to compare, and write the page; it appears whole or not at all."""
    if out.is_dir():
        raise InputError(f"{out}: cannot be written: it is a folder; give a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: cannot be written: there is no folder {out.parent}")
    page = render_report(read_runs(folders))
    draft = out.with_name(f".{out.name}.part")
    try:
        draft.write_text(page, encoding="utf-8", newline="\n")
        draft.replace(out)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
    return out


def render_report(runs: Sequence[Run]) -> str:
    """The page as text: the same runs give the same bytes."""
    template = _environment().get_template("template.html")
    return template.render(
        runs=runs,
        ungraded=[run.name for run in runs if not run.is_graded],
        settings=settings(runs),
        results=result_tables(runs),
        plots=draw_plots(runs),
        totals=total_rows(runs),
        questions=question_rows(runs),
        bar_step=BAR_STEP,
        num_colours=len(COLOURS),
        dashes=DASHES,
    )


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("scrl.reporting", ""),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
