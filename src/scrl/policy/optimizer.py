"""AdamW on float32 master weights, whole or in fewer bytes.

A learning rate of 5e-7 moves a weight by less than bfloat16 can show, so the working weights (what is sampled and
differentiated, possibly bfloat16) are rounded copies of float32 masters. `MasterAdamW` keeps the masters whole,
`LowMemoryAdamW` in fewer bytes:

| bytes per weight of a bfloat16 model | `MasterAdamW` | `LowMemoryAdamW`                                           |
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
from scrl.policy.settings import BETAS, EPSILON, OptimizerSettings

CHUNK = 2**25
"""Weights at a time: 128 MiB for each of their float32 numbers."""
OTHER_DTYPE = (
    "the checkpoint's trained weights have another dtype than here, as they do on another kind of device. Resume the "
    "run where it was started"
)


def learning_rate_factor(update: int, updates: int, settings: OptimizerSettings) -> float:
    """The share of the highest learning rate at one update: a linear rise, then half a cosine down to 0."""
    warmup = round(settings.warmup * updates)
    if update < warmup:
        return (update + 1) / warmup
    if settings.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (update - warmup) / max(1, updates - warmup))))


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
        return MasterAdamW(weights, settings, updates)
    return LowMemoryAdamW(weights, settings, updates, is_split=not is_whole)


class _Scheduled:
    """Counts updates and knows the learning rate of the next one.

    An update is `expect`, backward passes with `collect` after each (or `expect_nothing`), then `step`; `clear` gives
    it up. `state` is everything a resumed run needs besides the working weights.
    """

    def __init__(self, settings: OptimizerSettings, updates: int) -> None:
        self._settings = settings
        self.updates = updates
        """Updates of the whole run, for the schedule; may change as the run goes on."""
        self.update = 0

    @property
    def learning_rate(self) -> float:
        """The learning rate of the next update."""
        return self._settings.learning_rate * learning_rate_factor(self.update, self.updates, self._settings)

    def expect(self, micro_batches: int) -> None:
        """Called before the first backward pass with the number of passes that the gradient is the sum of."""

    def collect(self) -> None:
        """Called after every backward pass."""


class MasterAdamW(_Scheduled):
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
        """Bytes of its state that the first step will allocate."""
        return 0 if self._adam.state else 2 * sum(master.nbytes for master in self._masters)

    @property
    def state_bytes(self) -> int:
        """Bytes of `state` after the first step."""
        return sum(2 * master.nbytes for master in self._masters) + sum(master.nbytes for _, master in self._copies)

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
        for weight in (*self._working, *self._masters):
            weight.grad = None

    def step(self) -> Tensor:
        """One update; the norm of the gradient before it was scaled down, without waiting for a GPU to compute it.

        If the norm turns out not to be finite, the update was counted but changed nothing.
        """
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
        if len(state.get("masters", ())) != len(self._copies):
            raise InputError(OTHER_DTYPE)
        self.update = state["update"]
        self._adam.load_state_dict(state["adam"])
        for (_, master), value in zip(self._copies, state["masters"], strict=True):
            master.copy_(value)
        self._round()


class LowMemoryAdamW(_Scheduled):
    """Adds up gradients as they come, and steps the weights one after the other."""

    bytes_to_come = 0

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
        for weight in self._weights:
            weight.working.grad = torch.zeros_like(weight.working)

    def _add(self, weight: _Weight) -> None:
        """Add a gradient to the sum as soon as it is complete, so that those of all weights never exist twice."""
        grad = weight.working.grad
        if self._is_sum and grad is not None:
            weight.grad = grad.float() if weight.grad is None else weight.grad.add_(grad)
            weight.working.grad = None

    def clear(self) -> None:
        for weight in self._weights:
            weight.grad = weight.working.grad = None

    @torch.no_grad()
    def step(self) -> Tensor:
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

        adam_step(
            weight.flat_n, weight.rest, weight.means, weight.squares, grad_n, scale=scale, update=self.update + 1,
            learning_rate=self.learning_rate, weight_decay=self._settings.weight_decay, seed=seed,
        )  # fmt: skip

    def _step_by_chunks(self, weight: _Weight, grad_n: Tensor, scale: Tensor, seed: int) -> None:
        if scale.isnan():
            return
        random = torch.Generator(grad_n.device).manual_seed(seed)
        before = torch.tensor(float(self.update), device=grad_n.device)
        for part in weight.parts():
            master_n = weight.master(part)
            mean_n, square_n = weight.means[part].float(), weight.squares[part].float()
            adamw(
                [master_n], [grad_n[part].float() * float(scale)], [mean_n], [square_n], [], [before.clone()],
                fused=grad_n.device.type in ("cpu", "cuda"), amsgrad=False, maximize=False, eps=EPSILON,
                beta1=BETAS[0], beta2=BETAS[1], lr=self.learning_rate, weight_decay=self._settings.weight_decay,
            )  # fmt: skip
            weight.keep(part, master_n)
            if weight.means.dtype != torch.float32:
                weight.means[part] = round_stochastically(mean_n, random)
                weight.squares[part] = round_stochastically(square_n, random)

    @property
    def state_bytes(self) -> int:
        parts = (part for weight in self._weights for part in (weight.rest, weight.means, weight.squares))
        return sum(part.nbytes for part in parts if part is not None)

    def state(self) -> dict[str, Any]:
        lists = {name: [getattr(weight, name) for weight in self._weights] for name in ("rest", "means", "squares")}
        return {"update": self.update, **lists}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        if [rest is None for rest in state.get("rest", ())] != [weight.rest is None for weight in self._weights]:
            raise InputError(OTHER_DTYPE)
        self.update = state["update"]
        for name in ("rest", "means", "squares"):
            for weight, value in zip(self._weights, state[name], strict=True):
                if value is not None:
                    getattr(weight, name).copy_(value)


Optimizer = MasterAdamW | LowMemoryAdamW


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
