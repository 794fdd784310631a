"""`scrl report`: run folders → one HTML page."""

from __future__ import annotations

from pathlib import Path

from scrl.errors import InputError


def report(*runs: Path, out: Path | None = None) -> None:
    """Write one self-contained HTML page about one run, or about several side by side.

    Example: scrl report runs/001/scrl runs/001/ttrl --out comparison.html

    Parameters
    ----------
    runs
        Folders of runs.
    out
        The page; by default report.html in the folder of the only run.
    """
    from scrl.reporting.report import write_report

    if not runs:
        raise InputError("give the folder of a run, for instance: scrl report runs/001")
    if out is None and len(runs) > 1:
        raise InputError("--out: several runs go into one page; say where to")
    print(f"wrote {write_report(list(runs), out or runs[0] / 'report.html')}")
