"""A checkpoint: a plain Hugging Face (or PEFT) folder with a model card, and the state of the optimizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from scrl.errors import InputError
from scrl.files.checkpoint_file import check_if_checkpoint
from scrl.policy.model import (
    LanguageModel,
    empty_model,
    first_line,
    load_tokenizer,
    loading,
    model_shape,
    quiet_progress,
)
from scrl.policy.policy import Policy

OPTIMIZER = "optimizer.pt"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def write_weights(language_model: LanguageModel, folder: Path, card: str, dtype: torch.dtype | None = None) -> None:
    """Weights, tokenizer and card, in the form that `from_pretrained` loads; `dtype`: rounded to another type."""
    with quiet_progress():
        language_model.model.save_pretrained(folder, state_dict=dtype and _rounded(language_model, dtype))
    language_model.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    if dtype is not None and not language_model.has_adapter:  # transformers has written the type of the model itself
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8")) | {"dtype": str(dtype).removeprefix("torch.")}
        path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(language_model: LanguageModel, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights in another type, in CPU memory; tied weights stay tied."""
    by_place: dict[int, torch.Tensor] = {}
    rounded = {}
    for name, weight in language_model.model.state_dict().items():
        is_rounded = weight.is_floating_point() and weight.dtype != dtype
        if is_rounded and (not language_model.has_adapter or ".lora_" in name):
            place = weight.data_ptr()
            by_place[place] = by_place[place] if place in by_place else weight.to("cpu", dtype)
            weight = by_place[place]
        rounded[name] = weight
    return rounded


def copy_adapter(adapter: Path, folder: Path, *, base: str, dtype: torch.dtype, trust_remote_code: bool) -> None:
    """An adapter and its tokenizer, in this type and with `base` as its model, whose shape it must fit."""
    from safetensors.torch import load_file, save_file

    check_if_checkpoint(adapter)
    shape = model_shape(base, trust_remote_code)
    with loading(str(adapter)), quiet_progress():
        from peft import PeftConfig, get_peft_model, get_peft_model_state_dict

        settings, weights = PeftConfig.from_pretrained(str(adapter)), load_file(adapter / ADAPTER_WEIGHTS)
        settings.base_model_name_or_path = base
        fitting = get_peft_model(empty_model(shape, trust_remote_code), settings, low_cpu_mem_usage=True)
        shapes, found = (
            {name: weight.shape for name, weight in state.items() if ".lora_" in name}
            for state in (get_peft_model_state_dict(fitting, save_embedding_layers=False), weights)
        )
        wrong = sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name))
        if wrong:
            raise ValueError(f"it does not fit {base}: {wrong[0]} and perhaps more are missing or of another shape")
    tokenizer = load_tokenizer(str(adapter), trust_remote_code=trust_remote_code)
    settings.save_pretrained(str(folder))
    save_file({name: w.to(dtype) for name, w in weights.items()}, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)


def write_optimizer(policy: Policy, folder: Path) -> None:
    """The optimizer's state, which `restore` reads back with the weights."""
    torch.save(policy.optimizer.state(), folder / OPTIMIZER)


def checkpoints_bytes(policy: Policy, *, is_renewed: bool) -> int:
    """The most that the checkpoints of a run take: `best`, and `last`, twice while a new one replaces it.

    Both hold the weights that are trained, `last` with the optimizer.
    """
    trained = [weight for weight in policy.language_model.model.parameters() if weight.requires_grad]
    best: int = sum(weight.numel() for weight in trained) * policy.language_model.published_dtype.itemsize
    last: int = sum(weight.nbytes for weight in trained) + policy.optimizer.state_bytes
    return best + last * (2 if is_renewed else 1)


def restore(policy: Policy, folder: Path) -> None:
    """Weights and optimizer as they were."""
    try:
        load_weights(policy.language_model, folder)
        policy.optimizer.restore(torch.load(folder / OPTIMIZER, map_location="cpu", weights_only=True))
    except InputError:
        raise
    except Exception as error:  # a damaged or malicious file can make torch raise anything
        raise InputError(f"{folder}: the checkpoint cannot be read back: {first_line(error)}") from error


def load_weights(language_model: LanguageModel, folder: Path) -> None:
    """Copy a checkpoint's weights into a loaded model."""
    from safetensors.torch import load_file

    weights: dict[str, torch.Tensor] = {}
    for part in sorted(folder.glob("*.safetensors")):
        weights |= load_file(part)
    model = language_model.model
    info: Any
    if language_model.has_adapter:
        from peft import set_peft_model_state_dict

        info = set_peft_model_state_dict(model, weights)
        missing = [key for key in info.missing_keys if ".lora_" in key]  # the base model's are not in the file
    else:
        info = model.load_state_dict(weights, strict=False)
        tied = (getattr(model, "_tied_weights_keys", None) or ()) if model.config.tie_word_embeddings else ()
        missing = [key for key in info.missing_keys if key not in tied]
    if missing or info.unexpected_keys:
        raise InputError(f"{folder}: does not fit the model: missing {missing}, unexpected {info.unexpected_keys}")
