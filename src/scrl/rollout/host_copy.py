"""Tensors on their way from the device to the host, while the device goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, cuda


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
    """Ask for a tensor as it is after what the device was told to do before; nobody waits for it here."""
    if not tensor.is_cuda:
        return HostCopy(tensor.clone(), None)
    copy = tensor.to("cpu", non_blocking=True)  # to pinned memory
    event = cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return HostCopy(copy, event)
