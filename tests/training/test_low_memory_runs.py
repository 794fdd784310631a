"""A run with packed rows, several passes, split masters and short averages."""

import pytest
import torch
from runs import differences, do, go_on, metrics, stop_after_a_step
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from scrl.policy import packing
from scrl.policy.model_paths import model_folder

pytestmark = pytest.mark.usefixtures("no_report")
LEAN = (
    "compute.dtype=bfloat16", "compute.micro_batch=3", "compute.gradient_checkpointing=true",
    "optimizer.state=bfloat16", "evaluation.completions=0", "steps=2",
)  # fmt: skip


@pytest.fixture
def narrow(tmp_path):
    """The embedded model in small, with random weights: some CPUs take a minute for that one in bfloat16."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1, "num_hidden_layers": 2}
    config = AutoConfig.from_pretrained(model_folder("embedded"), **sizes)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "narrow")
    AutoTokenizer.from_pretrained(model_folder("embedded")).save_pretrained(tmp_path / "narrow")
    return f"model={tmp_path / 'narrow'}"


def test_it_goes_on_exactly(narrow, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "DEVICES", ("cpu",))
    settings = (*LEAN, narrow)
    run, _ = do(tmp_path / "whole", *settings)
    assert run.policy.is_packed
    stop_after_a_step(tmp_path / "run", *settings)
    go_on(tmp_path / "run")
    assert differences(tmp_path / "run", tmp_path / "whole") == []


def test_packing_changes_a_run_by_rounding_alone(tmp_path, monkeypatch):
    for name, devices in (("on", ("cpu",)), ("off", ())):
        monkeypatch.setattr(packing, "DEVICES", devices)
        do(tmp_path / name, "evaluation.completions=0", "steps=1")
    one, other = (metrics(tmp_path / name) for name in ("on", "off"))
    assert one[0].pop("grad_norm") == pytest.approx(other[0].pop("grad_norm"), rel=1e-5)
    assert one[0].pop("loss") == pytest.approx(other[0].pop("loss"), abs=1e-6)
    assert one[0] == other[0]
