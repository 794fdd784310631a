"""vLLM 0.24 itself, in this process, on a small random model: what tests/sampling/test_vllm_sampler.py takes for granted.

One instance serves the whole file, because its allocator allows one per process. Eager, so that it starts in seconds.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scrl.policy.model import load_tokenizer
from scrl.policy.scoring import scorer
from scrl.sampling.local import end_tokens
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.vllm import MAX_DRIFT, VllmSampler
from scrl.sampling.vllm_engine import VllmEngine, engine_options, start_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore"),  # vLLM's own, and those of what it imports
]
CUDA = "cuda"
CACHE_BYTES = 2**30
SETTINGS = SamplingSettings(max_tokens=24)
PROMPTS = [
    Prompt(f"question-{place}", np.random.default_rng(place).integers(2, 24, length))
    for place, length in enumerate((17, 40, 33))
]


def random_model(folder=None, seed=0):
    """Qwen2 in small: 2 layers, 4 heads of 64 over 2 of keys and values, the embedded model's 24 tokens padded to 64."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    tokenizer = load_tokenizer("embedded")
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 64) * 64, hidden_size=256, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.1,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    if folder is not None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return model.to(CUDA), tokenizer


def rebound(rig, model):
    """The one instance, asleep, with another model of the same shape."""
    rig.engine.wake()
    engine = VllmEngine(rig.llm, model)
    engine.sleep()
    rig.engine._is_awake = False
    return engine


@pytest.fixture(scope="module")
def rig(tmp_path_factory):
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("model")
    model, tokenizer = random_model(folder)
    options = engine_options(str(folder), torch.bfloat16, rows=64, cache_bytes=CACHE_BYTES, max_length=256, seed=0) | {
        "enforce_eager": True
    }
    engine = start_engine(model, options)
    sampler = VllmSampler(engine, model, tokenizer, scorer(model), max_rows=64)
    return SimpleNamespace(
        folder=folder, model=model, tokenizer=tokenizer, engine=engine, llm=engine._llm, sampler=sampler
    )


def drawn(sampler, settings=SETTINGS, num_samples=16, seed=0, step=0):
    return sampler.sample(PROMPTS, settings, num_samples=num_samples, seed=seed, step=step)


def tokens_of(samples_BG):
    return [[sample.tokens_T.tolist() for sample in samples_G] for samples_G in samples_BG]


def score(model, samples_BG, temperature=1.0):
    """log π of every token that was drawn, by a model."""
    pairs = [(p.tokens_P, s.tokens_T) for p, group in zip(PROMPTS, samples_BG, strict=True) for s in group]
    return np.concatenate([logprobs_T for logprobs_T, _ in scorer(model)(pairs, temperature)])


def test_its_log_probs_are_the_policys_after_one_copy(rig):
    samples_BG = drawn(rig.sampler)  # the self-check has passed, or this would have raised
    print(f"drift {rig.sampler.drift:.5f} nats per token, allowed {MAX_DRIFT}")
    assert rig.sampler.drift < MAX_DRIFT
    assert [len(group) for group in samples_BG] == [16, 16, 16]
    ends = end_tokens(rig.model, rig.tokenizer)
    for sample in sum(samples_BG, ()):
        assert sample.is_finished == (int(sample.tokens_T[-1]) in ends)
        assert sample.is_finished or len(sample.tokens_T) == SETTINGS.max_tokens
        assert not set(sample.tokens_T[:-1].tolist()) & set(ends)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_it_draws_from_the_policys_distribution(rig, temperature):
    """E[log π(token)] = −H at every place, so log π + H has mean 0 over what was drawn."""
    rig.sampler.release()  # so that the drift is that of this temperature
    samples_BG = drawn(rig.sampler, SamplingSettings(max_tokens=8, temperature=temperature), num_samples=256)
    excess = np.concatenate([sample.logprobs_T + sample.entropies_T for sample in sum(samples_BG, ())])
    error = excess.std() / np.sqrt(len(excess))
    print(f"T {temperature}: {excess.mean():+.4f} ± {error:.4f} over {len(excess)} tokens")
    assert abs(excess.mean()) < 4.5 * error
    assert rig.sampler.drift < MAX_DRIFT / temperature
    assert len({tuple(sample.tokens_T.tolist()) for sample in samples_BG[0]}) > 64  # they differ


