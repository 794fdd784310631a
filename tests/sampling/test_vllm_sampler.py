"""The vLLM sampler over a stand-in (fake_vllm.py): what we ask of vLLM and what we make of its answers.

That vLLM 0.24 itself behaves so is tested by tests/gpu/test_vllm.py, on a machine with a GPU.
"""

import importlib.metadata
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import fake_vllm
import numpy as np
import pytest
import torch
from line_files import read_lines
from listeners import Listener
from tiny_models import (
    END,
    TOKENIZER,
    assert_scored_as_by_plain_forward,
    plain_scores,
    prompts,
    set_ends,
    tiny_model,
    tokens_of,
)

from scrl.config import read_config
from scrl.errors import ConfigError, TrainingError
from scrl.evaluation import benchmark_run
from scrl.evaluation.settings import build_settings
from scrl.policy.scoring import batches, scorer
from scrl.sampling.settings import SamplingSettings
from scrl.sampling.vllm import MAX_DRIFT, VllmSampler, refuse_more, vllm_seed
from scrl.sampling.vllm_engine import engine_options, merged_weights, require_vllm, start_engine
from scrl.training.loop import train

SETTINGS = SamplingSettings(max_tokens=6)
PROMPTS = prompts(5, 3, 9)


class Rig:
    """A sampler over the stand-in, and both ends of it."""

    def __init__(self, tmp_path, model=None):
        self.model = model or tiny_model("qwen2")
        self.model.config.save_pretrained(tmp_path)
        rules = {"rows": 8, "cache_bytes": 2**30, "max_length": 64, "seed": 3}
        self.engine = start_engine(self.model, engine_options(str(tmp_path), torch.float32, **rules))
        [self.llm] = fake_vllm.LLM.started
        self.sampler = VllmSampler(self.engine, self.model, TOKENIZER, scorer(self.model), max_rows=8)

    def sample(self, prompts_B=PROMPTS, settings=SETTINGS, num_samples=3, seed=0, step=0, **more):
        return self.sampler.sample(prompts_B, settings, num_samples=num_samples, seed=seed, step=step, **more)


@pytest.fixture
def rig(tmp_path, monkeypatch):
    fake_vllm.put_in_place(monkeypatch)
    return Rig(tmp_path)


# What is drawn


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_and_entropies_are_the_policys_own(rig, temperature):
    samples_BG = rig.sample(settings=SETTINGS.model_copy(update={"temperature": temperature}))
    assert [len(samples_G) for samples_G in samples_BG] == [3, 3, 3]
    assert_scored_as_by_plain_forward(rig.model, PROMPTS, samples_BG, temperature)
    assert rig.sampler.drift == pytest.approx(0, abs=1e-5)


def test_groups_come_back_in_the_order_of_the_prompts(rig):
    """The stand-in finishes the last prompt first."""
    alone = [rig.sample([prompt])[0] for prompt in PROMPTS]
    assert tokens_of(rig.sample()) == tokens_of(alone)


def test_a_completion_ends_with_an_end_token_or_at_the_most_tokens(rig):
    set_ends(rig.model, END, 5, 9, 12, 20)
    sampler = VllmSampler(rig.engine, rig.model, TOKENIZER, scorer(rig.model), max_rows=8)
    samples = sum(sampler.sample(PROMPTS, SETTINGS, num_samples=8, seed=0, step=0), ())
    assert {sample.is_finished for sample in samples} == {True, False}
    for sample in samples:
        assert sample.is_finished == (int(sample.tokens_T[-1]) in (END, 5, 9, 12, 20))
        assert sample.is_finished or len(sample.tokens_T) == 6
        assert sample.text == TOKENIZER.decode(sample.tokens_T, skip_special_tokens=True)
    assert rig.llm.params[-1].stop_token_ids == [END, 5, 9, 12, 20]


def test_a_shorter_prompt_limit_holds(rig):
    [samples_G] = rig.sample([replace(PROMPTS[0], max_tokens=2)])
    assert max(len(sample.tokens_T) for sample in samples_G) <= 2


