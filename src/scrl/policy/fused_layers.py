"""Norms, gates and rotary positions of a model by Liger's kernels, and a LoRA adapter in one operation, on a GPU.

    note = fuse_layers(model)

Only this model changes: what Liger replaces in transformers' modules is put back, and attention finds Liger's rotary
positions among its own global names. A copy of the model is fused as well, and checkpoints are the same. Whether the
model still gives the hidden states that it gave before is tried on a few tokens; if not, everything is put back.
"""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scrl.policy.model import first_line, in_eval_mode, plain_model

DEVICES = ("cuda",)
ROTARY = "apply_rotary_pos_emb"
PROBE_TOKENS = 8
"""The number of tokens on which a model is tried."""


def fuse_layers(model: Any) -> str | None:
    """Let kernels compute what they can of a model on a GPU; returns a note if that is not everything."""
    inner = plain_model(model)
    if next(inner.parameters()).device.type not in DEVICES:
        return None
    before = {module: dict(vars(module)) for module in inner.modules()}
    try:
        wanted = _hidden_states(inner)
        for module in filter(is_plain_lora, before):
            module.forward = MethodType(lora_forward, module)
        note = _use_liger(inner)
        found = _hidden_states(inner)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Liger and Triton may raise anything for a version or a GPU that they do not know
        reason = f"{type(error).__name__}: {first_line(error)}"
    else:
        tolerance = 1e-4 if next(inner.parameters()).dtype == torch.float32 else 0.03
        if (found - wanted).norm() <= tolerance * wanted.norm():
            return note
        reason = "with this version of transformers they give other hidden states"
    for module, attributes in before.items():
        vars(module).clear()
        vars(module).update(attributes)
    return f"layers are not fused ({reason})"


def _hidden_states(inner: Any) -> Tensor:
    """The last hidden states of a few tokens."""
    tokens_1L = torch.arange(PROBE_TOKENS, device=next(inner.parameters()).device)[None]
    with in_eval_mode(inner.modules()):
        hidden_1LE: Tensor = inner.base_model(input_ids=tokens_1L, use_cache=False).last_hidden_state
    return hidden_1LE.float()


def _use_liger(inner: Any) -> str | None:
    """Liger's layers for this model alone; a note if there are none."""
    if find_spec("liger_kernel") is None:
        return "layers are not fused, so updates are slower and take more memory: pip install 'scrl[gpu]'"
    from liger_kernel.transformers import monkey_patch

    logging.getLogger("liger_kernel.backends").setLevel(logging.ERROR)  # it warns of kernels for other GPUs
    kind = inner.config.model_type
    if kind not in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN:
        return f"layers are not fused (Liger has none for {kind})"
    names = vars(sys.modules[type(inner).__module__])
    plain = dict(names)
    try:
        monkey_patch._apply_liger_kernel_to_instance(inner, cross_entropy=False, fused_linear_cross_entropy=False)
        rotary = names.get(ROTARY)
    finally:
        names.update(plain)
    for module in inner.modules():
        forward = type(module).forward
        if isinstance(forward, FunctionType) and forward.__globals__ is names and ROTARY in forward.__code__.co_names:
            module.forward = MethodType(_with_names(forward, {ROTARY: rotary}), module)
    return None


def _with_names(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The same code with other global names."""
    code, known = function.__code__, function.__globals__ | names
    copy = FunctionType(code, known, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


# A linear layer and its LoRA adapter as one operation: y = x Wᵀ + b + s (x Aᵀ) Bᵀ, where W and b are frozen. Forward
# three matrix products, backward five, each sum inside one of them. peft takes four more passes over whole outputs or
# inputs, to scale and to add, forward and backward. y is rounded after W and after B, as by the sampler; x and x Aᵀ are
# kept for the backward pass. Shapes: n tokens, I inputs, O outputs, r the adapter's rank.


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
