"""Which models get fused layers; the layers themselves are in test_layer_kernels.py."""

from updates import collected_gradient, credit_of, embedded, make_policy, tied_gpt2, uneven_group

from scrl.policy import fused_layers


def overridden(model):
    return [module for module in model.modules() if "forward" in vars(module)]


def test_nothing_changes_on_a_cpu():
    group, gradients = uneven_group(), []
    for is_fused in (True, False):
        policy = make_policy(embedded(), compute={"fused_layers": is_fused})
        assert policy.note is None
        assert overridden(policy.language_model.model) == []
        gradients.append(collected_gradient(policy, group, credit_of())[0])
    assert gradients[0].equal(gradients[1])


def test_other_models_are_left_alone_with_a_note(monkeypatch):
    monkeypatch.setattr(fused_layers, "DEVICES", ("cpu",))
    policy = make_policy(tied_gpt2(), compute={"fused_layers": True})
    assert "GPT2LMHeadModel" in policy.note
    assert overridden(policy.language_model.model) == []
    assert make_policy(tied_gpt2(), compute={"fused_layers": False}).note is None
