"""The GPU engine, here without a GPU and in plain torch: the same completions as by eager decoding."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tiny_models import (
    END,
    GROUPED,
    SHAPE,
    TOKENIZER,
    assert_same,
    assert_scored_as_by_plain_forward,
    captured_sampler,
    prompts,
    set_ends,
    tiny_model,
    tokens_of,
)
from transformers import LlamaConfig, LlamaForCausalLM

from scrl.credit.method import Tree
from scrl.data.arithmetic import arithmetic_questions
from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.policy.model import load_model
from scrl.policy.settings import ComputeSettings
from scrl.sampling.gpu import graph_engine, scheduler
from scrl.sampling.gpu.fused_weights import fuse, why_not_fused
from scrl.sampling.gpu.scheduler import Scheduler, min_pages
from scrl.sampling.groups import sample_tree
from scrl.sampling.local import LocalSampler, open_engine, requests_for
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

LENGTHS = (1, 5, 40, 3)
HOW = {"num_samples": 5, "seed": 0, "step": 1}
KINDS = [
    SamplingSettings(max_tokens=60), SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=30),
    SamplingSettings(temperature=0, max_tokens=30), SamplingSettings(top_k=5, max_tokens=30),
    SamplingSettings(stop=("ab", "the"), max_tokens=60),
]  # fmt: skip


def eager(model, record=()):
    return LocalSampler(model, TOKENIZER, max_rows=512, record=record)


def admit_too_many(patch, spare):
    """Far too many rows are admitted to a cache of few pages, so that some are preempted."""
    patch.setattr(scheduler, "ENOUGH_LENGTHS", 1)
    patch.setattr(scheduler, "QUANTILE", 0.0)
    patch.setattr(graph_engine, "max_pages", lambda rows, slots, page_size: min_pages(rows, page_size) + spare)


# The same completions


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, KINDS[0]) for name in GROUPED), *(("qwen3", kind) for kind in KINDS[1:])]
)
def test_completions_are_those_of_eager_decoding(name, kind):
    model = set_ends(tiny_model(name), END, 7, 9)
    prompts_B = prompts(*LENGTHS)
    expected = eager(model, record=("margin",)).sample(prompts_B, kind, **HOW)
    for max_rows in (512, 6):  # all at once, and entering as others leave
        sampler = captured_sampler(model, max_rows=max_rows, record=("margin",))
        assert_same(sampler.sample(prompts_B, kind, **HOW), expected)


def test_completions_may_end_where_a_page_does():
    model = set_ends(tiny_model("qwen2"), END, 7)
    prompts_B, kind = prompts(16, 33, 1), SamplingSettings(max_tokens=16)  # one page each, filled to the last column
    expected = eager(model).sample(prompts_B, kind, **HOW)
    for max_rows in (512, 5):
        assert_same(captured_sampler(model, max_rows=max_rows).sample(prompts_B, kind, **HOW), expected)


def test_the_embedded_model_writes_the_same():
    loaded = load_model("embedded", ComputeSettings(device="cpu"))
    format_ = PromptSettings(instruction="")
    questions = arithmetic_questions("medium", 3)
    prompts_B = [Prompt(q.id, prompt_tokens(q, loaded.tokenizer, format_)) for q in questions]
    kind, how = SamplingSettings(max_tokens=72), {"num_samples": 4, "seed": 3, "step": 2}
    expected = LocalSampler(loaded.model, loaded.tokenizer, max_rows=512).sample(prompts_B, kind, **how)
    sampler = captured_sampler(loaded.model, max_rows=8, page_size=32, tokenizer=loaded.tokenizer)
    assert_same(sampler.sample(prompts_B, kind, **how), expected)


@pytest.mark.parametrize(("spare", "seed"), [(0, 0), (0, 2), (3, 2), (10, 0)])
def test_preempted_rows_are_prefilled_again_and_go_on(monkeypatch, spare, seed):
    """A row may get just the pages that another gives up: as many as before, and not the same."""
    model = set_ends(tiny_model("qwen3"), END, 7)
    prompts_B, how = prompts(1, 20, 9), {"num_samples": 12, "seed": seed, "step": 0}
    expected = eager(model).sample(prompts_B, KINDS[0], **how)
    admit_too_many(monkeypatch, spare)
    sampler = captured_sampler(model, max_rows=24)
    assert_same(sampler.sample(prompts_B, KINDS[0], **how), expected)
    assert sampler._engine.preemptions > 0


def test_trees_have_prompts_and_limits_of_many_lengths():
    model = set_ends(tiny_model("qwen2"), END, 7)
    kind, tree = SamplingSettings(max_tokens=40), Tree(roots=2, forks=2, branches=2)
    samplers = (captured_sampler(model, max_rows=5), eager(model))
    assert_same(*(sample_tree(sampler, prompts(3, 8), kind, tree, seed=1, step=0) for sampler in samplers))


def test_memory_is_kept_between_calls_until_it_is_released():
    sampler, kind = captured_sampler(tiny_model("llama")), SamplingSettings(max_tokens=20)
    how = {"num_samples": 3, "seed": 0, "step": 0}
    first = sampler.sample(prompts(4, 6), kind, **how)
    memory = sampler._engine._memory
    for lengths in ((2,), (5, 7), (4, 6)):  # less; longer prompts, as many pages; the same
        again = sampler.sample(prompts(*lengths), kind, **how)
        assert sampler._engine._memory is memory
    assert_same(again, first)
    sampler.sample(prompts(4, 6), kind, **how | {"num_samples": 9})  # needs more
    assert sampler._engine._memory is not memory
    sampler.release()
    assert sampler._engine._memory is None
    assert_same(sampler.sample(prompts(4, 6), kind, **how), first)


# Weights


@pytest.mark.parametrize("name", GROUPED)
def test_fused_weights_compute_the_same_train_and_save(name, tmp_path):
    model = tiny_model(name)
    tokens = torch.tensor([[3, 4, 5, 6]])
    before = model(tokens).logits
    weights = fuse(model)
    torch.testing.assert_close(model(tokens).logits, before)
    assert fuse(model).addresses == weights.addresses  # nothing moves twice
    model(tokens).logits.sum().backward()
    torch.optim.AdamW(model.parameters(), lr=0.1).step()
    attention = model.model.layers[1].self_attn
    projections = torch.cat([p.weight for p in (attention.q_proj, attention.k_proj, attention.v_proj)])
    torch.testing.assert_close(weights.layers[1].qkv.weight, projections)
    model.save_pretrained(tmp_path)
    read = type(model).from_pretrained(tmp_path)
    for (_, one), (_, other) in zip(sorted(model.named_parameters()), sorted(read.named_parameters()), strict=True):
        assert torch.equal(one, other)


def test_weights_changed_or_moved_are_seen_by_the_next_call():
    model = tiny_model("llama")
    sampler, prompts_B, kind = captured_sampler(model), prompts(*LENGTHS), SamplingSettings(max_tokens=16)
    before = sampler.sample(prompts_B, kind, **HOW)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    after = sampler.sample(prompts_B, kind, **HOW)
    assert tokens_of(after) != tokens_of(before)
    assert_scored_as_by_plain_forward(model, prompts_B, after, 1.0)
    for weight in model.parameters():
        weight.data = weight.data.clone() * 1.1  # other memory: fused again
    assert_scored_as_by_plain_forward(model, prompts_B, sampler.sample(prompts_B, kind, **HOW), 1.0)


ADAPTERS = {
    "all": ("qwen2", {"r": 4, "target_modules": "all-linear"}),
    "some": ("qwen3", {"r": 7, "lora_alpha": 3, "target_modules": ["q_proj", "v_proj", "down_proj"]}),
    "wide": ("llama-biased", {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}),
}


def adapted_model(which):
    """A model with an adapter that changes what it writes; a new adapter's B is 0, and changes nothing."""
    name, options = ADAPTERS[which]
    model = get_peft_model(set_ends(tiny_model(name), END, 7), LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    change_adapter(model)
    return model


@torch.no_grad()
def change_adapter(model):
    for name, weight in model.named_parameters():
        if "lora_" in name:
            weight.add_(0.1 * torch.randn_like(weight))


@pytest.mark.parametrize("which", ADAPTERS)
def test_an_adapter_is_part_of_every_step(which):
    model = adapted_model(which)
    with model.disable_adapter():
        without = eager(model).sample(prompts(*LENGTHS), KINDS[0], **HOW)
    sampler = captured_sampler(model, max_rows=6)
    for _ in range(2):
        expected = eager(model).sample(prompts(*LENGTHS), KINDS[0], **HOW)
        assert tokens_of(expected) != tokens_of(without)
        assert_same(sampler.sample(prompts(*LENGTHS), KINDS[0], **HOW), expected)
        weights = sampler._engine._weights
        change_adapter(model)  # as an update does; the next call writes with it
    assert sampler._engine._weights is weights or sampler._engine._weights.addresses == weights.addresses
    with model.disable_adapter():
        assert_same(sampler.sample(prompts(*LENGTHS), KINDS[0], **HOW), without)


def test_an_adapter_trains_and_is_saved_after_it_was_sampled_from(tmp_path):
    model = adapted_model("all")
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    captured_sampler(model).sample(prompts(3, 4), SamplingSettings(max_tokens=4), **HOW)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])
    model(torch.tensor([[3, 4, 5]])).logits.sum().backward()
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name in before if "lora_" in name}
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(tiny_model("qwen2"), tmp_path)
    tokens = torch.tensor([[3, 4, 5, 6]])
    torch.testing.assert_close(again(tokens).logits, model(tokens).logits)


