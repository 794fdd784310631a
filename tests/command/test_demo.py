"""`scrl demo`, the first thing anyone runs: every number and every sentence it prints is what its files say."""

import io
import json
import re
import shutil
from pathlib import Path

import pytest
from commands import read
from processes import scrl
from rich.console import Console

from scrl.cli.demo import demo as demo_command
from scrl.cli.demo import train_or_go_on
from scrl.cli.main import main
from scrl.errors import ConfigError, InputError
from scrl.recipes.demo import demo_config
from scrl.recipes.demo_outcome import BENCHMARKS, Outcome, labels_table, lies, results_table, verdicts
from scrl.reporting.tables import as_terminal


def measure_few_questions():
    """The demo as it is, but for an eighth of the questions it is measured on, which is most of its time."""
    from scrl.recipes import demo

    whole, few = demo.demo_config, {"evaluation": {"questions": 8, "held_out": "arithmetic:medium:held-out:8"}}
    demo.demo_config = lambda *given, **options: whole(*given, **options, changes=few)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Two steps of each method, and what was printed."""
    cwd = tmp_path_factory.mktemp("demo")
    done = scrl("demo", "--steps", "2", "--seed", "11", "--out", "here", cwd=cwd, prepare=measure_few_questions)
    assert done.returncode == 0, done.stderr
    return cwd / "here", done.stdout


def test_the_demo_writes_two_runs_and_a_page_about_both(demo):
    folder, _ = demo
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "scrl", "ttrl"]
    for method in ("ttrl", "scrl"):
        assert {"config.yaml", "metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "checkpoints"} <= {
            path.name for path in (folder / method).iterdir()
        }
        assert f"method: {method}\n" in (folder / method / "config.yaml").read_text()
        assert [line["step"] for line in read(folder / method / "metrics.jsonl")] == [0, 1]


def test_both_methods_see_the_same_completions_at_the_first_step_and_the_same_questions_after_it(demo):
    folder, _ = demo
    ttrl, scrl_ = (read(folder / method / "rollouts.jsonl") for method in ("ttrl", "scrl"))
    drawn = ("question_id", "sample", "completion", "entropy", "gold", "correct")
    first = [[[line[key] for key in drawn] for line in run if line["step"] == 0] for run in (ttrl, scrl_)]
    assert first[0] == first[1]
    assert len(first[0]) == 8 * 32
    assert [line["question_id"] for line in ttrl] == [line["question_id"] for line in scrl_]
    before = [
        [line for line in read(folder / method / "evaluations.jsonl") if line["step"] == 0]
        for method in ("ttrl", "scrl")
    ]
    assert before[0] == before[1]


def test_the_numbers_in_its_tables_are_those_of_the_files(demo):
    folder, printed = demo
    found = {}
    row = re.compile(r"(stream|held-out), (start|TTRL|SCRL) +(\S+) \[(\S+), (\S+)\] +(\S+) +(\S+)")
    for benchmark, who, *numbers in row.findall(printed):
        found[benchmark, who] = [float(number) for number in numbers]
    keys = ("pass@1", "pass@1_low", "pass@1_high", "pass@16", "maj@16")
    expected = {}
    for method in ("ttrl", "scrl"):
        for line in read(folder / method / "evaluations.jsonl"):
            who = "start" if line["step"] == 0 else method.upper()
            expected[line["benchmark"], who] = [round(100 * line[key], 1) for key in keys]
    assert found == expected
    for method, place in (("ttrl", 1), ("scrl", 2)):
        shares = [line["positive_share"] for line in read(folder / method / "metrics.jsonl")]
        cells = re.search(r"questions with a positive label +(\S+) +(\S+)", printed)
        assert cells[place] == f"{sum(shares) / 2:.1%}"


def test_its_sentences_are_those_of_the_files(demo):
    folder, printed = demo
    plain = " ".join(printed.split())
    runs = [folder / "ttrl", folder / "scrl"]
    ttrl, scrl_ = (Outcome.read(run, pytest.fail) for run in runs)
    sentences = [*verdicts(ttrl, scrl_, 11), *lies(runs, pytest.fail)]
    assert len(sentences) >= 4
    for sentence in sentences:
        assert " ".join(sentence.split()) in plain
    assert plain.count("NOT ahead") == sum("NOT ahead" in sentence for sentence in sentences)


def test_what_is_promised_before_the_runs_fits_a_terminal_and_is_no_result(demo):
    _, printed = demo
    intro, _, _ = printed.partition("TTRL: after step 0")
    assert "meets 64" in intro
    assert "take 2 steps" in intro
    assert max(map(len, intro.splitlines())) <= 80
    assert all(len(line) > 12 for line in intro.splitlines() if line)  # none was broken by the width
    assert "a third" not in intro


def test_a_folder_that_exists_is_refused(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {tmp_path}: exists already; give a new folder with --out\n"
    assert list(tmp_path.iterdir()) == []


def test_a_demo_goes_on_with_the_settings_it_was_started_with(demo, tmp_path, monkeypatch, capsys):
    shutil.copytree(demo[0] / "ttrl", tmp_path / "ttrl")
    asked = []
    monkeypatch.setattr("scrl.cli.demo.train_or_go_on", lambda _, config, __: asked.append((config.seed, config.steps)))
    with pytest.raises(InputError, match="scrl"):  # the second run was only asked for
        demo_command(out=tmp_path, resume=True)
    assert asked == [(11, 2), (11, 2)]
    assert "take 2 steps" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="a demo goes on with the settings it was started with"):
        demo_command(out=tmp_path, seed=12, resume=True)
    for out, message in ((None, "say which demo"), (tmp_path / "none", "there is no folder")):
        with pytest.raises(InputError, match=f"--resume: {message}"):
            demo_command(out=out, resume=True)


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl"])
def test_an_interrupted_run_of_the_demo_is_gone_on_with_although_its_last_line_is_cut(
    name, demo, tmp_path, monkeypatch, capsys
):
    folder = Path(shutil.copytree(demo[0] / "scrl", tmp_path / "scrl"))
    (folder / "report.html").unlink()
    (folder / name).write_bytes((folder / name).read_bytes()[:-100])
    resumed = []
    monkeypatch.setattr("scrl.training.loop.resume", lambda folder, listener: resumed.append(folder))
    train_or_go_on("scrl", demo_config("scrl", seed=11, steps=2), folder)
    assert resumed == [folder]
    said = " ".join(capsys.readouterr().out.split())
    assert re.fullmatch(rf"SCRL: {name}: line \d, the last one, is incomplete and was left out", said)


# Outcomes made up, to see every sentence


def outcome(name, stream, held_out=(0.5,), *, start=(0.5, 0.5), at_16=(0.9, 0.6)):
    """A run with these shares of right completions after it, question by question."""

    def record(step, benchmark, shares):
        by_question = {f"q{number}": share for number, share in enumerate(shares)}
        mean = sum(shares) / len(shares)
        interval = {"pass@1": mean, "pass@1_low": mean - 0.1, "pass@1_high": mean + 0.1}
        at = {"pass@16": at_16[0], "maj@16": at_16[1]}
        return {"step": step, "benchmark": benchmark, "pass@1_by_question": by_question} | interval | at

    records = (
        record(0, "stream", start), record(0, "held-out", held_out),
        record(5, "stream", stream), record(5, "held-out", held_out),
    )  # fmt: skip
    metrics = ({"positive_share": 1.0}, {"positive_share": 0.5, "positive_accuracy": 0.25})
    return Outcome(name, records, metrics)


def said(ttrl, scrl_):
    return list(verdicts(ttrl, scrl_, 0))


def test_a_lead_is_called_a_lead_and_a_tie_in_pass_at_16_is_not():
    found = said(outcome("ttrl", (0.6, 0.6)), outcome("scrl", (0.8, 0.8)))
    assert found == [
        "TTRL is clearly above its start in pass@1 on the stream: +10.0 [+10.0, +10.0].",
        "SCRL is clearly above its start in pass@1 on the stream: +30.0 [+30.0, +30.0].",
        "SCRL is ahead of TTRL in pass@1 on stream: +20.0 [+20.0, +20.0].",
        "SCRL is NOT ahead of TTRL in pass@16 on stream: 90.0% against 90.0%.",
        "SCRL is NOT ahead of TTRL in maj@16 on stream: 60.0% against 60.0%.",
        "SCRL is NOT ahead of TTRL in pass@1 on held-out: +0.0 [+0.0, +0.0] (within the noise).",
        "SCRL is NOT ahead of TTRL in pass@16 on held-out: 90.0% against 90.0%.",
        "SCRL is NOT ahead of TTRL in maj@16 on held-out: 60.0% against 60.0%.",
    ]
    # where SCRL is ahead in everything, nothing else is said
    found = said(outcome("ttrl", (0.6, 0.6)), outcome("scrl", (0.8, 0.8), (0.75,), at_16=(0.95, 0.65)))
    assert found[2:] == [
        "SCRL is ahead of TTRL in pass@1 on stream: +20.0 [+20.0, +20.0].",
        "SCRL is ahead of TTRL in pass@1 on held-out: +25.0 [+25.0, +25.0].",
    ]


def test_a_loss_is_called_one_and_noise_is_called_noise():
    found = said(outcome("ttrl", (0.8, 0.8)), outcome("scrl", (0.3, 0.3)))
    assert found[1] == "SCRL is clearly below its start in pass@1 on the stream: -20.0 [-20.0, -20.0]."
    assert found[2] == "SCRL is NOT ahead of TTRL in pass@1 on stream: -50.0 [-50.0, -50.0]."
    # +0.3 and −0.1: the mean over two questions, +0.1, has an interval from −0.1 to +0.3
    found = said(outcome("ttrl", (0.5, 0.5)), outcome("scrl", (0.8, 0.4)))
    assert found[0] == "TTRL is level with its start in pass@1 on the stream: +0.0 [+0.0, +0.0]."
    assert found[1] == "SCRL is above, but not clearly, its start in pass@1 on the stream: +10.0 [-10.0, +30.0]."
    assert found[2] == "SCRL is ahead of TTRL in pass@1 on stream: +10.0 [-10.0, +30.0] (within the noise)."


def test_questions_are_paired_by_name_whatever_their_order():
    one, other = outcome("ttrl", (0.2, 0.8)), outcome("scrl", (0.2, 0.8))
    record = other.after("stream")
    record["pass@1_by_question"] = dict(reversed(record["pass@1_by_question"].items()))
    assert "+0.0 [+0.0, +0.0]" in said(one, other)[2]


def test_the_tables_hold_every_benchmark_and_the_means_over_the_steps():
    ttrl, scrl_ = outcome("ttrl", (0.6, 0.6)), outcome("scrl", (0.8, 0.8))
    text = io.StringIO()
    console = Console(file=text, width=100)
    console.print(as_terminal(results_table(ttrl, scrl_, 0)), as_terminal(labels_table(ttrl, scrl_)))
    rows = " ".join(text.getvalue().split())
    for benchmark in BENCHMARKS:
        assert f"{benchmark}, start 50.0 [40.0, 60.0]" in rows
    assert "stream, SCRL 80.0 [70.0, 90.0] 90.0 60.0 +30.0 [+30.0, +30.0]" in rows
    assert "questions with a positive label 75.0% 75.0%" in rows  # (1 + 0.5)/2
    assert "that label is right 25.0% 25.0%" in rows  # the only step that has one
    assert "the right answer was ruled out – –" in rows


# Where consensus lied


def votes(question, step, answers, *, right, positive=None, negatives=(), advantage=1.0):
    """The lines of one visit."""
    for sample, answer in enumerate(answers):
        yield {
            "question_id": question, "step": step, "sample": sample, "question": f"Compute {question}.", "gold": right,
            "completion": f"It is {answer}.", "answer_class": answer, "correct": answer == right, "reward": 0.0,
            "advantage": advantage if sample < 2 else None,
            "label": "positive" if answer == positive else "negative" if answer in negatives else None,
        }  # fmt: skip


def write(folder, *visits):
    folder.mkdir()
    text = "".join(json.dumps(line) + "\n" for visit in visits for line in visit)
    (folder / "rollouts.jsonl").write_text(text)
    return folder


def test_a_lie_is_told_with_its_votes_and_what_became_of_it(tmp_path):
    ttrl = write(
        tmp_path / "ttrl",
        votes("2+2", 0, ["4", "4", "5"], right="4", positive="4"),
        votes("3*9", 0, ["28", "28", "27", "1"], right="27", positive="28", advantage=0.5),
        votes("3*9", 4, ["28", "28", "28", "27"], right="27", positive="28"),
    )
    scrl_ = write(
        tmp_path / "scrl",
        votes("2+2", 0, ["4", "4", "5"], right="4", positive="4"),
        votes("3*9", 0, ["28", "28", "27", "1"], right="27", negatives=("1",), advantage=-0.25),
        votes("3*9", 4, ["27", "27", "28", None], right="27", positive="27"),
    )
    assert list(lies([ttrl, scrl_], pytest.fail)) == [
        "Compute 3*9. 28 gets 2 of 4 votes and is wrong; 27 gets 1. "
        "TTRL rewards 28 (its completions move by +0.50); at its last visit 28 has 3 of 4 votes, the right answer 1. "
        "SCRL rewards nothing and rules out 1 answers (its completions move by -0.25); "
        "at its last visit 28 has 1 of 4 votes, the right answer 2."
    ]


def test_a_rewarded_answer_need_not_be_the_most_frequent_one_and_a_run_may_have_no_lies(tmp_path):
    run = write(tmp_path / "ttrl", votes("1+1", 0, ["3", "3", "5", "5"], right="2", positive="5"))
    (story,) = lies([run], pytest.fail)
    assert "3 gets 2 of 4 votes and is wrong; 2 gets 0." in story
    assert "TTRL rewards 5" in story
    assert "rewards nothing" not in story
    honest = write(tmp_path / "scrl", votes("1+1", 0, ["2", "2", None], right="2"), votes("1-1", 0, [None], right="0"))
    assert list(lies([honest], pytest.fail)) == []
