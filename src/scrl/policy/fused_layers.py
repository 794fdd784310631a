"""Norms, gates and rotary positions of a model by one kernel each, forward and backward, on a GPU.

    note = fuse_layers(model)

Only this model changes: its modules get their own `forward`, and no class of transformers is touched. A copy of
the model is fused as well, and checkpoints are the same. An attention module keeps transformers' own code, which finds
another `apply_rotary_pos_emb` among its global names. A linear layer and its LoRA adapter become one operation
(`scrl.policy.fused_lora`). Whether the model still gives the hidden states that it gave before is tried on a few
tokens; if not, everything is put back.

Results are rounded as in transformers (`scrl.policy.layer_kernels`), gradients once. Kept for the backward pass, bytes
per token: a norm 4 E + 4 instead of 8 E (input and output instead of a float32 copy, two rounded ones), a gate 6 mlp
instead of 8 mlp (without silu). The gate's gradients take no memory.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from scrl.policy.fused_lora import is_plain_lora, lora_forward
from scrl.policy.model import LLAMA_SHAPED, plain_model

DEVICES = ("cuda",)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROTARY = "apply_rotary_pos_emb"
PROBE_TOKENS = 8
"""The number of tokens on which a model is tried."""


def fuse_layers(model: Any) -> str | None:
    """Let kernels compute what they can of a model on a GPU; returns a note if that is not everything."""
    inner = plain_model(model)
    name = type(inner).__name__
    if next(inner.parameters()).device.type not in DEVICES:
        return None
    if name not in LLAMA_SHAPED:
        return f"layers are not fused ({name} is not one of {', '.join(LLAMA_SHAPED)})"
    if find_spec("triton") is None:
        return "layers are not fused (Triton is not installed)"
    kinds = [f"{name.removesuffix('ForCausalLM')}{kind}" for kind in ("DecoderLayer", "RMSNorm", "MLP", "Attention")]
    modules = [module for module in inner.modules() if type(module).__name__ in kinds]
    layers = [(module, fused_forward(type(module), inner.config.hidden_act)) for module in modules]
    layers += [(module, lora_forward) for module in inner.modules() if is_plain_lora(module)]
    wanted = _hidden_states(inner)
    for module, forward in layers:
        if forward is not None:
            module.forward = MethodType(forward, module)
    if (reason := _why_not_same(inner, wanted)) is not None:
        for module, _ in layers:
            vars(module).pop("forward", None)
        return f"layers are not fused ({reason})"
    left = sorted({type(module).__name__ for module, forward in layers if forward is None})
    return f"layers are fused except {' and '.join(left)}, for which there is no kernel" if left else None


def fused_forward(kind: type, activation: str) -> Callable[..., Any] | None:
    """What modules of this class do instead of its forward; None if there is no kernel."""
    if kind.__name__.endswith("DecoderLayer"):
        return layer_forward
    if kind.__name__.endswith("RMSNorm"):
        return norm_forward
    if kind.__name__.endswith("MLP"):
        return mlp_forward if activation == "silu" else None
    return attention_forward(kind)


@torch.no_grad()
def _hidden_states(inner: Any) -> Tensor:
    """The last hidden states of a few tokens."""
    device = next(inner.parameters()).device
    tokens_1L = torch.arange(PROBE_TOKENS, device=device)[None]
    was_training = inner.training
    inner.eval()
    hidden_1LE: Tensor = inner.model(input_ids=tokens_1L, use_cache=False).last_hidden_state
    inner.train(was_training)
    return hidden_1LE.float()


def _why_not_same(inner: Any, wanted: Tensor) -> str | None:
    """None if the model still gives these hidden states, else the reason."""
    try:
        found = _hidden_states(inner)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton may raise anything if it cannot compile for a GPU
        return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
    tolerance = 1e-4 if next(inner.parameters()).dtype == torch.float32 else 0.03
    is_same = bool((found - wanted).norm() <= tolerance * wanted.norm())
    return None if is_same else "this version of transformers computes them in another way"


def has_kernels(*tensors: Tensor) -> bool:
    """Whether kernels can take these together: on a GPU, and of one type."""
    first = tensors[0]
    return first.device.type in DEVICES and first.dtype in DTYPES and all(t.dtype == first.dtype for t in tensors)


# What modules do instead of their class's forward


def layer_forward(self: Any, hidden_states: Tensor, **arguments: Any) -> Tensor:
    """Like LlamaDecoderLayer and its copies, but a norm and the sum beside it are one operation."""
    normed, residual = self.input_layernorm(hidden_states, None)
    attended, _ = self.self_attn(hidden_states=normed, **arguments)
    normed, residual = self.post_attention_layernorm(residual, attended)
    output: Tensor = residual + self.mlp(normed)
    return output


def norm_forward(self: Any, hidden_states: Tensor, *deltas: Tensor | None) -> Any:
    """Like LlamaRMSNorm and its copies; called with a delta it norms hidden + delta, and returns that sum as well.

    The sum of hidden and None is hidden: using it from there on spares autograd an addition of gradients.
    """
    delta = deltas[0] if deltas else None
    if has_kernels(hidden_states, self.weight, hidden_states if delta is None else delta):
        function: Any = FusedRMSNorm
        normed, total = function.apply(hidden_states, delta, self.weight, self.variance_epsilon)
    else:
        total = hidden_states if delta is None else hidden_states + delta
        normed = type(self).forward(self, total)
    return (normed, total) if deltas else normed


def mlp_forward(self: Any, x: Tensor) -> Tensor:
    """Like LlamaMLP and its copies; the projections may be an adapter's."""
    gate, up = self.gate_proj(x), self.up_proj(x)
    function: Any = FusedSwiGLU
    mixed = function.apply(gate, up) if has_kernels(gate, up) else self.act_fn(gate) * up
    projected: Tensor = self.down_proj(mixed)
    return projected


