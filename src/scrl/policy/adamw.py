"""AdamW on float32 master weights; where the working weights are float32 they are the masters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from scrl.errors import InputError
from scrl.policy.optimizer import OTHER_DTYPE, Optimizer
from scrl.policy.settings import BETAS, OptimizerSettings


class MasterAdamW(Optimizer):
    """Collects gradients in float32, steps the masters, and rounds them into the working weights."""

    def __init__(self, weights: Iterable[nn.Parameter], settings: OptimizerSettings, updates: int) -> None:
        super().__init__(settings, updates)
        self._working = [weight for weight in weights if weight.requires_grad]
        self._masters = [
            weight if weight.dtype == torch.float32 else nn.Parameter(weight.detach().float().clone())
            for weight in self._working
        ]
        pairs = zip(self._working, self._masters, strict=True)
        self._copies = [(working, master) for working, master in pairs if working is not master]
        self._adam = torch.optim.AdamW(
            self._masters,
            lr=settings.learning_rate,
            betas=BETAS,
            weight_decay=settings.weight_decay,
            fused=all(master.device.type in ("cpu", "cuda") for master in self._masters),
        )

    @property
    def bytes_to_come(self) -> int:
        """AdamW's two averages, before its first step."""
        return 0 if self._adam.state else self._average_bytes

    @property
    def _average_bytes(self) -> int:
        return 2 * sum(master.nbytes for master in self._masters)

    @property
    def state_bytes(self) -> int:
        """Bytes of `state` after the first step."""
        return self._average_bytes + sum(master.nbytes for _, master in self._copies)

    def expect(self, micro_batches: int) -> None:
        """One pass or many: all are added up."""

    def expect_nothing(self) -> None:
        """Called if there is no backward pass: the gradient is 0, but momentum and decay continue."""
        for master in self._masters:
            master.grad = torch.zeros_like(master)

    def collect(self) -> None:
        """Add the working weights' gradients to the masters' and clear them."""
        for working, master in self._copies:
            if working.grad is not None:
                master.grad = working.grad.float() if master.grad is None else master.grad.add_(working.grad)
                working.grad = None

    def clear(self) -> None:
        """Drop all gradients."""
        for weight in (*self._working, *self._masters):
            weight.grad = None

    def step(self) -> Tensor:
        """One update; the norm of the gradient before it was scaled down."""
        norm: Tensor = torch.nn.utils.clip_grad_norm_(self._masters, self._settings.max_grad_norm)
        for group in self._adam.param_groups:
            group["lr"] = self.learning_rate
        adam: Any = self._adam
        if adam.defaults["fused"]:
            adam.found_inf = (~norm.isfinite()).float()  # where that is 1, fused kernels change nothing
            adam.step()
        elif norm.isfinite():
            adam.step()
        self.update += 1
        self._round()
        self.clear()
        return norm

    @torch.no_grad()
    def _round(self) -> None:
        if self._copies:  # few kernels for all of them
            torch._foreach_copy_([working for working, _ in self._copies], [master for _, master in self._copies])

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs; masters only if they are not the working weights."""
        masters = [master.detach() for _, master in self._copies]
        return {"update": self.update, "adam": self._adam.state_dict(), "masters": masters}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Resume from `state`."""
        if len(state.get("masters", ())) != len(self._copies):
            raise InputError(OTHER_DTYPE)
        self.update = state["update"]
        self._adam.load_state_dict(state["adam"])
        for (_, master), value in zip(self._copies, state["masters"], strict=True):
            master.copy_(value)
        self._round()
