"""Arrays → a device, without waiting for what runs there."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def sent(values: NDArray[np.generic], device: torch.device) -> Tensor:
    """On a GPU by way of memory that it can read itself: from other memory a copy waits for all that was begun."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