def test_the_likeliest_tokens_are_drawn_once_and_copied(rig):
    [samples_G] = rig.sample(PROMPTS[:1], SamplingSettings(max_tokens=4, temperature=0.0))
    assert rig.llm.params[-1].n == 1
    assert tokens_of([samples_G]) == [[samples_G[0].tokens_T.tolist()] * 3]
    logprobs_T, _ = plain_scores(rig.model, PROMPTS[0].tokens_P, samples_G[0].tokens_T, 1.0)
    np.testing.assert_allclose(samples_G[0].logprobs_T, logprobs_T, atol=1e-5)


def test_what_follows_a_stop_text_is_let_go_of(rig):
    free = sum(rig.sample(num_samples=8), ())
    stop = next(s.text[1] for s in free if len(s.text) > 3)
    cut = sum(rig.sample(settings=SamplingSettings(max_tokens=6, stop=(stop,)), num_samples=8), ())
    assert any(sample.num_drawn is not None for sample in cut)
    for before, after in zip(free, cut, strict=True):
        assert after.text == (before.text[: before.text.find(stop) + 1] if stop in before.text else before.text)
        assert after.tokens_drawn == len(before.tokens_T)
        assert after.is_finished == (before.is_finished or stop in before.text)
        assert len(after.tokens_T) == len(after.logprobs_T) == len(after.entropies_T)


# Seeds


def test_equal_seeds_draw_equally_and_others_otherwise(rig):
    again, first = tokens_of(rig.sample()), tokens_of(rig.sample())
    assert first == again
    assert tokens_of(rig.sample(seed=1)) != first
    assert tokens_of(rig.sample(step=1)) != first
    assert len({tuple(tokens) for tokens in first[0]}) > 1  # completions of one question differ
    assert [tokens[:2] for tokens in first] == tokens_of(rig.sample(num_samples=2))  # fewer are the first of more


# What vLLM is given


def test_settings_in_vllms_words(rig):
    rig.sample(PROMPTS[:1], SamplingSettings(temperature=0.6, top_p=0.9, top_k=7, max_tokens=5), num_samples=4)
    params = rig.llm.params[-1]
    assert (params.n, params.temperature, params.top_p, params.top_k, params.max_tokens) == (4, 0.6, 0.9, 7, 5)
    assert (params.detokenize, params.flat_logprobs) == (False, True)
    assert params.seed == vllm_seed(0, 0, PROMPTS[0].question_id)
    assert params.logprobs is None  # of what top-p leaves, which the policy's are not
    assert rig.sampler.drift is None


# Weights


def test_it_wakes_before_weights_are_copied_and_forgets_what_it_cached(rig):
    rig.sample()
    rig.sample()
    assert rig.llm.events == ["sleep 2", "wake ['weights']", "load", "wake ['kv_cache']", "reset"]
    rig.sampler.release()
    rig.sampler.release()
    assert rig.llm.events[5:] == ["sleep 2"]


def test_after_a_release_it_draws_from_the_new_weights(rig):
    before = tokens_of(rig.sample())
    rig.sampler.release()
    with torch.no_grad():
        for weight in rig.model.parameters():
            weight.add_(0.5 * torch.randn_like(weight))
    after = rig.sample()
    assert tokens_of(after) != before
    assert rig.sampler.drift == pytest.approx(0, abs=1e-5)
    assert_scored_as_by_plain_forward(rig.model, PROMPTS, after, 1.0)


def test_a_weight_that_does_not_arrive_is_noticed_at_the_start(rig):
    rig.llm.inner.deaf_to = ("model.layers.1.mlp.down_proj.weight",)
    rig.llm.sleep = lambda level: rig.llm.events.append("sleep")  # its random weight stays a number
    torch.nn.init.normal_(dict(rig.llm.inner.named_parameters())[rig.llm.inner.deaf_to[0]])
    with pytest.raises(TrainingError, match=rf"\d\.\d+ nats.* at most {MAX_DRIFT}"):
        rig.sample()


