"""Fused layers against transformers' own: on a GPU where there is one, else interpreted (make test-kernels).

Triton decides whether to interpret when it is first imported, so that is set before Python starts.
"""

# ruff: noqa: E402
import os
from copy import deepcopy

import pytest
import torch
from torch import nn

ON_GPU = torch.cuda.is_available()
if not ON_GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("no GPU, and kernels are not interpreted: make test-kernels", allow_module_level=True)
pytest.importorskip("triton")

from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.models.llama.modeling_llama import (
    LlamaRMSNorm,
    apply_rotary_pos_emb,
    rotate_half,
)

from scrl.policy import fused_layers, layer_kernels
from scrl.policy.fused_layers import FusedRMSNorm, FusedRotary, FusedSwiGLU, fuse_layers
from scrl.policy.model import add_adapter
from scrl.policy.packing import Packing, packed_attention
from scrl.policy.settings import LoraSettings

pytestmark = [  # Triton's interpreter
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]
DEVICE = "cuda" if ON_GPU else "cpu"
SHORT = torch.bfloat16 if ON_GPU else torch.float16  # the interpreter cuts bfloat16 off instead of rounding
TYPES = [torch.float32, SHORT]
SHAPE = {
    "vocab_size": 40, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.1, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
MODELS = {
    "llama": lambda **more: LlamaForCausalLM(LlamaConfig(**SHAPE | {"head_dim": 12}, **more)),
    "llama-biased": lambda **more: LlamaForCausalLM(LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, **more)),
    "mistral": lambda **more: MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None, **more)),
    "qwen2": lambda **more: Qwen2ForCausalLM(Qwen2Config(**SHAPE | {"head_dim": 12}, **more)),
    "qwen3": lambda **more: Qwen3ForCausalLM(Qwen3Config(**SHAPE, **more)),
}


@pytest.fixture(autouse=True)
def _kernels_here(monkeypatch):
    monkeypatch.setattr(fused_layers, "DEVICES", (DEVICE,))
    monkeypatch.setattr(layer_kernels, "TILE", 256)  # several tiles, the last of them short
    monkeypatch.setattr(layer_kernels, "PROGRAMS", 3)


def numbers(*sizes, seed=0, dtype=torch.float32):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype).requires_grad_()


def distance(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def assert_rounded_alike(found, wanted):
    """Equal but for the last digit of a few numbers, whose float32 sums lie at a border."""
    assert found.dtype == wanted.dtype
    if wanted.dtype == torch.float32:
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=2e-6)
        return
    step = torch.finfo(wanted.dtype).eps * wanted.abs().double()
    assert ((found.double() - wanted.double()).abs() <= step).all()
    assert (found != wanted).double().mean() < 0.01


def assert_gradients_exact(function, exact_function, inputs, seed=9):
    """Those of the kernels, against autograd in float64 on the same rounded inputs."""
    exact = [part.detach().double().requires_grad_() for part in inputs]
    outputs, wanted = function(*inputs), exact_function(*exact)
    for number, (one, other) in enumerate(zip(outputs, wanted, strict=True)):
        upstream = numbers(*one.shape, seed=seed + number, dtype=one.dtype).detach()
        one.backward(upstream, retain_graph=number + 1 < len(outputs))
        other.backward(upstream.double(), retain_graph=True)
    for part, other in zip(inputs, exact, strict=True):
        assert part.grad.dtype == part.dtype
        assert distance(part.grad, other.grad) < {torch.float32: 1e-6, torch.float16: 1e-3}.get(part.dtype, 6e-3)


# Each kernel


def norm_of(weight, eps=1e-6):
    module = LlamaRMSNorm(len(weight), eps).to(weight.device, weight.dtype)
    module.weight = nn.Parameter(weight.detach().clone())
    return module


def normed(x, weight, delta=None):
    return FusedRMSNorm.apply(x, delta, weight, 1e-6)


