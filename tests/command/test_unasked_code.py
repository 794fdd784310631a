"""Of the folder that a command is started in, only what was named is ever imported."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import COMMAND, untraced
from processes import scrl

from scrl.files.checkpoint_file import write_sums
from scrl.policy.model_paths import model_folder
from scrl.user_code import import_user_module, importable_from_here

TRAPS = (
    "opt_einsum", "brotli", "brotlicffi", "torchvision", "torchaudio", "wandb", "trackio", "datasets", "vllm", "trl", "verl",
    "accelerate_extra", "kernels", "cv2", "soundfile", "librosa", "simplejson", "ujson", "xxhash", "usercustomize", "colorama",
    "tensorflow", "jax", "deepspeed", "bitsandbytes", "flash_attn", "sentencepiece", "tiktoken", "tensorboard",
)  # fmt: skip
"""Packages that libraries take if they are there."""
TRAP = "import pathlib; pathlib.Path(__file__).with_name('SPRUNG').touch(); raise SystemExit(7)"
METHOD = """
import helper
from scrl.credit.methods import METHODS
MINE = METHODS["ttrl"]
"""


@pytest.fixture
def folder(tmp_path):
    for place, name in enumerate(TRAPS):
        if place % 2:
            (tmp_path / name).mkdir()
            (tmp_path / name / "__init__.py").write_text(TRAP)
        else:
            (tmp_path / f"{name}.py").write_text(TRAP)
    (tmp_path / "mine.py").write_text(METHOD)
    (tmp_path / "helper.py").write_text("")
    return tmp_path


def sprung(folder):
    return list(folder.rglob("SPRUNG"))


def test_a_run_imports_its_method_from_the_folder_and_nothing_else(folder):
    words = "train --model embedded --questions arithmetic:easy:train:2 --steps 1 --completions 4 --trained 2".split()
    words += "--sampling.max-tokens 24 --evaluation.completions 0 --method mine:MINE --out run".split()
    offline = untraced(HF_HUB_OFFLINE="1")
    done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, env=offline)
    assert (done.returncode, sprung(folder)) == (0, []), done.stderr
    assert (folder / "run" / "report.html").is_file()


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_a_folder_of_a_trackers_name_is_no_tracker(tracker, folder):
    words = ("train", "model=embedded", "questions=arithmetic:easy", f"trackers=[{tracker}]", "--dry-run")
    done = scrl(*words, cwd=folder)
    assert (done.returncode, sprung(folder)) == (2, [])
    assert "trackers" in done.stderr


def test_the_folder_is_on_the_path_only_while_what_was_named_is_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "named_by_a_user.py").write_text("import sys\nPATH = list(sys.path)\n")
    before = list(sys.path)
    module, name = import_user_module("named_by_a_user:PATH", "method")
    assert getattr(module, name) == [*before, str(Path.cwd())]
    assert sys.path == before
    with pytest.raises(ZeroDivisionError), importable_from_here():
        raise ZeroDivisionError
    assert sys.path == before


@pytest.mark.parametrize("setting", ["reader=os.system", "method=os:system", "compute.sampler=os:system"])
def test_a_part_of_python_is_not_taken_for_code_of_the_user(setting, refusal, tmp_path):
    error = refusal("train", "model=embedded", "questions=arithmetic:easy", setting, "--out", "run")
    assert "part of Python" in error
    assert not list(tmp_path.iterdir())


SMALL = ("questions=arithmetic:easy:train:2", "completions=4", "trained=2", "sampling.max_tokens=24")
SMALL += ("steps=1", "evaluation.completions=0")


class Code:
    """Runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch SPRUNG",)


def as_model(folder, save):
    shutil.copytree(model_folder("embedded"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save(folder / "pytorch_model.bin")
    return "train", f"model={folder}", *SMALL, "--out", "run"


def as_adapter(folder, save):
    folder.mkdir()
    config = {"base_model_name_or_path": "embedded", "peft_type": "LORA", "target_modules": ["q_proj"]}
    config |= {"task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save(folder / "adapter_model.bin")
    return "train", f"model={folder}", *SMALL, "--out", "run"


def as_optimizer(folder, save):
    """In a checkpoint whose sums are right."""
    done = scrl("train", "model=embedded", *SMALL, "--out", folder)
    assert done.returncode == 0, done.stderr
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text().replace("steps: 1", "steps: 2"))
    save(folder / "checkpoints" / "last" / "optimizer.pt")
    write_sums(folder / "checkpoints" / "last", 1, "")
    return "train", "--resume", folder


@pytest.mark.parametrize("save", [lambda path: torch.save({"state": Code()}, path), lambda path: path.write_bytes(pickle.dumps(Code()))],
                         ids=["torch", "plain"])  # fmt: skip
@pytest.mark.parametrize("kind", [as_model, as_adapter, as_optimizer])
def test_a_pickle_with_code_is_refused_in_a_line_and_not_run(kind, save, tmp_path):
    done = scrl(*kind(tmp_path / "made-elsewhere", save), cwd=tmp_path)
    assert (done.returncode, sprung(tmp_path)) == (2, [])
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "pickle" in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
