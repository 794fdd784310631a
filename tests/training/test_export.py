"""`scrl export`: a run's model as a folder of its own, whose card's lines are run as they stand."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from line_files import read_lines
from peft import PeftModel
from processes import Command, untraced
from runs import do, no_reports, small
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from scrl.api import sample
from scrl.cli.main import main
from scrl.data.prompts import HELPFUL_SYSTEM, PromptSettings, prompt_tokens
from scrl.files.checkpoint_file import write_sums
from scrl.policy.model import load_model, loading
from scrl.policy.model_paths import model_folder
from scrl.policy.settings import ComputeSettings
from scrl.records import Question
from scrl.training import export
from scrl.training.model_card import QUESTION, Export, export_card

WORDS = ("steps=2", "evaluation.temperature=0", "optimizer.learning_rate=1e-3", "sampling.max_tokens=72")
CARD = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The embedded model, published in bfloat16."""
    folder = tmp_path_factory.mktemp("models") / "base"
    shutil.copytree(model_folder("embedded"), folder)
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def runs(base, tmp_path_factory):
    """A run of all weights and one of an adapter."""
    folder = tmp_path_factory.mktemp("runs")
    with no_reports():
        do(folder / "full", *WORDS, f"model={base}")
        do(folder / "lora", *WORDS, f"model={base}", "lora.rank=4")
    return folder


@pytest.fixture
def run(runs, tmp_path):
    """Copies of them, to break."""
    return {name: Path(shutil.copytree(runs / name, tmp_path / name)) for name in ("full", "lora")}


def weights(folder):
    (file,) = folder.glob("*.safetensors")
    return load_file(file)


def dtypes(folder):
    return {weight.dtype for weight in weights(folder).values()}


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    """All that can be exported, and what was said."""
    out = tmp_path_factory.mktemp("exports")
    for name, words in {
        "full": ["full", "--checkpoint", "last"],
        "adapter": ["lora", "--checkpoint", "last"],
        "merged": ["lora/checkpoints/last", "--merge"],
        "float32": ["full", "--checkpoint", "last", "--dtype", "float32"],
    }.items():
        assert main(["export", str(runs / words[0]), *words[1:], "--out", str(out / "new" / name)]) == 0
    return out / "new"


