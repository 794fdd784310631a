"""`scrl plan` on GPUs that are not there: recipes, settings, pages, commands to start with, and the page about it."""

import re
import shlex
from pathlib import Path

import pytest

from scrl.cli.main import app, main
from scrl.cli.train import run_config
from scrl.planning import step_time
from scrl.planning.lines import WIDTH
from scrl.recipes.catalogue import EXPERIMENTS

RECIPE = "qwen2.5-3b/aime25/32-16/scrl"
RUNS = sorted(name for name, experiment in EXPERIMENTS.items() if experiment.trained_on is not None)
SCALING = Path(__file__).parents[2] / "docs" / "scaling.md"
LARGE = (
    "plan --model meta-llama/Llama-3.1-70B-Instruct --questions minerva --sampling.max-tokens 3072 --kind H100 "
    "--gpus 8 --gpu-memory 80"
).split()


def page(capsys, *words, fits=True):
    assert main(list(words)) == (0 if fits else 1)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH
    return out


def started(out):
    """The last command of a page, in words."""
    return shlex.split(out.partition("\nuse ")[2].partition("\n")[2].replace("\\\n", " "))


def test_a_recipe_is_planned_from_its_name_alone(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    out = page(capsys, "plan", RECIPE, "--gpus", "8", "--gpu-memory", "80")
    lines = out.splitlines()
    assert (
        lines[0] == "Qwen/Qwen2.5-3B: 3,085,938,688 weights; 1 × 8 GPUs of 80 GiB, with the speed of an H100 (assumed)"
    )
    assert lines[1] == "320 steps of 8 questions × 32 completions; of a step:"
    assert lines[2].split() == ["sampled", "256", "sequences", "393,216", "tokens"]  # 8 · 32 completions of 1,536
    assert lines[3].split()[:5] == ["trained", "128", "sequences", "222,208", "tokens,"]  # 8 · 16 of 200 + 1,536
    assert "half of sampling.max_tokens" in lines[4]
    assert lines[5] == "assumed: GPUs as fast as an H100 (see --kind: H200, H100, A100, A100-40)"
    hours = r"^hours: [\d.]+ for 320 steps of [\d.]+ s, estimated \((assumed|half assumed|measured) eff"
    assert re.search(hours, out, re.MULTILINE)
    assert re.search(r"^bottleneck: \w+, \d+% of a step; it waits for ", out, re.MULTILINE)
    assert f"  scrl reproduce {RECIPE} --yaml > run.yaml\n  scrl train run.yaml " in out
    assert list(tmp_path.iterdir()) == []


def test_settings_lie_on_the_recipe(capsys):
    out = page(capsys, "plan", RECIPE, "--completions", "64", "--steps", "7", "--length", "900")
    assert "7 steps of 8 questions × 64 completions" in out
    assert "a completion has 900 tokens; assumed: a prompt has 200" in out
    assert "weights; a GPU of 139 GiB, with the speed of an H200 (assumed)\n" in out
    assert "assumed: GPUs as fast as an H200 (see --kind" in out
    assert "scrl train run.yaml --completions 64 --steps 7" in out


@pytest.mark.parametrize("start", range(8))
def test_every_recipe_can_be_planned(capsys, start):
    for name in RUNS[start::8]:
        code = main(["plan", name, "--gpus", "8", "--gpu-memory", "80", "--kind", "H100"])
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines())) <= WIDTH
        can_spread = name.rpartition("/")[2] not in ("etmr", "restrain", "compass")  # what TRL and verl refuse
        fits = "\nuse " in out
        assert fits or (not can_spread and "\n  GPUs with " in out), name
        assert code == (0 if fits else 1)


