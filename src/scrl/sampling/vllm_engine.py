"""One vLLM instance in this process, on the policy's GPU: started, given the policy's weights, put to sleep.

    engine = start_engine(model, engine_options(folder, ...))
    engine.wake()                        map memory, copy the model's current weights, drop old caches
    engine.finished(prompts, params)     completions, prompt by prompt as they finish
    engine.sleep()                       give weights and cache back to the trainer

It starts with the configuration in the model's folder and random weights (load_format="dummy"), and the policy's are
copied over them at the first wake. A weight that never arrived would go unnoticed if vLLM had read the folder's; a
random one shows at once in the self-check.

A sleep of level 2 drops the weights as well as the cache, so every wake copies all of them and none is stale.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from scrl.errors import ConfigError, TrainingError
from scrl.optional_deps import require_extra
from scrl.policy.model import plain_model
from scrl.records import Tokens

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # in this process: weights are handed over by reference
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""Read by vLLM when it starts; the first is required, the others are defaults."""


def require_vllm(device: torch.device) -> None:
    """Refuse vLLM where it cannot run, before anything is loaded."""
    require_extra("vllm", "compute.sampler")
    if device.type != "cuda":
        raise ConfigError(f"compute.sampler: vllm needs an NVIDIA GPU, and this run is on {device}; use local")
    if device.index:
        raise ConfigError(
            f"compute.device: vllm takes the first GPU it sees, not {device}. Leave it at auto, and set "
            f"CUDA_VISIBLE_DEVICES={device.index} in the environment."
        )


def engine_options(
    folder: str,
    dtype: torch.dtype,
    *,
    rows: int,
    cache_bytes: int,
    max_length: int,
    seed: int,
    trust_remote_code: bool = False,
) -> dict[str, Any]:
    """The arguments of vllm.LLM.

    The cache has a size in bytes, so that vLLM does not measure free memory while the trainer holds some. There is no
    tokenizer: prompts are tokens, and texts are decoded here. Log-probabilities are of softmax(logits / T), like ours.
    """
    return {
        "model": folder,
        "load_format": "dummy",
        "dtype": str(dtype).removeprefix("torch."),
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "enable_prefix_caching": True,
        "enable_sleep_mode": True,
        "logprobs_mode": "processed_logprobs",
        "kv_cache_memory_bytes": cache_bytes,
        "gpu_memory_utilization": 0.01,  # unused with a cache in bytes, but still checked against free memory
        "max_model_len": max_length,
        "max_num_seqs": rows,
        "seed": seed,
        "trust_remote_code": trust_remote_code,
    }


def start_engine(model: nn.Module, options: Mapping[str, Any]) -> VllmEngine:
    """Start vLLM and put it to sleep; its own error is passed on."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    try:
        from vllm import LLM

        llm = LLM(**options)
    except (ImportError, ValueError, RuntimeError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ConfigError(
            f"compute.sampler: vLLM could not be started: {reason}. Lower compute.vllm_memory where memory is short, "
            "or use local."
        ) from error
    engine = VllmEngine(llm, model)
    engine.sleep()
    return engine


class VllmEngine:
    """A running vllm.LLM and the model whose weights it draws from."""

    def __init__(self, llm: Any, model: nn.Module) -> None:
        """`llm` is awake, as after its start, with its own random weights."""
        self._llm = llm
        self._model = model
        self._is_awake = True

    def wake(self) -> None:
        """Make it draw from the model as it is now."""
        if self._is_awake:
            return
        free_cached_memory()
        self._llm.wake_up(tags=["weights"])  # otherwise loading would write to unmapped memory
        [missing] = self._llm.apply_model(partial(load_weights, weights=merged_weights(self._model)))
        if missing:
            raise TrainingError(
                f"compute.sampler: vLLM has weights that the policy did not give it ({', '.join(missing[:3])}). Use "
                "local."
            )
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # vLLM draws on another stream
        self._llm.wake_up(tags=["kv_cache"])
        self._llm.reset_prefix_cache()
        self._is_awake = True

    def sleep(self) -> None:
        """Give weights and cache back."""
        if self._is_awake:
            self._llm.sleep(level=2)
            self._is_awake = False
            free_cached_memory()

    def finished(self, prompts_B: Sequence[Tokens], params_B: Sequence[Any]) -> Iterator[tuple[int, list[Any]]]:
        """(index of the prompt, its completions), in the order in which prompts finish."""
        inputs = [{"prompt_token_ids": tokens_P.tolist()} for tokens_P in prompts_B]
        ids = self._llm.enqueue(inputs, list(params_B), use_tqdm=False)
        prompt_of = {request_id.split("-")[0]: prompt for prompt, request_id in enumerate(ids)}  # "17-3f9a…" → "17"
        engine = self._llm.llm_engine
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished and output.request_id in prompt_of:
                    yield prompt_of[output.request_id], output.outputs


def load_weights(inner: Any, weights: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Copy weights into vLLM's model, which fuses q, k, v and gate, up itself; the names of those that are missing."""
    with torch.no_grad():
        loaded = inner.load_weights(weights)
    return sorted({name for name, _ in inner.named_parameters()} - set(loaded))


def merged_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A model's weights by their names in its checkpoint; with an adapter W + ΔW, merged one at a time.

    W + ΔW is rounded to W's type, so with bf16 weights and a young adapter vLLM draws from nearly the start model;
    log-probabilities and ratios are still the policy's.
    """
    plain = plain_model(model)
    layers = dict(plain.named_modules())
    for name, weight in plain.named_parameters():
        if ".lora_" in name:
            continue
        layer_name, is_wrapped, own_name = name.partition(".base_layer.")
        if is_wrapped and own_name == "weight":
            layer = layers[layer_name]
            deltas = (layer.get_delta_weight(adapter) for adapter in layer.active_adapters)
            yield f"{layer_name}.{own_name}", sum(deltas, start=weight.detach()).to(weight.dtype)
        else:
            yield name.replace(".base_layer.", "."), weight.detach()


def free_cached_memory() -> None:
    """Free the memory that torch caches, which vLLM cannot use."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
