"""`scrl train` as a user meets it: one real run of the command, and all that it leaves behind."""

import io
import json
import re

import pytest
import yaml
from commands import scrl
from line_files import read_lines
from rich.console import Console
from rich.progress import Progress, TextColumn

from scrl.cli.main import main
from scrl.cli.progress import BarProgress, PlainProgress, evaluation_line, progress_bar
from scrl.cli.train import _summarize
from scrl.config import RunConfig, build_config, read_config
from scrl.credit.methods import METHODS
from scrl.metrics import STEP_METRICS
from scrl.settings import setting_rows
from scrl.training.run_folder import RunFolder

SETTINGS = """\
model: embedded
questions: arithmetic:easy:train:6
steps: 3
questions_per_step: 2
completions: 12
trained: 4
prompt: {instruction: ""}
sampling: {max_tokens: 48}
evaluation: {completions: 4, held_out: "arithmetic:easy:held-out:2"}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and what was printed."""
    cwd = tmp_path_factory.mktemp("train")
    (cwd / "run.yaml").write_text(SETTINGS)
    words = ("--optimizer.learning-rate", "1e-4", "--checkpoint-every", "2", "seed=3")
    done = scrl("train", "run.yaml", *words, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return cwd / "runs" / "001", done.stdout


def test_a_run_leaves_exactly_these_files(trained):
    folder, _ = trained
    model = {
        "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == {
        "config.yaml", "environment.json", "metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "report.html",
        "answers.jsonl", "answers.csv",
        *(f"checkpoints/{which}/{name}" for which in ("last", "best") for name in model),
        "checkpoints/last/optimizer.pt", "checkpoints/last/trainer_state.json", "checkpoints/last/checkpoint.json",
        "checkpoints/best/checkpoint.json",
    }  # fmt: skip


def test_the_settings_are_written_out_in_full_and_can_be_used_again(trained):
    folder, _ = trained
    config = read_config(folder / "config.yaml")
    assert (config.seed, config.optimizer.learning_rate) == (3, 1e-4)
    assert (config.checkpoint_every, config.completions) == (2, 12)
    assert yaml.safe_load((folder / "config.yaml").read_text()).keys() == RunConfig.model_fields.keys()
    environment = json.loads((folder / "environment.json").read_text())
    assert environment.keys() >= {"versions", "commit", "device"}
    assert environment["seed"] == 3


def test_the_metrics_have_the_keys_that_were_promised_and_no_others(trained):
    folder, _ = trained
    metrics = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [0, 1, 2]
    promised = (
        "step loss reward_mean positive_share negative_answers no_answer_share entropy_only_share entropy_mean "
        "length_mean truncated_share seconds_rollout seconds_credit seconds_update majority_accuracy"
    ).split()
    for line in metrics:
        assert set(promised) <= line.keys() <= STEP_METRICS.keys()
        assert all(isinstance(value, int | float) for value in line.values())
    assert all("positive_accuracy" in line for line in metrics if line["positive_share"] > 0)
    assert all("negative_accuracy" in line for line in metrics if line["negative_answers"] > 0)


def test_the_rollouts_have_one_line_a_completion(trained):
    folder, _ = trained
    rollouts = read_lines(folder / "rollouts.jsonl")
    assert len(rollouts) == 3 * 2 * 12
    assert list(rollouts[0]) == [
        "question_id", "step", "sample", "completion", "entropy", "num_tokens", "finished", "question", "answer_class",
        "label", "reward", "advantage", "gold", "correct",
    ]  # fmt: skip
    groups = {}
    for line in rollouts:
        groups.setdefault((line["step"], line["question_id"]), []).append(line)
    assert len(groups) == 6
    for lines in groups.values():
        assert [line["sample"] for line in lines] == list(range(12))
        assert sum(line["advantage"] is not None for line in lines) == 4  # of which it learned
    metrics = read_lines(folder / "metrics.jsonl")
    for step in range(3):
        mine = [line for line in rollouts if line["step"] == step]
        assert sum(line["num_tokens"] for line in mine) == metrics[step]["tokens"]
        assert sum(line["reward"] for line in mine) / 24 == pytest.approx(metrics[step]["reward_mean"])
        assert sum(line["correct"] for line in mine) / 24 == pytest.approx(metrics[step]["pass@1"])


def test_scrl_label_reads_the_rollouts_and_comes_to_the_same_credit(trained, tmp_path):
    folder, _ = trained
    words = ("--trained", 4, "--seed", 3, "--out", tmp_path / "labels.jsonl")
    done = scrl("label", folder / "rollouts.jsonl", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for mine, theirs in zip(read_lines(folder / "rollouts.jsonl"), read_lines(tmp_path / "labels.jsonl"), strict=True):
        for key in ("question_id", "step", "sample", "answer_class", "label"):
            assert mine[key] == theirs[key]
        assert mine["reward"] == pytest.approx(theirs["reward"], abs=1e-12)
        assert mine["advantage"] == (None if theirs["advantage"] is None else pytest.approx(theirs["advantage"]))


def test_the_evaluations_have_the_keys_that_were_promised(trained):
    folder, _ = trained
    evaluations = read_lines(folder / "evaluations.jsonl")
    measured = [(line["step"], line["benchmark"]) for line in evaluations]
    assert measured == [(0, "stream"), (0, "held-out"), (3, "stream"), (3, "held-out")]
    promised = (
        "step model benchmark questions samples temperature top_p max_tokens pass@1 pass@1_low pass@1_high pass@4 maj@4 "
        "answered truncated entropy_mean"
    ).split()
    for line in evaluations:
        assert set(promised) <= line.keys()
        assert ("entropy_correct" in line) == (line["pass@1"] > 0)
        assert ("entropy_incorrect" in line) == (line["pass@1"] < 1)
        assert (line["model"], line["samples"], line["max_tokens"]) == ("embedded", 4, 48)


@pytest.mark.parametrize("which", ["last", "best"])
def test_a_checkpoint_is_a_plain_model_folder(trained, which):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, _ = trained
    place = folder / "checkpoints" / which
    model = AutoModelForCausalLM.from_pretrained(place)
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokens = tokenizer("Compute 2+3.\n", return_tensors="pt")
    written = model.generate(**tokens, max_new_tokens=48, do_sample=False)
    assert "\\boxed{" in tokenizer.decode(written[0])
    card = (place / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front == {
        "library_name": "transformers", "base_model": "embedded",
        "tags": ["test-time-reinforcement-learning", "label-free", "scrl"],
    }  # fmt: skip
    assert re.search(r"# embedded after [23] steps of scrl", card)
    inside = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert inside == yaml.safe_load((folder / "config.yaml").read_text())


def test_the_command_says_what_it_will_do_what_it_did_and_where_it_is(trained):
    folder, printed = trained
    lines = printed.splitlines()
    place = lines.index("writing to runs/001")
    before, after = "\n".join(lines[:place]), "\n".join(lines[place:])
    assert "scrl: 2 questions × 12 completions → 4 trained → 8 sequences → 2 updates a step" in before
    assert "3 steps, 6 updates, 1.0 epochs of 6 questions" in before
    assert "first prompt: 'Compute " in before
    assert "after step 0, questions trained on: pass@1 " in after
    assert "step 1/3: " in after
    assert "step 3/3: " in after
    best = json.loads((folder / "checkpoints" / "last" / "trainer_state.json").read_text())["best_step"]
    assert f"checkpoints: runs/001/checkpoints/last and best (step {best}, chosen without gold)" in after
    assert lines[-2] == "report: runs/001/report.html"
    assert lines[-1].startswith("answers: runs/001/answers.csv; scrl answers runs/001 shows them")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert not re.search(r"(src|href)=[\"']https?:", page)  # it needs nothing else


def test_every_setting_is_listed_on_demand(capsys):
    assert main(["train", "--list-settings"]) == 0
    listed = capsys.readouterr().out.splitlines()
    names = [line.partition(" = ")[0] for line in listed]
    assert names[: -len(METHODS["scrl"].settings.model_fields)] == [name for name, _, _ in setting_rows(RunConfig)]
    assert "credit.min_share" in names
    assert main(["train", "--help"]) == 0
    assert "Example: scrl train --model ./SmolLM2-135M" in capsys.readouterr().out


# What is shown while it runs


EVALUATION = {"step": 4, "benchmark": "stream", "samples": 8, "answered": 0.5, "agreement": 0.25}


def test_an_evaluation_in_one_line():
    gold = {"pass@1": 0.125, "pass@1_low": 0.1, "pass@1_high": 0.2, "pass@4": 0.5, "maj@4": 0.25}
    assert evaluation_line(EVALUATION | gold) == (
        "after step 4, questions trained on: pass@1 12.5% [10.0%, 20.0%], pass@4 50.0%, maj@4 25.0%; 50% answered, 25% agree"
    )  # also where k is not the number of samples
    assert (
        evaluation_line(EVALUATION)
        == "after step 4, questions trained on: 50% answered, 25% agree (no gold to measure against)"
    )


def step(number):
    return {"step": number, "agreement": 0.5, "entropy_mean": 0.25, "signal_share": 1.0}


def test_elsewhere_than_on_a_terminal_the_first_and_the_last_step_are_lines_and_others_as_time_passes():
    text = io.StringIO()
    listener = PlainProgress(Console(file=text, width=40), 3, "TTRL")
    for number in range(3):
        listener.step(step(number), "2 of 8 questions had a label")
    listener.note("a note that is longer than the forty columns of this console")
    assert text.getvalue().splitlines() == [
        "TTRL: step 1/3: 2 of 8 questions had a label; 50% agree, entropy 0.250",
        "TTRL: step 3/3: 2 of 8 questions had a label; 50% agree, entropy 0.250",
        "TTRL: a note that is longer than the forty columns of this console",
    ]


def test_a_long_call_of_the_sampler_shows_that_it_goes_on(monkeypatch):
    text, now = io.StringIO(), [0.0]
    monkeypatch.setattr("scrl.cli.progress.time.monotonic", lambda: now[0])
    listener = PlainProgress(Console(file=text, width=80))
    for done in (1, 2, 3):
        now[0] += 16
        listener.tokens(done, 512)
    assert text.getvalue() == "completions being drawn have 2 of at most 512 tokens\n"  # at most a line in 30 s


def test_on_a_terminal_a_bar_moves():
    console = Console(file=(file := io.StringIO()), width=100, force_terminal=True)
    with Progress(TextColumn("{task.completed}/{task.total} {task.fields[words]}"), console=console) as progress:
        listener = BarProgress(console, 3, "SCRL", progress)
        listener.step(step(1), "all well")
        listener.note("a note")
        (task,) = progress.tasks
        shown = task.fields["words"]
        listener.tokens(7, 512)
    assert (task.completed, task.total, shown) == (2, 3, "50% agree, entropy 0.250; all well")
    assert task.fields["words"] == f"token 7 of at most 512; {shown}"
    assert "SCRL: a note" in file.getvalue()


def test_a_bar_leaves_room_for_what_ctrl_c_writes():
    """A terminal echoes ^C behind the bar: on a full line that would begin a new one, and the bar would stay."""
    console = Console(file=(file := io.StringIO()), width=80, force_terminal=True, color_system=None)
    with progress_bar(console) as bar:
        BarProgress(console, 3, "SCRL", bar).step(step(1), "words that are longer than the line " * 3)
        bar.refresh()
    drawn = [re.sub(r"\x1b\[[0-9?;]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", file.getvalue())]
    assert max(map(len, drawn)) == 77


def test_a_resumption_cannot_be_tried_dry(tmp_path, refusal):
    assert "--dry-run: a run that is resumed keeps" in refusal("train", "--resume", tmp_path, "--dry-run")


def test_the_last_words_are_of_every_whole_line(tmp_path):
    line = json.dumps({"signal_share": 0.5, "name": "one\u2028line"}, ensure_ascii=False)
    (tmp_path / "metrics.jsonl").write_text(line + '\n{"signal_sh', encoding="utf-8")
    (tmp_path / "report.html").touch()
    said = []
    _summarize(RunFolder(tmp_path), said.append)
    assert said[0] == "metrics.jsonl: line 2, the last one, is incomplete and was left out"
    assert [words.split(":")[0] for words in said[1:]] == ["checkpoints", "report"]


def test_where_nothing_was_learned_the_last_words_say_why(tmp_path):
    config = build_config({"model": "embedded", "questions": "arithmetic:easy", "sampling": {"temperature": 0}})
    folder, said = RunFolder.create(tmp_path / "run", config, "cpu"), []
    folder.append("metrics.jsonl", [{"step": 0, "signal_share": 0.0, "unanimous_share": 1.0}])
    _summarize(folder, said.append)
    assert said[0].startswith("WARNING: no step had a signal: at sampling.temperature 0 all completions")
