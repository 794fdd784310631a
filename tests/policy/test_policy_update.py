"""Whole updates: KL to the start, entropy bonus, several questions, the old policy, NaN."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from updates import (
    ADVANTAGES,
    Memory,
    assert_close,
    cohere,
    collected_gradient,
    credit_of,
    disturb,
    draw_group,
    embedded,
    make_policy,
    plain_gradient,
    small_model,
    tied_gpt2,
    weights_of,
    with_adapter,
)

from scrl.errors import TrainingError
from scrl.policy.losses import token_ratios
from scrl.policy.settings import LossSettings

ZEROS = [0.0] * 6


@pytest.fixture(scope="module")
def group():
    return draw_group(small_model())


# KL to the start model


@pytest.mark.parametrize("make", [embedded, with_adapter, small_model, tied_gpt2])
def test_at_the_start_the_kl_is_0_and_so_is_its_gradient(make):
    language_model = make()
    sampled = draw_group(language_model)
    policy = make_policy(language_model, kl_weight=10.0)
    found, sums = collected_gradient(policy, sampled, credit_of(ZEROS))
    assert sums.kl == pytest.approx(0, abs=1e-6)
    # k3 = eᵈ − d − 1 is flat at d = 0, and d is a difference of two equal float32 computations
    assert float(found.abs().max()) < 1e-5
    report = policy.update([sampled], [credit_of()])
    assert report.kl == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("make", [embedded, with_adapter])
def test_away_from_the_start_the_kl_pulls_back(make):
    language_model, start = make(), embedded()
    sampled = draw_group(language_model)
    policy = make_policy(language_model, kl_weight=0.5)
    disturb(language_model, 0.01)
    found, sums = collected_gradient(policy, sampled, credit_of())
    settings = LossSettings(kl_weight=0.5)
    wanted, loss = plain_gradient(language_model, sampled, credit_of(), settings, reference=start.model)
    assert_close(found, wanted, 1e-5)
    assert sums.loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert sums.kl > 0
    without, _ = collected_gradient(make_policy(language_model), sampled, credit_of())
    assert float((found - without).norm()) > 1e-3


def test_the_reference_stays_where_it_was(group):
    language_model = small_model()
    policy = make_policy(language_model, kl_weight=0.1)
    before = weights_of(language_model)
    for _ in range(3):
        policy.update([group], [credit_of()])
    start = torch.cat([weight.flatten() for weight in policy._reference.model.parameters()])
    assert torch.equal(start, before)
    assert not torch.equal(weights_of(language_model), before)


# Entropy


def test_a_bonus_raises_the_entropy_and_a_negative_one_lowers_it(group):
    def entropy(bonus):
        policy = make_policy(small_model(), entropy_bonus=bonus, learning_rate=1e-2)
        rows = policy.rows([(group, credit_of(ZEROS))])
        if bonus:
            policy.update([group], [credit_of(ZEROS)])
        with torch.no_grad():
            return float(policy.score(policy._batch(rows))[1].sum())

    assert entropy(1.0) > entropy(0.0) > entropy(-1.0)


# Several questions


def test_each_question_gets_its_own_update_in_the_order_given(group):
    groups = [group, draw_group(small_model(), "Compute 2.", size=4)]
    credits = [credit_of(), credit_of(ADVANTAGES[:4])]
    together, one_by_one = small_model(), small_model()
    report = make_policy(together).update(groups, credits)
    policy = make_policy(one_by_one)
    reports = [policy.update([s], [c]) for s, c in zip(groups, credits, strict=True)]
    assert torch.equal(weights_of(together), weights_of(one_by_one))
    assert policy.optimizer.update == 2
    assert report.loss == pytest.approx(np.mean([r.loss for r in reports]), abs=1e-6)
    assert report.grad_norm == pytest.approx(np.mean([r.grad_norm for r in reports]), rel=1e-6)


def test_questions_of_one_update_are_one_batch(group):
    """GRPO's mean is over completions: six and two of them weigh 1/8 each, whatever their question."""
    language_model = small_model()
    other = draw_group(language_model, "Compute 2.", size=2)
    pairs = [(group, credit_of()), (other, credit_of([1.0, -1.0]))]
    disturb(language_model)
    policy = make_policy(language_model)
    gradients = [collected_gradient(policy, *pair)[0] for pair in pairs]
    policy.optimizer.clear()
    policy.gradient(policy.rows(pairs))
    joined = torch.cat([master.grad.flatten() for master in policy.optimizer._masters])
    assert_close(joined, 6 / 8 * gradients[0] + 2 / 8 * gradients[1], 1e-5)
    policy.update(*zip(*pairs, strict=True), questions_per_update=2)
    assert policy.optimizer.update == 1