def attention_forward(kind: Any) -> Callable[..., Any] | None:
    """The class's own forward with fused rotary positions; None if it calls no such function."""
    plain = kind.forward
    if not isinstance(plain, FunctionType) or ROTARY not in plain.__code__.co_names or ROTARY not in plain.__globals__:
        return None
    names = plain.__globals__ | {ROTARY: _rotary(plain.__globals__[ROTARY])}
    fused = FunctionType(plain.__code__, names, plain.__name__, plain.__defaults__, plain.__closure__)
    fused.__kwdefaults__ = plain.__kwdefaults__
    return fused


def _rotary(plain: Callable[..., Any]) -> Callable[..., Any]:
    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *others: Any, **more: Any) -> Any:
        is_plain = others or more or cos.dim() != 3 or cos.shape[-1] != q.shape[-1]
        if is_plain or not has_kernels(q, k, cos, sin):
            return plain(q, k, cos, sin, *others, **more)
        function: Any = FusedRotary
        return function.apply(q, k, cos, sin)

    return rotate


# Their gradients


class FusedRMSNorm(torch.autograd.Function):
    """(x, delta or None, weight_E, ε) → (w · t / rms(t), t) over the last dimension, with t = x + delta."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        from scrl.policy.layer_kernels import rms_norm

        x = x.contiguous()
        rows = (-1, len(weight_E))
        delta_nE = None if delta is None else delta.contiguous().view(rows)
        y_nE, total_nE, scale_n = rms_norm(x.view(rows), delta_nE, weight_E, eps)
        total = x if delta is None else total_nE.view(x.shape)
        ctx.save_for_backward(total, weight_E, scale_n)
        ctx.set_materialize_grads(False)
        return y_nE.view(x.shape), total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        from scrl.policy.layer_kernels import rms_norm_gradient

        total, weight_E, scale_n = ctx.saved_tensors
        rows = (-1, len(weight_E))
        grad_nE, rest_nE = (None if grad is None else grad.contiguous().view(rows) for grad in grads)
        grad_total_nE, grad_weight_E = rest_nE, None
        if grad_nE is not None:
            grad_total_nE, grad_weight_E = rms_norm_gradient(
                grad_nE, rest_nE, total.view(rows), weight_E, scale_n, needs_weight=ctx.needs_input_grad[2]
            )
        grad_total = None if grad_total_nE is None else grad_total_nE.view(total.shape)
        return grad_total, grad_total if ctx.needs_input_grad[1] else None, grad_weight_E, None


class FusedSwiGLU(torch.autograd.Function):
    """(gate, up) → silu(gate) · up.

    Backward writes both gradients in place of the inputs, which no linear layer keeps. Autograd is told that they have
    changed: needing them after all, or a second backward pass, is an error.
    """

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        from scrl.policy.layer_kernels import swiglu

        gate, up = gate.contiguous(), up.contiguous()
        ctx.save_for_backward(gate, up)
        return swiglu(gate, up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        from scrl.policy.layer_kernels import swiglu_gradient_in_place

        gate, up = (saved.detach() for saved in ctx.saved_tensors)
        swiglu_gradient_in_place(grads[0].contiguous(), gate, up)
        for changed in (gate, up):
            torch.autograd.graph.increment_version(changed)
        return gate, up


class FusedRotary(torch.autograd.Function):
    """(q, k, cos, sin) → q and k turned by the angles of their positions."""

    @staticmethod
    def forward(ctx: Any, q_BHTD: Tensor, k_BHTD: Tensor, cos_BTD: Tensor, sin_BTD: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(cos_BTD, sin_BTD)
        return _rotate(q_BHTD, k_BHTD, cos_BTD, sin_BTD, is_back=False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_rotate(*grads, *ctx.saved_tensors, is_back=True), None, None


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, is_back: bool) -> tuple[Tensor, Tensor]:
    from scrl.policy.layer_kernels import rotate

    q, k = (states if states.stride(-1) == 1 else states.contiguous() for states in (q, k))
    return rotate(q, k, cos.contiguous(), sin.contiguous(), is_back=is_back)
