"""A row depends on its own seed and prompt alone: seeds, batches, ends, prefixes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import (
    END,
    SHAPE,
    TOKENIZER,
    assert_same,
    assert_scored_as_by_plain_forward,
    prompts,
    set_ends,
    tiny_model,
    tokens_of,
)

from scrl.sampling.draw import row_uniforms
from scrl.sampling.local import LocalSampler, end_tokens, row_batches
from scrl.sampling.sampler import Prompt
from scrl.sampling.settings import SamplingSettings

SETTINGS = SamplingSettings(max_tokens=40)
VOCABULARY = int(SHAPE["vocab_size"])
LENGTHS = (6, 1, 12, 3, 9)


def drawn(prompts_B, settings=SETTINGS, *, model=None, num_samples=4, seed=0, step=0, max_rows=512):
    sampler = LocalSampler(tiny_model("llama") if model is None else model, TOKENIZER, max_rows=max_rows)
    return sampler.sample(prompts_B, settings, num_samples=num_samples, seed=seed, step=step)


# Seeds


def test_the_same_seed_draws_the_same():
    prompts_B = prompts(*LENGTHS)
    one, other = drawn(prompts_B, seed=3, step=2), drawn(prompts_B, seed=3, step=2)
    assert tokens_of(one) == tokens_of(other)
    assert [s.logprobs_T.tolist() for s in one[0]] == [s.logprobs_T.tolist() for s in other[0]]


def test_another_seed_step_question_or_sample_draws_something_else():
    tokens_P = prompts(6)[0].tokens_P
    others = ("a", {}), ("a", {"seed": 1}), ("a", {"step": 1}), ("a", {"step": "evaluation"}), ("b", {})
    groups = [tokens_of(drawn([Prompt(name, tokens_P)], **more))[0] for name, more in others]
    rows = [tuple(tokens) for group in groups for tokens in group]
    assert len(set(rows)) == len(rows) == 20


@given(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text(max_size=3), st.integers(0, 99)), st.integers(0, 3))
def test_uniforms_depend_on_each_name_and_on_nothing_else(names, changed):
    uniforms_T = row_uniforms(*names, number=5)
    assert np.array_equal(uniforms_T, row_uniforms(*names, number=9)[:5])  # a longer limit draws no other beginning
    assert ((uniforms_T >= 0) & (uniforms_T < 1)).all()
    others = [name + ("x" if isinstance(name, str) else 1) if n == changed else name for n, name in enumerate(names)]
    assert not np.array_equal(uniforms_T, row_uniforms(*others, number=5))


# Batches


def test_a_row_does_not_depend_on_the_other_prompts():
    prompts_B = prompts(*LENGTHS)
    together = drawn(prompts_B)
    assert_same(together, [drawn([prompt])[0] for prompt in prompts_B])
    assert_same(together, drawn(prompts_B[::-1])[::-1])
    assert_same(together[1:3], drawn(prompts_B[1:3]))


@pytest.mark.parametrize("max_rows", [1, 3, 7, 20])
def test_a_row_does_not_depend_on_how_many_are_decoded_side_by_side(max_rows):
    prompts_B = prompts(*LENGTHS)
    assert_same(drawn(prompts_B), drawn(prompts_B, max_rows=max_rows))


def test_the_first_samples_of_a_larger_group_are_those_of_a_smaller_one():
    prompts_B = prompts(*LENGTHS)
    small, large = drawn(prompts_B, num_samples=3), drawn(prompts_B, num_samples=8)
    assert_same(small, [samples[:3] for samples in large])


@given(st.integers(0, 7), st.integers(1, 9), st.integers(1, 12))
def test_batches_hold_every_sample_once_in_order_and_no_more_than_fit(num_prompts, num_samples, max_rows):
    prompts_B = [Prompt(str(number), np.array([3])) for number in range(num_prompts)]
    rows = []
    for batch, numbers in row_batches(prompts_B, num_samples, max_rows):
        assert 1 <= len(batch) * len(numbers) <= max_rows
        rows += [(prompt.question_id, number) for prompt in batch for number in numbers]
    assert rows == [(prompt.question_id, number) for prompt in prompts_B for number in range(num_samples)]


# Ends


def ending_model(share=0.25):
    """A model that ends a row with any of this share of its tokens, so at very different lengths."""
    model = tiny_model("llama", seed=2)
    return set_ends(model, *range(1, round(share * VOCABULARY)))


def test_rows_that_leave_change_nothing_for_those_that_stay():
    model, prompts_B = ending_model(0.1), prompts(*LENGTHS)
    samples_BG = drawn(prompts_B, model=model, num_samples=8)
    lengths = {len(sample.tokens_T) for samples_G in samples_BG for sample in samples_G}
    assert len(lengths) > 10
    assert max(lengths) > 10 * min(lengths)
    assert_scored_as_by_plain_forward(model, prompts_B, samples_BG, 1.0)
    # one row at a time: nothing ever leaves
    assert_same(samples_BG, drawn(prompts_B, model=model, num_samples=8, max_rows=1))


def test_a_finished_row_ends_in_an_end_token_which_counts_and_a_cut_row_has_none():
    model, settings = ending_model(), SamplingSettings(max_tokens=6)
    ends = set(end_tokens(model, TOKENIZER))
    rows = [sample for samples in drawn(prompts(*LENGTHS), settings, model=model, num_samples=12) for sample in samples]
    assert {sample.is_finished for sample in rows} == {True, False}
    for sample in rows:
        tokens = sample.tokens_T.tolist()
        assert len(tokens) == len(sample.logprobs_T) == len(sample.entropies_T)
        assert not ends.intersection(tokens[:-1])
        assert sample.is_finished == (tokens[-1] in ends)
        assert sample.is_finished or len(tokens) == settings.max_tokens


def test_both_the_models_and_the_tokenizers_ends_count():
    model = tiny_model("llama")
    model.generation_config.eos_token_id = 7
    assert end_tokens(model, TOKENIZER) == [END, 7]
    assert end_tokens(set_ends(model, 9, 8), TOKENIZER) == [END, 8, 9]
    model.generation_config.eos_token_id = None
    assert end_tokens(model, TOKENIZER) == [END]


# Prefixes


@pytest.mark.parametrize("kept", [0, 1, 7, 19])
def test_going_on_from_a_prefix_writes_the_rest_of_the_same_completion(kept):
    model = tiny_model("qwen3")
    settings = SamplingSettings(temperature=0, max_tokens=20)
    prompts_B = prompts(*LENGTHS)
    whole = drawn(prompts_B, settings, model=model, num_samples=1)
    assert {len(samples[0].tokens_T) for samples in whole} == {20}
    pairs = [(prompt, samples[0].tokens_T[:kept]) for prompt, samples in zip(prompts_B, whole, strict=True)]
    continued = [replace(prompt, tokens_P=np.concatenate((prompt.tokens_P, begun))) for prompt, begun in pairs]
    rest_settings = settings.model_copy(update={"max_tokens": 20 - kept})
    rest = drawn(continued, rest_settings, model=model, num_samples=2)
    for samples, rests in zip(whole, rest, strict=True):
        assert tokens_of([rests]) == [[samples[0].tokens_T[kept:].tolist()] * 2]
        np.testing.assert_allclose(rests[1].entropies_T, samples[0].entropies_T[kept:], atol=1e-5)


# Limits of single prompts, which trees rely on

LIMIT_30 = SamplingSettings(max_tokens=30)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_row_at_its_own_limit_is_not_finished_never_grows_and_disturbs_nobody(name):
    model, prompts_B = tiny_model(name), prompts(6, 3, 9, 4)
    sampler = LocalSampler(model, TOKENIZER, max_rows=512)
    free = sampler.sample(prompts_B, LIMIT_30, num_samples=3, seed=0, step=0)
    limits = (2, None, 11, 30)
    limited = [replace(prompt, max_tokens=limit) for prompt, limit in zip(prompts_B, limits, strict=True)]
    short = sampler.sample(limited, LIMIT_30, num_samples=3, seed=0, step=0)
    for samples, others, limit in zip(short, free, limits, strict=True):
        for sample, other in zip(samples, others, strict=True):
            assert sample.tokens_T.tolist() == other.tokens_T[:limit].tolist()
            assert sample.logprobs_T == pytest.approx(other.logprobs_T[:limit], abs=1e-5)
            assert sample.is_finished == (other.is_finished and len(other.tokens_T) <= (limit or 30))


def test_the_end_of_text_at_the_very_limit_is_an_end():
    sampler = LocalSampler(tiny_model("llama"), TOKENIZER, max_rows=512)
    [prompt] = prompts(6)
    [free] = sampler.sample([prompt], LIMIT_30, num_samples=40, seed=0, step=0)
    ended = next(sample for sample in free if sample.is_finished and 1 < len(sample.tokens_T) < 30)
    number, length = free.index(ended), len(ended.tokens_T)
    for limit, is_finished in ((length, True), (length - 1, False)):
        [samples] = sampler.sample([replace(prompt, max_tokens=limit)], LIMIT_30, num_samples=40, seed=0, step=0)
        assert samples[number].is_finished == is_finished
        assert len(samples[number].tokens_T) == limit