def test_a_question_without_trained_completions_moves_nothing(group):
    language_model = small_model()
    before = weights_of(language_model)
    for mean in ("completion", "token", "constant", "pairs"):
        report = make_policy(language_model, mean=mean).update([group], [credit_of(trained=())])
        assert (report.loss, report.grad_norm, report.clipped_share) == (0, 0, 0)
    assert torch.equal(weights_of(language_model), before)


# The old policy


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_bfloat16_the_old_policy_is_scored_again_for_all_updates_but_the_first(group, dtype, monkeypatch):
    language_model = small_model(dtype)
    memory, policy = Memory(language_model, room=6), make_policy(language_model, micro_batch=6, learning_rate=1e-2)
    ratios = []
    monkeypatch.setattr(
        "scrl.policy.policy.token_ratios", lambda *logprobs: ratios.append(token_ratios(*logprobs)) or ratios[-1]
    )
    policy.update([group] * 3, [credit_of()] * 3)
    assert len(memory.runs) == (3 if dtype == torch.float32 else 2 + 3)
    first, second, _ = (ratios_RT.detach() for ratios_RT in ratios)
    if dtype == torch.bfloat16:  # the sampler's log-probabilities are not used
        assert (first == 1).all()
    assert float((second - 1).abs().max()) > 1e-3  # the first update has moved the policy


@pytest.mark.parametrize("make", [small_model, cohere])
def test_the_old_policy_attends_as_the_gradient_pass_does(make, monkeypatch):
    """Also where a model has no plain head: other kernels round differently, and the ratio must start at 1."""
    inside, seen = [], []

    @contextmanager
    def attention():
        inside.append(True)
        yield
        inside.pop()

    monkeypatch.setattr("scrl.policy.batching.attention_without_cudnn", attention)
    policy = make_policy(make())
    rows = policy.rows([(draw_group(make()), credit_of())])
    policy.language_model.model.get_input_embeddings().register_forward_hook(lambda *_: seen.append(bool(inside)))
    policy.gradient(policy.rescore([rows])[0])
    assert seen == [True, True]


# NaN


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("advantage", [math.nan, math.inf, -math.inf])
def test_an_advantage_that_is_no_number_stops_training_and_moves_nothing(group, advantage, dtype):
    language_model = small_model(dtype=dtype)
    policy = make_policy(language_model, micro_batch=2)
    before = weights_of(language_model)
    with pytest.raises(TrainingError, match=r"optimizer.learning_rate"):
        policy.update([group], [credit_of([*ADVANTAGES[:-1], advantage])])
    assert torch.equal(weights_of(language_model), before)
    policy.update([group], [credit_of()])  # and leaves nothing behind
    assert bool(weights_of(language_model).isfinite().all())


# Nothing to learn


@pytest.mark.parametrize("make", [small_model, lambda: small_model(torch.bfloat16), with_adapter])
def test_groups_without_advantages_cost_no_pass_and_change_no_weight_otherwise(make, monkeypatch):
    """Momentum and decay go on: the weights are those of a policy that computes the zeros, bit for bit."""

    def train(is_spared):
        torch.manual_seed(0)
        language_model, passes = make(), []
        policy = make_policy(language_model, weight_decay=0.1)
        if not is_spared:
            monkeypatch.setattr(policy, "is_without_signal", lambda _: False)
        own = policy._batch_loss
        monkeypatch.setattr(policy, "_batch_loss", lambda batch: (passes.append(1), own(batch))[1])
        sampled = draw_group(language_model)
        for advantages in (ADVANTAGES, ZEROS, ADVANTAGES, ZEROS, ZEROS):
            report = policy.update([sampled, sampled], [credit_of(advantages), credit_of(ZEROS)])
        assert report.loss == report.grad_norm == 0
        return weights_of(language_model), len(passes)

    (spared, few), (computed, many) = train(is_spared=True), train(is_spared=False)
    assert torch.equal(spared, computed)
    assert (few, many) == (2, 10)  # two updates a step, one of them with a signal in two of five steps


@pytest.mark.parametrize("more", [{"kl_weight": 0.1}, {"entropy_bonus": 0.1}])
def test_with_kl_or_an_entropy_bonus_every_group_is_computed(group, more):
    policy = make_policy(small_model(), **more)
    assert not policy.is_without_signal(policy.rows([(group, credit_of(ZEROS))]))
