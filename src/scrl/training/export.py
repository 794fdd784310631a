"""A run's model as a standalone folder: weights in the type of the model it started from, tokenizer, card."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from scrl.config import RunConfig, write_config
from scrl.errors import InputError, ScrlError
from scrl.files.jsonl import read_object
from scrl.files.run_state import guard_stop_of, read_state, standing_at, standing_of, state_file
from scrl.files.whole_files import give_usual_mode
from scrl.policy.checkpoint import copy_adapter, write_weights
from scrl.policy.model import load_model, load_tokenizer, model_shape, published_dtype
from scrl.policy.model_paths import ADAPTER, PACKAGED, adapter_folder, base_of, model_folder
from scrl.policy.settings import ComputeSettings
from scrl.reporting.evaluations import best_step_of, read_evaluations
from scrl.training.interrupts import finish_first
from scrl.training.model_card import Export, export_card
from scrl.training.run_folder import RunFolder
from scrl.training.state import MAY_CHANGE, SavedSettings, permitted_changes

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    run: Path
    config: RunConfig
    folder: Path
    step: int | None
    """The step after which it was made; None if nothing says so."""

    @property
    def is_adapter(self) -> bool:
        return adapter_folder(str(self.folder)) is not None


def find_checkpoint(place: Path, name: str | None = None) -> Checkpoint:
    """The checkpoint of this name of a run, by default `best`, else `last`; or the one that `place` is."""
    if not place.is_dir():
        reason = "is a file" if place.exists() else "there is no such folder"
        raise InputError(f"{place}: {reason}; give the folder of a run")
    run, folder = place, None
    if not (place / "config.yaml").is_file():
        run, folder = place.absolute().parent.parent, place
        if place.absolute().parent.name != "checkpoints" or not (run / "config.yaml").is_file():
            runs = ", ".join(sorted(str(path.parent) for path in place.glob("*/config.yaml"))[:3])
            other = f"; there are runs in it: {runs}" if runs else ""
            raise InputError(f"{place}: is neither a run (it has no config.yaml) nor a checkpoint within one{other}")
        if name is not None:
            raise InputError(f"--checkpoint: {place} is a checkpoint already; give the run, or leave out --checkpoint")
    config = RunFolder(run).config()
    if folder is None:
        names = (name,) if name else ("best", "last")
        folder = next((run / "checkpoints" / each for each in names if (run / "checkpoints" / each).is_dir()), None)
    if folder is None:
        there = sorted(path.name for path in run.glob("checkpoints/[!.]*"))
        fix = f"it has {', '.join(there)}" if there else f"resume with scrl train --resume {run}"
        raise InputError(f"{run}: has no checkpoint {name or 'yet'}; {fix}")
    if not any((folder / each).is_file() for each in ("config.json", ADAPTER)):
        raise InputError(f"{folder}: holds no model (neither config.json nor {ADAPTER}); is the checkpoint complete?")
    if (state := state_file(run / "checkpoints" / "last")) is not None:
        permitted_changes(read_state(state, SavedSettings).settings, config, MAY_CHANGE)
    return Checkpoint(run, config, folder, step_of(folder))


def step_of(folder: Path) -> int | None:
    """The step in a checkpoint's own state; for verl's, in the name of the folder around it; None: nothing says so."""
    if folder.name == "best":
        return best_step_of(folder.parent)
    if (standing := standing_at(folder)) is not None:
        return standing.step
    steps = [part.removeprefix("global_step_") for part in folder.resolve().parts if part.startswith("global_step_")]
    return int(steps[-1]) if steps and steps[-1].isdecimal() else None


def export_model(source: Checkpoint, out: Path, *, merge: bool = False, dtype: str | None = None) -> Export:
    """Write the model of a checkpoint to the new folder `out`, whole or not at all."""
    if any(path.is_file() for path in (out, *out.parents)):
        raise InputError(f"--out: {out} is a file, or within one; give a new folder")
    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out: {out} exists already and is not empty; give a new folder")
    if merge and not source.is_adapter:
        raise InputError(f"--merge: {source.folder} holds full weights already, nothing to merge; leave out --merge")
    folder, trust_remote_code = str(source.folder), source.config.trust_remote_code
    export = Export(
        config=source.config,
        checkpoint=source.folder.name,
        step=source.step,
        dtype=dtype or _base_dtype(source),
        base=_base(source.folder) if source.is_adapter else None,
        is_merged=merge,
        version=_version(source.run),
        guard_stop=guard_stop_of(source.run),
    )
    if export.adapter_of is not None and adapter_folder(export.adapter_of) is not None:
        raise InputError(f"{folder}: is an adapter of {export.base}, an adapter too; both are merged with --merge")
    tokenizer = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    card = export_card(export, tokenizer, _evaluations_of(source.run))
    with _new_folder(out) as place:
        if export.adapter_of is None:
            # An adapter is merged in float32 and rounded once; other weights are rounded as they are read.
            is_read_rounded = export.dtype == "bfloat16" and not merge
            compute = ComputeSettings(device="cpu", dtype="bfloat16" if is_read_rounded else "float32")
            model = load_model(folder, compute, trust_remote_code=trust_remote_code)
            write_weights(model, place, card, DTYPES[export.dtype])
        else:
            copy_adapter(
                source.folder, place, base=export.adapter_of, dtype=DTYPES[export.dtype],
                trust_remote_code=trust_remote_code,
            )  # fmt: skip
            (place / "README.md").write_text(card, encoding="utf-8")
        write_config(source.config, place / "training.yaml")
    return export


def remarks(source: Checkpoint) -> Iterator[str]:
    """What to know about the chosen checkpoint: why its run was stopped, and what was not measured with it."""
    standing = standing_of(source.run)
    if standing is not None and standing.guard_stop:
        yield standing.guard_stop
    steps = {int(line["step"]) for line in _evaluations_of(source.run)}
    if source.step is None or not steps or source.step == (last := max(steps)):
        return
    what = "answers" if source.step in steps else "numbers and answers"
    missing = "" if source.step in steps else f"step {source.step} was not evaluated: "
    is_last = standing is not None and standing.step == last
    other = f"; for that model: scrl export {source.run} --checkpoint last" if is_last else ""
    yield f"{missing}the run's {what} are of step {last}{other}"


def _evaluations_of(run: Path) -> list[dict[str, Any]]:
    file = run / "evaluations.jsonl"
    return read_evaluations(file, lambda _: None) if file.is_file() else []


def _base(adapter: Path) -> str:
    """The model under an adapter, in a form that works from any folder: a hub id, or an absolute path."""
    base = base_of(adapter)
    place = Path(model_folder(base) if base in PACKAGED else base).expanduser()
    return str(place.resolve()) if place.exists() else base


def _base_dtype(source: Checkpoint) -> str:
    name = str(source.folder) if source.is_adapter else source.config.model
    try:
        dtype = published_dtype(model_shape(model_folder(name), source.config.trust_remote_code))
    except InputError as error:
        if source.is_adapter:
            raise
        raise InputError(f"{error} Its type is wanted for the export; or say which: --dtype bfloat16") from error
    word = str(dtype).removeprefix("torch.")
    if word not in DTYPES:
        raise InputError(f"{name}: its weights are {word}, which cannot be trained; choose another type with --dtype")
    return word


def _version(run: Path) -> str | None:
    """The version of scrl that trained the run, if the run says so."""
    try:
        version = read_object(run / "environment.json")["versions"]["scrl"]
    except (InputError, KeyError, TypeError):
        return None
    return str(version) if version else None


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `out` once it is complete; after an error nothing is left of it."""
    home = next(path for path in out.absolute().parents if path.is_dir())
    draft = home / f".{out.name[:100]}.{secrets.token_hex(8)}"
    try:
        (place := draft / "whole").mkdir(parents=True)
        yield place
        give_usual_mode(place)
        out.parent.mkdir(parents=True, exist_ok=True)
        place.replace(out)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ScrlError(f"{out}: cannot be written: {reason}; nothing was left there") from error
    finally:
        with finish_first(lambda _: None):
            shutil.rmtree(draft, ignore_errors=True)
