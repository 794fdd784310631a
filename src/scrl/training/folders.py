"""Where commands put what they make."""

from __future__ import annotations

from pathlib import Path

from scrl.errors import InputError


def new_run_folder(out: Path | None, base: Path = Path("runs")) -> Path:
    """The given folder, which must be new; or the next free number under `base`."""
    if out is not None:
        if out.exists():
            raise InputError(f"{out}: exists already; give a new folder with --out")
        out.mkdir(parents=True)
        return out
    base.mkdir(exist_ok=True)
    numbers = [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
    folder = base / f"{max(numbers, default=0) + 1:03}"
    folder.mkdir()
    return folder
