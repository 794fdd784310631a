"""Low-rank adapters: new ones on a model, and saved ones merged into it."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from updates import CPU

from scrl.errors import InputError
from scrl.policy.checkpoint import load_weights, write_weights
from scrl.policy.model import load_model
from scrl.policy.model_paths import base_of, model_folder
from scrl.policy.settings import ComputeSettings, LoraSettings


def test_an_adapter_freezes_everything_else():
    loaded = load_model("embedded", CPU, lora=LoraSettings(rank=2))
    assert loaded.has_adapter
    trained = {name: weight.numel() for name, weight in loaded.model.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)
    # rank 2 on 4 layers: q and o 128 → 128, k and v 128 → 32, three of 128 ↔ 384: 4 · 2 · (2 · 256 + 2 · 160 + 3 · 512)
    assert sum(trained.values()) == 18_944
    assert {module.scaling["default"] for module in loaded.model.modules() if hasattr(module, "lora_A")} == {2.0}


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
    assert loaded.model.num_parameters() == load_model("embedded", CPU).model.num_parameters()
    assert model_folder(str(folder)) == model_folder("embedded")  # where its shape is, and so how much room it needs
    half = load_model(str(folder), ComputeSettings(device="cpu", dtype="bfloat16"))
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}


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
    with pytest.raises(InputError, match=str(base)):
        load_model(str(folder), CPU)


def keep_three_weights(folder):
    file = folder / "adapter_model.safetensors"
    save_file(dict(list(load_file(file).items())[:3]), file)


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: rebase(folder, str(folder)), "adapter"),
        (lambda folder: (folder / "adapter_model.safetensors").write_bytes(b""), "adapter"),
        (keep_three_weights, "missing adapter keys"),
        *(
            (lambda folder, text=text: (folder / "adapter_config.json").write_text(text), r"adapter_config\.json")
            for text in ("{", "{}", "[]")
        ),
    ],
)
def test_an_adapter_that_is_damaged_is_refused(adapter, damage, named):
    folder, _ = adapter
    damage(folder)
    with pytest.raises(InputError, match=named):
        load_model(str(folder), CPU)


SLOW = (
    r"(\w+\.?)+x",
    r"(.*)*$",
    "(a|a)*b",
    ["(q_proj|q_proj)*!"],
    [r"(?:.+)+\d"],
    {r"(.+)+$": 2},
    {"(a*)*b": 4},
    [[1]],
    {"a": {"b": 1}},
    "q_proj|",
)
SLOW_SETTINGS = {
    "target_modules": SLOW, "exclude_modules": SLOW, "rank_pattern": SLOW, "alpha_pattern": SLOW, "layers_pattern": SLOW, "modules_to_save": SLOW,
    "init_lora_weights": ("pissa_niter_100000", "pissa", "olora", "corda", "eva", "loftq", "orthogonal", [1]), "layer_replication": ([[0, 10**7]], [[0, 4]] * 9),
    "megatron_config": ({"a": 1},), "target_parameters": (["(.+)+$"],), "trainable_token_indices": ([0],), "peft_type": ("XLORA", "LOHA", "ADALORA"),
    "loftq_config": ({"loftq_iter": 10**9},), "eva_config": ({"rho": 2},), "use_bdlora": ({"a": 1},), "arrow_config": ({"a": 1},),
}  # fmt: skip


def test_an_adapter_that_would_keep_peft_busy_is_refused_with_the_setting(adapter):
    """A hundred at random, alone or with others: patterns, factorizations, layers without end, modules to import."""
    folder, _ = adapter
    rng, plain = np.random.default_rng(0), json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    for _ in range(100):
        names = rng.choice(list(SLOW_SETTINGS), rng.integers(1, 4), replace=False)
        changes = {str(name): SLOW_SETTINGS[name][rng.integers(len(SLOW_SETTINGS[name]))] for name in names}
        (folder / "adapter_config.json").write_text(json.dumps(plain | changes))
        with pytest.raises(InputError, match="|".join(changes)):
            load_model(str(folder), CPU)
        with pytest.raises(InputError, match="|".join(changes)):
            base_of(folder)
    for harmless in (
        {"use_rslora": True},
        {"init_lora_weights": "gaussian"},
        {"rank_pattern": {"q_proj": 2}},
        {"layers_pattern": []},
    ):
        (folder / "adapter_config.json").write_text(json.dumps(plain | harmless))
        load_model(str(folder), CPU)
    (folder / "adapter_config.json").write_text(json.dumps(plain | {"r": 10**12}))
    with pytest.raises(InputError, match="adapter"):
        load_model(str(folder), CPU)


def test_an_adapter_that_is_cut_short_is_refused(tmp_path):
    language_model = load_model("embedded", CPU, lora=LoraSettings(rank=2))
    write_weights(language_model, tmp_path, "a card")
    load_weights(language_model, tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    for kept in (len(weights) - 1, 3, 0):
        save_file(dict(list(weights.items())[:kept]), tmp_path / "adapter_model.safetensors")
        with pytest.raises(InputError, match=r"missing \[.*\.lora_"):
            load_weights(language_model, tmp_path)
