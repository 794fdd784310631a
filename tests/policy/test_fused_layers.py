"""Which models get fused layers; the layers themselves are in test_layer_kernels.py."""

from updates import embedded, make_policy, tied_gpt2

from scrl.policy import fused_layers


def overridden(model):
    return [module for module in model.modules() if "forward" in vars(module)]


def test_nothing_changes_on_a_cpu():
    policy = make_policy(embedded())
    assert policy.note is None
    assert overridden(policy.language_model.model) == []


def test_other_models_are_left_alone_with_a_note(monkeypatch):
    monkeypatch.setattr(fused_layers, "DEVICES", ("cpu",))
    policy = make_policy(tied_gpt2())
    assert "GPT2LMHeadModel" in policy.note
    assert overridden(policy.language_model.model) == []