def test_why_a_model_is_decoded_eagerly():
    assert why_not_fused(tiny_model("qwen3")) is None
    assert "GPT2LMHeadModel" in why_not_fused(tiny_model("gpt2"))
    assert "heads have 8 numbers" in why_not_fused(tiny_model("llama"))
    adapter = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    assert why_not_fused(get_peft_model(tiny_model("qwen3"), adapter)) is None
    adapter = LoraConfig(r=4, target_modules=["q_proj", "lm_head"], task_type="CAUSAL_LM")
    on_head = get_peft_model(tiny_model("qwen3"), adapter)
    assert "lm_head" in why_not_fused(on_head)
    adapter = LoraConfig(r=86, target_modules=["v_proj"], task_type="CAUSAL_LM")
    assert "85" in why_not_fused(get_peft_model(tiny_model("qwen3"), adapter))
    adapter = LoraConfig(r=4, target_modules=["q_proj"], bias="lora_only", task_type="CAUSAL_LM")
    biased = LlamaForCausalLM(LlamaConfig(**SHAPE | {"num_attention_heads": 2}, attention_bias=True))
    assert "other weights" in why_not_fused(get_peft_model(biased, adapter))
    adapter = LoraConfig(r=4, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM")
    assert "plain LoRA" in why_not_fused(get_peft_model(tiny_model("qwen3"), adapter))
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    assert "'gelu'" in why_not_fused(LlamaForCausalLM(LlamaConfig(**SHAPE | heads, hidden_act="gelu")))
    engine, note = open_engine(on_head, [END], None)
    assert engine is None
    assert "lm_head" in note


# What is known of completions while others are still running


@pytest.mark.parametrize("stop", [(), ("ab", "the")], ids=["ends", "stop texts"])
@pytest.mark.parametrize("spare", [None, 3])
def test_the_scheduler_learns_each_length_once(monkeypatch, stop, spare):
    """A completion that has ended is seen in two snapshots, and rows run past a stop text."""
    if spare is not None:
        admit_too_many(monkeypatch, spare)
    schedulers = []
    monkeypatch.setattr(
        graph_engine, "Scheduler", lambda *sizes: schedulers.append(Scheduler(*sizes)) or schedulers[-1]
    )
    sampler, kind = captured_sampler(set_ends(tiny_model("qwen3"), END, 7)), SamplingSettings(max_tokens=60, stop=stop)
    requests = requests_for(prompts(1, 20, 9), 30, kind, (0, 0))
    rows = sampler._engine.generate(requests, kind, (), 24, sampler.stop_texts(stop))
    assert (sampler._engine.preemptions > 0) == (spare is not None)
    [used] = schedulers
    assert len(used._lengths) > 80  # of 90: those that end last are not learned
    assert all(length == rows.lengths_R[completion] for completion, length in used._lengths.items())
