"""The optimizer that the settings ask for; neither is imported before it is opened."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from scrl.policy.optimizer import Optimizer
from scrl.policy.settings import OptimizerSettings


def open_optimizer(
    weights: Iterable[nn.Parameter], settings: OptimizerSettings, updates: int, *, has_adapter: bool = False
) -> Optimizer:
    """The optimizer that the settings and the weights ask for.

    Masters are split, except for weights in float32, which are their own, and those of an adapter: float32 copies of
    these take little, and all its hundreds of small weights are stepped in a few kernels.
    """
    weights = list(weights)
    is_float32 = all(weight.dtype == torch.float32 for weight in weights if weight.requires_grad)
    is_whole = is_float32 or has_adapter
    if is_whole and settings.state == "float32":
        from scrl.policy.adamw import MasterAdamW

        return MasterAdamW(weights, settings, updates)
    from scrl.policy.low_memory_adamw import LowMemoryAdamW

    return LowMemoryAdamW(weights, settings, updates, is_split=not is_whole)
