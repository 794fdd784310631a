"""Runs whose completions are written as on a GPU, here in plain torch: updates are seen, and nothing else changes."""

import pytest
from runs import do, metrics

from scrl.sampling.gpu import reference_ops
from scrl.sampling.gpu.graph_engine import GraphEngine
from scrl.sampling.local import LocalSampler

LEARNS = (
    "steps=2", "completions=4", "trained=2", "sampling.max_tokens=32", "optimizer.learning_rate=1e-3",
    "evaluation.every=1", "evaluation.completions=2", "probe=0",
)  # fmt: skip


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """The memory that each rollout was written in."""
    caches, init, write = [], LocalSampler.__init__, GraphEngine.generate

    def with_engine(self, model, *given, **named):
        init(self, model, *given, **named)
        self._engine = GraphEngine(model, self._end_tokens, reference_ops, page_size=32)

    def noted(self, *given, **named):
        results = write(self, *given, **named)
        caches.append(self._cache)
        return results

    def switch_on():
        monkeypatch.setattr(LocalSampler, "__init__", with_engine)
        monkeypatch.setattr(GraphEngine, "generate", noted)
        return caches

    return switch_on


def test_a_run_learns_what_it_learns_elsewhere_in_memory_that_it_keeps(as_on_a_gpu, tmp_path):
    do(tmp_path / "elsewhere", *LEARNS)
    caches = as_on_a_gpu()
    do(tmp_path / "gpu", *LEARNS)
    for found, expected in zip(metrics(tmp_path / "gpu"), metrics(tmp_path / "elsewhere"), strict=True):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert len(metrics(tmp_path / "gpu")) == 2
    assert len({id(cache) for cache in caches}) < len(caches) - 2  # rollouts and evaluations share it
