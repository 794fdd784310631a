"""Captured steps, with graphs that are simulated without CUDA."""

import inspect

import pytest
import torch
from tiny_models import END, TOKENIZER, assert_same, captured_sampler, prompts, set_ends, tiny_model

from scrl.sampling.gpu import cuda_graphs
from scrl.sampling.gpu.cuda_graphs import CudaGraphs
from scrl.sampling.local import LocalSampler
from scrl.sampling.settings import SamplingSettings

PROMPTS = prompts(1, 5, 40, 3)
HOW = {"num_samples": 5, "seed": 0, "step": 1}
PLAIN, TOP_K, SHORT = (
    SamplingSettings(max_tokens=60), SamplingSettings(top_k=5, max_tokens=30), SamplingSettings(max_tokens=20),
)  # fmt: skip


def eager(model, kind):
    return LocalSampler(model, TOKENIZER, max_rows=512).sample(PROMPTS, kind, **HOW)


@pytest.fixture
def failures(monkeypatch):
    """Graphs without CUDA: what runs during a capture is undone, and a replay runs it again.

    An exception that a test puts into the list is raised during a capture.
    """
    failures, ended, run = [], [], CudaGraphs._run

    class Graph:
        def capture_begin(self, pool, capture_error_mode):
            assert (pool, capture_error_mode) == ("pool", "thread_local")

        def capture_end(self):
            ended.append(self)

    def run_or_record(self, key, cache, *rest):
        frames = [frame for frame in inspect.stack(context=0)[1:3] if frame.function == "_capture"]
        if not frames:
            run(self, key, cache, *rest)
            return
        if failures:
            raise failures[0]
        out = cache.completions
        buffers = (cache.state.fields, out.tokens_CT, out.logprobs_CT, out.entropies_CT, out.lengths_C)
        buffers += (*out.facts_CT.values(), cache.keys, cache.values)
        before = [buffer.clone() for buffer in buffers]
        run(self, key, cache, *rest)
        for buffer, was in zip(buffers, before, strict=True):
            buffer.copy_(was)
        frames[0].frame.f_locals["graph"].replay = lambda: run(self, key, cache, *rest)

    monkeypatch.setattr(cuda_graphs, "is_on_gpu", lambda cache: True)
    monkeypatch.setattr(CudaGraphs, "_run", run_or_record)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    yield failures
    assert ended  # whatever happens, no stream is left capturing


@pytest.mark.usefixtures("failures")
@pytest.mark.parametrize("kind", [PLAIN, TOP_K], ids=["plain", "top-k"])
def test_captured_steps_are_replayed_with_what_is_then_in_memory(kind):
    model, notes = set_ends(tiny_model("qwen3"), END, 7, 9), []
    sampler, expected = captured_sampler(model, max_rows=6), eager(model, kind)
    sampler._engine._graphs._on_note = notes.append
    assert_same(sampler.sample(PROMPTS, kind, **HOW), expected)
    captures = sampler._engine.captures
    assert captures > 1
    assert_same(sampler.sample(PROMPTS, kind, **HOW), expected)
    assert sampler._engine.captures == captures  # all sizes are there
    sampler.release()
    assert_same(sampler.sample(PROMPTS, kind, **HOW), expected)
    assert sampler._engine.captures > captures
    assert len(notes) == (kind.top_k > 0)  # only once


def test_steps_that_cannot_be_captured_run_eagerly(failures):
    failures.append(RuntimeError("operation not permitted\nwhen stream is capturing"))
    model, notes = tiny_model("qwen3"), []
    sampler = captured_sampler(model, max_rows=6)
    sampler._engine._graphs._on_note = notes.append
    assert_same(sampler.sample(PROMPTS, SHORT, **HOW), eager(model, SHORT))
    assert len(notes) == 1


def test_an_interrupt_during_a_capture_is_passed_on(failures):
    failures.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        captured_sampler(tiny_model("qwen3"), max_rows=6).sample(PROMPTS, SHORT, **HOW)
