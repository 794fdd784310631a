"""A linear layer and its LoRA adapter as one operation: y = x Wᵀ + b + s (x Aᵀ) Bᵀ, where W and b are frozen.

Forward three matrix products, backward five, each sum inside one of them. peft takes four more passes over whole
outputs or inputs, to scale and to add, forward and backward. y is rounded after W and after B, as by the sampler; x and
x Aᵀ are kept for the backward pass.

Shapes: n tokens, I inputs, O outputs, r the adapter's rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def is_plain_lora(module: Any) -> bool:
    """Whether this is peft's LoRA of a frozen linear layer: one adapter without dropout, bias or variant."""
    if type(module).__name__ != "Linear" or type(module).__module__ != "peft.tuners.lora.layer":
        return False
    base, names = module.base_layer, list(module.lora_A)
    return (
        type(base) is nn.Linear
        and not any(weight.requires_grad for weight in base.parameters())
        and len(names) == 1
        and not getattr(module, "lora_variant", None)  # of peft 0.16 and newer
        and not any(module.use_dora.values())
        and not any(module.lora_bias.values())
        and all(isinstance(dropout, nn.Identity) for dropout in module.lora_dropout.values())
        and module.lora_A[names[0]].weight.dtype == base.weight.dtype
    )


def lora_forward(self: Any, x: Tensor, *others: Any, **more: Any) -> Tensor:
    """Like peft's forward, which still handles an adapter that is merged or switched off."""
    names = [name for name in self.active_adapters if name in self.lora_A]
    if others or more or self.disable_adapters or self.merged or len(names) != 1:
        return type(self).forward(self, x, *others, **more)  # type: ignore[no-any-return]
    base, A, B = self.base_layer, self.lora_A[names[0]].weight, self.lora_B[names[0]].weight
    function: Any = FusedLora
    return function.apply(x, base.weight, base.bias, A, B, self.scaling[names[0]])  # type: ignore[no-any-return]


class FusedLora(torch.autograd.Function):
    """(x, weight_OI, bias_O or None, A_rI, B_Or, s) → x Wᵀ + b + s (x Aᵀ) Bᵀ."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None, A_rI: Tensor, B_Or: Tensor, scale: float
    ) -> Tensor:
        x_nI = x.reshape(-1, x.shape[-1])
        h_nr = x_nI @ A_rI.T
        y_nO = F.linear(x_nI, weight_OI, bias_O).addmm_(h_nr, B_Or.T, alpha=scale)
        ctx.save_for_backward(x_nI, h_nr, weight_OI, A_rI, B_Or)
        ctx.scale = scale
        return y_nO.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """∂x = g W + s (g B) A, ∂A = s (g B)ᵀ x, ∂B = s gᵀ h."""
        x_nI, h_nr, weight_OI, A_rI, B_Or = ctx.saved_tensors
        grad_nO, scale = grads[0].reshape(-1, len(weight_OI)), ctx.scale
        grad_nr = grad_nO @ B_Or
        grad_A_rI, grad_B_Or = (grad_nr.T @ x_nI).mul_(scale), (grad_nO.T @ h_nr).mul_(scale)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = (grad_nO @ weight_OI).addmm_(grad_nr, A_rI, alpha=scale).view(*grads[0].shape[:-1], -1)
        return grad_x, None, None, grad_A_rI, grad_B_Or, None