def test_a_weight_that_the_policy_does_not_have_is_refused(rig):
    rig.llm.inner.load_weights = lambda weights: {name for name, _ in weights} - {"model.norm.weight"}
    with pytest.raises(TrainingError, match=r"model\.norm\.weight"):
        rig.sample()


def test_an_adapter_is_merged_without_touching_the_model():
    peft = pytest.importorskip("peft")
    adapter = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights=False)
    model = peft.get_peft_model(tiny_model("qwen2"), adapter)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = {name: weight.clone() for name, weight in merged_weights(model)}
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    expected = dict(model.merge_and_unload().named_parameters())
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight.detach(), msg=name)


# Drift


def test_the_drift_is_the_mean_over_all_tokens_of_a_step(rig, monkeypatch):
    gaps = [[0.1, 0.3], [0.8], [9.0], [0.5], []]
    monkeypatch.setattr("scrl.sampling.vllm.logprob_gaps", lambda drawn, scores: np.array(gaps.pop(0)))
    rig.sampler._is_checked = True
    assert rig.sampler.drift is None
    rig.sample(step=3)
    rig.sample(step=3)  # a second call of the same step
    assert rig.sampler.drift == pytest.approx(0.4)  # (0.1 + 0.3 + 0.8) / 3, not (0.2 + 0.8) / 2
    rig.sampler.release()
    assert rig.sampler.drift == pytest.approx(0.4)  # it is logged after the update
    rig.sample(step="evaluation-held-out")
    assert rig.sampler.drift == pytest.approx(0.4)  # an evaluation is no step
    rig.sample(step=4)
    assert rig.sampler.drift == pytest.approx(0.5)
    rig.sampler.release()
    rig.sample(step=5)
    assert rig.sampler.drift is None  # nothing of the step could be compared


# What is refused


def test_what_cannot_be_done_is_refused_with_the_fix(rig):
    with pytest.raises(ConfigError, match=r"\(margin\)"):
        refuse_more(("margin",))
    with pytest.raises(ConfigError, match=r"sampling\.temperature"):
        rig.sample(settings=SamplingSettings(temperature=3.0))
    rig.llm.draw = lambda prompt, params, index: fake_vllm.CompletionOutput(index, [3], None, "abort")
    with pytest.raises(TrainingError, match="abort"):
        rig.sample()


def test_vllm_that_does_not_start_says_why(monkeypatch, tmp_path):
    def broken(**options):
        raise ValueError("No available memory for the cache blocks.\nTry more.")

    fake_vllm.put_in_place(monkeypatch, broken)
    options = engine_options(str(tmp_path), torch.bfloat16, rows=1, cache_bytes=1, max_length=1, seed=0)
    with pytest.raises(ConfigError, match=r"compute\.vllm_memory"):
        start_engine(tiny_model("qwen2"), options)


def pinned():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [line] = [line for line in project["optional-dependencies"]["vllm"] if line.startswith("vllm")]
    return [f'{line} ; extra == "vllm"']


@pytest.mark.parametrize(
    ("version", "device", "message"),
    [
        (None, "cuda", r"compute\.sampler.*scrl\[vllm\]"),
        ("0.25.1", "cuda", r"0\.25\.1"),
        ("0.24.0", "cpu", r"compute\.sampler.*cpu"),
        ("0.24.0", "cuda:1", r"compute\.device.*CUDA_VISIBLE_DEVICES=1"),
        ("0.24.0", "cuda", None),
        ("0.24.2", "cuda:0", None),
    ],
)
def test_where_vllm_can_run(version, device, message, monkeypatch):
    def found(name):
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: pinned())
    with nullcontext() if message is None else pytest.raises(ConfigError, match=message):
        require_vllm(torch.device(device))


# The policy's scoring pass over what vLLM has drawn


