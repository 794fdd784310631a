"""Where commands put what they make; nothing heavy is imported, so that they start at once."""

from __future__ import annotations

from pathlib import Path

from scrl.errors import InputError


def refuse_existing(out: Path) -> None:
    """Nothing is ever written into what is there, nor under a name that weights cannot be saved under."""
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(f"{out}: the name of the folder is not UTF-8; give another with --out") from None
    if (out / "config.yaml").is_file():
        raise InputError(f"{out}: exists already; go on with that run by --resume, or give a new folder with --out")
    if out.exists():
        raise InputError(f"{out}: exists already; give a new folder with --out")


def folder_to_resume(out: Path | None, what: str) -> Path:
    """The folder in which `what` was begun."""
    if out is None:
        raise InputError(f"--resume: say which {what}, with --out FOLDER")
    if not out.is_dir():
        raise InputError(f"--resume: there is no folder {out}")
    return out


def new_run_folder(out: Path | None, base: Path = Path("runs")) -> Path:
    """The given folder, which must be new; or the next free number under `base`."""
    if out is not None:
        refuse_existing(out)
        out.mkdir(parents=True)
        return out
    base.mkdir(exist_ok=True)
    numbers = [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
    folder = base / f"{max(numbers, default=0) + 1:03}"
    folder.mkdir()
    return folder