def test_settings_without_a_recipe_are_planned_too(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("1 + 1?\n2 + 2?\n")
    (tmp_path / "run.yaml").write_text(f"model: embedded\nquestions: {tmp_path / 'mine.txt'}\nengine: verl\ngpus: 2\n")
    words = ("--model", "embedded", "--questions", str(tmp_path / "mine.txt"))
    out = page(capsys, "plan", *words, "--kind", "A100")
    assert out.startswith("embedded: 757,888 weights; 1 × 1 A100, 79 GiB each\n100 steps of 2 questions")
    assert "see --kind" not in out
    assert started(out) == ["scrl", "train", *words]
    file = page(capsys, "plan", str(tmp_path / "run.yaml"), "--gpu-memory", "40")
    assert file.startswith(
        "embedded: 757,888 weights; 1 × 2 GPUs of 40 GiB, with the speed of an A100-40 (assumed)\n"
    )  # the file's GPUs


def test_without_options_a_plan_is_what_it_was(capsys):
    assert main(["plan", "--model", "embedded", "--questions", "arithmetic:easy", "sampling.max_tokens=40"]) == 0
    out = capsys.readouterr().out
    assert "first prompt: " in out
    assert "GPU" not in out.partition("\n")[2]


def test_the_commands_can_be_run(capsys):
    """They are parsed as the command line would."""
    verl = started(page(capsys, *LARGE, "--nodes", "8", "--questions-per-step", "16", "--questions-per-update", "8"))
    assert verl[:2] == ["scrl", "train"]
    launched = started(page(capsys, *LARGE[:-4], "--gpus", "8", "--lora", "true", "--gpu-memory", "80"))
    trl = started(page(capsys, "plan", "--model", "Qwen/Qwen2.5-0.5B", "--questions", "minerva", "--gpus", "8"))
    assert trl[:5] == ["torchrun", "--nproc_per_node", "8", "-m", "scrl"]
    for words in (verl, launched, trl):
        own = words[words.index("scrl") + 1 :]
        command, bound, _ = app.parse_args(own, exit_on_error=False, print_error=False)
        assert command.__name__ == "train"
        assert bound.arguments["out"] == Path("OUT")
        config = run_config(bound.args)
        assert config.engine in ("trl", "verl")
        assert config.engine_options


def test_settings_of_the_embedded_engine_are_counted_and_said(capsys):
    plain = page(capsys, "plan", RECIPE, "--gpus", "1", "--optimizer.masters", "float32")
    lean = page(capsys, "plan", RECIPE, "--gpus", "1", "--optimizer.state", "bfloat16")
    # 3.086e9 weights: 4 and 8 bytes are 11.50 and 22.99 GiB, 2 and 4 bytes 5.75 and 11.50
    assert re.search(r"^  master weights, float32 +11\.50 +11\.50\n  optimizer +22\.99 +22\.99$", plain, re.MULTILINE)
    halves = r"^  master weights, what bfloat16 lacks +5\.75 +5\.75\n  optimizer, bfloat16 +11\.50 +11\.50$"
    assert re.search(halves, lean, re.MULTILINE)
    by_vllm = page(capsys, "plan", RECIPE, "--gpus", "1", "--compute.sampler", "vllm", "--compute.micro-tokens", "9000")
    assert "memory of a GPU, GiB: embedded, vLLM over 1 GPU " in by_vllm
    assert re.search(r"^  sampler's weights, bfloat16 +5\.75 +–$", by_vllm, re.MULTILINE)
    assert re.search(r"^  KV cache, 0\.4 of the GPU: 256 of 256 side by side +55\.60 +–$", by_vllm, re.MULTILINE)
    assert "  activations, 9000 tokens " in by_vllm
    assert "decode 0.25, Qwen2.5-3B" in by_vllm.replace("\n  ", " ")
    assert started(by_vllm)[-4:] == ["--compute.sampler", "vllm", "--compute.micro-tokens", "9000"]
    narrow = page(capsys, "plan", RECIPE, "--gpu-memory", "80", "--compute.micro-tokens", "60000")
    # 16 W and overhead are 48.0 GiB. 7,500 tokens of 36 · 95,744 bytes are 24.1 GiB more, a full block of logits with the
    # head's gradient 4.2: 76.2. Twice as many tokens would be 100.3.
    assert re.search(r"^  logits +– +4\.16$", narrow, re.MULTILINE)
    assert re.search(r"^  sum, of 80 +65\.25 +76\.22$", narrow, re.MULTILINE)
    assert started(narrow)[-2:] == ["--compute.micro-tokens", "7500"]
    assert "60000" not in started(narrow)


def test_the_page_says_what_was_measured(capsys, monkeypatch):
    decode = {("embedded", "H200", "decode"): step_time.Efficiency(0.7, "0.5B, 512 rows")}
    monkeypatch.setattr(step_time, "MEASURED", decode)
    out = page(capsys, "plan", RECIPE, "--gpus", "1").replace("\n  ", " ")
    assert "estimated (half assumed efficiencies: decode 0.70, 0.5B, 512 rows; mfu 0.35, assumed)" in out
    assert re.search(r"^embedded .* estimated \(half assumed\)$", out, re.MULTILINE)
    assert "estimated (assumed efficiencies)" in page(capsys, "plan", RECIPE, "--kind", "A100").replace("\n  ", " ")


def test_several_machines_are_told_of_each_other(capsys):
    words = "--model Qwen/Qwen2.5-0.5B --questions minerva --gpus 8 --nodes 2 --preset official --trained 32".split()
    out = page(capsys, "plan", *words)
    assert "verl         refused: loss.mean" in out
    assert started(out)[:9] == [
        "torchrun", "--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "FIRST:29500", "--nproc_per_node", "8",
    ]  # fmt: skip
    sharded = page(capsys, *LARGE, "--nodes", "8", "--preset", "official", "--questions-per-update", "8")
    launch = "accelerate launch --config_file fsdp2.yaml --num_processes 64 --num_machines 8"
    assert launch in sharded.replace(" \\\n    ", " ")


def test_where_nothing_fits_the_page_says_what_would_and_the_command_fails(capsys):
    out = page(capsys, *LARGE, fits=False)
    assert "no engine can run this on these GPUs. What would make it possible:\n  --lora true: an adapter" in out
    assert "hours" not in out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["qwen2.5-3b/aime25/32-16/scr"], "Did you mean 'qwen2.5-3b/aime25/32-16/scrl'? `scrl reproduce` lists all"),
        (["qwen2.5-3b/start"], "a start model is measured as it is"),
        ([RECIPE, "other.yaml"], "the settings are those of qwen2.5-3b/aime25/32-16/scrl; others are --name value"),
        ([RECIPE, "--complexions", "64"], "--complexions: there is no such setting. Did you mean --completions?"),
        ([RECIPE, "--gpus", "0"], "gpus: Input should be greater than or equal to 1"),
        ([RECIPE, "--gpus", "many"], "many"),
        ([RECIPE, "--gpu-memory", "0"], "--gpu-memory: is GiB of one GPU"),
        ([RECIPE, "--kind", "H20"], "--kind: there are no numbers for 'H20'. Did you mean 'H200'?"),
        (
            [RECIPE, "--kind", "4090"],
            "H100, H200. For another GPU leave it out, and give the memory in GiB, such as --gpu",
        ),
        ([RECIPE, "--length", "4000"], "--length: the mean completion has more than 0 and at most 3072 tokens"),
        (["nowhere.yaml", "--gpus", "8"], "nowhere.yaml: cannot be read"),
        (["--questions", "aime25", "--gpus", "8"], "model: is required"),
        (["--model", "Qwen/Qwen9", "--questions", "aime25", "--gpus", "8"], "no shape of that name is known"),
    ],
)
def test_bad_input_is_refused_with_the_reason(refusal, words, reason):
    assert reason in refusal("plan", *words)


