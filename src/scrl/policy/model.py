"""Loading a language model: all its weights, or a low-rank adapter on top of them.

policy_model = load_model("path/or/hub-id", compute, lora=None)
"""

from __future__ import annotations

import contextlib
import os
import warnings
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from scrl.errors import ConfigError, InputError
from scrl.policy.model_paths import adapter_folder, base_of, model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """A model with its tokenizer."""

    name: str
    model: Any
    tokenizer: Any
    device: torch.device
    has_adapter: bool

    @property
    def num_weights(self) -> int:
        """All weights."""
        return sum(weight.numel() for weight in self.model.parameters())


def load_model(
    name: str,
    compute: ComputeSettings,
    *,
    lora: LoraSettings | None = None,
    trust_remote_code: bool = False,
) -> LanguageModel:
    """A causal model by folder, hub id or the name `embedded`; an adapter is put on it where `lora` asks for one.

    The folder of an adapter gives the model it was trained on with the adapter merged into its weights.
    """
    device = pick_device(compute.device)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # where Triton starts its kernels
    dtype = pick_dtype(compute.dtype, device)
    if device.type == "cpu" and dtype == torch.bfloat16:
        # A CPU without bfloat16 instructions takes another path to the same result, and torch warns about it.
        warnings.filterwarnings("ignore", message="mkldnn_matmul failed, switching to BLAS gemm", category=UserWarning)
    needed = weight_bytes(model_folder(name), dtype, trust_remote_code)
    for place in {torch.device("cpu"), device}:  # weights are read into memory first, then moved
        _check_room(name, needed, place)
    model, tokenizer = _load(name, dtype, compute.attention, trust_remote_code)
    remove_dropout(model)
    if lora is not None:
        model = add_adapter(model, lora)
    if compute.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    try:
        model = model.to(device)
    except torch.OutOfMemoryError as error:
        raise _no_room(name, needed, free_bytes(device), device) from error
    return LanguageModel(name, model, tokenizer, device, lora is not None)


ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
"""How torch is told; newer versions also know PYTORCH_ALLOC_CONF."""


def let_segments_grow() -> None:
    """Let torch map memory piece by piece instead of asking the driver for blocks of every size that comes up.

    No two updates have rows of the same lengths, and a block that is a little too small would be asked for anew, which
    takes the driver milliseconds. Whoever has set the variable is not overruled.
    """
    if ALLOCATOR not in os.environ and "PYTORCH_ALLOC_CONF" not in os.environ:
        os.environ[ALLOCATOR] = "expandable_segments:True"


def weight_bytes(folder: str, dtype: torch.dtype, trust_remote_code: bool = False) -> int:
    """What a model's weights take, from its configuration alone; 0 where they are stored in some type of their own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with loading(folder):
        shape = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        if getattr(shape, "quantization_config", None) is not None:
            return 0
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(shape, trust_remote_code=trust_remote_code)
    return int(sum(weight.numel() for weight in model.parameters())) * dtype.itemsize


def free_bytes(device: torch.device) -> int | None:
    """The memory that a device has left; None where it does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    with contextlib.suppress(OSError, StopIteration):  # this file is Linux's
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])
    return None


def _check_room(name: str, needed: int, device: torch.device) -> None:
    free = free_bytes(device)
    if free is not None and needed > free:
        raise _no_room(name, needed, free, device)


def _no_room(name: str, needed: int, free: int | None, device: torch.device) -> InputError:
    has = "has no more room" if free is None else f"has {free / 2**30:.2f} GiB free"
    return InputError(
        f"model: {name} needs about {needed / 2**30:.2f} GiB for its weights alone, and {device} {has}; take a smaller "
        "model, another device (compute.device), or compute.dtype: bfloat16, which takes half of float32"
    )


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model alone."""
    from transformers import AutoTokenizer

    adapter = adapter_folder(name)
    has_own = adapter is not None and (adapter / "tokenizer_config.json").is_file()
    folder = str(adapter) if has_own else model_folder(name)
    with loading(folder):
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)


def _load(name: str, dtype: torch.dtype, attention: str, trust_remote_code: bool) -> tuple[Any, Any]:
    """All weights in memory, those of an adapter merged in, and the tokenizer."""
    adapter = adapter_folder(name)
    if adapter is None:
        model = _load_weights(model_folder(name), dtype, attention, trust_remote_code)
    else:
        base, _ = _load(base_of(adapter), dtype, attention, trust_remote_code)
        model = _merged(base, adapter)
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
    if tokenizer.eos_token_id is None:
        raise InputError(f"model: the tokenizer of {name} has no end-of-text token; set eos_token in its folder")
    return model, tokenizer


def _load_weights(folder: str, dtype: torch.dtype, attention: str, trust_remote_code: bool) -> Any:
    from transformers import AutoModelForCausalLM

    with loading(folder), quiet_progress():
        model, found = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation=attention,
            output_loading_info=True,
            trust_remote_code=trust_remote_code,
        )
    if found["missing_keys"]:
        missing = ", ".join(sorted(found["missing_keys"])[:3])
        raise InputError(f"model: the weights of {folder} are incomplete: {missing} and perhaps more are not there")
    if model.can_generate():
        make_savable(model.generation_config)
    return model


def _merged(base: Any, adapter: Path) -> Any:
    """W + ΔW in place of W, all of it trainable again; it goes by the adapter's name, or one on top would lose it.

    The sum is rounded to the type of the weights: in bfloat16 a ΔW below some 1/500 of W is mostly lost.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ConfigError(
            f"model: {adapter} is an adapter, which needs the package peft. Install it with: pip install 'scrl[train]'"
        ) from error
    with loading(str(adapter)), quiet_progress(), warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")  # where W would stay without its ΔW
        try:
            model: Any = PeftModel.from_pretrained(base, str(adapter), torch_device="cpu").merge_and_unload()
        except UserWarning as error:
            raise ValueError(f"it does not fit its model: {_first_line(error)[:200]}") from error
    model.name_or_path = model.config.name_or_path = str(adapter)
    return model.requires_grad_(True)


