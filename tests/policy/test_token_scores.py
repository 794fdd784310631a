"""Chunked log-probabilities and entropies against the full computation, forward and backward."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scrl.policy.token_scores import ROWS, block_rows, logit_scores, token_scores

N, E, V = 13, 7, 11


def problem(*, bias=True, dtype=torch.float32, seed=0, tokens=N):
    """(hidden, weight, bias, targets), all but the last asking for a gradient."""
    random = torch.Generator().manual_seed(seed)
    hidden_nE = torch.randn(tokens, E, generator=random).to(dtype).requires_grad_()
    weight_VE = torch.randn(V, E, generator=random).to(dtype).requires_grad_()
    bias_V = torch.randn(V, generator=random).to(dtype).requires_grad_() if bias else None
    return hidden_nE, weight_VE, bias_V, torch.randint(0, V, (tokens,), generator=random)


def full_scores(hidden_nE, weight_VE, bias_V, targets_n, temperature):
    """Everything at once, in double precision, differentiated by autograd."""
    logits_nV = hidden_nE.double() @ weight_VE.double().T
    if bias_V is not None:
        logits_nV = logits_nV + bias_V.double()
    logprobs_nV = torch.log_softmax(logits_nV / temperature, dim=-1)
    return logprobs_nV[range(len(targets_n)), targets_n], -(logprobs_nV.exp() * logprobs_nV).sum(dim=-1)


def upstreams(which="logprob and entropy", tokens=N):
    a_n, b_n = torch.randn(2, tokens, generator=torch.Generator().manual_seed(9))
    return a_n if "logprob" in which else None, b_n if "entropy" in which else None


def gradients(scores, upstream, leaves):
    """Of Σ upstream · score, with None for a score that nothing depends on."""
    total = sum(
        (score * up.to(score.dtype)).sum() for score, up in zip(scores, upstream, strict=True) if up is not None
    )
    return torch.autograd.grad(total, [leaf for leaf in leaves if leaf is not None])


def assert_all_close(found, wanted, tolerance=1e-5):
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_scores_from_whole_logits_are_the_same(temperature):
    *leaves, targets_n = problem()
    scores = logit_scores(torch.nn.functional.linear(*leaves), targets_n, temperature)
    expected = full_scores(*leaves, targets_n=targets_n, temperature=temperature)
    assert_all_close(scores, expected)
    assert_all_close(gradients(scores, upstreams(), leaves), gradients(expected, upstreams(), leaves))


@pytest.mark.parametrize("chunk_elements", [1, V, 2 * V, 5 * V + 3, N * V, 2**25])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_scores_and_gradients_are_those_of_the_full_computation(chunk_elements, bias, temperature):
    hidden_nE, weight_VE, bias_V, targets_n = problem(bias=bias)
    leaves, options = (hidden_nE, weight_VE, bias_V), {"temperature": temperature, "chunk_elements": chunk_elements}
    scores = token_scores(hidden_nE, weight_VE, targets_n, bias_V=bias_V, **options)
    expected = full_scores(*leaves, targets_n=targets_n, temperature=temperature)
    assert_all_close(scores, expected)
    found = gradients(scores, upstreams(), leaves)
    assert len(found) == 2 + bias
    assert_all_close(found, gradients(expected, upstreams(), leaves))


@pytest.mark.parametrize("which", ["logprob", "entropy"])
def test_one_of_the_two_scores_can_be_differentiated_alone(which):
    *leaves, targets_n = problem()
    scores = token_scores(leaves[0], leaves[1], targets_n, bias_V=leaves[2], temperature=0.8, chunk_elements=4 * V)
    expected = full_scores(*leaves, targets_n=targets_n, temperature=0.8)
    assert_all_close(gradients(scores, upstreams(which), leaves), gradients(expected, upstreams(which), leaves))


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 9), st.floats(0.2, 3), st.integers(1, 60))
def test_any_problem_in_any_chunks(seed, tokens, temperature, chunk_elements):
    hidden_nE, weight_VE, bias_V, targets_n = problem(seed=seed, tokens=tokens)
    leaves, options = (hidden_nE, weight_VE, bias_V), {"temperature": temperature, "chunk_elements": chunk_elements}
    scores = token_scores(hidden_nE, weight_VE, targets_n, bias_V=bias_V, **options)
    expected, upstream = full_scores(*leaves, targets_n=targets_n, temperature=temperature), upstreams(tokens=tokens)
    for one, other in zip(gradients(scores, upstream, leaves), gradients(expected, upstream, leaves), strict=True):
        scale = 1 + float(other.abs().max())
        torch.testing.assert_close(one / scale, other / scale, atol=2e-5, rtol=0)


def test_the_gradient_is_the_slope():
    """The backward pass against differences of the forward pass, so that no two derivations need agree.

    The scores are float32: with a step of 1e-2 their rounding of 1e-7 moves a slope by 1e-5, curvature by about 1e-4.
    """
    hidden_nE, weight_VE, bias_V, targets_n = problem(tokens=3)
    leaves, (a_n, b_n) = (hidden_nE, weight_VE, bias_V), upstreams(tokens=3)

    def total():
        logprobs_n, entropies_n = token_scores(hidden_nE, weight_VE, targets_n, bias_V=bias_V, temperature=0.9)
        return (a_n * logprobs_n + b_n * entropies_n).double().sum()

    found = torch.autograd.grad(total(), leaves)
    for leaf, grad in zip(leaves, found, strict=True):
        slopes = torch.zeros_like(leaf)
        with torch.no_grad():
            for index in range(leaf.numel()):
                before, ends = float(leaf.view(-1)[index]), []
                for value in (before + 1e-2, before - 1e-2, before):
                    leaf.view(-1)[index] = value
                    ends.append(float(total()))
                slopes.view(-1)[index] = (ends[0] - ends[1]) / 2e-2
        torch.testing.assert_close(grad, slopes, atol=2e-3, rtol=2e-3)


def test_three_tokens_by_hand():
    # π = (1/2, 1/4, 1/4): log π(0) = −log 2, H = ½ log 2 + 2 · ¼ log 4 = 1.5 log 2
    hidden_nE = torch.ones(1, 1, requires_grad=True)
    weight_VE = torch.tensor([[math.log(2)], [0.0], [0.0]], requires_grad=True)
    logprobs_n, entropies_n = token_scores(hidden_nE, weight_VE, torch.tensor([0]))
    assert float(logprobs_n.detach()) == pytest.approx(-math.log(2), abs=1e-6)
    assert float(entropies_n.detach()) == pytest.approx(1.5 * math.log(2), abs=1e-6)
    # ∂ log π(0) / ∂z = 1[v = 0] − π;   ∂H/∂z_v = −π_v (log π_v + H) = −½ · ½ log 2, ¼ · ½ log 2, ¼ · ½ log 2
    [of_logprob] = torch.autograd.grad(logprobs_n.sum(), weight_VE, retain_graph=True)
    assert of_logprob.squeeze().tolist() == pytest.approx([0.5, -0.25, -0.25], abs=1e-6)
    [of_entropy] = torch.autograd.grad(entropies_n.sum(), weight_VE)
    eighth = math.log(2) / 8
    assert of_entropy.squeeze().tolist() == pytest.approx([-2 * eighth, eighth, eighth], abs=1e-6)


@pytest.mark.parametrize(
    ("dtype", "of_scores", "of_gradients"),
    [(torch.float64, 1e-5, 1e-5), (torch.bfloat16, 0.1, 0.05)],  # in bfloat16 logits up to 8 round to 2⁻⁶
)
def test_scores_are_float32_and_gradients_have_the_type_of_the_inputs(dtype, of_scores, of_gradients):
    *leaves, targets_n = problem(dtype=dtype)
    scores = token_scores(leaves[0], leaves[1], targets_n, bias_V=leaves[2], chunk_elements=3 * V)
    expected = full_scores(*leaves, targets_n=targets_n, temperature=1.0)
    assert {score.dtype for score in scores} == {torch.float32}
    for score, full in zip(scores, expected, strict=True):
        torch.testing.assert_close(score.double(), full, atol=of_scores, rtol=0)
    found, wanted = (gradients(some, upstreams(), leaves) for some in (scores, expected))
    assert {grad.dtype for grad in found} == {dtype}
    for one, other in zip(found, wanted, strict=True):
        assert float((one.double() - other.double()).norm() / other.double().norm()) < of_gradients


def test_impossible_tokens_give_no_nan():
    hidden_nE = torch.ones(1, 1, requires_grad=True)
    bias_V = torch.tensor([0.0, 0.0, -torch.inf], requires_grad=True)
    logprobs_n, entropies_n = token_scores(hidden_nE, torch.zeros(3, 1), torch.tensor([1]), bias_V=bias_V)
    assert float(entropies_n.detach()) == pytest.approx(math.log(2), abs=1e-6)
    (logprobs_n + entropies_n).sum().backward()
    assert bias_V.grad.tolist() == pytest.approx([-0.5, 0.5, 0.0], abs=1e-6)


# The kernels of an update, run by Triton's interpreter in a process of its own, against plain torch


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed (CUDA builds of torch bring it)")
def test_the_kernels_do_what_plain_torch_does():
    script = Path(__file__).parent / "interpreted_kernels.py"
    environment = os.environ | {"TRITON_INTERPRET": "1"}  # read when Triton is imported
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok") == 8 + 12


@given(st.integers(0, 10_000), st.integers(1, 1000), st.integers(1, 10**6))
def test_blocks_are_few_and_of_about_one_size(tokens, vocabulary, chunk_elements):
    rows = block_rows(tokens, vocabulary, chunk_elements)
    assert rows % ROWS == 0
    if tokens == 0:
        return
    assert rows == ROWS or rows * vocabulary <= chunk_elements
    blocks = -(-tokens // rows)
    assert blocks * rows - tokens < blocks * ROWS  # the last one is short by less than that
