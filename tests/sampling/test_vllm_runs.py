"""A training run and an evaluation over the stand-in for vLLM (fake_vllm.py); the real one: tests/gpu/test_vllm.py."""

from types import SimpleNamespace
from unittest.mock import Mock

import fake_vllm
import pytest
import torch
from line_files import read_lines
from listeners import Listener

from scrl.config import read_config
from scrl.errors import ConfigError
from scrl.evaluation import benchmark_run
from scrl.evaluation.settings import build_settings
from scrl.training.loop import train

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
    with pytest.raises(ConfigError, match=r"more of every token \(certainty\).*use local"):
        train(read_config(None, [*SMALL, "method=intuitor"]), tmp_path / "run", Listener())
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
