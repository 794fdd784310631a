"""Rows without padding: the same gradient as with it, whatever the loss and the model."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM
from updates import (
    ENDS,
    SMALL,
    VARIANTS,
    assert_close,
    cohere,
    collected_gradient,
    credit_of,
    disturb,
    draw_group,
    embedded,
    make_policy,
    random_model,
    small_model,
    tied_gpt2,
    uneven_group,
    with_adapter,
)

from scrl.policy.batching import Batch, TrainingRow, is_worth_packing, num_tokens, split_by_tokens
from scrl.policy.model import load_model
from scrl.policy.packing import Packing, attend_within_rows, choose_packing, why_not_packed
from scrl.policy.settings import ComputeSettings
from scrl.policy.token_scores import body_and_head

CPU = torch.device("cpu")
VARIANTS = VARIANTS | {"kl": {"kl_weight": 0.5}}


@pytest.fixture(scope="module")
def group():
    return uneven_group()


def row(prompt, completion):
    return TrainingRow(np.arange(prompt), np.arange(completion), np.zeros(completion), 1.0, 0.0, 1.0)


def qwen2(**config):
    return random_model(Qwen2ForCausalLM, Qwen2Config(**SMALL | {"num_hidden_layers": 2} | ENDS, **config))


def windowed():
    return qwen2(use_sliding_window=True, sliding_window=4, max_window_layers=1)  # a full layer, then one with a window


# The same numbers


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_gradient_is_that_of_padded_rows(group, variant):
    language_model = embedded()
    options = {"max_tokens": 24, "micro_batch": 4, "temperature": 0.7, **VARIANTS[variant]}
    policies = [make_policy(language_model, **options, is_packed=each) for each in (True, False)]
    disturb(language_model)
    (found, sums), (wanted, wanted_sums) = (collected_gradient(p, group, credit_of()) for p in policies)
    assert [policy.is_packed for policy in policies] == [True, False]
    assert float(wanted.norm()) > 1e-4
    assert_close(found, wanted, 2e-5)
    assert sums == pytest.approx(wanted_sums, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("make", [small_model, tied_gpt2, qwen2, windowed, with_adapter])
def test_other_models_give_the_gradient_of_padded_rows_too(make):
    language_model = make()
    sampled = draw_group(language_model)
    disturb(language_model)
    found, wanted = (
        collected_gradient(make_policy(language_model, is_packed=each), sampled, credit_of())[0]
        for each in (True, False)
    )
    assert_close(found, wanted, 2e-5)


@pytest.mark.parametrize("is_packed", [True, False])
def test_activations_can_be_computed_again(group, is_packed):
    compute = {"gradient_checkpointing": True}
    language_model, plain = load_model("embedded", ComputeSettings(device="cpu", **compute)), embedded()
    disturb(language_model)
    disturb(plain)
    policy = make_policy(language_model, max_tokens=24, micro_batch=3, compute=compute, is_packed=is_packed)
    policy._set_mode()
    found, _ = collected_gradient(policy, group, credit_of())
    wanted, _ = collected_gradient(make_policy(plain, max_tokens=24), group, credit_of())
    assert_close(found, wanted, 2e-5)


def test_bfloat16_rows_are_scored_again_without_padding(group):
    language_model = small_model(dtype=torch.bfloat16)
    policy = make_policy(language_model, max_tokens=24, is_packed=True)
    [rows] = policy.rescore([policy.rows([(group, credit_of())])])
    with torch.no_grad():
        logprobs_RT, _ = policy.score(policy._batch(rows))
    for each, logprobs_T in zip(rows, logprobs_RT, strict=True):
        np.testing.assert_array_equal(each.old_logprobs_T, logprobs_T[: len(each.tokens_T)])
    assert policy.update([group], [credit_of()]).clipped_share == 0


# Models that cannot


def test_a_model_with_another_attention_is_padded_with_a_note():
    config = Gemma2Config(**SMALL, **ENDS, head_dim=8, final_logit_softcapping=None)
    language_model = random_model(Gemma2ForCausalLM, config)
    assert body_and_head(language_model.model) is not None
    assert "softcap" in why_not_packed(language_model.model.model)
    policy = make_policy(language_model, is_packed=True)
    assert not policy.is_packed
    assert "softcap" in policy.note


class Body(torch.nn.Linear):
    """Hidden states by position; packed rows end in this error, or in hidden states that are off by this factor."""

    def __init__(self, outcome):
        super().__init__(1, 4)
        self.config, self.outcome = SimpleNamespace(_attn_implementation="sdpa"), outcome

    def forward(self, input_ids, use_cache, position_ids=None, packing=None):
        if packing is not None and isinstance(self.outcome, Exception):
            raise self.outcome
        positions_1L = torch.arange(input_ids.shape[1])[None] if packing is None else position_ids
        hidden_1LE = super().forward(positions_1L[..., None] + 1.0)
        return SimpleNamespace(last_hidden_state=hidden_1LE * (1 if packing is None else 1 + self.outcome))


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (0.0, None), (5e-5, None), (2e-4, "hidden states"),
        (ImportError("cannot import name 'varlen_attn'"), "ImportError"),
        (TypeError("varlen_attn() got 'window_size'\nand more"), "TypeError"),
        (KeyError("packing"), "KeyError"), (RuntimeError(), "RuntimeError"),
    ],
)  # fmt: skip
def test_the_reason_is_told_where_rows_cannot_be_packed(outcome, reason):
    body = Body(outcome)
    why = why_not_packed(body)
    assert why is reason is None or reason in why
    assert body.training
    assert body.config._attn_implementation == "sdpa"
    is_packed, note = choose_packing((body, SimpleNamespace(weight=SimpleNamespace(device=torch.device("cuda")))))
    assert is_packed == (note is None) == (reason is None)


def test_a_model_that_changes_its_logits_is_not_packed():
    assert not make_policy(cohere(), is_packed=True).is_packed


# Where it pays


@pytest.mark.parametrize(
    ("lengths", "pays"),
    [
        ((40_000,), False),
        ((32_767,), True),  # too few for cuDNN to plan for
        ((20_000, 20_000), False),
        ((20_000, 18_000), False),  # 40,000 padded tokens against 38,000, which cost as much as 1.06 · 38,000 = 40,280
        ((20_000, 17_000), True),  # 40,000 against 1.06 · 37,000 = 39,220
        ((20_000, 10, 10, 10), True),
    ],
)
def test_rows_are_packed_by_default_where_that_pays(lengths, pays):
    rows = [row(4, length - 4) for length in lengths]
    assert is_worth_packing(rows) == pays
    policy = make_policy(embedded(), is_packed=True)
    assert (policy._batch(rows).packing is not None) == pays


# Batches


def test_packed_and_padded_batches_by_hand():
    rows = [row(2, 3), row(1, 1)]
    padded, packed = (Batch.of(rows, CPU, is_packed) for is_packed in (False, True))
    assert padded.tokens_RL.tolist() == [[0, 1, 0, 1, 2], [0, 0, 0, 0, 0]]
    assert packed.tokens_RL.tolist() == [[0, 1, 0, 1, 2, 0, 0]]
    for batch in (padded, packed):  # the second row starts at 5 in both
        assert batch.states_n.tolist() == [1, 2, 3, 5]
        assert batch.targets_n.tolist() == [0, 1, 2, 0]
        assert batch.mask_RT.tolist() == [[True, True, True], [True, False, False]]
    assert padded.packing is None
    assert packed.packing.cu_queries.tolist() == packed.packing.cu_keys.tolist() == [0, 5, 7]
    assert packed.packing.cu_queries.dtype == packed.packing.cu_keys.dtype == torch.int32
    assert packed.packing.positions_1L.tolist() == [[0, 1, 2, 3, 4, 0, 1]]
    assert packed.packing.prompts == ()
    assert (num_tokens(rows, True), num_tokens(rows, False)) == (7, 10)


def test_a_shared_prompt_by_hand():
    prompt, other = np.array([7, 8]), np.array([9])
    completions = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]
    rows = [
        TrainingRow(tokens_P, tokens_T, None, 1.0, 0.0, 1.0)
        for tokens_P, tokens_T in zip((prompt, prompt, other), completions, strict=True)
    ]
    batch, padded = (Batch.of(rows, CPU, is_packed) for is_packed in (True, False))
    packing = batch.packing
    assert batch.tokens_RL.tolist() == [[7, 8, 1, 2, 3, 4, 9, 5, 6]]
    assert batch.states_n.tolist() == [1, 2, 3, 1, 6, 7]  # 1 and 4 are both predicted by the prompt's last token
    assert batch.targets_n.tolist() == padded.targets_n.tolist() == [1, 2, 3, 4, 5, 6]
    assert (packing.query_lengths, packing.key_lengths) == ((2, 3, 1, 3), (2, 5, 3, 3))
    assert packing.positions_1L.tolist() == [[0, 1, 2, 3, 4, 2, 0, 1, 2]]
    assert packing.keys_m.tolist() == [0, 1, *(0, 1, 2, 3, 4), *(0, 1, 5), *(6, 7, 8)]
    assert packing.own_L.tolist() == [0, 1, 4, 5, 6, 9, 10, 11, 12]
    ((place, places),) = packing.prompts
    assert (place, places.tolist()) == (slice(0, 2), [[0, 1], [2, 3], [7, 8]])
    assert (num_tokens(rows, True), num_tokens(rows, False)) == (9, 15)
    # 10 rows of 3 tokens and a prompt of 20, whose 200 copied keys count as 25 tokens
    shared = [TrainingRow(np.arange(20), np.arange(3), None, 1.0, 0.0, 1.0)] * 10
    assert num_tokens(shared, True) == 20 + 30 + 25


@pytest.mark.parametrize("window", [None, 3])
def test_gradients_of_shared_keys_are_those_of_copies(window):
    """Each completion with its prompt as a row of its own, and the prompt's gradients added up."""
    torch.manual_seed(0)
    packing = Packing.of([(4, (5, 2, 1)), (3, ())], CPU)
    parts = torch.randn(3, 1, 2, 15, 8, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(1, 15, 2, 8, dtype=torch.float64)
    output, _ = attend_within_rows(torch.nn.Module(), *parts, None, packing=packing, sliding_window=window)
    (found,) = torch.autograd.grad((output * upstream).sum(), parts)
    prompt, *others = torch.split(parts, [4, 5, 2, 1, 3], dim=3)
    rows = [torch.cat((prompt, other), dim=3) for other in others[:3]] + [others[3]]
    alone = Packing.of([(row.shape[3], ()) for row in rows], CPU)
    whole, _ = attend_within_rows(
        torch.nn.Module(), *torch.cat(rows, dim=3), None, packing=alone, sliding_window=window
    )
    wanted = torch.cat((whole[:, :9], whole[:, 13:15], whole[:, 19:20], whole[:, 20:]), dim=1)
    assert torch.allclose(output, wanted, rtol=1e-12)
    assert torch.allclose(found, torch.autograd.grad((wanted * upstream).sum(), parts)[0], rtol=1e-10)


@given(st.lists(st.integers(1, 20), max_size=12), st.integers(1, 60), st.booleans())
def test_parts_are_as_full_as_their_tokens_allow(lengths, most, is_packed):
    rows = [row(1, length) for length in lengths]
    parts = split_by_tokens(rows, most, is_packed)
    assert [each for part in parts for each in part] == rows
    assert all(len(part) == 1 or num_tokens(part, is_packed) <= most for part in parts)
    for part, after in pairwise(parts):
        assert num_tokens([*part, after[0]], is_packed) > most
