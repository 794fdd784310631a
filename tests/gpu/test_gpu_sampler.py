"""The sampler with captured steps on a GPU against plain forward passes, on random weights in the shapes of real models."""

import gc

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from scrl.sampling.gpu import decode_step, graph_engine, scheduler
from scrl.sampling.gpu.decode_step import ALIVE, COMPLETION, FIELDS, LIMIT, Completions, DecodeState
from scrl.sampling.gpu.scheduler import min_pages
from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

CUDA = "cuda"
WORDS = 1003  # no multiple of anything
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
SMALL = {"num_hidden_layers": 3, "intermediate_size": 1001, "max_position_embeddings": 32768}


class Silent:
    """As much of a tokenizer as the sampler uses."""

    eos_token_id = None

    def batch_decode(self, rows, **_):
        return ["" for _ in rows]


def model_of(name, words=WORDS, dtype=torch.bfloat16):
    """Heads as in the named model, three layers of it."""
    torch.manual_seed(0)
    # With wider weights a bfloat16 forward of three layers is 0.04 from a float32 one by itself.
    common = {
        **SMALL, "initializer_range": 0.05 if dtype == torch.float32 else 0.02, "vocab_size": words,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    if name == "qwen2.5-0.5b":
        heads = {"hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2}
        model = Qwen2ForCausalLM(Qwen2Config(**common, **heads, tie_word_embeddings=True))
    elif name == "qwen2.5-3b":
        heads = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2}
        model = Qwen2ForCausalLM(Qwen2Config(**common, **heads))
    elif name == "qwen3-4b":
        heads = {"hidden_size": 640, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
        model = Qwen3ForCausalLM(Qwen3Config(**common, **heads))
    else:
        heads = {"hidden_size": 768, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128}
        model = LlamaForCausalLM(LlamaConfig(**common, **heads, rope_parameters=LLAMA3))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return model.to(CUDA, dtype).eval()


NAMES = ("qwen2.5-0.5b", "qwen2.5-3b", "qwen3-4b", "llama-3.2-3b")
HOW = {"seed": 0, "step": 0}


def prompts(*lengths, words=WORDS):
    rng = np.random.default_rng(0)
    return [Prompt(f"question-{place}", rng.integers(0, words, length)) for place, length in enumerate(lengths)]


def sampler_of(model, max_rows=256, record=()):
    notes = []
    sampler = LocalSampler(model, Silent(), max_rows=max_rows, record=record, on_note=notes.append)
    assert sampler.note is None
    assert sampler._engine is not None
    sampler.notes = notes  # type: ignore[attr-defined]
    return sampler


def tokens_of(samples_BG):
    return [[sample.tokens_T.tolist() for sample in samples_G] for samples_G in samples_BG]


@torch.no_grad()
def plain_logits(model, prompt, sample):
    """float32 logits [T, V] of a completion by one forward over all of it, with float32 arithmetic."""
    joined = torch.from_numpy(np.concatenate((prompt.tokens_P, sample.tokens_T))).to(CUDA)[None]
    return model(input_ids=joined, use_cache=False).logits[0, len(prompt.tokens_P) - 1 : -1].float()


def differences(model, prompts_B, samples_BG, temperature=1.0):
    """|Δ log-prob| and |Δ entropy| of all tokens against the model in float32, or a float32 copy of it."""
    wide = model
    if model.dtype != torch.float32:
        wide = type(model)(model.config).to(CUDA).eval()
        wide.load_state_dict(model.state_dict())
    found = []
    for prompt, samples_G in zip(prompts_B, samples_BG, strict=True):
        for sample in samples_G:
            logprobs_TV = torch.log_softmax(plain_logits(wide, prompt, sample) / temperature, dim=-1)
            tokens_T = torch.from_numpy(sample.tokens_T).to(CUDA)
            entropies_T = torch.special.entr(logprobs_TV.exp()).sum(-1)
            logprobs_T = logprobs_TV.gather(1, tokens_T[:, None])[:, 0]
            pairs = ((sample.logprobs_T, logprobs_T), (sample.entropies_T, entropies_T))
            found.append([np.abs(one - other.cpu().numpy()) for one, other in pairs])
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_greedy_tokens_are_those_of_a_float32_forward(name):
    """Every token is the likeliest, unless the two highest logits differ by less than 1e-3."""
    model = model_of(name, dtype=torch.float32)
    prompts_B = prompts(1, 17, 300)
    settings = SamplingSettings(temperature=0, max_tokens=80)
    samples_BG = sampler_of(model).sample(prompts_B, settings, num_samples=3, **HOW)
    for prompt, samples_G in zip(prompts_B, samples_BG, strict=True):
        for sample in samples_G:
            logits_TV = plain_logits(model, prompt, sample)
            top_T2 = logits_TV.topk(2, dim=-1)
            is_near_T = top_T2.values[:, 0] - top_T2.values[:, 1] < 1e-3
            agrees_T = top_T2.indices[:, 0].cpu() == torch.from_numpy(sample.tokens_T)
            assert (agrees_T | is_near_T.cpu()).all()


@pytest.mark.parametrize("name", NAMES)
def test_scores_in_bfloat16_are_close_to_a_float32_forward(name):
    model = model_of(name)
    prompts_B = prompts(1, 17, 300)
    settings = SamplingSettings(temperature=0.8, max_tokens=100)
    samples_BG = sampler_of(model).sample(prompts_B, settings, num_samples=16, **HOW)
    logprobs, entropies = differences(model, prompts_B, samples_BG, 0.8)
    assert logprobs.mean() < 0.02
    assert entropies.mean() < 0.02


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_scores_with_an_adapter_are_those_of_the_adapted_model(name, dtype):
    """As with full weights; a model that left the adapter out would be far off. An update is seen by the next call."""
    model = adapted(model_of(name, dtype=dtype))
    prompts_B, settings = prompts(1, 17, 300), SamplingSettings(temperature=0.8, max_tokens=100)
    sampler = sampler_of(model)
    wide = adapted(model_of(name, dtype=torch.float32))
    for _ in range(2):
        samples_BG = sampler.sample(prompts_B, settings, num_samples=16, **HOW)
        wide.load_state_dict(model.state_dict())
        logprobs, entropies = differences(wide, prompts_B, samples_BG, 0.8)
        bound = 1e-3 if dtype == torch.float32 else 0.02
        assert logprobs.mean() < bound
        assert entropies.mean() < bound
        with wide.disable_adapter():
            assert differences(wide, prompts_B, samples_BG, 0.8)[0].mean() > 2 * bound
        change_adapter(model)
    assert sampler.notes == []


def adapted(model):
    """With an adapter of rank 16 that changes what it writes."""
    peft = pytest.importorskip("peft")
    options = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    model = peft.get_peft_model(model, peft.LoraConfig(**options)).eval()
    change_adapter(model)
    return model


@torch.no_grad()
def change_adapter(model):
    for weight_name, weight in model.named_parameters():
        if "lora_" in weight_name:
            weight.add_(0.02 * torch.randn_like(weight))  # wider ones round more: see model_of


def test_captured_steps_draw_what_steps_without_capture_draw():
    model = model_of("qwen2.5-3b")
    prompts_B, settings = prompts(40, 9), SamplingSettings(max_tokens=60)
    captured, not_captured = sampler_of(model), sampler_of(model)
    not_captured._engine._graphs._can_capture = False
    found, expected = (each.sample(prompts_B, settings, num_samples=20, **HOW) for each in (captured, not_captured))
    assert captured._engine.captures > 0
    assert not_captured._engine.captures == 0
    assert captured.notes == []
    assert tokens_of(found) == tokens_of(expected)


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=40),
        SamplingSettings(top_k=20, top_p=0.9, max_tokens=40),
        SamplingSettings(temperature=0, max_tokens=40),
    ],
    ids=["top-p", "top-k", "greedy"],
)
def test_restricted_draws_and_facts_are_those_of_plain_torch(settings):
    """In float32 the two paths round similarly enough for nearly all rows to agree to the end."""
    model = model_of("qwen2.5-0.5b", dtype=torch.float32)
    prompts_B = prompts(40, 9)
    captured, eager = (sampler_of(model, record=("margin",)) for _ in range(2))
    eager._engine = None  # GroupDecoder and sampling.draw
    found, expected = (each.sample(prompts_B, settings, num_samples=32, **HOW) for each in (captured, eager))
    pairs = list(zip(sum(found, ()), sum(expected, ()), strict=True))
    same = [(a, b) for a, b in pairs if a.tokens_T.tolist() == b.tokens_T.tolist()]
    assert len(same) >= 0.95 * len(pairs)
    for one, other in same:
        for name in ("logprobs_T", "entropies_T", "margins_T"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=2e-3)


