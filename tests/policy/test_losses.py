"""The losses by hand: values, and gradients in the logits of a vocabulary of three tokens."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scrl.policy.losses import (
    Clip,
    clipped_surrogate,
    completion_ratios,
    is_clipped,
    kl_to_reference,
    token_ratios,
    token_weights,
)

CLIP, DUAL_CLIP = Clip(0.2, 0.28), Clip(0.2, 0.28, 3.0)
PROBS = [0.5, 0.3, 0.2]


def split(advantage):
    """P = max(Â, 0) and Q = min(Â, 0)."""
    advantages_R = torch.tensor([advantage], dtype=torch.float64)
    return advantages_R.clamp(min=0), advantages_R.clamp(max=0)


def loss_and_gradient(target, old_prob, advantage, clip=CLIP):
    """ℓ of one token drawn from softmax(z) = PROBS, and ∂ℓ/∂z."""
    logits_V = torch.tensor(PROBS, dtype=torch.float64).log().requires_grad_()
    logprobs_RT = torch.log_softmax(logits_V, dim=-1)[target].view(1, 1)
    old_RT = torch.tensor([[math.log(old_prob)]], dtype=torch.float64)
    ratios_RT = token_ratios(logprobs_RT, old_RT)
    loss = clipped_surrogate(ratios_RT, *split(advantage), clip=clip).sum()
    [grad] = torch.autograd.grad(loss, logits_V)
    return float(loss.detach()), grad.tolist()


# The clipped surrogate. With r = π(y)/π_old(y):  ∂r/∂z_v = r (1[v = y] − π_v), so where nothing is clipped
# ℓ = −r Â and ∂ℓ/∂z_v = −Â r (1[v = y] − π_v); where the clip is the smaller one, ℓ is constant in z.


@pytest.mark.parametrize("advantage", [2.0, -2.0])
def test_at_ratio_1_the_gradient_is_that_of_the_policy_gradient(advantage):
    loss, grad = loss_and_gradient(0, 0.5, advantage)
    assert loss == pytest.approx(-advantage, abs=1e-12)
    # −Â (1[v = 0] − π_v) = −Â (0.5, −0.3, −0.2)
    assert grad == pytest.approx([-advantage * part for part in (0.5, -0.3, -0.2)], abs=1e-12)


@pytest.mark.parametrize(
    ("old_prob", "advantage", "loss", "grad"),
    [
        # r = 0.3/0.25 = 1.2, inside: ℓ = −1.2 · 2; ∂ℓ/∂z = −2 · 1.2 · (−0.5, 0.7, −0.2)
        (0.25, 2.0, -2.4, [1.2, -1.68, 0.48]),
        # r = 0.3/0.2 = 1.5 > 1.28, Â > 0: ℓ = −1.28 · 2, flat
        (0.2, 2.0, -2.56, [0, 0, 0]),
        # r = 1.5, Â < 0: min(1.5 · −2, 1.28 · −2) = −3 is not clipped; ∂ℓ/∂z = 2 · 1.5 · (−0.5, 0.7, −0.2)
        (0.2, -2.0, 3.0, [-1.5, 2.1, -0.6]),
        # r = 0.3/0.6 = 0.5 < 0.8, Â < 0: min(−1, −1.6) = −1.6, flat
        (0.6, -2.0, 1.6, [0, 0, 0]),
        # r = 0.5, Â > 0: min(1, 1.6) = 1 is not clipped; ∂ℓ/∂z = −2 · 0.5 · (−0.5, 0.7, −0.2)
        (0.6, 2.0, -1.0, [0.5, -0.7, 0.2]),
        (0.6, 0.0, 0.0, [0, 0, 0]),
    ],
)
def test_clipped_surrogate_by_hand(old_prob, advantage, loss, grad):
    found_loss, found_grad = loss_and_gradient(1, old_prob, advantage)
    assert found_loss == pytest.approx(loss, abs=1e-12)
    assert found_grad == pytest.approx(grad, abs=1e-12)
    ratio = torch.tensor([[0.3 / old_prob]], dtype=torch.float64)
    flat = advantage != 0 and not any(grad)
    assert bool(is_clipped(ratio, *split(advantage), clip=CLIP)) == flat


def test_dual_clip_bounds_the_loss_of_a_bad_token_that_became_likely():
    # r = 0.3/0.05 = 6, Â = −2: ℓ = 12 without, −c Â = 6 with c = 3, and flat there
    assert loss_and_gradient(1, 0.05, -2.0)[0] == pytest.approx(12, abs=1e-12)
    loss, grad = loss_and_gradient(1, 0.05, -2.0, DUAL_CLIP)
    assert loss == pytest.approx(6, abs=1e-12)
    assert grad == pytest.approx([0, 0, 0], abs=1e-12)
    # r = 1.5 < 3: as without; and a good token is never touched by it
    assert loss_and_gradient(1, 0.2, -2.0, DUAL_CLIP) == loss_and_gradient(1, 0.2, -2.0)
    assert loss_and_gradient(1, 0.05, 2.0, DUAL_CLIP) == loss_and_gradient(1, 0.05, 2.0)


@given(st.floats(0.01, 20), st.floats(-3, 3), st.floats(0, 0.9), st.floats(0, 2), st.floats(1.01, 5))
def test_the_surrogate_never_promises_more_than_the_unclipped_one(ratio, advantage, low, high, dual):
    ratios = torch.tensor([[ratio]], dtype=torch.float64)
    loss, dual_loss = (
        float(clipped_surrogate(ratios, *split(advantage), clip=Clip(low, high, most))) for most in (None, dual)
    )
    assert loss >= -ratio * advantage - 1e-12
    assert dual_loss <= loss
    assert dual_loss == loss if advantage >= 0 else dual_loss <= dual * -advantage


@pytest.mark.parametrize("advantage", [2.0, 0.0, -2.0])
def test_a_ratio_that_overflows_gives_numbers(advantage):
    logprobs_RT = torch.tensor([[0.0]], requires_grad=True)
    ratios_RT = token_ratios(logprobs_RT, torch.tensor([[-200.0]]))
    loss = clipped_surrogate(ratios_RT, *(part_R.float() for part_R in split(advantage)), clip=CLIP).sum()
    loss.backward()
    # Â > 0: clipped at 1.28, ℓ = −1.28 · 2; Â < 0: ℓ = 2 e²⁰
    assert float(loss.detach()) == pytest.approx({2.0: -2.56, 0.0: 0.0, -2.0: 2 * math.exp(20)}[advantage])
    assert float(logprobs_RT.grad) == 0


# GSPO


def test_a_completions_ratio_is_the_geometric_mean_of_its_tokens():
    logprobs_RT = torch.tensor([[0.5, 0.2, 0.9], [0.4, 0.4, 1.0]], dtype=torch.float64).log().requires_grad_()
    old_RT = torch.tensor([[0.25, 0.4, 0.1], [0.1, 0.1, 1.0]], dtype=torch.float64).log()
    mask_RT = torch.tensor([[True, True, False], [True, True, True]])
    ratios_RT = completion_ratios(logprobs_RT, old_RT, mask_RT)
    # row 0: (2 · ½)^½ = 1, its third token is padding; row 1: (4 · 4 · 1)^⅓ = 2.5198
    assert ratios_RT[0, :2].tolist() == pytest.approx([1, 1], abs=1e-12)
    assert ratios_RT[1].tolist() == pytest.approx([16 ** (1 / 3)] * 3, abs=1e-12)
    # s = exp(mean (log π − log π_old)), so ∂s/∂log π_t = s/T; the mean over its tokens carries just that
    rows = (torch.where(mask_RT, ratios_RT, 0.0).sum(dim=-1) / mask_RT.sum(dim=-1)).sum()
    [grad_RT] = torch.autograd.grad(rows, logprobs_RT)
    assert grad_RT[0].tolist() == pytest.approx([0.5, 0.5, 0], abs=1e-12)
    assert grad_RT[1].tolist() == pytest.approx([16 ** (1 / 3) / 3] * 3, abs=1e-12)


# KL. π = 0.5, π_ref = 0.25: d = log ½ = −0.6931; as a loss in log π: k1' = 1, k2' = −d, k3' = 1 − eᵈ


@pytest.mark.parametrize(
    ("estimate", "value", "slope"),
    [
        ("k1", math.log(2), 1.0), ("k2", math.log(2) ** 2 / 2, math.log(2)), ("k3", 0.5 + math.log(2) - 1, 0.5),
        ("k3-capped", 0.5 + math.log(2) - 1, 0.5),
    ],
)  # fmt: skip
def test_kl_estimates_by_hand(estimate, value, slope):
    logprobs_RT = torch.tensor([[math.log(0.5)]], dtype=torch.float64, requires_grad=True)
    kl_RT = kl_to_reference(logprobs_RT, torch.tensor([[math.log(0.25)]], dtype=torch.float64), estimate)
    assert float(kl_RT.detach()) == pytest.approx(value, abs=1e-12)
    assert float(torch.autograd.grad(kl_RT.sum(), logprobs_RT)[0]) == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("difference", [-1000.0, -20.5, -11.1, -10.9, -1.0, 0.0, 2.5, 2.7, 20.5, 1000.0])
def test_capped_k3_is_that_of_verl(difference):
    """verl.trainer.ppo.core_algos.kl_penalty, low_var_kl: d is clamped to ±20, then k3 to ±10.

    k3 passes 10 between d = 2.5 (e^2.5 − 3.5 = 8.7) and 2.7 (11.2), and between −10.9 and −11.1 (10.1).
    """
    logprobs_RT = torch.tensor([[-difference]], dtype=torch.float64, requires_grad=True)
    d_RT = torch.clamp(-logprobs_RT, min=-20, max=20)
    verl_RT = torch.clamp(torch.exp(d_RT) - d_RT - 1, min=-10, max=10)
    ours_RT = kl_to_reference(logprobs_RT, torch.zeros(1, 1, dtype=torch.float64), "k3-capped")
    assert torch.equal(ours_RT, verl_RT)
    slope, verl_slope = (torch.autograd.grad(kl_RT.sum(), logprobs_RT)[0] for kl_RT in (ours_RT, verl_RT))
    assert torch.equal(slope, verl_slope)
    assert (float(slope) == 0) == (difference == 0 or not -11 < difference < 2.6)


def test_k1_and_k3_have_the_kl_as_their_mean():
    reference = np.array([0.2, 0.2, 0.6])
    logprobs_RT, reference_RT = (torch.tensor([p], dtype=torch.float64).log() for p in (PROBS, reference.tolist()))
    exact = float(np.sum(PROBS * np.log(PROBS / reference)))
    for estimate in ("k1", "k3"):
        mean = float((torch.tensor(PROBS) * kl_to_reference(logprobs_RT, reference_RT, estimate)).sum())
        assert mean == pytest.approx(exact, abs=1e-7)


@given(st.floats(-20, 0), st.floats(-20, 0))
def test_k2_and_k3_are_never_negative_and_0_at_the_reference(logprob, reference):
    one, other = torch.tensor([[logprob]], dtype=torch.float64), torch.tensor([[reference]], dtype=torch.float64)
    for estimate in ("k2", "k3"):
        assert float(kl_to_reference(one, other, estimate)) >= -1e-12
        assert float(kl_to_reference(one, one, estimate)) == 0


# Weights. Lengths 2, 4, 1, 3, 5: Σ = 15, R = 5, the most tokens allowed 10


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ("completion", [1 / 10, 1 / 20, 1 / 5, 1 / 15, 1 / 25]),  # 1 / (5 · T)
        ("token", [1 / 15] * 5),
        ("constant", [1 / 50] * 5),
        # pairs (2, 4), (1, 3) and 5 alone: 1 / (3 · 6), 1 / (3 · 4), 1 / (3 · 5)
        ("pairs", [1 / 18, 1 / 18, 1 / 12, 1 / 12, 1 / 15]),
    ],
)
def test_token_weights_by_hand(mean, expected):
    assert token_weights([2, 4, 1, 3, 5], mean, 10).tolist() == pytest.approx(expected, abs=1e-15)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.sampled_from(["completion", "token", "pairs"]))
def test_the_weights_of_all_tokens_add_up_to_1(lengths, mean):
    assert float(np.dot(token_weights(lengths, mean, 30), lengths)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("mean", ["completion", "token", "constant", "pairs"])
def test_empty_completions_and_no_completions_have_finite_weights(mean):
    assert np.isfinite(token_weights([0, 0, 3], mean, 10)).all()
    assert np.isfinite(token_weights([0], mean, 10)).all()
    assert token_weights([], mean, 10).shape == (0,)
