"""The state of a run at a checkpoint, for readers of its folder: the step, and why the guard stopped it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from scrl.errors import DataError
from scrl.files.jsonl import read_object

STATE = "trainer_state.json"
"""The state file in a checkpoint of the local engine."""
ENGINE_STATE = "scrl_state.json"
"""What a run on TRL or verl keeps beside the files of theirs, of which trainer_state.json is one."""
VERSION = 1
"""The version of a run's state; no other is read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a run."""

    __pydantic_config__ = ConfigDict(strict=True)

    step: int
    stopped_for: tuple[str, ...]
    """Why the guard stopped it; empty if it did not."""

    @property
    def guard_stop(self) -> str | None:
        """A sentence on why the guard stopped the run; None if it did not."""
        reasons = "; ".join(self.stopped_for)
        return f"the guard stopped the run after step {self.step}: {reasons}" if reasons else None


def standing_of(run: Path) -> Standing | None:
    """The state of a run; None before its first checkpoint, and on an engine that keeps no state of ours."""
    return standing_at(run / "checkpoints" / "last")


def guard_stop_of(run: Path) -> str | None:
    """A sentence on why the guard stopped a run; None if nothing says so."""
    standing = standing_of(run)
    return None if standing is None else standing.guard_stop


def standing_at(checkpoint: Path) -> Standing | None:
    """The state of a run at a checkpoint; None if nothing says so."""
    path = state_file(checkpoint)
    return None if path is None else read_state(path, Standing)


def state_file(checkpoint: Path) -> Path | None:
    """The file with the state of a run at a checkpoint; None on an engine that keeps no state of ours."""
    return next((checkpoint / name for name in (ENGINE_STATE, STATE) if (checkpoint / name).is_file()), None)


Record = TypeVar("Record")


def read_state(path: Path, record: type[Record]) -> Record:
    """The state in a file as this record, a part of it or all; another version, or a damaged file, is refused."""
    fields = read_object(path)
    if (version := fields.get("version")) != VERSION:
        reason = f"has version {version!r:.50} of a run's state, and this scrl reads version {VERSION}"
        raise DataError(path, f"{reason}; use the scrl that wrote it, or start anew")
    try:
        return TypeAdapter(record).validate_json(json.dumps(fields))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise DataError(path, f"is damaged: {place}: {problem['msg']}; restore it, or start anew") from error
