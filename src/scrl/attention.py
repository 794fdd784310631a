"""Attention for lengths that come once."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch.nn.attention import SDPBackend, sdpa_kernel

UNPLANNED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def unplanned_attention() -> AbstractContextManager[None]:
    """SDPA by any kernels but cuDNN's: those are faster once they are planned, which takes 80 ms for every length."""
    return sdpa_kernel(UNPLANNED)