@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
@pytest.mark.parametrize("most", [1, 30, 10_000])
def test_scores_are_those_of_a_plain_forward(name, most, monkeypatch):
    monkeypatch.setattr("scrl.policy.scoring.SCORED_TOKENS", most)
    model, rng = tiny_model(name), np.random.default_rng(0)
    pairs = [(rng.integers(2, 40, p), rng.integers(2, 40, t)) for p, t in ((5, 3), (1, 9), (7, 1), (2, 4))]
    for (prompt_P, tokens_T), (logprobs_T, entropies_T) in zip(pairs, scorer(model)(pairs, 0.7), strict=True):
        expected = plain_scores(model, prompt_P, tokens_T, 0.7)
        np.testing.assert_allclose(logprobs_T, expected[0], atol=1e-5)
        np.testing.assert_allclose(entropies_T, expected[1], atol=1e-5)


def test_scoring_leaves_the_mode_alone_and_says_when_memory_ends(monkeypatch):
    model = tiny_model("qwen2").train()
    pair = (np.arange(3), np.arange(2))
    scorer(model)([pair], 1.0)
    assert model.training
    assert scorer(model)([], 1.0) == []

    def full(*given, **options):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("scrl.policy.scoring.token_scores", full)
    with pytest.raises(TrainingError, match=r"Lower compute\.vllm_memory"):
        scorer(model)([pair], 1.0)


@pytest.mark.parametrize("most", [1, 7, 20, 1000])
def test_batches_hold_every_row_once_and_no_more_than_allowed(most):
    lengths = [3, 9, 1, 4, 4, 12, 2]
    found = list(batches(lengths, most))
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    for rows in found:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= most


# Whole runs

SMALL = (
    "model=embedded", "questions=arithmetic:easy:train:4", "steps=2", "questions_per_step=2", "completions=4",
    "trained=2", "sampling.max_tokens=6", "probe=0", "optimizer.learning_rate=1e-3", "evaluation.completions=2",
    "evaluation.top_p=0.9", "checkpoint_every=1", "compute.sampler=vllm",
)  # fmt: skip


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Questions about the machine are answered as if it had a GPU."""
    fake_vllm.put_in_place(monkeypatch)
    monkeypatch.setattr("scrl.sampling.vllm_engine.require_vllm", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=1000))


def test_a_run_frees_memory_before_every_update_and_draws_from_what_it_learned(tmp_path, on_a_gpu):
    listener = Listener()
    train(read_config(None, SMALL), tmp_path / "run", listener)
    [llm] = fake_vllm.LLM.started
    woken = ["wake ['weights']", "load", "wake ['kv_cache']", "reset"]
    assert llm.events == ["sleep 2", *woken] * 3  # start, two steps, the last evaluation
    assert llm.options["kv_cache_memory_bytes"] == 400
    drifts = [line["sampler_drift"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert drifts == pytest.approx([0, 0], abs=1e-4)
    assert any("sampling by vLLM" in note for note in listener.notes)


def test_a_method_that_needs_more_is_refused_before_vllm_starts(tmp_path, on_a_gpu):
    with pytest.raises(ConfigError, match=r"\(margin\)"):
        train(read_config(None, [*SMALL, "method=compass"]), tmp_path / "run", Listener())
    assert fake_vllm.LLM.started == []
    assert not (tmp_path / "run").exists()


def test_an_evaluation_draws_by_vllm(tmp_path, on_a_gpu):
    settings = build_settings({
        "model": "embedded", "benchmarks": ("arithmetic:easy:train:2",), "samples": 2, "sampling": {"max_tokens": 8},
        "compute": {"sampler": "vllm", "vllm_memory": 0.5},
    })  # fmt: skip
    [record] = benchmark_run.measure(settings, tmp_path, Mock())
    assert record["questions"] == 2
    [llm] = fake_vllm.LLM.started
    assert llm.options["kv_cache_memory_bytes"] == 500
