"""Weights that are written and read back."""

import json

import pytest
import torch
from transformers import GenerationConfig
from updates import CPU, make_policy

from scrl.errors import InputError
from scrl.policy.checkpoint import checkpoints_bytes, write_optimizer, write_weights
from scrl.policy.model import check_savable, load_model
from scrl.policy.settings import ComputeSettings


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
    with pytest.raises(InputError, match=r"generation_config\.json.*pad_token_id"):
        check_savable("model", language_model.model)


@pytest.mark.parametrize(
    ("dtype", "changes", "per_weight"),
    [  # the weights, the masters where they are others, and AdamW's two averages
        ("float32", {}, 4 + 0 + 8),
        ("bfloat16", {}, 2 + 2 + 8),
        ("bfloat16", {"state": "bfloat16"}, 2 + 2 + 4),
        ("float32", {"state": "bfloat16"}, 4 + 0 + 4),
    ],
)
def test_a_checkpoint_takes_the_bytes_that_were_counted(dtype, changes, per_weight, tmp_path):
    language_model = load_model("embedded", ComputeSettings(device="cpu", dtype=dtype))
    policy = make_policy(language_model, **changes)
    counted = per_weight * 757_888
    # `best` has float32, in which the model was published; `last` is there twice while a new one is written
    assert checkpoints_bytes(policy, is_renewed=True) == 4 * 757_888 + 2 * counted
    assert written_bytes(policy, tmp_path) == pytest.approx(counted, rel=0.05)
    assert checkpoints_bytes(policy, is_renewed=False) == 4 * 757_888 + counted  # after an update, too


def written_bytes(policy, folder):
    """Of a checkpoint after an update."""
    policy.optimizer.expect_nothing()
    policy.optimizer.step()
    write_weights(policy.language_model, folder, "a card")
    write_optimizer(policy, folder)
    return sum(path.stat().st_size for path in folder.iterdir())