def exact_norm(x, weight, delta=0):
    total = x + delta
    return weight * total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6), total


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 8), (2, 5, 64), (3, 7, 2, 128), (5, 300)])
def test_a_norm(sizes, dtype):
    x, weight = numbers(*sizes, dtype=dtype), numbers(sizes[-1], seed=1, dtype=dtype)
    assert_rounded_alike(normed(x, weight)[0], norm_of(weight)(x))
    assert_gradients_exact(lambda *inputs: normed(*inputs)[:1], lambda *inputs: exact_norm(*inputs)[:1], (x, weight))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(2, 5, 64), (5, 300)])
def test_a_norm_of_a_sum(sizes, dtype):
    x, delta = (numbers(*sizes, seed=seed, dtype=dtype) for seed in (0, 2))
    weight = numbers(sizes[-1], seed=1, dtype=dtype)
    found, total = normed(x, weight, delta)
    assert torch.equal(total, x + delta)
    assert_rounded_alike(found, norm_of(weight)(x + delta))
    inputs = (x, weight, delta)
    assert_gradients_exact(lambda *i: [sum(normed(*i))], lambda *i: [sum(exact_norm(*i))], inputs)  # the sum goes on
    x.grad = weight.grad = None
    assert_gradients_exact(lambda *i: [sum(normed(*i))], lambda *i: [sum(exact_norm(*i))], inputs[:2])


def test_a_frozen_norm_gets_no_gradient_and_gives_one():
    x, weight = numbers(9, 32), numbers(32, seed=1)
    frozen = weight.detach()
    for each in (weight, frozen):
        normed(x, each)[0].sum().backward()
        if each is weight:
            wanted, x.grad = x.grad, None
    assert torch.equal(x.grad, wanted)
    assert frozen.grad is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [(1, 8), (2, 3, 100)])
def test_a_gate(sizes, dtype):
    gate, up = (numbers(*sizes, seed=seed, dtype=dtype) for seed in (0, 1))
    with torch.no_grad():
        gate *= 4  # far enough that silu is flat on one side
        wanted = nn.functional.silu(gate) * up
    found = FusedSwiGLU.apply(gate, up)
    assert_rounded_alike(found, wanted)
    leaves = (gate, up)
    assert_gradients_exact(
        lambda gate, up: (FusedSwiGLU.apply(gate * 1, up * 1),),  # leaves would be overwritten
        lambda gate, up: (nn.functional.silu(gate) * up,), leaves,
    )  # fmt: skip


def test_a_gate_that_someone_else_needs_is_an_error_and_not_another_number():
    gate, up = numbers(4).exp(), numbers(4, seed=1) * 1  # exp keeps its output for its own gradient
    loss = FusedSwiGLU.apply(gate, up).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    again = FusedSwiGLU.apply(numbers(4) * 1, up.detach() * 1).sum()
    again.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        again.backward()


def angles(sequences, tokens, size, dtype):
    half = torch.rand(sequences, tokens, size // 2, generator=torch.Generator().manual_seed(5)) * 7
    both = torch.cat((half, half), dim=-1).to(DEVICE)
    return both.cos().to(dtype), both.sin().to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 2, 64), (3, 1, 128), (2, 2, 12)])