def test_the_page_on_scaling_shows_what_the_command_prints(capsys):
    planning = SCALING.read_text(encoding="utf-8").partition("\n## Planning\n")[2].partition("\n## ")[0]
    shown = re.findall(r"```sh\n(.*?)```\n+```text\n(.*?)```", planning, re.DOTALL)
    assert len(shown) == 1
    for command, text in shown:
        words = shlex.split(command.replace("\\\n", " "))
        assert words[:2] == ["scrl", "plan"]
        rest = page(capsys, *words[1:])
        for part in text.split("…\n"):  # lines are left out there
            _, found, rest = rest.partition(part)
            assert found, part


def test_the_page_on_scaling_has_the_numbers_of_fewer_machines(capsys):
    planning = SCALING.read_text(encoding="utf-8").partition("\n## Planning\n")[2].partition("\n## ")[0]
    command = next(line for line in planning.splitlines() if line.startswith("scrl plan --model"))
    rows = [row.strip("| ").split(" | ") for row in planning.splitlines() if re.match(r"\| \d+ \| ", row)]
    assert [int(row[0]) for row in rows] == [8, 16, 32, 64]
    for gpus, *numbers in rows:
        words = shlex.split(command.replace("--nodes 8", f"--nodes {int(gpus) // 8}"))[1:]
        out = page(capsys, *words, fits=not numbers[0].startswith("does not fit"))
        line = next(line for line in out.splitlines() if line.startswith("verl"))
        if numbers[0].startswith("does not fit"):
            assert line.partition("does")[2].startswith(numbers[0].partition("does")[2].rstrip(" |"))
            continue
        assert line.split()[3:9] == numbers[:6]
        assert f"hours: {numbers[6].partition(' ')[0]} for 170 steps" in out
        assert "estimated (assumed efficiencies)" in out


def test_which_engine_is_what_the_plan_answers(capsys):
    plain = page(capsys, "plan", RECIPE, "--gpus", "1", "--kind", "H200")
    assert page(capsys, "plan", RECIPE, "--engine", "verl", "--gpus", "1", "--kind", "H200") == plain
    assert page(capsys, "plan", RECIPE, "engine=trl", "--gpus", "1", "--kind", "h200") == plain
    assert started(plain).count("--engine") <= 1
