"""The gradient of an update: against a plain implementation, however it is split."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from updates import (
    ADVANTAGES,
    VARIANTS,
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
    uneven_group,
    with_adapter,
)

from scrl.policy.batching import TrainingRow
from scrl.policy.policy import total
from scrl.policy.settings import LossSettings
from scrl.records import Question, Sample, Sampled

VARIANTS = VARIANTS | {"tight": {"clip_low": 0.01, "clip_high": 0.01}}


@pytest.fixture(scope="module")
def group():
    return uneven_group()


def random_group(lengths, prompt_length):
    rng = np.random.default_rng(0)
    samples = tuple(Sample("", rng.integers(0, 24, n), rng.uniform(-4, -2, n), np.zeros(n), True) for n in lengths)
    return Sampled(Question("q", "q"), rng.integers(0, 24, prompt_length), samples)


# Against the plain implementation


@pytest.mark.parametrize(
    ("variant", "temperature"), [*((name, 1.0) for name in VARIANTS), ("grpo", 0.7), ("gspo", 0.7)]
)
def test_the_gradient_is_that_of_a_plain_implementation(variant, temperature):
    language_model = embedded()
    sampled = draw_group(language_model, temperature=temperature, max_tokens=24)
    disturb(language_model)
    credit = credit_of()
    options = {"temperature": temperature, "max_tokens": 24}
    policy = make_policy(language_model, **VARIANTS[variant], **options)
    found, sums = collected_gradient(policy, sampled, credit)
    wanted, loss = plain_gradient(language_model, sampled, credit, LossSettings(**VARIANTS[variant]), **options)
    assert float(wanted.norm()) > 1e-4
    assert_close(found, wanted, 1e-5)
    assert sums.loss == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("make", [small_model, tied_gpt2, cohere])
def test_other_architectures_give_the_plain_gradient_too(make):
    language_model = make()
    sampled = draw_group(language_model)
    disturb(language_model)
    policy = make_policy(language_model, micro_batch=4)
    assert (policy.note is None) == (make is not cohere)
    found, _ = collected_gradient(policy, sampled, credit_of())
    wanted, _ = plain_gradient(language_model, sampled, credit_of(), LossSettings())
    assert_close(found, wanted, 1e-5)


def test_an_adapter_gets_the_plain_gradient_and_nothing_else_gets_one():
    language_model = with_adapter()
    sampled = draw_group(language_model, max_tokens=24)
    disturb(language_model, 0.1)
    policy = make_policy(language_model, max_tokens=24)
    found, _ = collected_gradient(policy, sampled, credit_of())
    wanted, _ = plain_gradient(language_model, sampled, credit_of(), LossSettings(), max_tokens=24)
    assert_close(found, wanted, 1e-5)
    weights = list(language_model.model.parameters())
    assert len(found) == sum(w.numel() for w in weights if w.requires_grad) < language_model.model.num_parameters()
    assert all(w.grad is None for w in weights if not w.requires_grad)


@settings(max_examples=10)
@example([(1, 1.0)], 1, 1)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.floats(-2, 2)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_any_rows_give_the_plain_gradient(rows, prompt_length, micro_batch):
    language_model = small_model()
    sampled = random_group([length for length, _ in rows], prompt_length)
    credit = credit_of([advantage for _, advantage in rows])
    found, _ = collected_gradient(make_policy(language_model, micro_batch=micro_batch), sampled, credit)
    wanted, _ = plain_gradient(language_model, sampled, credit, LossSettings())
    assert float((found - wanted).norm()) <= 1e-5 * (1 + float(wanted.norm()))


def test_only_the_trained_completions_count(group):
    language_model = embedded()
    everything = credit_of([*ADVANTAGES[:3], np.nan, np.nan, np.nan], trained=(2, 0, 1))
    few = Sampled(group.question, group.prompt_P, group.samples_G[:3])
    policy = make_policy(language_model, max_tokens=24)
    found, _ = collected_gradient(policy, group, everything)
    wanted, _ = collected_gradient(policy, few, credit_of(ADVANTAGES[:3]))
    assert_close(found, wanted)


# Splitting


@pytest.mark.parametrize("variant", ["grpo", "dapo", "gspo", "pairs", "bonus"])
def test_micro_batches_change_no_gradient(group, variant):
    language_model = embedded()
    disturb(language_model)
    gradients = {}
    for micro_batch in (1, 2, 5, 16):
        policy = make_policy(language_model, micro_batch=micro_batch, max_tokens=24, **VARIANTS[variant])
        gradients[micro_batch], sums = collected_gradient(policy, group, credit_of())
        assert sums.tokens == sum(len(sample.tokens_T) for sample in group.samples_G)
    for gradient in gradients.values():
        assert_close(gradient, gradients[16], 1e-6)


# The first update


@pytest.mark.parametrize("variant", ["grpo", "dapo", "gspo"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_on_fresh_samples_every_ratio_is_1(variant, temperature):
    language_model = embedded()
    sampled = draw_group(language_model, temperature=temperature, max_tokens=24)
    policy = make_policy(language_model, temperature=temperature, max_tokens=24, **VARIANTS[variant])
    rows = policy.rows([(sampled, credit_of())])
    batch = policy._batch(rows)
    logprobs_RT, entropies_RT = policy.score(batch)
    for row, sample in enumerate(sampled.samples_G):
        length = len(sample.tokens_T)
        np.testing.assert_allclose(logprobs_RT[row, :length].detach(), sample.logprobs_T, atol=5e-5)
        np.testing.assert_allclose(entropies_RT[row, :length].detach(), sample.entropies_T, atol=5e-5)
    report = policy.update([sampled], [credit_of()])
    assert report.clipped_share == 0
    # with every ratio 1 a token's loss is −Â: the loss is −Σ weight · T · Â
    lengths = np.array([len(sample.tokens_T) for sample in sampled.samples_G])
    shares = lengths / lengths.sum() if variant == "dapo" else np.full(6, 1 / 6)
    assert report.loss == pytest.approx(-float(shares @ ADVANTAGES), abs=5e-5)


# Corners


@pytest.mark.parametrize("variant", ["grpo", "gspo", "bonus"])
def test_an_empty_completion_adds_nothing(group, variant):
    language_model = embedded()
    policy = make_policy(language_model, micro_batch=1, max_tokens=24, **VARIANTS[variant])
    policy.optimizer.clear()
    empty = TrainingRow(group.prompt_P, np.zeros(0, dtype=np.int64), np.zeros(0), 1.0, 0.0, 1.0)
    sums = total(policy.gradient([empty]))
    assert (sums.loss, sums.tokens) == (0, 0)
    assert all(master.grad is None or not master.grad.any() for master in policy.optimizer._masters)
