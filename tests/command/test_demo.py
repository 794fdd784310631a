"""`scrl demo`, the first thing anyone runs: every number and every sentence it prints is what its files say."""

import re
import shutil
from pathlib import Path

import pytest
from line_files import read_lines
from processes import scrl

from scrl.cli.demo import demo as demo_command
from scrl.errors import InputError
from scrl.listener import Listener
from scrl.recipes import reproduce
from scrl.recipes.demo import METHODS, TITLES, Outcome, results_table, verdict
from scrl.settings import merged
from scrl.training.run_folder import RunFolder


def make_it_small():
    """The demo as it is, but for fewer questions a step and in measuring, and for fewer completions."""
    from scrl.recipes import demo

    whole = demo.demo_config
    few = {"questions_per_step": 6, "completions": 8, "trained": 4, "limit": 24}
    few |= {"evaluation": {"questions": 4, "held_out": "arithmetic:medium:held-out:4"}}
    demo.demo_config = lambda *given, more, **options: whole(*given, **options, more=merged(more, few))


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Two steps of each method, and what was printed."""
    cwd = tmp_path_factory.mktemp("demo")
    done = scrl("demo", "--steps", "2", "--seed", "11", "--out", "here", cwd=cwd, prepare=make_it_small)
    assert done.returncode == 0, done.stderr
    return cwd / "here", done.stdout


def test_the_demo_writes_a_run_per_method_and_a_page_about_all(demo):
    folder, _ = demo
    assert sorted(path.name for path in folder.iterdir()) == ["contrast-label", "report.html", "scrl", "ttrl"]
    for method in METHODS:
        for name in ("config.yaml", "metrics.jsonl", "rollouts.jsonl", "evaluations.jsonl", "checkpoints"):
            assert (folder / method / name).exists()
        assert f"method: {method}\n" in (folder / method / "config.yaml").read_text()
        assert [line["step"] for line in read_lines(folder / method / "metrics.jsonl")] == [0, 1]


def test_all_methods_are_measured_alike_and_those_whose_completions_vote_see_the_same_at_the_first_step(demo):
    folder, _ = demo
    runs = [read_lines(folder / method / "rollouts.jsonl") for method in ("ttrl", "scrl")]
    drawn = ("question_id", "sample", "completion", "entropy", "gold", "correct")
    first, other = [[[line[key] for key in drawn] for line in run if line["step"] == 0] for run in runs]
    assert other == first
    assert len(first) == 6 * 8
    assert len({tuple(line["question_id"] for line in run) for run in runs}) == 1
    before = [[line for line in read_lines(folder / m / "evaluations.jsonl") if line["step"] == 0] for m in METHODS]
    assert before[1:] == [before[0], before[0]]


def test_the_numbers_in_its_table_are_those_of_the_files(demo):
    folder, printed = demo
    row = re.compile(r"(start|TTRL|SCRL|ours) +(\S+) \[(\S+), (\S+)\] +(\S+) +(\S+) \[(\S+), (\S+)\] +(\S+)\s")
    found = {who: [float(number) for number in numbers] for who, *numbers in row.findall(printed)}
    figures = ("pass@1", "pass@1_low", "pass@1_high", "maj@16")
    expected = {}
    for method in METHODS:
        lines = {(line["step"], line["benchmark"]): line for line in read_lines(folder / method / "evaluations.jsonl")}
        for step, who in ((0, "start"), (2, TITLES.get(method, method))):
            shares = [lines[step, name][key] for name in ("stream", "held-out") for key in figures]
            expected.setdefault(who, [round(100 * share, 1) for share in shares])
    assert found == expected


def test_its_sentences_are_those_of_the_files(demo):
    folder, printed = demo
    plain = " ".join(printed.split())
    runs = [folder / method for method in METHODS]
    outcomes = [Outcome.read(run, pytest.fail) for run in runs]
    assert " ".join(verdict(outcomes, 11).split()) in plain
    assert f"scrl answers {runs[-1].relative_to(folder.parent)}" in plain


def test_a_folder_that_exists_and_settings_that_are_wrong_are_refused_and_nothing_is_written(tmp_path, refusal):
    assert "--out" in refusal("demo", "--out", ".")
    assert "steps" in refusal("demo", "--steps", "0")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_goes_on_in_its_folder(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(reproduce, "train_or_resume", lambda config, *_: asked.append((config.seed, config.steps)))
    with pytest.raises(InputError, match="ttrl"):  # the runs were only asked for
        demo_command(out=tmp_path, seed=11, steps=2, resume=True)
    assert asked == [(11, 2)] * 3
    for out in (None, tmp_path / "none"):
        with pytest.raises(InputError, match="--resume"):
            demo_command(out=out, resume=True)


def test_a_finished_run_is_left_alone_and_an_interrupted_one_goes_on(demo, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(demo[0] / "scrl", tmp_path / "scrl"))
    config, resumed = RunFolder(folder).config(), []
    monkeypatch.setattr("scrl.training.loop.resume", lambda folder, listener: resumed.append(folder))
    reproduce.train_or_resume(config, folder, Listener())
    assert resumed == []
    (folder / "report.html").unlink()
    reproduce.train_or_resume(config, folder, Listener())
    assert resumed == [folder]


# Outcomes made up, to see every sentence


def outcome(name, stream, held_out=(0.5,), *, start=(0.5, 0.5), at_16=(0.9, 0.6)):
    """A run with these shares of right completions after it, question by question."""

    def record(step, benchmark, shares):
        by_question = {f"q{number}": share for number, share in enumerate(shares)}
        mean = sum(shares) / len(shares)
        interval = {"pass@1": mean, "pass@1_low": mean - 0.1, "pass@1_high": mean + 0.1}
        at = {"pass@16": at_16[0], "maj@16": at_16[1]}
        return {"step": step, "benchmark": benchmark, "pass@1_by_question": by_question} | interval | at

    before = (record(0, "stream", start), record(0, "held-out", held_out))
    after = (record(5, "stream", stream), record(5, "held-out", held_out))
    return Outcome(name, before + after)


def test_the_highest_is_named_with_its_leads_and_noise_is_called_noise():
    # +0.4 and 0: the mean over two questions, +0.2, has an interval from 0 to 0.4, which touches zero
    found = verdict([outcome("ttrl", (0.3, 0.3)), outcome("scrl", (0.4, 0.8)), outcome("contrast", (0.8, 0.8))], 0)
    for figures in (
        "80.0%",
        "SCRL 60.0%",
        "TTRL 30.0%",
        "+20.0 [+0.0, +40.0], within the noise",
        "+50.0 [+50.0, +50.0]. ",
    ):
        assert figures in found
    assert found.startswith("contrast")
    assert found.endswith("-20.0 [-20.0, -20.0].")  # TTRL, which is worse than the start


def test_the_table_of_made_up_runs():
    one, other = outcome("ttrl", (0.6, 0.6)), outcome("contrast", (0.8, 0.8))
    assert results_table([one, other]).texts == [
        ["start", "50.0 [40.0, 60.0]", "60.0", "50.0 [40.0, 60.0]", "60.0"],
        ["TTRL", "60.0 [50.0, 70.0]", "60.0", "50.0 [40.0, 60.0]", "60.0"],
        ["contrast", "80.0 [70.0, 90.0]", "60.0", "50.0 [40.0, 60.0]", "60.0"],
    ]
