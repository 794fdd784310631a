"""Loading a model: the embedded one, folders, and what is wrong with a folder."""

import json
import shutil
import socket
from importlib.resources import files
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
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

from scrl.errors import ConfigError, InputError
from scrl.policy.checkpoint import write_weights
from scrl.policy.model import (
    body_and_head,
    device_of,
    let_segments_grow,
    load_model,
    pick_device,
    pick_dtype,
    remove_dropout,
)
from scrl.policy.model_paths import base_of, model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings

CPU = ComputeSettings(device="cpu")
EMBEDDED = Path(str(files("scrl.data") / "arithmetic_model"))


@pytest.fixture
def folder(tmp_path):
    """A copy of the embedded model to break."""
    return Path(shutil.copytree(EMBEDDED, tmp_path / "model"))


@pytest.fixture
def no_network(monkeypatch):
    """Every attempt to reach another machine fails the test."""

    def refuse(self, address):
        pytest.fail(f"the network was touched: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **options: refuse(None, address))


# What loads


def test_the_embedded_model_loads_without_a_network(no_network):
    loaded = load_model("embedded", ComputeSettings())
    assert loaded.name == "embedded"
    assert all(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.num_weights > 500_000
    assert not loaded.has_adapter
    assert loaded.tokenizer.eos_token_id is not None
    assert loaded.model.config.vocab_size >= len(loaded.tokenizer)


def test_the_embedded_model_is_small_and_plain_transformers_loads_it(no_network):
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir()) <= 10 * 2**20
    model, tokenizer = AutoModelForCausalLM.from_pretrained(EMBEDDED), AutoTokenizer.from_pretrained(EMBEDDED)
    tokens = tokenizer("Compute 3+4+5.", return_tensors="pt")["input_ids"]
    assert tokenizer.unk_token_id not in tokens[0].tolist()
    assert model(tokens).logits.shape == (1, tokens.shape[1], model.config.vocab_size)


def test_a_folder_loads_by_its_path_and_by_a_path_from_home(folder, monkeypatch, no_network):
    assert load_model(str(folder), CPU).num_weights == load_model("embedded", CPU).num_weights
    monkeypatch.setenv("HOME", str(folder.parent))
    assert load_model("~/model", CPU).device == torch.device("cpu")


@pytest.mark.parametrize(("name", "dtype"), [("auto", torch.float32), ("bfloat16", torch.bfloat16)])
def test_the_weights_have_the_type_asked_for(name, dtype):
    loaded = load_model("embedded", ComputeSettings(device="cpu", dtype=name))
    assert {weight.dtype for weight in loaded.model.parameters()} == {dtype}
    assert pick_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert pick_dtype("float32", torch.device("cuda")) == torch.float32


def test_an_adapter_freezes_everything_else():
    loaded = load_model("embedded", CPU, lora=LoraSettings(rank=2, targets=("q_proj", "v_proj")))
    assert loaded.has_adapter
    trained = {name: weight.numel() for name, weight in loaded.model.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora_" in name and ("q_proj" in name or "v_proj" in name) for name in trained)
    # rank 2 on 4 layers: q 128 → 128 and v 128 → 32, so 4 · 2 · (128 + 128 + 128 + 32)
    assert sum(trained.values()) == 3328


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


def test_an_adapter_keeps_its_dropout():
    loaded = load_model("embedded", CPU, lora=LoraSettings(rank=2, dropout=0.25))
    found = {module.p for name, module in loaded.model.named_modules() if isinstance(module, torch.nn.Dropout)}
    assert found == {0.25}


# Adapters


@pytest.fixture
def adapter(tmp_path):
    """An adapter of the embedded model as a run saves it, and the model with it."""
    torch.manual_seed(0)
    trained = load_model("embedded", CPU, lora=LoraSettings(rank=2))
    for name, weight in trained.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)  # it starts at 0, where the adapter does nothing
    write_weights(trained, tmp_path / "adapter", "")
    return tmp_path / "adapter", trained


def rebase(adapter, base):
    """Let the adapter's folder name another model."""
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    (adapter / "adapter_config.json").write_text(json.dumps(settings | {"base_model_name_or_path": base}))


def logits(loaded):
    with torch.no_grad():
        return loaded.model.eval()(torch.tensor([[3, 15, 9, 16, 6]])).logits


def test_an_adapter_is_loaded_merged_into_its_model(adapter):
    folder, trained = adapter
    loaded = load_model(str(folder), CPU)
    torch.testing.assert_close(logits(loaded), logits(trained))
    assert not torch.allclose(logits(loaded), logits(load_model("embedded", CPU)))
    assert not loaded.has_adapter
    assert all(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.num_weights == load_model("embedded", CPU).num_weights
    assert model_folder(str(folder)) == model_folder("embedded")  # where its shape is, and so how much room it needs
    half = load_model(str(folder), ComputeSettings(device="cpu", dtype="bfloat16"))
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}


def test_an_adapter_is_loaded_after_it_and_the_package_were_moved(adapter, tmp_path):
    folder, trained = adapter
    moved = folder.rename(tmp_path / "moved")
    rebase(moved, "/elsewhere/site-packages/scrl/data/arithmetic_model")
    torch.testing.assert_close(logits(load_model(str(moved), CPU)), logits(trained))


def test_an_adapter_of_a_folder_and_without_a_tokenizer_is_loaded(adapter, folder):
    place, trained = adapter
    rebase(place, str(folder))
    for file in place.glob("tokenizer*"):
        file.unlink()
    torch.testing.assert_close(logits(load_model(str(place), CPU)), logits(trained))


def test_an_adapter_on_top_of_an_adapter_keeps_both(adapter, tmp_path):
    folder, trained = adapter
    second = load_model(str(folder), CPU, lora=LoraSettings(rank=2))
    write_weights(second, tmp_path / "second", "")
    assert base_of(tmp_path / "second") == str(folder)
    torch.testing.assert_close(logits(load_model(str(tmp_path / "second"), CPU)), logits(trained))


@pytest.mark.parametrize("base", ["/no/such/model", "models/that/moved"])
def test_an_adapter_whose_model_is_not_there_names_it(adapter, base, no_network):
    folder, _ = adapter
    rebase(folder, base)
    with pytest.raises(InputError, match=f"adapter is an adapter of {base}, which cannot be used: there is no folder"):
        load_model(str(folder), CPU)


@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_an_adapter_that_names_no_model_says_so(folder, text):
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(InputError, match=r"adapter_config\.json does not say base_model_name_or_path"):
        load_model(str(folder), CPU)


def test_an_adapter_that_does_not_fit_its_model_says_so(adapter):
    folder, _ = adapter
    (folder / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="adapter cannot be loaded"):
        load_model(str(folder), CPU)


def test_an_adapter_without_all_its_weights_is_refused(adapter):
    folder, _ = adapter
    file = folder / "adapter_model.safetensors"
    weights = load_file(file)
    save_file(dict(list(weights.items())[:3]), file)
    with pytest.raises(
        InputError, match="adapter cannot be loaded: it does not fit its model: Found missing adapter keys"
    ):
        load_model(str(folder), CPU)


def test_an_adapter_of_itself_is_refused(adapter):
    folder, _ = adapter
    rebase(folder, str(folder))
    with pytest.raises(InputError, match="is an adapter of itself"):
        load_model(str(folder), CPU)


# What does not


def test_a_run_folder_is_no_model_but_holds_one(tmp_path):
    (tmp_path / "run" / "checkpoints" / "last").mkdir(parents=True)
    with pytest.raises(InputError, match=r"run has no config\.json; did you mean .*run/checkpoints/last\?"):
        load_model(str(tmp_path / "run"), CPU)


def test_a_folder_without_weights_says_so(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="has a config but no weights"):
        load_model(str(folder), CPU)


def test_a_folder_without_a_config_says_so(folder):
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"model has no config\.json"):
        load_model(str(folder), CPU)


