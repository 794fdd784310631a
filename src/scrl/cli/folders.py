"""Where commands put what they make."""

from __future__ import annotations

import itertools
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
    for number in itertools.count(1):
        folder = base / f"{number:03}"
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")