def test_the_likeliest_tokens_are_the_policys(rig):
    samples_BG = drawn(rig.sampler, SamplingSettings(max_tokens=16, temperature=0.0), num_samples=2)
    for prompt, (sample, copy) in zip(PROMPTS, samples_BG, strict=True):
        assert sample.tokens_T.tolist() == copy.tokens_T.tolist()
        joined = torch.from_numpy(np.concatenate((prompt.tokens_P, sample.tokens_T)))[None].to(CUDA)
        with torch.no_grad():
            logits_TV = rig.model(input_ids=joined).logits[0, len(prompt.tokens_P) - 1 : -1].float()
        chosen_T = logits_TV.gather(-1, torch.from_numpy(sample.tokens_T).to(CUDA)[:, None]).squeeze(-1)
        assert (logits_TV.amax(dim=-1) - chosen_T).max() < 0.1  # two ways to round


def test_sleep_frees_memory_and_new_weights_arrive_after_it(rig):
    before = drawn(rig.sampler)
    awake = torch.cuda.mem_get_info()[0]
    rig.sampler.release()
    freed = torch.cuda.mem_get_info()[0] - awake
    print(f"asleep: {freed / 2**20:.0f} MiB given back")
    assert freed > 0.95 * CACHE_BYTES
    old = {name: weight.clone() for name, weight in rig.model.state_dict().items()}
    with torch.no_grad():
        for weight in rig.model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    after = drawn(rig.sampler)
    moved = score(rig.model, after)
    drift = rig.sampler.drift
    rig.sampler.release()
    rig.model.load_state_dict(old)
    stale = float(np.abs(moved - score(rig.model, after)).mean())
    print(f"drift after the change {drift:.5f}; it would be {stale:.3f} with the weights of before")
    assert tokens_of(after) != tokens_of(before)
    assert drift < MAX_DRIFT < stale


def test_an_adapter_is_drawn_from(rig):
    peft = pytest.importorskip("peft")
    base, _ = random_model()
    config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(base, config).eval()
    sampler = VllmSampler(rebound(rig, adapted), adapted, rig.tokenizer, scorer(adapted), max_rows=64)
    samples_BG = drawn(sampler)
    with adapted.disable_adapter():
        without = score(adapted, samples_BG)
    print(f"drift with an adapter {sampler.drift:.5f}")
    assert sampler.drift < MAX_DRIFT
    assert np.abs(score(adapted, samples_BG) - without).mean() > MAX_DRIFT
    sampler.release()


def test_a_run_trains_and_draws_from_what_it_has_learned(rig, tmp_path, monkeypatch):
    from scrl.config import read_config
    from scrl.training import loop
    from scrl.training.listeners import Silent
    from scrl.training.loop import train

    monkeypatch.setattr("scrl.sampling.vllm.start_engine", lambda model, options: rebound(rig, model))
    monkeypatch.setattr(loop, "check_sampler", lambda compute: None)
    settings = [
        f"model={rig.folder}", "questions=arithmetic:easy:train:4", "prompt.style=plain", "prompt.max_tokens=128",
        "reader=last-number", "steps=2", "questions_per_step=2", "completions=8", "trained=4", "sampling.max_tokens=32",
        "optimizer.learning_rate=1e-3", "evaluation.completions=2", "evaluation.top_p=0.9", "compute.sampler=vllm",
    ]  # fmt: skip
    train(read_config(None, settings), tmp_path / "run", Silent())
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    print([(line["sampler_drift"], line["seconds_rollout"], line["seconds_update"]) for line in lines])
    assert all(line["sampler_drift"] < MAX_DRIFT for line in lines)
