"""Which model this is: a fingerprint of its weights, whatever folder, file format or type of numbers they come in."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

SAMPLED = 4096
"""Numbers of each weight that are looked at; another model differs in nearly all."""


@torch.no_grad()
def model_identity(model: nn.Module) -> str:
    """The same text for the same weights; an adapter on top of them does not count."""
    digest = hashlib.blake2b(digest_size=16)
    for name, weight in model.named_parameters():
        if ".lora_" in name:
            continue
        flat_n = weight.detach().reshape(-1)
        some_n = flat_n[:: max(1, len(flat_n) // SAMPLED)].to(torch.bfloat16).cpu()
        digest.update(f"{name}{tuple(weight.shape)}".encode())
        digest.update(some_n.view(torch.int16).numpy().tobytes())
    return digest.hexdigest()
