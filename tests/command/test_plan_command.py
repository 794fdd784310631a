"""`scrl plan` on GPUs that are not there: of recipes, of other settings, and the page about it."""

import re
import shlex
from pathlib import Path

import pytest

from scrl.cli.main import main
from scrl.config import write_config
from scrl.planning.memory import GIB
from scrl.planning.on_gpus import WIDTH, gpu_lines, plan_on_gpus
from scrl.recipes.catalogue import EXPERIMENTS, config_of, find

RUNS = sorted(name for name, experiment in EXPERIMENTS.items() if experiment.trained_on is not None)
SCALING = Path(__file__).parents[2] / "docs" / "scaling.md"


@pytest.fixture
def recipe(tmp_path):
    """A file with the settings of an experiment, as scrl reproduce --yaml prints them."""
    write_config(config_of(find("qwen2.5-3b/aime25/32-16/scrl")), tmp_path / "recipe.yaml")
    return str(tmp_path / "recipe.yaml")


def page(capsys, *words, fits=True):
    assert main(list(words)) == (0 if fits else 1)
    return capsys.readouterr().out


def test_a_recipe_is_planned_without_its_model(capsys, recipe, tmp_path):
    lines = page(capsys, "plan", recipe, "--gpus", "8", "--gpu-memory", "80").splitlines()
    assert lines[0] == "Qwen/Qwen2.5-3B: 3,085,938,688 weights; 1 × 8 GPUs of 80 GiB"
    assert re.findall(r"\d+", lines[1]) == ["320", "8", "32"]  # steps, questions, completions
    assert lines[2].split()[:2] == ["sampled", "256"]
    assert lines[2].endswith(": 786,432")  # 8 · 32 completions of 3,072 tokens
    assert lines[3].split()[:2] == ["trained", "128"]
    assert lines[3].endswith(": 418,816; 8 updates")  # 8 · 16 of 200 + 3,072
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.yaml"]


@pytest.mark.parametrize("start", range(8))
def test_every_recipe_can_be_planned(start):
    for name in RUNS[start::8]:
        plan = plan_on_gpus(config_of(EXPERIMENTS[name]).model_copy(update={"gpus": 8}), 80 * GIB)
        lines = list(gpu_lines(plan))
        out = "\n".join(lines)
        assert max(map(len, lines)) <= WIDTH
        can_spread = name.rpartition("/")[2] not in ("etmr", "restrain", "compass")  # what TRL and verl refuse
        fits = "\n  sum, of 80 " in out
        assert fits or (not can_spread and "local: does not fit" in out), name
        assert plan.fits is fits


def test_settings_without_a_recipe_are_planned_too(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("1 + 1?\n2 + 2?\n")
    (tmp_path / "run.yaml").write_text(f"model: embedded\nquestions: {tmp_path / 'mine.txt'}\nengine: verl\ngpus: 2\n")
    words = ("--model", "embedded", "--questions", str(tmp_path / "mine.txt"))
    out = page(capsys, "plan", *words, "--gpus", "1")
    assert "\n3 steps of 2 " in out
    file = page(capsys, "plan", str(tmp_path / "run.yaml"), "--gpu-memory", "40")
    assert file.startswith("embedded: 757,888 weights; 1 × 2 GPUs of 40 GiB\n")  # the file's GPUs


def test_settings_of_the_local_engine_are_counted_and_said(capsys, recipe):
    on_one = ("plan", recipe, "--gpu-memory", "139")
    plain = page(capsys, *on_one)
    lean = page(capsys, *on_one, "--optimizer.state", "bfloat16")
    # 3.086e9 weights: 2, 4 and 8 bytes are 5.75, 11.50 and 22.99 GiB
    assert re.search(r"^  masters +5\.75 +5\.75\n  optimizer +22\.99 +22\.99$", plain, re.MULTILINE)
    assert re.search(r"^  masters +5\.75 +5\.75\n  optimizer +11\.50 +11\.50$", lean, re.MULTILINE)
    # best, and last twice: 2 + 2 · (2 + 2 + 4) bytes
    assert re.search(r"^  and up to 55\.5 GB on disk", lean, re.MULTILINE)
    narrow = page(capsys, "plan", recipe, "--gpu-memory", "80", "--compute.micro-batch", "18")
    # 16 W and overhead are 48.0 GiB. 2 · 3,272 tokens of 36 · 95,744 bytes are 21.0 GiB more, a full block of logits with
    # the head's gradient 4.2: 73.2. Twice as many tokens would be 94.2.
    assert re.search(r"^  logits +– +4\.16$", narrow, re.MULTILINE)
    assert re.search(r"^  sum, of 80 +65\.25 +73\.15$", narrow, re.MULTILINE)
    assert "\nlocal on 1 GPU\n  with --compute.micro-batch 2\n" in narrow


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["qwen2.5-3b/aime25/32-16/scrl"], "qwen2.5-3b/aime25/32-16/scrl"),
        (["--model", "embedded", "--questions", "aime25", "--gpus", "0"], "gpus"),
        (["--model", "embedded", "--questions", "aime25", "--gpu-memory", "0"], "--gpu-memory"),
        (["nowhere.yaml", "--gpus", "8"], "nowhere.yaml"),
        (["--questions", "aime25", "--gpus", "8"], "model"),
        (["--model", "Qwen/Qwen9", "--questions", "aime25", "--gpus", "8"], "Qwen/Qwen9"),
    ],
)
def test_bad_input_is_refused_with_the_reason(refusal, words, reason):
    assert reason in refusal("plan", *words)


def test_a_70b_model_needs_four_machines_as_the_page_on_scaling_says(capsys):
    text = SCALING.read_text(encoding="utf-8")
    command = next(line for line in text.splitlines() if line.startswith("scrl plan --model meta-llama"))
    words = shlex.split(command)[1:]
    assert re.search(r"\nverl, FSDP2.*\n  sum, of 80 ", page(capsys, *words), re.DOTALL)
    words[words.index("--nodes") + 1] = "2"
    assert "sum, of 80" not in page(capsys, *words, fits=False)
