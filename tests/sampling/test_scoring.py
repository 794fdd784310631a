"""The policy's scoring pass over what vLLM has drawn."""

import numpy as np
import pytest
import torch
from tiny_models import plain_scores, tiny_model

from scrl.errors import TrainingError
from scrl.policy.scoring import batches, scorer


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
