"""Where a named model is: in the package, in a folder, on the hub, or under an adapter."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from scrl.errors import InputError, did_you_mean
from scrl.files.jsonl import read_object

EMBEDDED = "embedded"
HASTY = "embedded-hasty"
PACKAGED = {EMBEDDED: "arithmetic_model", HASTY: "hasty_arithmetic_model"}
"""The small models that ship with the package, and their folders under scrl/data."""
ADAPTER = "adapter_config.json"
"""What peft writes beside an adapter's weights."""
OPEN = set(
    "base_model_name_or_path revision peft_version task_type inference_mode auto_mapping r lora_alpha lora_dropout "
    "bias fan_in_fan_out use_rslora use_dora lora_bias layers_to_transform megatron_core qalora_group_size".split()
)
"""Settings of an adapter that may have any value: none makes peft search, factorize or import anything."""
MAX_NAMES, MAX_PATTERNS = 10_000, 256


def model_folder(name: str) -> str:
    """The folder of a model, or a hub id for transformers to find; for an adapter, that of the model under it."""
    if name in PACKAGED:
        return str(files("scrl.data") / PACKAGED[name])
    path = Path(name).expanduser()
    if path.is_dir():
        for each in (*path.iterdir(), *path.glob("additional_chat_templates/*")):  # transformers opens what it finds
            if not (each.is_file() or each.is_dir()):
                raise InputError(f"model: {each} is neither a file nor a folder; is the download complete?")
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
    settings = read_object(adapter / ADAPTER)
    for name, value in settings.items():
        if (needed := _refusal(name, value)) is not None:
            raise InputError(f"model: {adapter / ADAPTER}: {name} must be {needed}; found {value!r:.80}")
    base = settings.get("base_model_name_or_path")
    if base is None:
        raise InputError(f"model: {adapter / ADAPTER} does not say base_model_name_or_path")
    ends = Path(str(base)).parts[-3:]
    return next((name for name in PACKAGED if Path(model_folder(name)).parts[-3:] == ends), str(base))


def _refusal(name: str, value: Any) -> str | None:
    """What a setting of a low-rank adapter must be; None where it is.

    peft takes most names for regular expressions, which can keep it busy for ever, and starts some adapters with a
    factorization of the model or code from elsewhere.
    """
    match name:
        case "peft_type":
            return None if value == "LORA" else "LORA"
        case "init_lora_weights":
            return None if value in (True, False, "gaussian") else "true, false or gaussian"
        case "target_modules" | "exclude_modules":
            return None if value == "all-linear" or _are_names(value, MAX_NAMES) else "a list of names of modules"
        case "modules_to_save" | "layers_pattern":
            names = [value] if isinstance(value, str) else value
            return None if _are_names(names, MAX_PATTERNS) else "a list of names of modules"
        case "rank_pattern" | "alpha_pattern":
            has_names = isinstance(value, dict) and _are_names(list(value), MAX_PATTERNS)
            is_plain = has_names and all(type(each) in (int, float) for each in value.values())
            return None if is_plain else "numbers by name"
    return None if name in OPEN or not value else "empty: nothing but plain low-rank adapters can be used"


def _are_names(value: Any, at_most: int) -> bool:
    """Whether these are names of modules, without anything that a regular expression could repeat; or None."""
    is_list = value is None or (isinstance(value, list) and len(value) <= at_most)
    return is_list and all(isinstance(each, str) and re.fullmatch(r"[\w.-]{1,300}", each) for each in value or ())


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