def make_savable(generation: Any) -> None:
    """Let numbers for sampling count: beside `do_sample: false` transformers reads them, but refuses to write them.

    At temperature 0 it does not sample; of the likeliest token alone, which is the same, it does.
    """
    if _why_not_savable(generation) and not generation.do_sample:
        generation.do_sample = True
        if generation.temperature == 0:
            generation.temperature, generation.top_k = None, 1


def check_savable(language_model: LanguageModel) -> None:
    """Refuse, before anything is trained, a model that transformers would not write again."""
    model = language_model.model
    if not model.can_generate() or not (reason := _why_not_savable(model.generation_config)):
        return
    raise InputError(
        f"model: {language_model.name}: its generation_config.json can be read, but not be saved with a checkpoint: "
        f"{reason}. Correct that file."
    )


def _why_not_savable(generation: Any) -> str | None:
    try:
        generation.validate(strict=True)
    except ValueError as error:
        return " ".join(str(error).split())[:300]
    return None


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """What transformers raises over a model it cannot load becomes an error that names the model and the reason."""
    try:
        yield
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        raise InputError(f"model: {name} cannot be loaded: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    """The beginning of what an error says, or else its kind."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextlib.contextmanager
def quiet_progress() -> Iterator[None]:
    """Without the progress bars of a library: a run has its own.

    Nor with what peft says of an adapter on a model without a config.json in its place (an adapter's, a hub's when
    offline): that it takes the vocabulary to be as it was, which it is.
    """
    from transformers.utils import logging

    was_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Could not find a config file in")
            yield
    finally:
        if was_shown:
            logging.enable_progress_bar()


def remove_dropout(model: nn.Module) -> None:
    """Switch off the model's own dropout: with it, π would not be the policy that sampled.

    It is a module, or a number that a module keeps (OPT, BLOOM), or one that is read from the configuration in every
    pass (Falcon); so the config.json of what is trained says 0 too. An adapter, whose dropout stays, is added later.
    """
    from transformers import PretrainedConfig

    modules = list(model.modules())
    configs = [module.config for module in modules if isinstance(getattr(module, "config", None), PretrainedConfig)]
    for module in modules:
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for holder in (*modules, *configs):
        for name, value in list(vars(holder).items()):
            if "drop" in name and isinstance(value, float):
                setattr(holder, name, 0.0)


def add_adapter(model: Any, lora: LoraSettings) -> Any:
    """A low-rank adapter on the model; all other weights are frozen."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ConfigError("lora: needs the package peft. Install it with: pip install 'scrl[train]'") from error
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type, unused-ignore]
        lora_dropout=lora.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:  # no module has such a name, or it is of a kind that cannot have an adapter
        raise ConfigError(f"lora.targets: {error}") from error


def device_of(compute: ComputeSettings) -> torch.device:
    """Where a run of the embedded engine computes; its memory grows in place.

    To be asked before anything else uses a GPU: torch reads how to take its memory once. Not beside vLLM, which could
    not give memory back that was taken piece by piece.
    """
    if compute.sampler == "local" and compute.device != "cpu" and torch.cuda.is_available():
        let_segments_grow()
    return pick_device(compute.device)


def pick_device(name: str) -> torch.device:
    """The named device, or the best one there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"compute.device: {name!r} is no device; try auto, cpu or cuda") from error
    try:
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = shorten(_first_line(error), 120, placeholder=" …")  # torch may list all it was built for
        raise ConfigError(f"compute.device: {name!r} cannot be used here: {reason}; see scrl doctor") from error
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The working weights' type: half size on a GPU, full on a CPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.float32 if name == "float32" else torch.bfloat16


def body_and_head(model: Any) -> tuple[nn.Module, nn.Linear] | None:
    """The part that gives hidden states and the linear head on top, where the logits are just head(body).

    None where a model does something else to its logits (a cap, a scale): then the logits are taken from it whole.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head, body = inner.get_output_embeddings(), getattr(inner, inner.base_model_prefix, None)
    config = inner.config.get_text_config()
    if not isinstance(head, nn.Linear) or body is None or getattr(config, "final_logit_softcapping", None):
        return None  # a cap does not show on small logits; everything else shows below
    tokens_13 = torch.arange(3, device=head.weight.device)[None]
    was_training = model.training
    model.eval()
    with torch.no_grad():
        expected = model(input_ids=tokens_13, use_cache=False).logits
        found = head(body(input_ids=tokens_13, use_cache=False).last_hidden_state)
    model.train(was_training)
    is_plain = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-4)
    return (body, head) if is_plain else None
