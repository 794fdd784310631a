"""The folder of a run: append-only files, and checkpoints that are either whole or absent.

config.yaml, environment.json, metrics.jsonl, rollouts.jsonl, evaluations.jsonl, checkpoints/{last,best}, and at the end
answers.jsonl, answers.csv and report.html

A checkpoint is written beside its place and then renamed. It notes how long the three files were, so that a resumed run
cuts off what was written after it and continues as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from scrl.config import RunConfig, read_config, write_config
from scrl.errors import InputError, TrainingError
from scrl.files.checkpoint_file import check_sums, file_sum, write_sums
from scrl.files.jsonl import read_json_lines
from scrl.files.whole_files import give_usual_mode, only_writer, refuse_links, sync, sync_all
from scrl.optional_deps import installed_version

FILES = ("metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl")
PACKAGES = ("scrl", "torch", "transformers", "peft", "accelerate", "trl", "numpy", "pydantic")


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = path / "checkpoints" / "last"
        self.best = path / "checkpoints" / "best"
        """The checkpoint with the highest label-free score."""

    @classmethod
    def create(cls, path: Path, config: RunConfig, device: str) -> RunFolder:
        """A folder for a new run; config.yaml is written last, so that if it exists, everything does."""
        folder = cls(path)
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        about = json.dumps(environment(config, device), indent=2)
        (path / "environment.json").write_text(f"{about}\n", encoding="utf-8")
        for name in FILES:
            (path / name).touch()
        write_config(config, path / ".config.yaml.draft")
        (path / ".config.yaml.draft").rename(path / "config.yaml")
        return folder

    def config(self) -> RunConfig:
        if not (self.path / "config.yaml").is_file():
            raise InputError(f"{self.path}: there is no run to resume here (no config.yaml)")
        return read_config(self.path / "config.yaml")

    @property
    def resume_command(self) -> str:
        return shlex.join(["scrl", "train", "--resume", str(self.path)])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep any other process from resuming this run, which would cut off what is written here."""
        refuse_links(self.path / name for name in ("checkpoints", ".lock", *FILES))
        with only_writer(self.path / ".lock", f"{self.path}: another process is writing to this run"):
            for draft in self.path.glob(".*.part"):  # of a process that was killed while it wrote answers or the page
                with suppress(OSError):
                    draft.unlink()
            yield

    def append(self, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def lines(self, name: str, say: Callable[[str], None]) -> list[dict[str, Any]]:
        """What was added to one of the files; `say` reports a line cut short."""
        return [line.fields for line in read_json_lines(self.path / name, say)]

    def lengths(self) -> dict[str, int]:
        return {name: (self.path / name).stat().st_size for name in FILES}

    def sums(self, lengths: Mapping[str, int]) -> dict[str, str]:
        return {name: file_sum(self.path / name, lengths[name]) for name in FILES}

    def cut(self, lengths: Mapping[str, int], sums: Mapping[str, str] | None = None) -> None:
        """Drop what was written after a checkpoint; refuse if what was written before it has changed.

        Lengths of 0 drop everything, where there is no checkpoint to resume from.
        """
        for name in FILES:
            path, length = self.path / name, lengths[name]
            if not path.is_file():
                raise InputError(f"{path}: is missing, but was there when the last checkpoint was made; restore it")
            if path.stat().st_size < length:
                raise InputError(f"{path}: is shorter than when the last checkpoint was made; restore it")
            if sums and sums.get(name) != file_sum(path, length):
                raise InputError(f"{path}: is not what it was when the last checkpoint was made; restore it")
        for name in FILES:
            os.truncate(self.path / name, lengths[name])

    def save(self, place: Path, write: Callable[[Path], None], step: int, run: str) -> None:
        """Let `write` fill a folder, then put it in `place`; what was there stays until the new one is on the disk.

        So do the lines that a checkpoint relies on. `run` says to which run it belongs.
        """
        self.recover()
        draft, whole, old = (place.with_name(f".{place.name}.{word}") for word in ("draft", "whole", "old"))
        draft.mkdir(parents=True)
        try:
            write(draft)
            give_usual_mode(draft)
            write_sums(draft, step, run)
            sync_all(draft)
            for name in FILES:
                sync(self.path / name)
        except (OSError, RuntimeError, ValueError, SafetensorError) as error:
            reason = _full_disk(draft) or getattr(error, "strerror", None) or error
            _remove(draft)
            kept = f"the one from before is intact: {place}" if place.is_dir() else "there was none before"
            raise TrainingError(f"{place}: the checkpoint cannot be written: {reason}; {kept}") from error
        draft.rename(whole)
        if place.exists():
            place.rename(old)
        whole.rename(place)
        sync(place.parent)
        _remove(old)

    def recover(self) -> None:
        """Finish what a kill interrupted: a whole checkpoint moves into place, if it is intact; drafts are deleted."""
        for place in (self.last, self.best):
            draft, whole, old = (place.with_name(f".{place.name}.{word}") for word in ("draft", "whole", "old"))
            if whole.is_dir() and _is_intact(whole):
                _remove(place)
                whole.rename(place)
            elif not place.exists() and old.is_dir():
                old.rename(place)
            for rest in (draft, whole, old):
                _remove(rest)

    def report(self, say: Callable[[str], None]) -> None:
        """Write the answers and the page about the run; a failure to do so must not hide how the run ended."""
        from scrl.evaluation.answer_sheet import write_run_answers
        from scrl.reporting.report import write_report

        writers: dict[str, Callable[[], object]] = {
            "answers": lambda: write_run_answers(self.path),
            "report": lambda: write_report([self.path], self.path / "report.html"),
        }
        for what, write in writers.items():
            try:
                write()
            except (InputError, OSError) as error:
                say(f"the {what} could not be written: {error}")


def _is_intact(checkpoint: Path) -> bool:
    try:
        check_sums(checkpoint)
    except InputError:
        return False
    return True


def _remove(path: Path) -> None:
    """Delete a folder and all that is in it; of a link, only the link."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


NEARLY_FULL = 2**24
"""With less free space than this, a full disk is taken as the reason why a checkpoint failed: torch does not say."""


def _full_disk(draft: Path) -> str | None:
    free = shutil.disk_usage(draft).free
    if free > NEARLY_FULL:
        return None
    written = sum(path.stat().st_size for path in draft.rglob("*") if path.is_file())
    return f"the disk of {draft.parent} is full: {written / 1e9:.3f} GB were written, {free / 1e9:.3f} GB are free"


def check_room(folder: Path, needed: int) -> None:
    """Refuse to start a run whose checkpoints do not fit on the disk."""
    place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.is_dir())
    free = shutil.disk_usage(place).free
    if free < needed:
        has = f"the disk of {place} has {free / 1e9:.2f} GB free; make room, or give another --out"
        raise InputError(f"{folder}: the run's checkpoints need {needed / 1e9:.2f} GB, and {has}")


def environment(config: RunConfig, device: str) -> dict[str, Any]:
    """What a run depended on besides its settings."""
    return {
        "versions": {name: installed_version(name) for name in PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": device,
        "commit": _commit(),
        "seed": config.seed,
    }


def _commit() -> str | None:
    """The commit of the code, if it runs from a checkout: an installed copy may be inside somebody else's."""
    here = Path(__file__)
    printed = ""
    for words in (("ls-files", "--error-unmatch", here.name), ("rev-parse", "HEAD")):
        try:
            command = ["git", "-C", str(here.parent), *words]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):  # no git, or not ours
            return None
    return printed or None
