"""AdamW in fewer bytes, with the same float32 masters.

| bytes per weight of a bfloat16 model | `MasterAdamW` | here                                                       |
|--------------------------------------|---------------|------------------------------------------------------------|
| working weights                      | 2             | 2                                                          |
| masters                              | 4             | 4, or 2: split, see below                                  |
| gradient                             | 4 + 2         | 2 where an update is one backward pass, 4 where it is more |
| AdamW's averages                     | 8             | 8, or 4: bfloat16                                          |

Split masters: a float32 has 32 bits, and the working weight already holds its upper half. With u the bits of the master
as an integer, the working weight is h = ⌊(u + 2¹⁵) / 2¹⁶⌋ (the nearest bfloat16) and the rest u − 2¹⁶ h is kept in 16
bits: together they are the master, to the last bit.

Averages in bfloat16: v ← β₂ v + (1 − β₂) g² changes v by 0.1 % at β₂ = 0.999, less than half the distance of two
bfloat16 numbers (0.4 to 0.8 %), so rounding to the nearest would never let v fall. They are rounded stochastically
instead, which keeps their expectation; the draws depend only on the number of the update.

On a GPU a step is one kernel per weight (`scrl.policy.adam_kernel`). Elsewhere it goes over each weight in chunks, so
that nothing in float32 is ever as large as the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from scrl.errors import InputError
from scrl.policy.optimizer import OTHER_DTYPE, Optimizer
from scrl.policy.settings import BETAS, OptimizerSettings

CHUNK = 2**25
"""Weights at a time: 128 MiB for each of their float32 numbers."""
EPSILON = 1e-8


class LowMemoryAdamW(Optimizer):
    """Adds up gradients as they come, and steps the weights one after the other."""

    def __init__(
        self, weights: Iterable[nn.Parameter], settings: OptimizerSettings, updates: int, *, is_split: bool
    ) -> None:
        super().__init__(settings, updates)
        dtype = getattr(torch, settings.state)
        self._weights = [_Weight(weight, is_split, dtype) for weight in weights if weight.requires_grad]
        self._is_sum = True
        for weight in self._weights:
            if weight.working.dtype != torch.float32:
                parameter: Any = weight.working
                parameter.register_post_accumulate_grad_hook(lambda _, weight=weight: self._add(weight))

    def expect(self, micro_batches: int) -> None:
        """The gradient of a single backward pass stays as autograd leaves it."""
        self._is_sum = micro_batches > 1

    def expect_nothing(self) -> None:
        """Called if there is no backward pass: the gradient is 0, but momentum and decay continue."""
        for weight in self._weights:
            weight.working.grad = torch.zeros_like(weight.working)

    def _add(self, weight: _Weight) -> None:
        """Add a gradient to the sum as soon as it is complete, so that those of all weights never exist twice."""
        grad = weight.working.grad
        if self._is_sum and grad is not None:
            weight.grad = grad.float() if weight.grad is None else weight.grad.add_(grad)
            weight.working.grad = None

    def collect(self) -> None:
        """Nothing is left to do: hooks add up gradients as they come."""

    def clear(self) -> None:
        """Drop all gradients."""
        for weight in self._weights:
            weight.grad = weight.working.grad = None

    @torch.no_grad()
    def step(self) -> Tensor:
        """One update; the norm of the gradient before it was scaled down."""
        grads = [grad for weight in self._weights if (grad := weight.gradient) is not None]
        norms = [*torch._foreach_norm(grads, dtype=torch.float32)] if grads else []  # few kernels for all of them
        norm = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
        is_kernel = norm.is_cuda and find_spec("triton") is not None
        step = self._step_by_kernel if is_kernel else self._step_by_chunks
        norm = norm if is_kernel else norm.cpu()
        scale = (self._settings.max_grad_norm / (norm.double() + 1e-6)).clamp(max=1.0)
        scale = torch.where(norm.isfinite(), scale, math.nan)
        for number, weight in enumerate(self._weights):
            if (grad := weight.gradient) is not None:
                step(weight, grad.flatten(), scale, seed=self.update << 20 | number)
                weight.grad = weight.working.grad = None
        self.update += 1
        return norm

    def _step_by_kernel(self, weight: _Weight, grad_n: Tensor, scale: Tensor, seed: int) -> None:
        from scrl.policy.adam_kernel import adam_step

        settings = self._settings
        adam_step(
            weight.flat_n, weight.rest, weight.means, weight.squares, grad_n, scale=scale,
            learning_rate=self.learning_rate, betas=BETAS, weight_decay=settings.weight_decay, epsilon=EPSILON,
            update=self.update + 1, seed=seed,
        )  # fmt: skip

    def _step_by_chunks(self, weight: _Weight, grad_n: Tensor, scale: Tensor, seed: int) -> None:
        if scale.isnan():
            return
        settings = self._settings
        random = torch.Generator(grad_n.device).manual_seed(seed)
        before = torch.tensor(float(self.update), device=grad_n.device)
        for part in weight.parts():
            master_n = weight.master(part)
            mean_n, square_n = weight.means[part].float(), weight.squares[part].float()
            adamw(
                [master_n], [grad_n[part].float() * float(scale)], [mean_n], [square_n], [], [before.clone()],
                fused=grad_n.device.type in ("cpu", "cuda"), amsgrad=False, maximize=False, eps=EPSILON,
                beta1=BETAS[0], beta2=BETAS[1], lr=self.learning_rate,
                weight_decay=settings.weight_decay,
            )  # fmt: skip
            weight.keep(part, master_n)
            if weight.means.dtype != torch.float32:
                weight.means[part] = round_stochastically(mean_n, random)
                weight.squares[part] = round_stochastically(square_n, random)

    @property
    def state_bytes(self) -> int:
        """Bytes of `state`."""
        parts = (part for weight in self._weights for part in (weight.rest, weight.means, weight.squares))
        return sum(part.nbytes for part in parts if part is not None)

    def state(self) -> dict[str, Any]:
        """Everything a resumed run needs besides the working weights."""
        lists = {name: [getattr(weight, name) for weight in self._weights] for name in ("rest", "means", "squares")}
        return {"update": self.update, **lists}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Resume from `state`; the working weights are as they were then."""
        if [rest is None for rest in state.get("rest", ())] != [weight.rest is None for weight in self._weights]:
            raise InputError(OTHER_DTYPE)
        self.update = state["update"]
        for name in ("rest", "means", "squares"):
            for weight, value in zip(self._weights, state[name], strict=True):
                if value is not None:
                    getattr(weight, name).copy_(value)


