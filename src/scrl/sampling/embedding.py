"""Texts → vectors by a small language model, for methods that compare completions by similarity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from scrl.errors import InputError
from scrl.policy.model import offline_without_hub
from scrl.records import Floats

Embed = Callable[[Sequence[str]], Floats]
MAX_TOKENS = 2048
"""Longer texts are cut."""
BATCH = 16


def load_embedder(settings: Any, device: torch.device) -> Embed:
    """The model that `settings.embedding` names: the mean of its last hidden states, scaled to length 1.

    A text without tokens has the vector 0.
    """
    from transformers import AutoModel, AutoTokenizer

    try:
        with offline_without_hub(settings.embedding):
            tokenizer = AutoTokenizer.from_pretrained(settings.embedding)
            model = AutoModel.from_pretrained(settings.embedding).to(device).eval()
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"credit.embedding: {settings.embedding} cannot be loaded: {reason}") from error
    longest = min(MAX_TOKENS, getattr(model.config, "max_position_embeddings", None) or MAX_TOKENS)

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> Floats:
        tokens_B = [tokenizer(text, truncation=True, max_length=longest)["input_ids"] for text in texts]
        vectors_BE = np.zeros((len(texts), model.config.hidden_size))
        filled = [place for place, tokens in enumerate(tokens_B) if tokens]
        for first in range(0, len(filled), BATCH):
            places = filled[first : first + BATCH]
            vectors_BE[places] = _mean_states(model, [tokens_B[place] for place in places], device)
        return vectors_BE

    return embed


def _mean_states(model: Any, tokens_B: Sequence[Sequence[int]], device: torch.device) -> Floats:
    """(1/T) Σ_t hidden_t, scaled to length 1; padding, on the right, is masked."""
    padded_BT = pad_sequence([torch.tensor(tokens) for tokens in tokens_B], batch_first=True).to(device)
    lengths_B = torch.tensor([len(tokens) for tokens in tokens_B], device=device)
    mask_BT = torch.arange(padded_BT.shape[1], device=device) < lengths_B[:, None]
    hidden_BTE = model(input_ids=padded_BT, attention_mask=mask_BT.long()).last_hidden_state.float()
    mean_BE = (hidden_BTE * mask_BT[:, :, None]).sum(dim=1) / lengths_B[:, None]
    vectors_BE: Floats = normalize(mean_BE, dim=-1).cpu().double().numpy()
    return vectors_BE
