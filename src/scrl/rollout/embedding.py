"""Texts → vectors by a small language model, for methods that ask how alike completions are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from scrl.errors import InputError
from scrl.records import Floats

Embed = Callable[[Sequence[str]], Floats]


def load_embedder(settings: Any, device: torch.device) -> Embed:
    """The model that `settings.embedding` names: the mean of its last hidden states, scaled to length 1."""
    from transformers import AutoModel, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.embedding)
        model = AutoModel.from_pretrained(settings.embedding).to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"credit.embedding: {settings.embedding} cannot be loaded: {reason}") from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> Floats:
        inputs = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True, max_length=2048).to(device)
        hidden_BTE = model(**inputs).last_hidden_state.float()
        mask_BT1 = inputs["attention_mask"][:, :, None]
        mean_BE = (hidden_BTE * mask_BT1).sum(dim=1) / mask_BT1.sum(dim=1)
        vectors: Floats = torch.nn.functional.normalize(mean_BE, dim=-1).double().cpu().numpy()
        return vectors

    return embed