class _Weight:
    """A trained weight with what its updates need; everything but the weight itself is flat."""

    def __init__(self, working: nn.Parameter, is_split: bool, dtype: torch.dtype) -> None:
        self.working = working
        self.rest: Tensor | None = None
        """int16: what the working weight lacks; float32: the master; None if the working weight is the master."""
        if working.dtype == torch.bfloat16 and is_split:
            self.rest = torch.zeros_like(self.flat_n, dtype=torch.int16)
        elif working.dtype != torch.float32:
            self.rest = self.flat_n.float()
        self.means = torch.zeros_like(self.flat_n, dtype=dtype)
        self.squares = torch.zeros_like(self.flat_n, dtype=dtype)
        self.grad: Tensor | None = None
        """The sum over micro-batches, float32."""

    @property
    def flat_n(self) -> Tensor:
        """The working weight in its current memory: a sampler may have moved it."""
        return self.working.detach().view(-1)

    @property
    def gradient(self) -> Tensor | None:
        return self.working.grad if self.grad is None else self.grad

    def parts(self) -> Iterator[slice]:
        return (slice(first, first + CHUNK) for first in range(0, len(self.flat_n), CHUNK))

    def master(self, part: slice) -> Tensor:
        """The float32 master of a part of the weight."""
        if self.rest is None:
            return self.flat_n[part]
        return join_halves(self.flat_n[part], self.rest[part]) if self.rest.dtype == torch.int16 else self.rest[part]

    def keep(self, part: slice, master_n: Tensor) -> None:
        """Store the new master; if `master` gave a view of it, it is stored already."""
        if self.rest is not None and self.rest.dtype == torch.int16:
            self.flat_n[part], self.rest[part] = split_halves(master_n)
        elif self.rest is not None:
            self.flat_n[part] = master_n


def split_halves(master_n: Tensor) -> tuple[Tensor, Tensor]:
    """(the nearest bfloat16, what it lacks as int16) of float32 numbers."""
    bits_n = master_n.view(torch.int32)
    upper_n = (bits_n + 2**15) >> 16
    return upper_n.to(torch.int16).view(torch.bfloat16), (bits_n - (upper_n << 16)).to(torch.int16)


def join_halves(weight_n: Tensor, rest_n: Tensor) -> Tensor:
    """The float32 numbers that were split."""
    return ((weight_n.view(torch.int16).to(torch.int32) << 16) + rest_n).view(torch.float32)


def round_stochastically(values_n: Tensor, random: torch.Generator) -> Tensor:
    """float32 numbers as neighbouring bfloat16 ones, whose expectation they are."""
    noise_n = torch.randint(2**16, values_n.shape, dtype=torch.int32, generator=random, device=values_n.device)
    return ((values_n.view(torch.int32) + noise_n) >> 16).to(torch.int16).view(torch.bfloat16)
