"""Which models get fused layers; the layers themselves are in test_layer_kernels.py."""

from importlib.util import find_spec

import pytest
from updates import embedded, make_policy, small_model, tied_gpt2

from scrl.policy import fused_layers
from scrl.policy.fused_layers import fuse_layers


def overridden(model):
    return [module for module in model.modules() if "forward" in vars(module)]


def test_nothing_changes_on_a_cpu():
    policy = make_policy(embedded())
    assert policy.note is None
    assert overridden(policy.language_model.model) == []


def test_other_models_are_left_alone_with_a_note(monkeypatch):
    monkeypatch.setattr(fused_layers, "DEVICES", ("cpu",))
    policy = make_policy(tied_gpt2())
    assert policy.note.startswith("layers are not fused (GPT2LMHeadModel is not one of LlamaForCausalLM, ")
    assert overridden(policy.language_model.model) == []


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_a_note_says_so(monkeypatch):
    monkeypatch.setattr(fused_layers, "DEVICES", ("cpu",))
    assert fuse_layers(small_model().model) == "layers are not fused (Triton is not installed)"