def test_a_file_is_no_model(folder):
    with pytest.raises(InputError, match=r"model\.safetensors is a file; give the folder"):
        load_model(str(folder / "model.safetensors"), CPU)


@pytest.mark.parametrize("name", ["./nothing", "/no/such/folder", "~/nothing/here", "a/b/c", "nothing", "../x/y"])
def test_a_missing_folder_is_an_error_and_no_download(name, no_network):
    with pytest.raises(InputError, match="there is no folder"):
        load_model(name, CPU)


def test_a_hub_id_that_cannot_be_had_is_an_input_error(monkeypatch, no_network):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="model: no-such-owner/no-such-model cannot be loaded"):
        load_model("no-such-owner/no-such-model", CPU)


@pytest.mark.parametrize("kept", [0, 4, 1000])
def test_weights_cut_short_are_an_input_error(folder, kept):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model(str(folder), CPU)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_broken_file_is_an_input_error(folder, file):
    (folder / file).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model(str(folder), CPU)


def test_a_kind_of_model_nobody_knows_is_an_input_error(folder):
    (folder / "config.json").write_text(json.dumps({"model_type": "abacus"}), encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot be loaded.*abacus"):
        load_model(str(folder), CPU)


def test_a_tokenizer_without_an_end_is_an_input_error(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings.pop("eos_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(InputError, match="no end-of-text token"):
        load_model(str(folder), CPU)


@pytest.mark.parametrize("attention", ["no-such-attention", "flash_attention_2"])
def test_an_attention_that_is_not_there_is_an_input_error(attention):
    with pytest.raises(InputError, match="cannot be loaded"):
        load_model("embedded", ComputeSettings(device="cpu", attention=attention))


def test_an_unknown_device_is_a_config_error():
    with pytest.raises(ConfigError, match=r"compute\.device: 'gpu' is no device; try auto, cpu or cuda"):
        pick_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_a_config_error():
    with pytest.raises(ConfigError, match=r"compute\.device: 'cuda:1' cannot be used here"):
        load_model("embedded", ComputeSettings(device="cuda:1"))
    assert pick_device("auto") == torch.device("cpu")


def test_targets_that_are_not_in_the_model_are_a_config_error():
    with pytest.raises(ConfigError, match=r"lora\.targets: .*no_such_proj"):
        load_model("embedded", CPU, lora=LoraSettings(targets=("no_such_proj",)))


def test_a_model_that_caps_its_logits_has_no_plain_head():
    shape = {"vocab_size": 24, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    assert body_and_head(Gemma2ForCausalLM(Gemma2Config(**shape, **heads))) is None
    # the same cap, written in the part of a config that is about text
    nested = {**shape, **heads, "vocab_size_per_layer_input": 24, "hidden_size_per_layer_input": 4}
    capped = Gemma4Config(
        text_config={**nested, "final_logit_softcapping": 30.0}, vision_config=None, audio_config=None
    )
    assert body_and_head(Gemma4ForConditionalGeneration(capped)) is None
    assert body_and_head(load_model("embedded", CPU).model) is not None


@pytest.mark.parametrize(
    "told", [{}, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, {"PYTORCH_ALLOC_CONF": "backend:native"}]
)
def test_torch_is_told_to_let_memory_grow_unless_it_was_told_something(told, monkeypatch):
    environment = dict(told)
    monkeypatch.setattr("scrl.policy.model.os.environ", environment)
    let_segments_grow()
    assert environment == (told or {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})


def test_torch_is_told_before_it_takes_any_memory(monkeypatch):
    environment, seen = {}, []
    monkeypatch.setattr("scrl.policy.model.os.environ", environment)
    monkeypatch.setattr("scrl.policy.model.torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("scrl.policy.model.pick_device", lambda name: seen.append(dict(environment)))
    device_of(ComputeSettings(device="cuda"))
    device_of(ComputeSettings(device="cuda", sampler="vllm"))
    assert seen[0] == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    environment.clear()
    device_of(ComputeSettings(device="cuda", sampler="vllm"))
    device_of(ComputeSettings(device="cpu"))
    assert seen[2:] == [{}, {}]  # vLLM could not give such memory back
