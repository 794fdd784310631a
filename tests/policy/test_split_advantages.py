"""Advantages with a positive and a negative part: some candidate labels push a completion up, others down."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from updates import (
    assert_close,
    collected_gradient,
    credit_of,
    disturb,
    draw_group,
    make_policy,
    plain_gradient,
    small_model,
)

from scrl.policy.losses import Clip, clipped_surrogate, is_clipped
from scrl.policy.settings import LOSS_VARIANTS, LossSettings

LABELS = np.array(
    [[1.5, -0.5, 0.2, -1.2, 0.0, 0.0], [-0.4, 2.0, -0.4, -0.4, -0.4, -0.4], [0.3, -0.3, 0.0, 0.6, -0.6, 0.0]]
)
"""The advantages of six completions by each of three candidate labels."""
WEIGHTS = np.array([0.6, 0.3, 0.1])


def split_credit(trained=None):
    """All candidates at once."""
    weighed = WEIGHTS[:, None] * LABELS
    parts = np.maximum(weighed, 0).sum(axis=0), np.minimum(weighed, 0).sum(axis=0)
    return replace(credit_of(weighed.sum(axis=0), trained), split_advantages=parts)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(-3, 3)), min_size=1, max_size=6),
    st.lists(st.floats(0.05, 8), min_size=1, max_size=5), st.floats(0, 0.9), st.floats(0, 2),
    st.none() | st.floats(1.01, 4),
)  # fmt: skip
def test_the_loss_of_both_parts_is_the_sum_over_candidates_for_any_ratio(candidates, ratios, low, high, dual):
    """Σ_j w_j ℓ(Â_j) = −P min(r, 1 + ε_high) − Q max(r, 1 − ε_low), with dual clip and without."""
    ratios_RT = torch.tensor([ratios], dtype=torch.float64)

    def loss(*parts):
        clip = Clip(low, high, dual)
        return clipped_surrogate(ratios_RT, *torch.tensor(parts, dtype=torch.float64)[:, None], clip=clip)

    apart = sum(weight * loss(max(a, 0.0), min(a, 0.0)) for weight, a in candidates)
    positive = sum(weight * max(a, 0.0) for weight, a in candidates)
    negative = sum(weight * min(a, 0.0) for weight, a in candidates)
    torch.testing.assert_close(loss(positive, negative), apart, atol=1e-9, rtol=1e-9)
    for column, ratio in enumerate(ratios):  # and as PPO puts it, without torch
        by_hand = 0.0
        for weight, a in candidates:
            clipped = min(max(ratio, 1 - low), 1 + high)
            one = -min(ratio * a, clipped * a)
            by_hand += weight * (one if dual is None or a >= 0 else min(one, -dual * a))
        assert float(loss(positive, negative)[0, column]) == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize("variant", ["grpo", "dapo", "gspo"])
@pytest.mark.parametrize("dual_clip", [None, 1.1])
def test_the_gradient_of_an_update_is_that_of_all_candidates_together(variant, dual_clip):
    """The loss is linear in the weights of the candidates, so their gradients add up."""
    language_model = small_model()
    sampled = draw_group(language_model)
    disturb(language_model)
    options = LOSS_VARIANTS[variant] | {"dual_clip": dual_clip}
    found, sums = collected_gradient(make_policy(language_model, **options), sampled, split_credit())
    apart = [plain_gradient(language_model, sampled, credit_of(label), LossSettings(**options)) for label in LABELS]
    assert_close(found, sum(weight * gradient for weight, (gradient, _) in zip(WEIGHTS, apart, strict=True)), 1e-5)
    assert sums.loss == pytest.approx(sum(w * loss for w, (_, loss) in zip(WEIGHTS, apart, strict=True)), abs=1e-6)


@pytest.mark.parametrize(
    ("positive", "negative", "expected"),
    [
        (1.0, -1.0, [False, False, False]), (1.0, 0.0, [False, False, True]), (0.0, -1.0, [True, False, False]),
        (0.0, 0.0, [False, False, False]),
    ],
)  # fmt: skip
def test_a_completion_with_both_parts_always_has_a_gradient(positive, negative, expected):
    """Beyond one clip the other part still pulls: only a completion with one part can be clipped."""
    ratios_RT = torch.tensor([[0.5, 1.0, 2.0]])
    found_RT = is_clipped(ratios_RT, torch.tensor([positive]), torch.tensor([negative]), Clip(0.2, 0.2))
    assert found_RT[0].tolist() == expected
