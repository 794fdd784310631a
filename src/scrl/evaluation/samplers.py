"""The sampler that `compute.sampler` names, on a model that is loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from scrl.policy.model import LanguageModel, pick_device
from scrl.policy.model_places import model_folder
from scrl.policy.scoring import scorer
from scrl.policy.settings import ComputeSettings
from scrl.rollout.local import LocalSampler
from scrl.rollout.sampler import Sampler
from scrl.rollout.vllm import VllmSampler, refuse_more
from scrl.rollout.vllm_engine import engine_options, require_vllm, start_engine


def check_sampler(compute: ComputeSettings) -> None:
    """Refuse a sampler that cannot run here, before a model is loaded."""
    if compute.sampler == "vllm":
        require_vllm(pick_device(compute.device))


def open_sampler(
    language_model: LanguageModel,
    compute: ComputeSettings,
    *,
    max_length: int,
    seed: int,
    record: Collection[str] = (),
    trust_remote_code: bool = False,
    on_fewer: Callable[[str], None] | None = None,
) -> Sampler:
    """`max_length` tokens at most have a prompt and its completion together, as far as the model goes."""
    model, tokenizer = language_model.model, language_model.tokenizer
    if compute.sampler == "local":
        return LocalSampler(model, tokenizer, max_rows=compute.sampler_rows, record=record, on_fewer=on_fewer)
    refuse_more(record)
    options = engine_options(
        model_folder(language_model.name),
        next(model.parameters()).dtype,
        rows=compute.sampler_rows,
        cache_bytes=int(compute.vllm_memory * torch.cuda.get_device_properties(language_model.device).total_memory),
        max_length=min(max_length, _positions(model)),
        seed=seed,
        trust_remote_code=trust_remote_code,
    )
    engine = start_engine(model, options)
    return VllmSampler(engine, model, tokenizer, scorer(model), max_rows=compute.sampler_rows)


def _positions(model: Any) -> int:
    """How many tokens the model can look back over."""
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31)
