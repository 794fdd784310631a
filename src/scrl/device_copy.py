"""Numbers on their way between host and device, while the device goes on with what it was told to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor


def stacked(rows_R: Sequence[NDArray[Any]], dtype: DTypeLike) -> NDArray[Any]:
    """Rows of different lengths as one array [R, longest], with zeros behind each."""
    values_RT = np.zeros((len(rows_R), max(map(len, rows_R))), dtype=dtype)
    for row, values_T in enumerate(rows_R):
        values_RT[row, : len(values_T)] = values_T
    return values_RT


def sent(values: NDArray[np.generic], device: torch.device) -> Tensor:
    """To a device. To a GPU by way of memory that it can read itself: other memory waits for all that was begun."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class HostCopy(NamedTuple):
    """A tensor that is good once the event has happened."""

    tensor: Tensor
    event: Any

    def get(self) -> Tensor:
        """The tensor, as soon as it is here."""
        if self.event is not None:
            self.event.synchronize()
        return self.tensor


def host_copy(tensor: Tensor) -> HostCopy:
    """From a device, as it is after what the device was told to do before; nobody waits for it here."""
    if not tensor.is_cuda:
        return HostCopy(tensor.clone(), None)
    copy = tensor.to("cpu", non_blocking=True)  # to pinned memory
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return HostCopy(copy, event)