@pytest.mark.parametrize("sequences", [1, 2])
def test_rotary_positions(sequences, heads, kv_heads, size, dtype):
    cos, sin = angles(sequences, 3, size, dtype)
    q, k = (numbers(2, 3, h, size, seed=h, dtype=dtype) for h in (heads, kv_heads))
    turned = FusedRotary.apply(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    wanted = apply_rotary_pos_emb(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
    for found, other in zip(turned, wanted, strict=True):
        assert found.transpose(1, 2).is_contiguous()
        if dtype == torch.float32:
            torch.testing.assert_close(found, other, atol=1e-6, rtol=1e-6)
        else:
            assert torch.equal(found, other)  # every product is rounded, so nothing is left to differ
    exact = (cos.double()[:, :, None], sin.double()[:, :, None])
    assert_gradients_exact(
        lambda q, k: [
            part.transpose(1, 2) for part in FusedRotary.apply(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        ],
        lambda q, k: [part * exact[0] + rotate_half(part) * exact[1] for part in (q, k)],
        (q, k),
    )


# Whole models


def model_of(name, dtype=torch.float32, **more):
    torch.manual_seed(0)
    model = MODELS[name](**more)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.randn_like(weight))
    return model.to(DEVICE, dtype)


def with_adapter(model):
    adapted = add_adapter(model, LoraSettings(rank=2))
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:  # it starts at 0
            nn.init.normal_(weight, std=0.1)
    return adapted


def is_fused(model):
    return [type(module).__name__ for module in model.modules() if "forward" in vars(module)]


def run(model, is_packed=False):
    """Logits and gradients by name: two rows of different lengths, padded or packed."""
    model.zero_grad()
    config = model.get_base_model().config if hasattr(model, "get_base_model") else model.config
    tokens = torch.arange(2, 16, device=DEVICE)
    if is_packed:
        with packed_attention(config):
            packing = Packing.of([(9, ()), (5, ())], torch.device(DEVICE))
            logits = model(input_ids=tokens[None], use_cache=False, **packing.arguments()).logits
            logits.float().log_softmax(-1)[..., 3].sum().backward()
    else:
        logits = model(input_ids=tokens.view(2, 7), use_cache=False).logits
        logits.float().log_softmax(-1)[..., 3].sum().backward()
    return logits.detach(), {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize(
    ("has_adapter", "is_checkpointed", "is_packed"),
    [(False, False, False), (True, False, False), (False, True, True), (True, True, False)],
)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_fused_layers_is_the_same(name, has_adapter, is_checkpointed, is_packed):
    model = model_of(name)
    model = with_adapter(model) if has_adapter else model
    if is_checkpointed:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    logits, grads = run(model, is_packed)
    assert fuse_layers(model) is None
    assert len(is_fused(model)) == 2 * (7 if name == "qwen3" else 5) + 1 + 14 * has_adapter
    found_logits, found_grads = run(model, is_packed)
    torch.testing.assert_close(found_logits, logits, atol=1e-5, rtol=1e-5)
    assert found_grads.keys() == grads.keys()
    for weight, grad in grads.items():
        assert distance(found_grads[weight], grad) < 2e-5, weight


def test_a_short_type_stays_as_near_to_float32():
    exact, model = model_of("qwen3"), model_of("qwen3", SHORT)
    exact.load_state_dict(model.state_dict())
    wanted, plain = run(exact)[1], run(model)[1]
    assert fuse_layers(model) is None
    found = run(model)[1]
    of_found, of_plain = (distance(flat(grads), flat(wanted)) for grads in (found, plain))
    assert of_found < 1.1 * of_plain


def flat(grads):
    return torch.cat([grads[name].float().flatten() for name in sorted(grads)])


def test_a_copy_is_fused_and_has_weights_of_its_own():
    model = model_of("qwen3")
    fuse_layers(model)
    copy = deepcopy(model)
    before = run(copy)[0]
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.5)
    assert is_fused(copy) == is_fused(model)
    assert torch.equal(run(copy)[0], before)
    assert not torch.equal(run(model)[0], before)


# Where something is not as expected


def test_another_gate_is_left_alone():
    model = model_of("llama", hidden_act="gelu")
    logits, _ = run(model)
    assert "LlamaMLP" in fuse_layers(model)
    assert "LlamaMLP" not in is_fused(model)
    torch.testing.assert_close(run(model)[0], logits, atol=1e-5, rtol=1e-5)


def test_a_model_that_would_compute_something_else_is_put_back(monkeypatch):
    def other(self, hidden_states):
        return hidden_states / hidden_states.abs().amax(-1, keepdim=True) * (1 + self.weight)

    monkeypatch.setattr(LlamaRMSNorm, "forward", other)
    model = model_of("llama")
    wanted = run(model)[0]
    assert "not fused" in fuse_layers(model)
    assert is_fused(model) == []
    assert torch.equal(run(model)[0], wanted)


def test_a_kernel_that_does_not_run_is_not_used(monkeypatch):
    def broken(*tensors):
        raise TypeError("no such architecture\nand more")

    monkeypatch.setattr(layer_kernels, "swiglu", broken)
    model = model_of("llama")
    assert "no such architecture" in fuse_layers(model)
    assert is_fused(model) == []
