"""Loading a model: the embedded one, folders, and what is wrong with a folder."""

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma4Config,
    Gemma4ForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
)
from updates import CPU, cohere, small_model

from scrl.errors import ConfigError, InputError
from scrl.policy.model import load_model, pick_device, pick_dtype, remove_dropout
from scrl.policy.model_paths import model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings
from scrl.policy.token_scores import body_and_head

EMBEDDED = Path(model_folder("embedded"))


# What loads


def test_the_embedded_model_loads_without_a_network(no_network):
    loaded = load_model("embedded", ComputeSettings())
    assert loaded.name == "embedded"
    assert all(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.model.num_parameters() > 500_000
    assert not loaded.has_adapter
    assert loaded.tokenizer.eos_token_id is not None
    assert loaded.model.config.vocab_size >= len(loaded.tokenizer)


@pytest.mark.parametrize(("name", "dtype"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_weights_have_the_type_asked_for(name, dtype):
    loaded = load_model("embedded", ComputeSettings(device="cpu", dtype=name))
    assert {weight.dtype for weight in loaded.model.parameters()} == {dtype}
    assert pick_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert pick_dtype("float32", torch.device("cuda")) == torch.float32


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=2)])
def test_gradient_checkpointing_changes_no_gradient(lora):
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        loaded = load_model("embedded", ComputeSettings(device="cpu", gradient_checkpointing=checkpointing), lora=lora)
        body, head = body_and_head(loaded.model.train())
        head(body(torch.tensor([[3, 15, 9, 16, 6]]), use_cache=False).last_hidden_state).square().sum().backward()
        gradients.append(torch.cat([w.grad.flatten() for w in loaded.model.parameters() if w.grad is not None]))
    torch.testing.assert_close(*gradients)


TINY = {"vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
DROPS = {"hidden_dropout": 0.3, "attention_dropout": 0.3}
DROPPING = {
    "opt": lambda: OPTForCausalLM(
        OPTConfig(**TINY, ffn_dim=16, word_embed_proj_dim=16, dropout=0.3, attention_dropout=0.3, layerdrop=0.3)
    ),
    "bloom": lambda: BloomForCausalLM(BloomConfig(vocab_size=24, hidden_size=16, n_layer=2, n_head=2, **DROPS)),
    "falcon": lambda: FalconForCausalLM(FalconConfig(**TINY, **DROPS)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=24, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.3)),
}


@pytest.mark.parametrize("name", DROPPING)
def test_no_model_drops_anything_while_it_trains(name):
    """Whether it keeps dropout as modules, as numbers, or in its configuration."""
    torch.manual_seed(0)
    model, tokens_1T = DROPPING[name]().train(), torch.arange(3, 15)[None]
    assert not torch.equal(model(tokens_1T).logits, model(tokens_1T).logits)
    numbers = {key: value for key, value in vars(model.config).items() if "drop" not in key}
    remove_dropout(model)
    assert torch.equal(model(tokens_1T).logits, model(tokens_1T).logits)
    torch.testing.assert_close(model(tokens_1T).logits, model.eval()(tokens_1T).logits)
    assert {key: value for key, value in vars(model.config).items() if "drop" not in key} == numbers


# What does not


def change(file, edit):
    """A function that changes the text of a file of a folder."""
    return lambda folder: (folder / file).write_text(edit((folder / file).read_text(encoding="utf-8")))


def cut_weights(kept):
    def cut(folder):
        (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:kept])

    return cut


def without_eos(text):
    return json.dumps({name: value for name, value in json.loads(text).items() if name != "eos_token"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "config.json").unlink(), r"config\.json"),
        *((cut_weights(kept), "model") for kept in (0, 4, 1000)),
        (change("config.json", lambda text: "{"), r"config\.json"),
        (change("tokenizer.json", lambda text: "{"), "model"),
        (change("config.json", lambda text: '{"model_type": "abacus"}'), "abacus"),
        (change("tokenizer_config.json", without_eos), "end-of-text"),
    ],
)
def test_a_damaged_folder_is_an_input_error(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message):
        load_model(str(folder), CPU)


def test_a_run_folder_and_a_file_are_no_models(folder, tmp_path):
    (tmp_path / "run" / "checkpoints" / "last").mkdir(parents=True)
    with pytest.raises(InputError, match="run/checkpoints/last"):
        load_model(str(tmp_path / "run"), CPU)
    with pytest.raises(InputError, match=r"model\.safetensors"):
        load_model(str(folder / "model.safetensors"), CPU)


@pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "~/nothing/here", "a/b/c", "nothing", "../x/y"])
def test_a_missing_folder_is_an_error_and_no_download(name, no_network):
    with pytest.raises(InputError, match="no folder"):
        load_model(name, CPU)


def test_a_hub_id_that_cannot_be_had_is_an_input_error(monkeypatch, no_network):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="model"):
        load_model("no-such-owner/no-such-model", CPU)


def test_a_hub_that_cannot_be_reached_is_asked_once(monkeypatch, no_network):
    """Its own client would ask again for a minute."""
    asked = []

    def head(address, timeout):
        asked.append(address)
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_session", lambda: SimpleNamespace(head=head))
    with pytest.raises(InputError, match="model"):
        load_model("no-such-owner/no-such-model", CPU)
    assert asked == [huggingface_hub.constants.ENDPOINT]
    assert not huggingface_hub.constants.HF_HUB_OFFLINE  # the next model may be asked for again


def test_an_unknown_device_is_a_config_error():
    with pytest.raises(ConfigError, match=r"compute\.device"):
        pick_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_a_config_error():
    with pytest.raises(ConfigError, match=r"compute\.device"):
        load_model("embedded", ComputeSettings(device="cuda:1"))
    assert pick_device("auto") == torch.device("cpu")


def test_a_model_that_changes_its_logits_has_no_plain_head():
    assert body_and_head(cohere().model) is None
    shape = {"vocab_size": 24, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    assert body_and_head(Gemma2ForCausalLM(Gemma2Config(**shape, **heads))) is None
    # the same cap, written in the part of a config that is about text
    nested = {**shape, **heads, "vocab_size_per_layer_input": 24, "hidden_size_per_layer_input": 4}
    capped = Gemma4Config(
        text_config={**nested, "final_logit_softcapping": 30.0}, vision_config=None, audio_config=None
    )
    assert body_and_head(Gemma4ForConditionalGeneration(capped)) is None
    model, tokens = small_model().model, torch.tensor([[3, 4, 5]])
    body, head = body_and_head(model)
    torch.testing.assert_close(head(body(tokens).last_hidden_state), model(tokens).logits)
