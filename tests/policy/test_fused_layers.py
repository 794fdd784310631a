"""Which models get fused layers, and what is said where they do not. Liger's own kernels run on a GPU: tests/gpu."""

import sys

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama
from updates import embedded, make_policy, small_model, tied_gpt2, with_adapter

from scrl.policy import fused_layers
from scrl.policy.fused_layers import fuse_layers

LIGER = """
from transformers.models.llama import modeling_llama

def rotated(q, k, cos, sin):
    rotated.calls += 1
    return plain(q, k, cos, sin)

rotated.calls, plain = 0, modeling_llama.apply_rotary_pos_emb

def forward(self, hidden_states):
    return type(self).forward(self, hidden_states){change}

def _apply_liger_kernel_to_instance(model, cross_entropy, fused_linear_cross_entropy):
    assert not cross_entropy and not fused_linear_cross_entropy
    modeling_llama.apply_rotary_pos_emb, modeling_llama.LlamaRMSNorm = rotated, None
    model.model.norm.forward = forward.__get__(model.model.norm)

MODEL_TYPE_TO_APPLY_LIGER_FN = dict(llama=None)
"""


@pytest.fixture
def on_gpu(monkeypatch):
    """As if this were a GPU on which Liger is not installed."""
    monkeypatch.setattr(fused_layers, "DEVICES", ("cpu",))
    monkeypatch.setattr(fused_layers, "find_spec", lambda name: None)


@pytest.fixture
def install(on_gpu, monkeypatch, tmp_path):
    """A Liger whose norm gives the same, or changes it."""

    def install(change=""):
        folder = tmp_path / "liger_kernel" / "transformers"
        folder.mkdir(parents=True)
        (folder / "monkey_patch.py").write_text(LIGER.format(change=change))
        for name in ("liger_kernel", "liger_kernel.transformers", "liger_kernel.transformers.monkey_patch"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(fused_layers, "find_spec", lambda name: name)

    return install


def overridden(model):
    return [type(module).__name__ for module in model.modules() if "forward" in vars(module)]


def run(model):
    """Hidden states, and gradients by name."""
    model.zero_grad()
    logits = model(input_ids=torch.arange(2, 16).view(2, 7), use_cache=False).logits
    logits.log_softmax(-1)[..., 3].sum().backward()
    return logits.detach(), {name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None}


def test_nothing_changes_on_a_cpu():
    policy = make_policy(embedded())
    assert policy.note is None
    assert overridden(policy.language_model.model) == []


def test_without_liger_a_note_says_how_to_install_it(on_gpu):
    policy = make_policy(embedded())
    assert "scrl[gpu]" in policy.note
    assert overridden(policy.language_model.model) == []


def test_a_model_that_liger_does_not_know_is_left_alone_with_a_note(install):
    install()
    policy = make_policy(tied_gpt2())
    assert "gpt2" in policy.note
    assert overridden(policy.language_model.model) == []


def test_liger_changes_this_model_and_no_other(install):
    install()
    names, other, model = dict(vars(modeling_llama)), small_model().model, small_model().model
    wanted = run(other)[0]
    assert fuse_layers(model) is None
    assert overridden(model) == ["LlamaAttention", "LlamaRMSNorm"]
    assert dict(vars(modeling_llama)) == names
    from liger_kernel.transformers.monkey_patch import rotated

    before = rotated.calls
    assert torch.equal(run(other)[0], wanted)
    assert rotated.calls == before
    assert torch.equal(run(model)[0], wanted)
    assert rotated.calls == before + 1


@pytest.mark.parametrize(("change", "reason"), [(" * 1.1", "other"), (" + undefined", "NameError")])
def test_layers_that_give_something_else_or_do_not_run_are_put_back(install, change, reason):
    install(change)
    model = small_model().model
    before = [dict(vars(module)) for module in model.modules()]
    assert reason in fuse_layers(model)
    assert overridden(model) == []
    assert [dict(vars(module)) for module in model.modules()] == before


def test_an_adapter_in_one_operation_gives_the_same_gradients(on_gpu):
    model = with_adapter().model
    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:  # it starts at 0
            nn.init.normal_(weight, std=0.1)
    logits, grads = run(model)
    fuse_layers(model)
    assert set(overridden(model)) == {"Linear"}
    found_logits, found = run(model)
    torch.testing.assert_close(found_logits, logits, atol=1e-4, rtol=1e-4)
    assert found.keys() == grads.keys()
    for name, grad in grads.items():
        assert (found[name] - grad).norm() < 2e-5 * grad.norm(), name
