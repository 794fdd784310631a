"""Loading a language model: all its weights, or a low-rank adapter on top of them.

policy_model = load_model("path/or/hub-id", compute, lora=None)
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from textwrap import shorten
from typing import Any, Literal

import torch
import xxhash
from torch import nn

from scrl.child_processes import forked
from scrl.errors import ConfigError, InputError, ScrlError, is_panic
from scrl.files.checkpoint_file import check_if_checkpoint
from scrl.policy.model_paths import adapter_folder, base_of, model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings

MAX_LAYERS = 2000
HUB_SECONDS = 5.0
"""Seconds that the hub may take to answer."""
LOAD_SECONDS, LOAD_MEMORY = 10.0, 2**31
"""What loading a config or a tokenizer may take; a tokenizer of 256,000 tokens takes 2 s."""
SMALL_FILES = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
LONGEST_TOKEN = 1000
NOT_OF_THE_MODEL = {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache"}
"""Keys of a config that say where and how a copy was saved."""


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """A model with its tokenizer."""

    name: str
    model: Any
    tokenizer: Any
    device: torch.device
    has_adapter: bool
    published_dtype: torch.dtype = torch.float32
    """The type its weights were published in, whatever they are trained in."""


@contextlib.contextmanager
def in_eval_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """No gradients, and these modules in eval mode; faster than `model.eval()`, which walks all of them."""
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def plain_model(model: Any) -> Any:
    """The causal model without an adapter's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@torch.no_grad()
