"""Weights that are written and read back."""

import json

import pytest
import torch
from transformers import GenerationConfig
from updates import CPU

from scrl.errors import InputError
from scrl.policy.checkpoint import write_weights
from scrl.policy.model import load_model
from scrl.policy.savable import check_savable


def change_generation_config(folder, changes):
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("published", "temperature", "top_k"),
    [({"temperature": 0.6, "top_p": 0.9}, 0.6, None), ({"top_k": 20}, None, 20), ({"temperature": 0.0}, None, 1)],
)
def test_a_model_published_with_numbers_for_sampling_that_are_not_used_can_be_saved(
    published, temperature, top_k, folder, tmp_path
):
    change_generation_config(folder, {"do_sample": False} | published)
    language_model = load_model(str(folder), CPU)
    write_weights(language_model, tmp_path / "saved", "a card")
    saved = GenerationConfig.from_pretrained(tmp_path / "saved")
    assert (saved.do_sample, saved.temperature, saved.top_k) == (True, temperature, top_k)
    if published == {"temperature": 0.0}:  # and the likeliest token is still the one that is taken
        loaded, tokens_13 = load_model(str(tmp_path / "saved"), CPU).model, torch.tensor([[2, 3, 4]])
        drawn = [loaded.generate(tokens_13, max_new_tokens=8).tolist() for _ in range(3)]
        assert drawn == [loaded.generate(tokens_13, max_new_tokens=8, do_sample=False, top_k=None).tolist()] * 3


def test_a_model_that_cannot_be_saved_is_refused_before_it_is_trained(folder):
    change_generation_config(folder, {"pad_token_id": -1})
    language_model = load_model(str(folder), CPU)
    with pytest.raises(InputError, match=r"its generation_config\.json can be read, but not be saved .*pad_token_id"):
        check_savable("model", language_model.model)


def test_how_a_model_generates_is_left_alone_where_it_can_be_saved():
    embedded = load_model("embedded", CPU)
    check_savable("embedded", embedded.model)
    assert embedded.model.generation_config.do_sample is not True
