"""Where a named model is: in the package, in a folder, on the hub, or under an adapter."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from scrl.errors import InputError, did_you_mean
from scrl.files.jsonl import read_object

EMBEDDED = "embedded"
HASTY = "embedded-hasty"
PACKAGED = {EMBEDDED: "arithmetic_model", HASTY: "hasty_arithmetic_model"}
"""The small models that ship with the package, and their folders under scrl/data."""
ADAPTER = "adapter_config.json"
"""What peft writes beside an adapter's weights."""


def model_folder(name: str) -> str:
    """The folder of a model, or a hub id for transformers to find; for an adapter, that of the model under it."""
    if name in PACKAGED:
        return str(files("scrl.data") / PACKAGED[name])
    path = Path(name).expanduser()
    if adapter_folder(name) is not None:
        return _base_folder(path)
    if path.is_dir():
        if not (path / "config.json").is_file():
            inner = path / "checkpoints" / "last"
            hint = f"; did you mean {inner}?" if inner.is_dir() else "; give a Hugging Face model folder"
            raise InputError(f"model: {path} has no config.json{hint}")
        if not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
            raise InputError(f"model: {path} has a config but no weights (*.safetensors); is the download complete?")
        read_object(path / "config.json")
        return str(path)
    if path.exists():
        raise InputError(f"model: {name} is a file; give the folder that holds config.json and the weights")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        hint = "" if "/" in name else did_you_mean(name, PACKAGED)
        raise InputError(f"model: there is no folder {name}. Give one, a hub id (owner/name), or {EMBEDDED!r}.{hint}")
    return name


def adapter_folder(name: str) -> Path | None:
    """The folder of this name, if it holds an adapter rather than a whole model."""
    path = Path(name).expanduser()
    return path if (path / ADAPTER).is_file() else None


def base_of(adapter: Path) -> str:
    """The name of the model that an adapter was trained on; the package with an embedded one may have moved."""
    base = read_object(adapter / ADAPTER).get("base_model_name_or_path")
    if base is None:
        raise InputError(f"model: {adapter / ADAPTER} does not say base_model_name_or_path")
    ends = Path(str(base)).parts[-3:]
    return next((name for name in PACKAGED if Path(model_folder(name)).parts[-3:] == ends), str(base))


def _base_folder(adapter: Path) -> str:
    base = base_of(adapter)
    below, seen = adapter_folder(base), {adapter.resolve()}
    while below is not None:
        if below.resolve() in seen:
            raise InputError(f"model: {adapter} is an adapter of itself; correct base_model_name_or_path of {ADAPTER}")
        seen.add(below.resolve())
        below = adapter_folder(base_of(below))
    try:
        return model_folder(base)
    except InputError as error:
        reason = f"is an adapter of {base}, which cannot be used: {str(error).removeprefix('model: ')}"
        raise InputError(f"model: {adapter} {reason} base_model_name_or_path of {ADAPTER} says where.") from error
