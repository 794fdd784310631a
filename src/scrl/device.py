"""What keeps a device from waiting: copies that return at once, and attention that plans nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


def pad_rows(rows_R: Sequence[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    """Rows of different lengths as one array [R, longest], padded with zeros on the right."""
    values_RT = np.zeros((len(rows_R), max(map(len, rows_R))), dtype=dtype)
    for row, values_T in enumerate(rows_R):
        values_RT[row, : len(values_T)] = values_T
    return values_RT


def to_device(values: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy to a device; to a GPU from pinned memory, since any other copy waits for all work already queued."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class HostCopy(NamedTuple):
    """A tensor on the host that is valid once the event has happened."""

    tensor: Tensor
    event: Any

    def wait(self) -> Tensor:
        """The tensor, once the copy has finished."""
        if self.event is not None:
            self.event.synchronize()
        return self.tensor


def copy_to_host(tensor: Tensor) -> HostCopy:
    """Start a copy of the tensor as it is after the work already queued; returns at once."""
    if not tensor.is_cuda:
        return HostCopy(tensor.clone(), None)
    copy = tensor.to("cpu", non_blocking=True)  # to pinned memory
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return HostCopy(copy, event)


def attention_without_cudnn() -> AbstractContextManager[None]:
    """SDPA by any kernel but cuDNN's, which is faster once planned, but planning takes 80 ms for every new length."""
    return sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH])
