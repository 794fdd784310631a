"""A model's shape, held to what transformers builds and what the sampler allocates."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

from scrl.errors import ConfigError, DataError
from scrl.planning.shapes import SHAPES, counted_shape, read_shape, shape_of
from scrl.policy.model import load_model
from scrl.policy.settings import ComputeSettings
from scrl.recipes.catalogue import EXPERIMENTS
from scrl.sampling.gpu.fused_weights import fuse


def test_every_model_of_the_paper_has_a_shape_and_so_have_its_siblings():
    assert SHAPES["Qwen/Qwen2.5-3B"].num_weights == 3_085_938_688  # as published
    assert {experiment.model for experiment in EXPERIMENTS.values()} <= SHAPES.keys()
    assert shape_of("Qwen/Qwen2.5-7B-Instruct") == shape_of("Qwen/Qwen2.5-7B")
    assert shape_of("meta-llama/Llama-3.1-8B") == shape_of("meta-llama/Llama-3.1-8B-Instruct")


@pytest.mark.parametrize("name", SHAPES)
def test_weights_and_adapters_are_those_that_transformers_builds(name, tmp_path):
    shape = replace(SHAPES[name], layers=2)  # all layers are alike
    kind = Qwen2Config if "Qwen2" in name else Qwen3Config if "Qwen3" in name else LlamaConfig
    config = kind(
        num_hidden_layers=2, hidden_size=shape.hidden, num_attention_heads=shape.heads, head_dim=shape.head_size,
        num_key_value_heads=shape.kv_heads, intermediate_size=shape.mlp, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.is_tied,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(weight.numel() for weight in model.parameters()) == shape.num_weights
    linears = [module for module in model.model.modules() if isinstance(module, nn.Linear)]
    assert shape.adapter_weights(16) == sum(16 * (linear.in_features + linear.out_features) for linear in linears)
    config.save_pretrained(tmp_path)
    assert read_shape(tmp_path / "config.json") == shape
    counted = counted_shape(config, shape.num_weights)
    assert (counted.num_weights, counted.cache_bytes(2)) == (shape.num_weights, shape.cache_bytes(2))


def test_the_cache_of_a_token_is_what_the_sampler_allocates():
    assert SHAPES["Qwen/Qwen2.5-3B"].cache_bytes(2) == 36_864
    assert 256 * SHAPES["Qwen/Qwen3-4B"].cache_bytes(2) == pytest.approx(37.7e6, rel=0.01)  # a page of the GPU sampler
    model = load_model("embedded", ComputeSettings(dtype="float32")).model
    allocated = fuse(model).shape.numbers_per_token * 4
    assert shape_of("embedded").cache_bytes(4) == counted_shape(model.config, 1).cache_bytes(4) == allocated
    # any other decoder: keys and values of 3 layers, as many heads as queries have
    assert counted_shape(GPT2Config(n_layer=3, n_head=4, n_embd=32), 1).cache_bytes(2) == 2 * 3 * 32 * 2


def test_a_folder_needs_no_weights_and_an_unknown_model_is_refused(tmp_path):
    assert shape_of("embedded").num_weights == 757_888
    values = {
        "model_type": "mistral", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 10,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(values))
    shape = shape_of(str(tmp_path))
    assert (shape.kv_heads, shape.head_size, shape.is_tied) == (2, 4, False)  # the defaults
    wrong = (
        "{", "[]", '{"model_type": "gpt2"}', '{"model_type": "llama", "attention_bias": true}',
        '{"model_type": "llama", "num_attention_heads": 2, "hidden_size": 8}',
        '{"model_type": "llama", "num_attention_heads": "many"}',
    )  # fmt: skip
    for text in wrong:
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(DataError, match=r"config\.json"):
            shape_of(str(tmp_path))
    (tmp_path / "config.json").unlink()
    with pytest.raises(DataError, match=r"config\.json"):
        shape_of(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'Qwen/Qwen2\.5-3B'"):
        shape_of("Qwen/Qwen2.5-3B-it")