def test_rows_enter_as_others_end():
    model = model_of("qwen3-4b")
    model.generation_config.eos_token_id = list(range(0, WORDS, 50))  # lengths of about 50 tokens, spread widely
    prompts_B, settings = prompts(30, 5, 61, 17, 200, 8), SamplingSettings(max_tokens=300)
    samples_BG = sampler_of(model, max_rows=32).sample(prompts_B, settings, num_samples=24, **HOW)
    assert len({len(sample.tokens_T) for sample in sum(samples_BG, ())}) > 20
    ends = set(model.generation_config.eos_token_id)
    for sample in sum(samples_BG, ()):
        assert sample.is_finished == (int(sample.tokens_T[-1]) in ends)
        assert not ends & set(sample.tokens_T[:-1].tolist())
    logprobs, _ = differences(model, prompts_B, samples_BG)
    assert logprobs.mean() < 0.02


def test_preempted_rows_go_on(monkeypatch):
    monkeypatch.setattr(scheduler, "ENOUGH_LENGTHS", 1)
    monkeypatch.setattr(scheduler, "QUANTILE", 0.0)
    monkeypatch.setattr(graph_engine, "max_pages", lambda rows, slots, page_size: min_pages(rows, page_size) + 24)
    model = model_of("qwen2.5-0.5b")
    model.generation_config.eos_token_id = [3]  # most reach the limit, four pages, and are admitted with fewer
    prompts_B, settings = prompts(30, 5), SamplingSettings(max_tokens=900)
    sampler = sampler_of(model, max_rows=64)
    samples_BG = sampler.sample(prompts_B, settings, num_samples=40, **HOW)
    assert sampler._engine.preemptions > 0
    logprobs, _ = differences(model, prompts_B, samples_BG)
    assert logprobs.mean() < 0.02


