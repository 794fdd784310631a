"""Attention over sequence lengths that are not seen again."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel


def attention_without_cudnn() -> AbstractContextManager[None]:
    """SDPA by any kernel but cuDNN's, which is faster once planned, but planning takes 80 ms for every new length."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
