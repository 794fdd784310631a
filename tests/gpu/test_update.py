"""The update on a GPU: kernels against plain torch, packed against padded rows, bf16 against fp32."""

import math
from contextlib import contextmanager, nullcontext
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
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

from scrl.policy import fused_layers, packing
from scrl.policy.batching import TrainingRow, num_tokens
from scrl.policy.model import LanguageModel, add_adapter
from scrl.policy.optimizer import LowMemoryAdamW, MasterAdamW, open_optimizer
from scrl.policy.packing import Packing, attend_within_rows, why_not_packed
from scrl.policy.policy import Policy
from scrl.policy.settings import ComputeSettings, LoraSettings, LossSettings, OptimizerSettings
from scrl.policy.token_scores import body_and_head, is_fused, token_scores

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
CUDA = "cuda"


def distance(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


# Token scores


def problem(dtype, n=700, E=128, V=151_936, has_bias=False):
    torch.manual_seed(0)
    hidden_nE = torch.randn(n, E, device=CUDA).to(dtype).requires_grad_()
    weight_VE = (torch.randn(V, E, device=CUDA) / 3).to(dtype).requires_grad_()  # logits of up to ±20
    bias_V = torch.randn(V, device=CUDA).to(dtype).requires_grad_() if has_bias else None
    return (hidden_nE, weight_VE, bias_V), torch.randint(V, (n,), device=CUDA)


def exact_scores(leaves, targets_n, temperature):
    """From the same rounded inputs in float64."""
    hidden_nE, weight_VE, bias_V = (
        None if leaf is None else leaf.detach().double().requires_grad_() for leaf in leaves
    )
    logits_nV = hidden_nE @ weight_VE.T / temperature
    if bias_V is not None:
        logits_nV = logits_nV + bias_V / temperature
    logprobs_nV = torch.log_softmax(logits_nV, dim=-1)
    scores = logprobs_nV.gather(-1, targets_n[:, None]).squeeze(-1), -(logprobs_nV.exp() * logprobs_nV).sum(-1)
    return scores, (hidden_nE, weight_VE, bias_V)


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("chosen", [(0,), (0, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_scores_and_gradients_are_those_of_the_full_computation(dtype, chosen, has_bias):
    leaves, targets_n = problem(dtype, has_bias=has_bias)
    assert is_fused(leaves[0])
    scores = token_scores(
        leaves[0], leaves[1], targets_n, bias_V=leaves[2], temperature=0.8, chunk_elements=256 * 151_936
    )  # blocks of 256, 256 and 188 tokens
    wanted, exact = exact_scores(leaves, targets_n, 0.8)
    for score, other in zip(scores, wanted, strict=True):
        torch.testing.assert_close(score.double(), other, atol=1e-4, rtol=1e-5)
    upstream = torch.randn(2, len(targets_n), device=CUDA)
    for some in (scores, wanted):
        sum((some[k] * upstream[k]).sum() for k in chosen).backward()
    for leaf, other in zip(leaves, exact, strict=True):
        if leaf is not None:
            assert leaf.grad.dtype == dtype
            assert distance(leaf.grad, other.grad) < (1e-4 if dtype == torch.float32 else 6e-3)


def test_no_more_than_one_block_of_logits_is_held():
    leaves, targets_n = problem(torch.bfloat16, n=4096)
    block = 512 * 151_936
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    logprobs_n, _ = token_scores(leaves[0], leaves[1], targets_n, chunk_elements=block)
    forward = torch.cuda.max_memory_allocated() - before
    assert forward < 4.2 * block  # fp32 logits
    logprobs_n.sum().backward()
    head = leaves[1].numel()
    whole = torch.cuda.max_memory_allocated() - before
    assert whole < 6.2 * block + 6.5 * head  # and bf16 gradients; the head's gradient in fp32, then in bf16


# Packing


def random_model(dtype=torch.bfloat16, *, heads=14, kv_heads=2, size=64, layers=4, mlp=1024, **config):
    """A Qwen2 of 4 layers; 14 query heads share 2 key heads, as in the 0.5B."""
    torch.manual_seed(0)
    shape = Qwen2Config(
        vocab_size=4096, hidden_size=heads * size, intermediate_size=mlp, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, tie_word_embeddings=True, **config,
    )  # fmt: skip
    model = Qwen2ForCausalLM(shape).to(CUDA, dtype)
    return LanguageModel("random", model, None, torch.device(CUDA), has_adapter=False)


def random_rows(lengths=(300, 17, 128, 1, 511), prompt=20):
    rng = np.random.default_rng(0)
    prompt_P = rng.integers(0, 4096, prompt)
    return [
        TrainingRow(prompt_P, rng.integers(0, 4096, n), np.full(n, -8.3), max(a, 0.0), min(a, 0.0), 1 / 957)
        for n, a in zip(lengths, rng.standard_normal(len(lengths)), strict=True)
    ]


def policy_of(language_model, is_packed, *, is_checkpointed=False, has_fused_layers=True, **loss):
    compute = ComputeSettings(device=CUDA, gradient_checkpointing=is_checkpointed)
    options = {"updates": 1, "temperature": 1.0, "max_tokens": 512}
    with whole_masters(), packed(is_packed), nullcontext() if has_fused_layers else plain_layers():
        return Policy(language_model, LossSettings(**loss), OptimizerSettings(), compute, **options)


@contextmanager
def packed(is_packed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "DEVICES", (CUDA,) if is_packed else ())
        yield


@contextmanager
def plain_layers():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_layers, "DEVICES", ())
        yield


@contextmanager
def whole_masters():
    """Not split: as they would be for an adapter."""
    with pytest.MonkeyPatch.context() as patch:
        opened = lambda weights, *given, has_adapter: MasterAdamW(list(weights), *given)  # noqa: E731
        patch.setattr("scrl.policy.policy.open_optimizer", opened)
        yield


@pytest.mark.parametrize("is_packed", [True, False])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_the_memory_of_a_pass_is_what_was_measured(is_packed, is_checkpointed):
    """Not less, or it would run out; and not much more, or passes would be smaller than they could be."""
    policy = policy_of(random_model(), is_packed, is_checkpointed=is_checkpointed)
    assert policy.measure_passes() is None  # all of it fits
    rows = random_rows([512] * 30, prompt=20)
    tokens = sum(row.length for row in rows)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    policy.micro_batch = 30
    gradient(policy, rows)
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= policy._pass_memory.bytes(tokens) < 1.6 * taken


def test_the_gradients_of_earlier_passes_count_as_memory():
    """Here they take more than the activations of the passes that are measured, which alone would set the peak."""
    policy = policy_of(random_model(mlp=16 * 1024), True)
    policy.measure_passes()
    rows = random_rows([512] * 30)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    policy.micro_batch = 15
    gradient(policy, rows)
    taken = torch.cuda.max_memory_allocated() - before
    assert taken <= policy._pass_memory.bytes(num_tokens(rows[:15], True)) < 1.6 * taken


def gradient(policy, rows):
    policy._set_mode()
    policy.gradient(rows)
    found = torch.cat([master.grad.flatten().float() for master in policy.optimizer._masters])
    policy.optimizer.clear()
    return found


def exact_copy(language_model):
    exact = random_model(torch.float32)
    exact.model.load_state_dict(language_model.model.state_dict())
    return exact


@pytest.mark.parametrize("kv_heads", [2, 7, 14])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize(
    "groups", [[(100, ()), (1, ()), (37, ()), (64, ())], [(40, (60, 1, 37)), (1, ()), (3, (5, 60))]]
)
def test_flash_attention_within_rows_is_sdpa_row_by_row(kv_heads, size, window, groups):
    torch.manual_seed(0)
    packing = Packing.of(groups, torch.device(CUDA))
    length = sum(packing.query_lengths)
    shapes = [(1, heads, length, size) for heads in (14, kv_heads, kv_heads)]
    exact = [torch.randn(shape, device=CUDA).bfloat16().float().requires_grad_() for shape in shapes]
    short = [part.detach().bfloat16().requires_grad_() for part in exact]
    upstream = torch.randn(1, length, 14, size, device=CUDA)
    module = nn.Module()
    for parts in (short, exact):  # float32 goes row by row
        output, _ = attend_within_rows(module, *parts, None, packing=packing, sliding_window=window)
        assert output.shape == upstream.shape
        (output.float() * upstream).sum().backward()
    for one, other in zip(short, exact, strict=True):
        assert distance(one.grad, other.grad) < 0.02


@pytest.mark.parametrize("config", [{}, {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}])
def test_a_model_gives_packed_rows_what_it_gives_each_alone(config):
    assert why_not_packed(body_and_head(random_model(**config).model)[0]) is None


@pytest.mark.parametrize("loss", [{}, {"ratio": "completion"}, {"entropy_bonus": 0.1}])
def test_packed_bf16_gradients_are_as_near_to_fp32_as_padded_ones(loss):
    language_model, rows = random_model(), random_rows()
    wanted = gradient(policy_of(exact_copy(language_model), False, **loss), rows)
    of_padded = distance(gradient(policy_of(language_model, False, **loss), rows), wanted)
    of_packed = distance(gradient(policy_of(language_model, True, **loss), rows), wanted)
    assert of_padded < 0.1
    assert of_packed < 1.2 * of_padded + 1e-3


def test_packed_fp32_gradients_are_those_of_padded_rows():
    language_model, rows = random_model(torch.float32), random_rows()
    found, wanted = (gradient(policy_of(language_model, each), rows) for each in (True, False))
    assert distance(found, wanted) < 1e-5


def test_activations_of_packed_rows_can_be_computed_again():
    language_model, rows = random_model(), random_rows()
    wanted = gradient(policy_of(language_model, True), rows)
    language_model.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    language_model.model.enable_input_require_grads()
    found = gradient(policy_of(language_model, True, is_checkpointed=True), rows)
    assert distance(found, wanted) < 0.01  # flash attention adds up in any order


def test_bf16_log_probabilities_are_near_those_of_fp32():
    language_model, rows = random_model(), random_rows()
    exact = exact_copy(language_model)
    with torch.no_grad():
        scores = []
        for policy in (policy_of(language_model, True), policy_of(exact, False)):
            batch = policy._batch(rows)
            scores.append([score_RT[batch.mask_RT] for score_RT in policy.score(batch)])
    for found, wanted in zip(*scores, strict=True):
        assert float((found - wanted).abs().mean()) < 0.02


# Liger's layers


@pytest.fixture
def liger():
    pytest.importorskip("liger_kernel")


FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"mlp_bias": True}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"head_dim": 16}),
}
SHAPE = {
    "vocab_size": 40, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.1, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip


def random_family(name, has_adapter):
    kind, config, more = FAMILIES[name]
    torch.manual_seed(0)
    model = kind(config(**SHAPE, **more))
    if has_adapter:
        model = add_adapter(model, LoraSettings(rank=2))
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model.to(CUDA)


def logits_and_gradients(model):
    model.zero_grad()
    logits = model(input_ids=torch.arange(2, 16, device=CUDA).view(2, 7), use_cache=False).logits
    logits.log_softmax(-1)[..., 3].sum().backward()
    return [logits.detach(), *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("has_adapter", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_with_fused_layers_is_the_same_and_so_is_its_copy(liger, name, has_adapter, is_checkpointed):
    model = random_family(name, has_adapter)
    if is_checkpointed:
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    wanted = logits_and_gradients(model)
    assert fused_layers.fuse_layers(model) is None
    for fused in (model, deepcopy(model)):
        for found, other in zip(logits_and_gradients(fused), wanted, strict=True):
            assert distance(found, other) < 1e-4


@pytest.mark.parametrize("is_packed", [True, False])
def test_bf16_gradients_with_fused_layers_are_nearly_as_near_to_fp32_as_without(liger, is_packed):
    models, rows = (random_model(), random_model()), random_rows()
    wanted = gradient(policy_of(exact_copy(models[0]), False, has_fused_layers=False), rows)
    fused, plain = policy_of(models[0], is_packed), policy_of(models[1], is_packed, has_fused_layers=False)
    assert fused.note is None
    # On an H200: 0.053 with Liger's layers, 0.042 without.
    assert 0 < distance(gradient(fused, rows), wanted) < 1.5 * distance(gradient(plain, rows), wanted) < 0.1


def test_fp32_gradients_with_fused_layers_are_those_without(liger):
    rows = random_rows()
    policies = [policy_of(random_model(torch.float32), False, has_fused_layers=each) for each in (True, False)]
    found, wanted = (gradient(policy, rows) for policy in policies)
    assert 0 < distance(found, wanted) < 1e-5


# The optimizer


@pytest.mark.parametrize("state", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_steps_as_plain_torch_does(dtype, is_split, state):
    settings = OptimizerSettings(learning_rate=1e-3, warmup=0.0, schedule="constant", weight_decay=0.1, state=state)
    torch.manual_seed(0)
    start = torch.randn(100_003).to(dtype)
    weights = [nn.Parameter(start.clone().to(device)) for device in (CUDA, "cpu")]
    optimizers = [LowMemoryAdamW([weight], settings, 10, is_split=is_split) for weight in weights]
    for _ in range(10):
        grad = torch.randn(100_003).to(dtype)
        norms = []
        for weight, optimizer in zip(weights, optimizers, strict=True):
            optimizer.expect(1)
            weight.grad = grad.to(weight.device)
            norms.append(float(optimizer.step()))
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    found, wanted = (optimizer._weights[0].master(slice(None)).cpu() for optimizer in optimizers)
    assert distance(found - start.float(), wanted - start.float()) < (1e-4 if state == "float32" else 0.03)
    assert torch.equal(weights[0].detach().cpu(), found.to(dtype)) or is_split  # where ties go away from 0


@pytest.mark.parametrize("is_split", [False, True])
def test_a_gradient_that_is_no_number_changes_nothing(is_split):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(1000).to(CUDA, torch.bfloat16))
    optimizer = open_optimizer([weight], OptimizerSettings(learning_rate=1e-2), 10, has_adapter=not is_split)
    for value in (1.0, math.nan):
        before = weight.detach().clone()
        optimizer.expect(1)
        weight.grad = torch.full_like(weight, value)
        optimizer.collect()
        norm = float(optimizer.step())
        assert torch.equal(weight, before) == math.isnan(norm) == math.isnan(value)


def test_a_whole_update_moves_the_masters():
    language_model, rows = random_model(), random_rows()
    compute = ComputeSettings(device=CUDA, micro_batch=2)
    options = {"updates": 1, "temperature": 1.0, "max_tokens": 512}
    settings = OptimizerSettings(learning_rate=1e-4, schedule="constant", warmup=0, state="bfloat16")
    policy = Policy(language_model, LossSettings(), settings, compute, **options)
    held = policy.optimizer._weights
    before = [weight.master(slice(None)).clone() for weight in held]
    policy._set_mode()
    sums, grad_norm = policy._step(policy.rescore([rows])[0]).read()
    assert sums.clipped == 0
    assert 0 < grad_norm < 100
    assert all((weight.master(slice(None)) != old).any() for weight, old in zip(held, before, strict=True))


@pytest.mark.parametrize("is_split", [False, True])
def test_an_update_of_packed_rows_is_queued_without_waiting_for_the_gpu(is_split):
    """Of padded rows, transformers itself looks at the positions."""
    compute = ComputeSettings(device=CUDA, micro_batch=2)
    options = {"updates": 2, "temperature": 1.0, "max_tokens": 512}
    with packed(True), nullcontext() if is_split else whole_masters():
        policy = Policy(random_model(), LossSettings(), OptimizerSettings(), compute, **options)
    policy._set_mode()
    (rows,) = policy.rescore([random_rows()])
    policy._step(rows).read()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        old_RT = policy._old_logprobs(rows)
        step = policy._step(rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert old_RT.isfinite().all()
    assert step.read()[0].tokens == sum(len(row.tokens_T) for row in rows)
