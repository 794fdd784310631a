"""Stop texts: where a completion ends, and what is left of its text and tokens."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TOKENIZER, prompts, tiny_model
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from scrl.sampling.local import LocalSampler
from scrl.sampling.sampler import StopTexts
from scrl.sampling.settings import SamplingSettings

SAMPLER = LocalSampler(tiny_model("llama", seed=4), TOKENIZER, max_rows=512)
PROMPTS = prompts(5, 2, 8)


def drawn(*stop, max_tokens=40):
    sampling = SamplingSettings(max_tokens=max_tokens, stop=stop)
    return [s for g in SAMPLER.sample(PROMPTS, sampling, num_samples=2, seed=0, step=0) for s in g]


@cache
def free():
    """The same rows without a stop text."""
    return drawn()


def expected(sample, *stop):
    """The row cut by hand: the shortest beginning of its tokens whose text holds a stop text."""
    for length in range(1, len(sample.tokens_T) + 1):
        text = TOKENIZER.decode(sample.tokens_T[:length], skip_special_tokens=True)
        found = [text.index(one) + len(one) for one in stop if one in text]
        if found:
            return text[: min(found)], sample.tokens_T[:length].tolist(), True
    return sample.text, sample.tokens_T.tolist(), sample.is_finished


def assert_cut(*stop):
    for sample, other in zip(drawn(*stop), free(), strict=True):
        assert (sample.text, sample.tokens_T.tolist(), sample.is_finished) == expected(other, *stop)
        assert sample.logprobs_T == pytest.approx(other.logprobs_T[: len(sample.tokens_T)], abs=1e-5)


@settings(max_examples=25)
@given(st.data())
def test_a_row_ends_with_the_token_that_completes_a_stop_text(data):
    text = data.draw(st.sampled_from([sample.text for sample in free()]))
    first = data.draw(st.integers(0, len(text) - 1))
    stop = text[first : first + data.draw(st.integers(1, 12))]
    assert_cut(stop)


def test_the_first_of_several_stop_texts_counts():
    texts = [sample.text for sample in free()]
    assert_cut(texts[0][5:8], texts[0][3:5], texts[2][4:9], "no such text")


# The search itself, on rows written by hand


def ends_at(tokenizer, tokens, *stop):
    """After which token, counted from 1, a growing row is found to have ended."""
    stops = StopTexts(stop, tokenizer)
    for length in range(1, len(tokens) + 1):
        row = torch.tensor([tokens[:length]])
        if bool(stops.reached(row, row[:, -1])):
            return length
    return None


def byte_tokenizer():
    """A token a byte, as larger vocabularies fall back to, with one more token that is special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, clean_up_tokenization_spaces=False)
    tokenizer.add_tokens([AddedToken("<|turn|>", special=True), AddedToken("</think>", special=False)])
    return tokenizer


BYTES = byte_tokenizer()


@pytest.mark.parametrize("stop", ["。", "é", "终止", "答案已经写完了", "🙂🙂🙂🙂", "ok🙂"])
def test_a_stop_text_whose_letters_are_written_in_several_tokens_is_found(stop):
    before = BYTES.encode("so 答 é.")
    assert BYTES.decode(BYTES.encode(stop)) == stop
    if stop == "é":
        before = BYTES.encode("so 答.")
    tokens = [*before, *BYTES.encode(stop), *BYTES.encode(" and on")]
    assert ends_at(BYTES, tokens, stop) == len(before) + len(stop.encode())


@pytest.mark.parametrize("stop", ["<|turn|>", "</think>", "a<|turn|>", "ab"])
def test_special_tokens_can_be_stop_texts_and_do_not_hide_one(stop):
    tokens = BYTES.encode("xa<|turn|>b</think>c")
    assert len(tokens) == 6  # x a <|turn|> b </think> c
    # the text is written without special tokens: "xab</think>c"
    assert ends_at(BYTES, tokens, stop) == {"<|turn|>": 3, "</think>": 5, "a<|turn|>": 3, "ab": 4}[stop]