def test_a_folder_holds_weights_in_the_start_models_type_settings_tokenizer_and_card(exported, runs):
    model = {"model.safetensors", "config.json", "generation_config.json"}
    files = {"full": model, "merged": model, "adapter": {"adapter_model.safetensors", "adapter_config.json"}}
    beside = {"README.md", "training.yaml", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
    for name, expected in files.items():
        assert {path.name for path in (exported / name).iterdir()} == expected | beside
        assert dtypes(exported / name) == {torch.bfloat16}
        run = runs / ("full" if name == "full" else "lora")
        assert (exported / name / "training.yaml").read_text() == (run / "config.yaml").read_text()
    assert [path.name for path in exported.parent.iterdir()] == ["new"]  # no draft is left


def test_sigterm_at_any_moment_leaves_nothing_hidden(runs, tmp_path):
    """Twelve at random, in export and evaluate."""
    rng = np.random.default_rng(0)
    for n in range(12):
        evaluate = ("evaluate", "embedded", "arithmetic:easy:train:50", "--max-tokens", "32", "--out", f"e{n}")
        words = ("export", runs / "full", "--out", f"x{n}") if n % 2 else evaluate
        command = Command(*words, cwd=tmp_path, prepare=untraced)
        command.wait_for(lambda n=n: any(tmp_path.glob(f".x{n}.*")) or any(tmp_path.glob(f"e{n}/.lock")))
        time.sleep(rng.random() / 20)
        command.signal(signal.SIGTERM)
        assert command.finish().returncode in (0, 130)
    assert list(tmp_path.rglob(".*")) == []


def test_a_stop_while_a_model_is_loaded_is_a_stop_though_torch_fails_over_it():
    def load():
        with loading("model"):
            try:
                raise KeyboardInterrupt
            finally:
                raise AssertionError("trying to pop from empty mode stack")

    with pytest.raises(KeyboardInterrupt):
        load()


def logits(model):
    with torch.no_grad():
        return model.eval().float()(torch.tensor([[3, 15, 9, 16, 6]])).logits


def test_weights_are_those_of_the_checkpoint_and_rounded_once(exported, runs, base):
    last, rounded = runs / "full" / "checkpoints" / "last", weights(exported / "full")
    assert all(torch.equal(weight.bfloat16(), rounded[name]) for name, weight in weights(last).items())
    # merged: W + 2 B A in float32, then rounded
    adapter, name = weights(runs / "lora" / "checkpoints" / "last"), "model.layers.0.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    expected = (weights(base)[f"{name}.weight"].float() + 2 * b @ a).bfloat16()
    assert torch.equal(weights(exported / "merged")[f"{name}.weight"], expected)
    assert not torch.equal(expected, weights(base)[f"{name}.weight"])


def test_peft_loads_the_adapter_from_any_folder(exported, runs, base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = AutoModelForCausalLM.from_pretrained(base)
    loaded = PeftModel.from_pretrained(start, exported / "adapter")
    assert loaded.peft_config["default"].base_model_name_or_path == str(base)
    trained = load_model(str(runs / "lora" / "checkpoints" / "last"), ComputeSettings(device="cpu", dtype="float32"))
    torch.testing.assert_close(logits(loaded), logits(trained.model), atol=0.05, rtol=0.05)  # 2⁻⁸ of every weight


def test_the_lines_of_every_card_answer_a_question_without_the_package(exported):
    """Greedily, as these runs are measured; in float32, where no rounding decides, our own sampler writes the same."""
    names, lines = ("full", "adapter", "merged", "float32"), ["import os, sys", "sys.modules['scrl'] = None"]
    for name in names:
        code, vllm = CARD.findall((exported / name / "README.md").read_text(encoding="utf-8"))
        compile(vllm, "card", "exec")
        facts = "print('·', model.dtype, tokens['input_ids'].tolist(), end='·')"
        lines += [f"os.chdir({str(exported / name)!r})", code, facts]
    command = [sys.executable, "-W", "ignore", "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tokenizer, settings = AutoTokenizer.from_pretrained(exported / "full"), PromptSettings(instruction="")
    prompt = prompt_tokens(Question("q", QUESTION), tokenizer, settings).tolist()
    written, facts = (done.stdout.split("·")[first:-1:2] for first in (0, 1))
    assert facts == [f" torch.float32 [{prompt}]"] * 4  # on a CPU
    assert all("\\boxed{" in text for text in written)
    how = {"temperature": 0, "max_tokens": 72, "prompt": {"instruction": ""}, "compute": {"device": "cpu"}}
    (ours,) = sample(str(exported / "float32"), [QUESTION], 1, **how)
    assert written[-1].strip() == ours.samples_G[0].text.strip()


def test_a_checkpoint_that_was_not_evaluated_says_whose_numbers_and_answers_there_are(run, tmp_path, capsys):
    write_sums(run["full"] / "checkpoints" / "best", 1, "")
    assert main(["export", str(run["full"]), "--out", str(tmp_path / "best")]) == 0
    assert f"scrl export {run['full']} --checkpoint last" in capsys.readouterr().out
    card = (tmp_path / "best" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^\| questions +\| number +\| +start model \| +step 2 \|$", card, re.MULTILINE)
    lines = read_lines(run["full"] / "evaluations.jsonl")
    row = re.search(r"^\| questions trained on +\| agreement +\| +([\d.]+) \| +([\d.]+) \|$", card, re.MULTILINE)
    assert row.groups() == tuple(f"{100 * line['agreement']:.1f}" for line in (lines[0], lines[-1]))


def test_best_is_the_default_and_the_type_can_be_chosen(run, tmp_path, capsys):
    # of an earlier best, before a kill
    change(run["full"] / "checkpoints" / "last" / "trainer_state.json", best_step=7)
    write_sums(run["full"] / "checkpoints" / "last", 2, "")
    assert main(["export", str(run["full"]), "--out", str(tmp_path / "a"), "--dtype", "float16"]) == 0
    step = json.loads((run["full"] / "checkpoints" / "best" / "checkpoint.json").read_text())["step"]
    assert f"checkpoints/best, of step {step}\n" in capsys.readouterr().out
    assert dtypes(tmp_path / "a") == {torch.float16}
    shutil.rmtree(run["full"] / "checkpoints" / "best")
    (tmp_path / "b").mkdir()  # an empty folder is as good as none
    assert main(["export", str(run["full"]), "--out", str(tmp_path / "b")]) == 0
    assert "checkpoints/last, of step 2" in capsys.readouterr().out


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def keep_three_weights(folder):
    file = folder / "adapter_model.safetensors"
    save_file(dict(list(load_file(file).items())[:3]), file)


def model_of(run, name):
    path, state = run / "config.yaml", run / "checkpoints" / "last" / "trainer_state.json"
    path.write_text(re.sub("^model: .*", f"model: {name}", path.read_text(), flags=re.MULTILINE))
    change(state, settings=json.loads(state.read_text())["settings"] | {"model": name})


def last(run):
    return run["lora"] / "checkpoints" / "last"


BAD = {
    "no such run": (["gone"], None, "gone"),
    "a file": (["full/config.yaml"], None, "full/config.yaml"),
    "no run": (["full/checkpoints"], None, "config.yaml"),
    "the root": (["/"], None, "config.yaml"),
    "a folder of runs": (["."], None, "full, lora"),
    "no checkpoint": (["full"], lambda run: shutil.rmtree(run["full"] / "checkpoints"), "scrl train --resume"),
    "not this checkpoint": (
        ["full", "--checkpoint", "best"], lambda run: shutil.rmtree(run["full"] / "checkpoints" / "best"), "best"
    ),
    "one is named already": (["full/checkpoints/last", "--checkpoint", "best"], None, "--checkpoint"),
    "an empty checkpoint": (
        ["lora", "--checkpoint", "last"], lambda run: (last(run) / "adapter_config.json").unlink(), "adapter_config.json"
    ),
    "merged already": (["full", "--merge"], None, "--merge"),
    "weights cut short": (
        ["full"], lambda run: (run["full"] / "checkpoints" / "best" / "model.safetensors").write_bytes(b"12345678"), "best"
    ),
    "start model gone": (["full"], lambda run: model_of(run["full"], "/no/such/model"), "--dtype"),
    "an odd type": (
        ["full"],
        lambda run: (
            shutil.copytree(model_folder("embedded"), "odd"), change(Path("odd/config.json"), dtype="float64"),
            model_of(run["full"], "odd"),
        ),
        "float64",
    ),
    "state damaged": (
        ["full", "--checkpoint", "last"],
        lambda run: (run["full"] / "checkpoints" / "last" / "trainer_state.json").write_text("{"),
        "trainer_state.json",
    ),
    **{
        f"{what}, {' '.join(words)}": (["lora", "--checkpoint", "last", *words], damage, message)
        for words in ([], ["--merge"])
        for what, damage, message in (
            (
                "base gone",
                lambda run: change(last(run) / "adapter_config.json", base_model_name_or_path="/no/such/model"),
                "/no/such/model",
            ),
            ("adapter cut short", lambda run: keep_three_weights(last(run)), "last"),
            ("adapter empty", lambda run: (last(run) / "adapter_model.safetensors").write_bytes(b""), "last"),
        )
    },
    "an adapter of an adapter": (
        ["lora", "--checkpoint", "last"],
        lambda run: (
            shutil.copytree(last(run), "under"),
            change(last(run) / "adapter_config.json", base_model_name_or_path="under"),
        ),
        "--merge",
    ),
}  # fmt: skip


@pytest.mark.parametrize("words, damage, message", BAD.values(), ids=BAD)  # noqa: PT006
def test_bad_input_is_refused_in_a_line_and_nothing_written(words, damage, message, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if damage is not None:
        damage(run)
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", *words, "--out", "new/out"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("out", ["full", "file", "file/in"])
def test_nothing_is_written_into_what_is_there(out, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("precious")
    assert main(["export", "lora", "--out", out]) == 2
    assert out in capsys.readouterr().err
    assert Path("file").read_text() == "precious"


def test_a_full_disk_leaves_nothing(run, tmp_path, monkeypatch, capsys):
    def full(*given):
        (given[1] / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_weights", full)
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", str(run["full"]), "--out", str(tmp_path / "new" / "out")]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


# The prompt of a card is that of the training, whatever the model's family.


def letters(template=None):
    """A tokenizer of letters, which begins plain text with a token of its own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({"<s>": 0} | {letter: n + 1 for n, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", chat_template=template)


CHAT = "<s>{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
THINKING = CHAT + "{% if enable_thinking is defined and not enable_thinking %}<no thoughts>{% endif %}"


@pytest.mark.parametrize(("template", "settings"), [
    (None, []), (None, ["prompt.instruction=Be 'brief'."]), (CHAT, []), (CHAT, ["prompt.instruction="]),
    (CHAT + HELPFUL_SYSTEM + "<|im_start|>", []), (CHAT, ["prompt.system=Say \"yes\" or 'no'."]),
    (CHAT, ["prompt.style=plain"]), (THINKING, []), (THINKING, ["prompt.style=qwen3"]),
])  # fmt: skip
def test_the_lines_give_the_tokens_of_the_training(template, settings):
    config, tokenizer = small("questions=mine.txt", "prompt.instruction=null", *settings), letters(template)
    card = export_card(Export(config, "best", 2, "bfloat16", None, False, "0.2.0"), tokenizer, [])
    code, vllm = CARD.findall(card)
    compile(vllm, "card", "exec")
    start, end = code.index("question ="), code.index("written =")
    found = {"tokenizer": tokenizer}
    exec(code[start:end], found)  # our own card
    expected = prompt_tokens(Question("q", QUESTION), tokenizer, config.prompt).tolist()
    assert found["tokens"]["input_ids"].tolist() == [expected]
