"""The local sampler against transformers itself: what it records, and what it draws greedily."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_models import (
    END,
    GROUPED,
    OTHERS,
    SHAPE,
    TOKENIZER,
    assert_same,
    assert_scored_as_by_plain_forward,
    prompts,
    set_ends,
    tiny_model,
    tokens_of,
)
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM

from scrl.data.prompts import PromptSettings, prompt_tokens
from scrl.policy.model import load_model
from scrl.policy.settings import ComputeSettings
from scrl.records import Question
from scrl.sampling.decoders import GroupDecoder, TransformersDecoder, left_pad, why_not_grouped
from scrl.sampling.local import LocalSampler, end_tokens
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

LENGTHS = (1, 5, 11, 3)
GREEDY = SamplingSettings(temperature=0, max_tokens=24)


def drawn(model, prompts_B, settings, num_samples=3, seed=0, step=0):
    sampler = LocalSampler(model, TOKENIZER, max_rows=512)
    return sampler.sample(prompts_B, settings, num_samples=num_samples, seed=seed, step=step)


def generated(model, prompt, max_tokens):
    """What transformers writes greedily, alone and unpadded."""
    tokens = torch.from_numpy(prompt.tokens_P)[None]
    how = {"do_sample": False, "max_new_tokens": max_tokens, "pad_token_id": 0}
    output = model.generate(tokens, attention_mask=torch.ones_like(tokens), **how)
    return output[0, tokens.shape[1] :].tolist()


# What is recorded


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("name", [*GROUPED, *OTHERS])
def test_logprobs_and_entropies_are_those_of_a_plain_forward(name, temperature):
    model, prompts_B = tiny_model(name), prompts(*LENGTHS)
    samples_BG = drawn(model, prompts_B, SamplingSettings(temperature=temperature, max_tokens=20))
    assert_scored_as_by_plain_forward(model, prompts_B, samples_BG, temperature)


@pytest.mark.parametrize(
    "settings", [GREEDY, SamplingSettings(top_p=0.6, top_k=5, max_tokens=24)], ids=["greedy", "top"]
)
def test_restricted_draws_record_the_whole_policy_at_temperature_1(settings):
    model, prompts_B = tiny_model("qwen3"), prompts(*LENGTHS)
    samples_BG = drawn(model, prompts_B, settings)
    assert_scored_as_by_plain_forward(model, prompts_B, samples_BG, 1.0)
    assert tokens_of(samples_BG) != tokens_of(drawn(model, prompts_B, SamplingSettings(max_tokens=24)))


# Greedy


@pytest.mark.parametrize("name", [*GROUPED, *OTHERS])
def test_greedy_is_what_transformers_generates_to_the_end_token(name):
    model, prompts_B = tiny_model(name), prompts(*LENGTHS)
    free = [generated(model, prompt, GREEDY.max_tokens) for prompt in prompts_B]
    set_ends(model, END, free[1][len(free[1]) // 2], free[3][2])  # so that rows end in different places
    expected = [generated(model, prompt, GREEDY.max_tokens) for prompt in prompts_B]
    assert len({len(tokens) for tokens in expected}) > 1
    samples_BG = drawn(model, prompts_B, GREEDY, num_samples=2)
    assert tokens_of(samples_BG) == [[tokens, tokens] for tokens in expected]
    for (sample, _), tokens in zip(samples_BG, expected, strict=True):
        assert sample.is_finished == (tokens[-1] in end_tokens(model, TOKENIZER))


# Which decoder


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, None) for name in GROUPED), ("gpt2", "GPT2LMHeadModel"), ("gpt-neox", "GPTNeoXForCausalLM")],
)
def test_a_note_says_why_sampling_is_slower(name, kind):
    note = LocalSampler(tiny_model(name), TOKENIZER, max_rows=512).note
    assert (note is None) == (kind is None)
    assert kind is None or kind in note


def test_models_the_group_decoder_would_get_wrong_are_left_to_transformers():
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert "'dynamic'" in why_not_grouped(LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=dynamic)))
    assert "sliding window" in why_not_grouped(MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=8)))
    assert why_not_grouped(MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None))) is None
    windowed = Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert "sliding window" in why_not_grouped(Qwen2ForCausalLM(windowed))


@pytest.mark.parametrize("name", ["llama", "llama-mqa", "qwen2", "qwen3"])
def test_both_decoders_write_the_same(name):
    model, prompts_B = tiny_model(name), prompts(*LENGTHS)
    fallback = LocalSampler(model, TOKENIZER, max_rows=512)
    fallback._decoder = TransformersDecoder
    for settings in (SamplingSettings(max_tokens=30), SamplingSettings(temperature=0.7, top_p=0.9, max_tokens=30)):
        slow = fallback.sample(prompts_B, settings, num_samples=4, seed=3, step=1)
        fast = drawn(model, prompts_B, settings, num_samples=4, seed=3, step=1)
        assert_same(slow, fast)


@pytest.mark.parametrize("decoder_class", [GroupDecoder, TransformersDecoder])
def test_a_decoder_goes_on_with_the_rows_it_keeps(decoder_class):
    model = tiny_model("llama")
    prompts_B = prompts(4, 7, seed=5)
    decoder = decoder_class(model)
    tokens_T = [3, 9, 4, 30]
    with torch.inference_mode():
        decoder.start(*left_pad([p.tokens_P for p in prompts_B], torch.device("cpu")), group_size=2, max_tokens=5)
        decoder.step(torch.tensor([tokens_T[0]] * 4))
        decoder.keep(torch.tensor([1, 2, 3]))
        decoder.step(torch.tensor([tokens_T[1]] * 3))
        decoder.keep(torch.tensor([2]))  # the second prompt alone
        for token in tokens_T[2:]:
            logits_RV = decoder.step(torch.tensor([token]))
        joined = torch.tensor([[*prompts_B[1].tokens_P, *tokens_T]])
        torch.testing.assert_close(logits_RV, model(joined).logits[:, -1], atol=1e-4, rtol=1e-4)


# Whose weights


def test_an_adapter_is_sampled_from():
    base = tiny_model("llama")
    prompts_B, settings = prompts(*LENGTHS), SamplingSettings(max_tokens=16)
    before = tokens_of(drawn(base, prompts_B, settings))
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert tokens_of(drawn(model, prompts_B, settings)) == before  # a new adapter adds nothing
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.3)
    sampler = LocalSampler(model, TOKENIZER, max_rows=512)
    assert sampler.note is None
    samples_BG = sampler.sample(prompts_B, settings, num_samples=3, seed=0, step=0)
    assert tokens_of(samples_BG) != before
    assert_scored_as_by_plain_forward(model, prompts_B, samples_BG, 1.0)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_weights_changed_in_place_are_seen_by_the_next_call(name):
    model = tiny_model(name)
    prompts_B, settings = prompts(*LENGTHS), SamplingSettings(max_tokens=16)
    sampler = LocalSampler(model, TOKENIZER, max_rows=512)
    before = sampler.sample(prompts_B, settings, num_samples=3, seed=0, step=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    after = sampler.sample(prompts_B, settings, num_samples=3, seed=0, step=0)
    assert tokens_of(after) != tokens_of(before)
    assert_scored_as_by_plain_forward(model, prompts_B, after, 1.0)


def test_sampling_leaves_a_model_in_training_in_training_and_able_to_train():
    model = tiny_model("llama").train()
    drawn(model, prompts(3, 4), SamplingSettings(max_tokens=4))
    assert model.training
    model(torch.tensor([[3, 4, 5]])).logits.sum().backward()
    assert model.model.embed_tokens.weight.grad is not None


def test_dropout_is_off_while_sampling():
    model = tiny_model("gpt2").train()  # GPT-2 has a dropout of 0.1
    prompts_B = prompts(3, 6)
    samples_BG = drawn(model, prompts_B, SamplingSettings(max_tokens=12))
    assert_scored_as_by_plain_forward(model.eval(), prompts_B, samples_BG, 1.0)


# The embedded model


def test_the_embedded_model_solves_what_it_was_made_for():
    loaded = load_model("embedded", ComputeSettings(device="cpu"))
    sampler = LocalSampler(loaded.model, loaded.tokenizer, max_rows=512)
    style = PromptSettings(instruction="")
    questions = [Question(text, text) for text in ("Compute 31+4+52.", "Compute 12+(7-2).")]  # no carry: no slips
    prompts_B = [Prompt(q.id, prompt_tokens(q, loaded.tokenizer, style)) for q in questions]
    greedy = SamplingSettings(temperature=0, max_tokens=64)
    samples_BG = sampler.sample(prompts_B, greedy, num_samples=1, seed=0, step=0)
    assert [samples[0].text.splitlines()[-1] for samples in samples_BG] == ["\\boxed{87}", "\\boxed{17}"]
    assert all(samples[0].is_finished for samples in samples_BG)
    assert sampler.note is None
