"""Texts → vectors by a model: the mean of what it makes of their tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_models import tiny_model, tiny_tokenizer

from scrl.errors import InputError
from scrl.sampling.embedding import BATCH, load_embedder

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model as its maker would publish it."""
    place = tmp_path_factory.mktemp("embedder")
    tiny_model("llama").save_pretrained(place)
    tiny_tokenizer().save_pretrained(place)
    return str(place)


@pytest.fixture(scope="module")
def embed(folder):
    return load_embedder(SimpleNamespace(embedding=folder), CPU)


def plain(text):
    """One text alone, without padding."""
    model, tokens = tiny_model("llama").model, tiny_tokenizer()(text)["input_ids"]
    with torch.no_grad():
        mean = model(torch.tensor([tokens])).last_hidden_state[0].double().mean(dim=0)
    return (mean / mean.norm()).numpy()


def test_vectors_are_mean_hidden_states_of_length_one_whatever_stands_beside_them(embed):
    texts = ["ab12", "the 7 = x", "q"]
    np.testing.assert_allclose(embed(texts), [plain(text) for text in texts], atol=1e-6)


def test_more_texts_than_a_batch_keep_their_order(embed):
    texts = [f"a{number}" for number in range(BATCH + 3)]
    found = embed(texts)
    np.testing.assert_allclose(found[[0, BATCH, -1]], [plain(texts[place]) for place in (0, BATCH, -1)], atol=1e-6)


def test_a_text_without_tokens_is_nowhere(embed):
    found = embed(["", "ab", ""])
    assert not found[[0, 2]].any()
    assert np.linalg.norm(found[1]) == pytest.approx(1)
    assert not embed([""]).any()
    assert embed([]).shape[0] == 0


def test_longer_texts_than_the_model_can_read_are_cut(embed):
    np.testing.assert_allclose(embed(["a" * 500]), [plain("a" * 128)], atol=1e-6)


def test_what_cannot_be_loaded_is_refused_by_name(tmp_path):
    for name in ("nobody/nothing", str(tmp_path)):
        with pytest.raises(InputError, match=rf"credit\.embedding: {name} cannot be loaded: ."):
            load_embedder(SimpleNamespace(embedding=name), CPU)
