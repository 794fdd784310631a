"""Weights that are written and read back."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig

from scrl.errors import InputError
from scrl.policy.checkpoint import load_weights, write_weights
from scrl.policy.model import check_savable, load_model
from scrl.policy.model_paths import model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings

CPU = ComputeSettings(device="cpu")


@pytest.mark.parametrize(
    ("published", "temperature", "top_k"),
    [({"temperature": 0.6, "top_p": 0.9}, 0.6, None), ({"top_k": 20}, None, 20), ({"temperature": 0.0}, None, 1)],
)
def test_a_model_published_with_numbers_for_sampling_that_are_not_used_can_be_saved(
    published, temperature, top_k, tmp_path
):
    folder = shutil.copytree(model_folder("embedded"), tmp_path / "model")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"do_sample": False} | published))
    language_model = load_model(str(folder), CPU)
    write_weights(language_model, tmp_path / "saved", "a card")
    saved = GenerationConfig.from_pretrained(tmp_path / "saved")
    assert (saved.do_sample, saved.temperature, saved.top_k) == (True, temperature, top_k)
    if published == {"temperature": 0.0}:  # and the likeliest token is still the one that is taken
        loaded, tokens_13 = load_model(str(tmp_path / "saved"), CPU).model, torch.tensor([[2, 3, 4]])
        drawn = [loaded.generate(tokens_13, max_new_tokens=8).tolist() for _ in range(3)]
        assert drawn == [loaded.generate(tokens_13, max_new_tokens=8, do_sample=False, top_k=None).tolist()] * 3


def test_a_model_that_cannot_be_saved_is_refused_before_it_is_trained(tmp_path):
    folder = shutil.copytree(model_folder("embedded"), tmp_path / "model")
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token_id": -1}))
    language_model = load_model(str(folder), CPU)
    with pytest.raises(InputError, match=r"its generation_config\.json can be read, but not be saved .*pad_token_id"):
        check_savable(language_model)
    check_savable(load_model("embedded", CPU))


def test_how_a_model_generates_is_left_alone_where_it_can_be_saved():
    generation = load_model("embedded", CPU).model.generation_config
    assert generation.do_sample is not True


def test_an_adapter_that_is_cut_short_is_refused(tmp_path):
    language_model = load_model("embedded", CPU, lora=LoraSettings(rank=2))
    write_weights(language_model, tmp_path, "a card")
    load_weights(language_model, tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    for kept in (len(weights) - 1, 3, 0):
        save_file(dict(list(weights.items())[:kept]), tmp_path / "adapter_model.safetensors")
        with pytest.raises(InputError, match=r"its adapter does not fit the model: missing \[.*\.lora_"):
            load_weights(language_model, tmp_path)