def test_memory_is_freed_and_new_weights_are_seen():
    model = model_of("qwen2.5-3b")
    sampler, prompts_B, settings = sampler_of(model), prompts(40, 9), SamplingSettings(max_tokens=60)
    gc.collect()
    allocated = torch.cuda.memory_allocated()
    before = sampler.sample(prompts_B, settings, num_samples=20, **HOW)
    sampler.release()
    assert torch.cuda.memory_allocated() < allocated + 2**27  # cuBLAS keeps its workspaces
    assert tokens_of(sampler.sample(prompts_B, settings, num_samples=20, **HOW)) == tokens_of(before)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.05)
    after = sampler.sample(prompts_B, settings, num_samples=20, **HOW)
    assert tokens_of(after) != tokens_of(before)
    assert differences(model, prompts_B, after)[0].mean() < 0.02


def drawn_by(ops, logits_RV, settings):
    """One token per row, and its scores."""
    rows = len(logits_RV)
    fields = torch.zeros(len(FIELDS), rows, dtype=torch.int32, device=CUDA)
    fields[ALIVE], fields[LIMIT], fields[COMPLETION] = 1, 9, torch.arange(rows)
    draw_params = torch.tensor([settings.temperature or 1.0, settings.top_p], device=CUDA)
    state = DecodeState(fields, None, None, torch.tensor([-1], dtype=torch.int32, device=CUDA), draw_params)
    uniforms = torch.from_numpy(np.random.default_rng(1).random((rows + 1, 1), dtype=np.float32)).to(CUDA)
    blank = torch.zeros(rows + 1, 1, device=CUDA)
    completions = Completions(blank.int(), blank.clone(), blank.clone(), blank[:, 0].int(), uniforms, {})
    ops.draw_tokens(logits_RV, state, completions, settings)
    return completions


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_tokens_are_drawn_as_often_as_they_should_be(top_p):
    """χ² of 65,536 draws from 40 words: with k − 1 degrees of freedom it stays below k + 5 √(2 k)."""
    from scrl.sampling.gpu import kernels

    rows = 65_536
    logits_V = torch.randn(40, generator=torch.Generator().manual_seed(3)).to(CUDA)
    settings = SamplingSettings(top_p=top_p)
    tokens = drawn_by(kernels, logits_V.expand(rows, -1).contiguous(), settings).tokens_CT[:rows, 0]
    probs_V = logits_V.softmax(0).double()
    if top_p < 1:
        order = probs_V.argsort(descending=True)
        kept = order[(probs_V[order].cumsum(0) - probs_V[order]) < top_p]
        probs_V = torch.zeros_like(probs_V).scatter(0, kept, probs_V[kept])
        probs_V /= probs_V.sum()
    counts_V = torch.bincount(tokens.long(), minlength=40).double()
    possible_V = probs_V > 0
    assert counts_V[~possible_V].sum() == 0
    expected_V = rows * probs_V[possible_V]
    number = int(possible_V.sum())
    assert float(((counts_V[possible_V] - expected_V) ** 2 / expected_V).sum()) < number + 5 * (2 * number) ** 0.5


@pytest.mark.parametrize("spread", [0.02, 4.0])
@pytest.mark.parametrize("top_p", [1.0, 0.95])
def test_a_real_vocabulary_is_drawn_from_as_by_plain_torch(top_p, spread):
    from scrl.sampling.gpu import kernels

    logits_RV = spread * torch.randn(128, 151_936, device=CUDA, generator=torch.Generator(CUDA).manual_seed(0))
    settings = SamplingSettings(temperature=0.6, top_p=top_p)
    found, expected = (drawn_by(ops, logits_RV, settings) for ops in (kernels, decode_step))
    torch.testing.assert_close(found.entropies_CT, expected.entropies_CT, atol=1e-3, rtol=1e-4)
    # Sums over a vocabulary round differently: where words weigh 1e-5 each, a neighbour may be drawn.
    distance = (found.tokens_CT - expected.tokens_CT).abs()[:128, 0]
    assert (distance == 0).float().mean() > (0.9 if spread > 1 else 0.5)
    logprobs = torch.log_softmax(logits_RV.double() / 0.6, -1).gather(1, found.tokens_CT[:128].long())
    torch.testing.assert_close(found.logprobs_CT[:128].double(), logprobs, atol=1e-4, rtol=1e-4)
