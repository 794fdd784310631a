"""Where commands write their results. Imports nothing heavy, so that commands start at once."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from scrl.errors import ConfigError, InputError


def is_first_process() -> bool:
    """Whether this is the first of the processes that torchrun or accelerate started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def num_processes() -> int:
    """How many processes torchrun or accelerate started."""
    number = os.environ.get("WORLD_SIZE", "1")
    if not re.fullmatch("[1-9][0-9]{0,5}", number):
        raise ConfigError(f"WORLD_SIZE: is the number of processes, found {number!r:.50}; unset it, or use torchrun")
    return int(number)


def refuse_existing(out: Path) -> None:
    """Refuse a folder that exists, or whose name is not UTF-8, as saving weights requires."""
    try:
        str(out.absolute()).encode()
    except UnicodeEncodeError:
        raise InputError(f"{out}: the name of the folder is not UTF-8; give another with --out") from None
    if (out / "config.yaml").is_file():
        raise InputError(f"{out}: exists already; resume that run with --resume, or give a new folder with --out")
    if (out / "evaluation.yaml").is_file():
        ways = f"scrl answers {out} shows what it has, scrl evaluate --resume --out {out} goes on"
        raise InputError(f"{out}: exists already: {ways}; or give a new folder with --out")
    if out.exists():
        fix = "remove it, since it is empty, or " if out.is_dir() and not any(out.iterdir()) else ""
        raise InputError(f"{out}: exists already; {fix}give a new folder with --out")


def folder_to_resume(out: Path | None, what: str, ways: str = "--out FOLDER") -> Path:
    """The folder in which `what` was begun; `ways` to name it."""
    if out is None:
        raise InputError(f"--resume: say which {what}, with {ways}")
    if not out.is_dir():
        raise InputError(f"--resume: there is no folder {out}")
    return out


def new_run_folder(out: Path | None) -> Path:
    """The folder `out`, which must be new; without it, the next free number under runs/."""
    if out is not None:
        refuse_existing(out)
        out.mkdir(parents=True)
        return out
    runs = Path("runs")
    while True:  # until no other process is quicker
        numbers = [int(path.name) for path in runs.glob("*") if path.name.isdecimal()]
        with suppress(FileExistsError):
            (out := runs / f"{max(numbers, default=0) + 1:03}").mkdir(parents=True)
            return out


def shared_run_folder(out: Path | None) -> Path:
    """The folder of a run: the first process makes it, and the others, which cannot know its number, need its name."""
    if out is None and num_processes() > 1:
        raise ConfigError("--out: several processes write to one folder: name it")
    return new_run_folder(out) if out is None or is_first_process() else out
