"""Norms, gates and rotary positions of a model by Liger's kernels, and a LoRA adapter in one operation, on a GPU.

    note = fuse_layers(model)

Only this model changes: what Liger replaces in transformers' modules is put back, and attention finds Liger's rotary
positions among its own global names. A copy of the model is fused as well, and checkpoints are the same. Whether the
model still gives the hidden states that it gave before is tried on a few tokens; if not, everything is put back.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor

from scrl.policy.fused_lora import is_plain_lora, lora_forward
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