def model_identity(language_model: LanguageModel) -> str:
    """A fingerprint of weights, config and tokenizer, whatever folder, format or type they come in.

    Those of an adapter on top are left out.
    """
    digest = xxhash.xxh3_128()
    for name, weight in language_model.model.named_parameters():
        if ".lora_" not in name:
            digest.update(f"{name}{tuple(weight.shape)}".encode())
            digest.update(weight.detach().to(torch.bfloat16).contiguous().cpu().view(torch.int16).numpy())
    config, tokenizer = plain_model(language_model.model).config.to_dict(), language_model.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    rest = (
        {key: config[key] for key in config.keys() - NOT_OF_THE_MODEL},
        tokenizer.get_vocab() if backend is None else backend.to_str(),
        tokenizer.chat_template,
    )
    digest.update(json.dumps(rest, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def load_model(
    name: str, compute: ComputeSettings, *, lora: LoraSettings | None = None, trust_remote_code: bool = False
) -> LanguageModel:
    """A causal model by folder, hub id or the name `embedded`, with a new adapter if `lora` asks for one.

    The folder of an adapter gives the model it was trained on with the adapter merged into its weights.
    """
    device = pick_device(compute.device)
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # Triton launches its kernels there
    dtype = pick_dtype(compute.dtype, device)
    if device.type == "cpu" and dtype == torch.bfloat16:
        # On a CPU without bfloat16 instructions torch computes the same in another way, and warns about it.
        warnings.filterwarnings("ignore", message="mkldnn_matmul failed, switching to BLAS gemm", category=UserWarning)
    check_if_checkpoint(Path(name).expanduser())
    shape = model_shape(model_folder(name), trust_remote_code)
    needed = 0  # where weights are quantized: their size is not known
    if getattr(shape, "quantization_config", None) is None:
        needed = empty_model(shape, trust_remote_code).num_parameters() * dtype.itemsize
    _check_files(Path(model_folder(name)), needed // dtype.itemsize)
    for place in {torch.device("cpu"), device}:  # weights are read into memory first, then moved
        free = memory_of(place, "free")
        if free is not None and needed > free:
            raise _no_room(name, needed, free, place)
    model, tokenizer = _load(name, dtype, trust_remote_code)
    remove_dropout(model)
    if lora is not None:
        model = add_adapter(model, lora)
    if compute.gradient_checkpointing:
        recompute_activations(model)
    try:
        model = model.to(device)
    except torch.OutOfMemoryError as error:
        raise _no_room(name, needed, memory_of(device, "free"), device) from error
    return LanguageModel(name, model, tokenizer, device, lora is not None, published_dtype(shape))


def _check_files(folder: Path, weights: int) -> None:
    """Refuse a folder whose files cannot hold the weights of its config, before memory is taken for them."""
    held = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if 0 < held < weights:  # a byte each is the least; there are none on the hub, or in a folder of pickles
        raise InputError(
            f"model: {folder}: its config.json describes {weights:,} weights, and its files have {held:,} bytes; is "
            "the download complete, and the config its own?"
        )


def recompute_activations(model: Any) -> None:
    """Gradient checkpointing: each layer's activations are computed again in the backward pass, not kept."""
    try:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    except ValueError as error:  # not all models can
        raise ConfigError(f"compute.gradient_checkpointing: {first_line(error)} Set it to false.") from error
    model.enable_input_require_grads()


def model_shape(folder: str, trust_remote_code: bool = False) -> Any:
    """The configuration of a model."""
    from transformers import AutoConfig

    with loading(folder):
        if not trust_remote_code:  # a number of labels or layers is a list of them
            _rehearse(AutoConfig, folder)
        shape = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        layers = getattr(shape, "num_hidden_layers", None)
        if layers is not None and not 1 <= layers <= MAX_LAYERS:
            raise ValueError(f"its config.json asks for {layers:,} layers; 1 to {MAX_LAYERS:,} are possible")
        return shape


def published_dtype(shape: Any) -> torch.dtype:
    """The type of a model's weights as its configuration says it; else float32, which loses nothing."""
    return shape.dtype or shape.get_text_config().dtype or torch.float32


def empty_model(shape: Any, trust_remote_code: bool = False) -> Any:
    """A model of this shape whose weights take no memory."""
    from transformers import AutoModelForCausalLM

    with loading(shape.name_or_path), torch.device("meta"):
        return AutoModelForCausalLM.from_config(shape, trust_remote_code=trust_remote_code)


def memory_of(device: torch.device, which: Literal["free", "all"]) -> int | None:
    """The free memory of a device in bytes, or all of it; None if that is unknown."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[which == "all"])
    if device.type != "cpu":
        return None
    with contextlib.suppress(OSError, StopIteration):  # only Linux has this file
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        name = "MemTotal:" if which == "all" else "MemAvailable:"
        return 1024 * int(next(line for line in lines if line.startswith(name)).split()[1])
    return None


def _no_room(name: str, needed: int, free: int | None, device: torch.device) -> InputError:
    has = "has no more room" if free is None else f"has {free / 2**30:.2f} GiB free"
    return InputError(
        f"model: {name} needs about {needed / 2**30:.2f} GiB for its weights alone, and {device} {has}; take a smaller "
        "model, another device (compute.device), or compute.dtype: bfloat16, which takes half of float32"
    )


def load_tokenizer(name: str, *, trust_remote_code: bool = False) -> Any:
    """The tokenizer of a model; an adapter's folder may have one too."""
    from transformers import AutoTokenizer

    adapter = adapter_folder(name)
    has_own = adapter is not None and (adapter / "tokenizer_config.json").is_file()
    folder = str(adapter) if has_own else model_folder(name)
    with loading(folder):
        if not trust_remote_code:  # what a tokenizer does to texts it does to its tokens as it is loaded
            _rehearse(AutoTokenizer, folder)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
        _check_decoding(tokenizer)
        return tokenizer


def _rehearse(kind: Any, folder: str) -> None:
    """Load a config or a tokenizer where it can be stopped, before it is loaded here."""
    place = folder
    if not Path(folder).is_dir():
        from huggingface_hub import snapshot_download

        place = snapshot_download(folder, allow_patterns=SMALL_FILES)
    forked(lambda: bool(kind.from_pretrained(place)), LOAD_SECONDS, LOAD_MEMORY)


def _check_decoding(tokenizer: Any) -> None:
    """Refuse a tokenizer whose tokens could make texts without end: they are decoded throughout a run."""
    if longest := next((token for token in tokenizer.get_vocab() if len(token) > LONGEST_TOKEN), None):
        raise ValueError(f"a token has {len(longest):,} characters; at most {LONGEST_TOKEN:,} are possible")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and backend.decoder is not None:
        json.loads(backend.decoder.__getstate__(), object_hook=_check_decoder)


def _check_decoder(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "Replace":
        text, other = part["pattern"].get("String", ""), part["content"]
        if len(text) < len(other):
            raise ValueError(f"its decoder replaces {text or 'a pattern'!r:.80} by {other!r:.80}, which may be longer")
    return part


def _load(name: str, dtype: torch.dtype, trust_remote_code: bool) -> tuple[Any, Any]:
    """The model in CPU memory, with an adapter merged in, and the tokenizer."""
    adapter = adapter_folder(name)
    if adapter is None:
        model = _load_weights(model_folder(name), dtype, trust_remote_code)
    else:
        base, _ = _load(base_of(adapter), dtype, trust_remote_code)
        model = _merge(base, adapter)
    tokenizer = load_tokenizer(name, trust_remote_code=trust_remote_code)
    if tokenizer.eos_token_id is None:
        raise InputError(f"model: the tokenizer of {name} has no end-of-text token; set eos_token in its folder")
    generation, size = getattr(model, "generation_config", None), model.config.get_text_config().vocab_size
    ends = getattr(generation, "eos_token_id", None)
    for end in (tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends] if ends is not None else [])):
        if type(end) is not int or not 0 <= end < size:
            reason = f"eos_token_id must be tokens of the model, from 0 to {size - 1}; found {end!r:.50}"
            raise InputError(f"model: {name}: {reason}")
    return model, tokenizer


def _load_weights(folder: str, dtype: torch.dtype, trust_remote_code: bool) -> Any:
    from transformers import AutoModelForCausalLM

    with loading(folder), quiet_progress():
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", output_loading_info=True,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
    if info["missing_keys"]:
        missing = ", ".join(sorted(info["missing_keys"])[:3])
        raise InputError(f"model: the weights of {folder} are incomplete: {missing} and perhaps more are not there")
    if model.can_generate():
        make_savable(model.generation_config)
    if Path(folder).is_dir():  # what an adapter will name as its base, to be found from any folder
        model.name_or_path = model.config.name_or_path = str(Path(folder).absolute())
    return model


def _merge(base: Any, adapter: Path) -> Any:
    """W + ΔW in place of W, all of it trainable again.

    The sum is rounded to the type of the weights: in bfloat16 a ΔW below about 1/500 of W is mostly lost.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ConfigError(f"model: {adapter} is an adapter and needs peft: pip install 'scrl[train]'") from error
    with loading(str(adapter)), quiet_progress(), warnings.catch_warnings():
        warnings.filterwarnings("error", "Found missing adapter keys")  # some W would be left without its ΔW
        try:
            wrapped: Any = PeftModel.from_pretrained(base, str(adapter), torch_device="cpu", low_cpu_mem_usage=True)
            model = wrapped.merge_and_unload()
        except UserWarning as error:
            raise ValueError(f"it does not fit its model: {first_line(error)[:200]}") from error
    model.name_or_path = model.config.name_or_path = str(adapter.absolute())  # as in _load_weights
    return model.requires_grad_(True)


@contextlib.contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn what transformers raises over a model it cannot load into an error with the model's name and the reason."""
    try:
        with offline_without_hub(name):
            yield
    except ScrlError:
        raise
    except BaseException as error:  # a damaged or hostile folder can make transformers raise anything
        if not (isinstance(error, Exception) or is_panic(error)):
            raise
        if isinstance(error.__context__, KeyboardInterrupt):  # torch's own cleaning up fails if it is stopped in it
            raise error.__context__ from None
        is_offline = "outgoing traffic has been disabled" in str(error)  # by `offline_without_hub`, or by the user
        why = "the hub cannot be reached, and it was not downloaded before." if is_offline else first_line(error)
        reason = f"model: {name} cannot be loaded: {why}"
        if not Path(name).expanduser().exists():
            reason += " Check the name and the network, or give a folder: --model ./folder"
        raise InputError(reason) from error


@contextlib.contextmanager
def offline_without_hub(name: str) -> Iterator[None]:
    """Offline mode for a hub id if the hub cannot be reached: its client would keep asking for a minute.

    What was downloaded before is still found.
    """
    from huggingface_hub import constants, get_session

    before = constants.HF_HUB_OFFLINE
    if not (before or Path(name).expanduser().exists()):
        try:
            get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
        except Exception:  # each version of the hub's package has its own HTTP client, with its own errors
            constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def first_line(error: BaseException) -> str:
    """An error's first line, or its type's name; never torch's words on pickles, which say how to run their code."""
    if isinstance(error, UnpicklingError):
        return "a pickle in it is damaged, or holds code, which is never run; restore it, or take *.safetensors"
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextlib.contextmanager
def quiet_progress() -> Iterator[None]:
    """Hide the progress bars of transformers: a run has its own.

    Also peft's warning that it found no config.json of the base model (whose folder is an adapter's, or on the hub
    while offline) and assumes an unchanged vocabulary, which is true here.
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


def make_savable(generation: Any) -> None:
    """Set `do_sample`: without it transformers reads settings for sampling, but refuses to write them.

    It refuses to sample at temperature 0, too; top_k 1, which gives the same, it accepts.
    """
    if _why_not_savable(generation) and not generation.do_sample:
        generation.do_sample = True
        if generation.temperature == 0:
            generation.temperature, generation.top_k = None, 1


def check_savable(name: str, model: Any) -> None:
    """Refuse, before anything is trained, a model that transformers would refuse to save."""
    if model.can_generate() and (reason := _why_not_savable(model.generation_config)):
        raise InputError(f"model: {name}: its generation_config.json cannot be saved: {reason}. Correct that file.")


def _why_not_savable(generation: Any) -> str | None:
    try:
        generation.validate(strict=True)
    except ValueError as error:
        return " ".join(str(error).split())[:300]
    return None


def remove_dropout(model: nn.Module) -> None:
    """Switch off the model's own dropout: with it, π would not be the policy that sampled.

    It may be a module, a number in a module (OPT, BLOOM), or one read from the configuration in every pass (Falcon); so
    the saved config.json says 0 too.
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
        raise ConfigError("lora: needs peft: pip install 'scrl[train]'") from error
    config = LoraConfig(r=lora.rank, lora_alpha=2 * lora.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, config, autocast_adapter_dtype=False)  # the masters are the optimizer's


def pick_device(name: str) -> torch.device:
    """The named device, or the best one there is."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"compute.device: {name!r} is not a device; try auto, cpu or cuda") from error
    try:
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = shorten(first_line(error), 120, placeholder=" …")  # torch may list everything it was built for
        raise ConfigError(f"compute.device: {name!r} cannot be used here: {reason}; see scrl doctor") from error
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The type of the working weights: with `auto` bfloat16 on a GPU, float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.float32 if name == "float32" else torch.bfloat16
