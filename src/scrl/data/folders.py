"""Where commands write their results. Imports nothing heavy, so that commands start at once."""

from __future__ import annotations

from pathlib import Path

from scrl.errors import InputError


def refuse_existing(out: Path) -> None:
    """Refuse a folder that exists, or whose name is not UTF-8, as saving weights requires."""
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(f"{out}: the name of the folder is not UTF-8; give another with --out") from None
    if (out / "config.yaml").is_file():
        raise InputError(f"{out}: exists already; resume that run with --resume, or give a new folder with --out")
    if (out / "evaluation.yaml").is_file():
        resume = f"scrl evaluate --resume --out {out}"
        raise InputError(f"{out}: exists already; resume with {resume}, or give a new folder with --out")
    if out.exists():
        raise InputError(f"{out}: exists already; give a new folder with --out")


def folder_to_resume(out: Path | None, what: str) -> Path:
    """The folder in which `what` was begun."""
    if out is None:
        raise InputError(f"--resume: say which {what}, with --out FOLDER")
    if not out.is_dir():
        raise InputError(f"--resume: there is no folder {out}")
    return out


def new_run_folder(out: Path | None) -> Path:
    """The folder `out`, which must be new; without it, the next free number under runs/."""
    if out is None:
        runs = Path("runs")
        numbers = [int(path.name) for path in runs.glob("*") if path.name.isdecimal()]
        out = runs / f"{max(numbers, default=0) + 1:03}"
    refuse_existing(out)
    out.mkdir(parents=True)
    return out
