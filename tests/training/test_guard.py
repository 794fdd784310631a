"""The guard: each rule by itself, and what a run does when one of them speaks."""

from pathlib import Path

import pytest
from line_files import read_lines
from runs import SMALL, any_entropy_is_low, do, metrics, no_reports, state_of

from scrl.api import TrainingResult
from scrl.cli.main import main
from scrl.config import GuardSettings
from scrl.files.run_state import Standing, standing_of
from scrl.training.guard import WATCHED, alarms, new_alarms

HEALTHY = {
    "same_answer_share": 0.25, "label_flip_share": 0.1, "entropy_mean": 0.4,
    "length_mean": 100.0, "truncated_share": 0.1, "no_answer_share": 0.05, "stock_label_share": 0.3,
}  # fmt: skip
TWO = GuardSettings(window=2)


def history(*steps):
    return [HEALTHY | step for step in steps]


def test_a_healthy_run_raises_no_alarm():
    assert alarms(history({}, {}, {}, {}), TWO) == []
    assert alarms([], TWO) == []
    assert HEALTHY.keys() == set(WATCHED)


# Means over the last two of four steps against those of the first two, each just beyond its limit and just within.
@pytest.mark.parametrize(
    ("key", "within", "beyond", "figures"),
    [
        # (0.4 + 0.6)/2 = 0.5 is not above 0.5
        ("same_answer_share", (0.4, 0.6), (0.4, 0.62), ("51%", "25%")),
        ("stock_label_share", (0.5, 0.7), (0.5, 0.72), ("61%", "30%")),
        ("label_flip_share", (0.4, 0.6), (0.4, 0.64), ("52%", "10%")),
        # from 0.1 to (0.3 + 0.5)/2 = 0.4 is a rise of 0.3 (short of it by a rounding), and not more
        ("truncated_share", (0.3, 0.49), (0.3, 0.52), ("41%", "10%")),
        ("no_answer_share", (0.3, 0.39), (0.3, 0.42), ("36%", "5%")),
        # 0.02 · 0.4 = 0.008
        ("entropy_mean", (0.006, 0.01), (0.006, 0.009), ("0.0075", "0.4")),
        # 0.33 · 100 = 33, and 3 · 100 = 300
        ("length_mean", (30.0, 36.0), (30.0, 35.0), ("32.5", "100")),
        ("length_mean", (290.0, 310.0), (290.0, 312.0), ("301", "100")),
    ],
)
def test_each_rule_speaks_beyond_its_limit_and_not_before(key, within, beyond, figures):
    assert alarms(history({}, {}, *({key: value} for value in within)), TWO) == []
    (words,) = alarms(history({}, {}, *({key: value} for value in beyond)), TWO)
    assert all(figure in words for figure in figures)


def test_nothing_is_said_before_two_windows_have_passed():
    collapsed = {"entropy_mean": 0.0}
    assert alarms(history({}, collapsed, collapsed), TWO) == []
    assert len(alarms(history({}, {}, collapsed, collapsed), TWO)) == 1
    assert len(alarms(history({}, {}, {}, collapsed, collapsed), TWO)) == 1  # the first and the last two count


def test_steps_without_a_value_are_left_out_of_its_mean():
    some = [{}, {"label_flip_share": 0.1}, {}, {"label_flip_share": 0.6}]
    assert len(alarms(some, TWO)) == 1
    assert alarms([{}, {}, {}, {}], TWO) == []


def test_a_metric_that_begins_late_is_judged_by_half_a_window():
    """Labels can change from the second epoch on: the first step of it has at most eight questions."""
    four, late = GuardSettings(window=4), [{}] * 8
    assert alarms([*late, {"label_flip_share": 1.0}], four) == []
    assert alarms([*late, {"label_flip_share": 1.0}, {"label_flip_share": 0.0}], four) == []
    assert len(alarms([*late, {"label_flip_share": 1.0}, {"label_flip_share": 0.3}], four)) == 1


@pytest.mark.parametrize(
    ("run", "first"),
    [("full-5e-7", None), ("full-2e-6", None), ("lora-5e-5", None), ("full-8e-6", 38), ("lora-2e-4", None)],
)
def test_what_the_guard_says_of_kept_runs(run, first):
    """The last two ruined the model (docs/results.md#learning-rates): one is noticed, one is not."""
    lines = read_lines(Path(__file__).parent.parent.parent / "results/rates-0.5b" / run / "metrics.jsonl")
    steps = [{key: line[key] for key in WATCHED if key in line} for line in lines]
    noticed = [step for step in range(1, len(steps) + 1) if alarms(steps[:step], GuardSettings())]
    assert (noticed[0] if noticed else None) == first


def test_an_alarm_is_new_once_and_another_beside_it_is_new_too():
    low, same = {"entropy_mean": 0.0}, {"same_answer_share": 1.0}
    steps = history({}, {}, low, low, low | same, low | same)
    spoken = [[words[:7] for words in new_alarms(steps[:end], TWO)] for end in range(1, len(steps) + 1)]
    # means of two steps: entropy 0 from step 4 on; shares (¼ + 1) / 2 from step 5 on
    assert spoken == [[], [], [], ["entropy"], ["62% of "], []]


AT_ONCE = ("guard.window=1",)


def test_a_run_that_the_guard_stops_says_why_and_keeps_its_best_checkpoint(tmp_path, any_entropy):
    run, heard = do(tmp_path / "run", *AT_ONCE)
    assert len(metrics(tmp_path / "run")) == 2  # of 3
    assert "guard, after step 2: entropy has collapsed" in heard.text
    assert run.state.best_step == 1
    assert "after 1 step of" in (tmp_path / "run" / "checkpoints" / "best" / "README.md").read_text()
    assert "after 2 steps" in (tmp_path / "run" / "checkpoints" / "last" / "README.md").read_text()
    assert [record["step"] for record in read_lines(tmp_path / "run" / "evaluations.jsonl")] == [0, 2]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that the guard stopped after step 2, and the exit status of the command."""
    out = tmp_path_factory.mktemp("guard") / "run"
    words = [f"--{word}" for word in (*SMALL, *AT_ONCE, "evaluation.completions=8")]
    with no_reports(), any_entropy_is_low():
        return out, main(["train", *words, "--out", str(out)])


def test_the_command_ends_with_a_status_of_its_own(stopped, any_entropy, capsys):
    out, status = stopped
    assert status == 3
    assert main(["train", "--resume", str(out)]) == 2
    assert "step 2" in capsys.readouterr().err


def test_the_reason_is_kept_in_the_run_folder(stopped):
    out, _ = stopped
    (reason,) = state_of(out)["stopped_for"]
    assert reason.startswith("entropy")
    assert standing_of(out) == Standing(2, (reason,))
    assert TrainingResult(out).guard_stop.endswith(reason)
    cards = {which: (out / "checkpoints" / which / "README.md").read_text() for which in ("best", "last")}
    assert reason in cards["last"]
    assert "guard stopped" not in cards["best"]  # which was healthy when it was made


def test_none_of_its_answers_is_trusted_and_each_says_why(stopped, tmp_path, capsys):
    out, _ = stopped
    written = read_lines(out / "answers.jsonl")
    why = TrainingResult(out).guard_stop
    assert {(line["is_trusted"], line["note"].startswith(why)) for line in written} == {(False, True)}
    assert any(line["share"] == 1.0 for line in written)  # which the rule would trust
    assert main(["answers", str(out), "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{out}: {why}" in shown
    assert "SCRL's rule abstains" not in shown
    assert (tmp_path / "answers.csv").read_bytes() == (out / "answers.csv").read_bytes()
    assert main(["answers", f"{out}@0", "--out", str(tmp_path)]) == 0  # of the start model
    assert any(line["is_trusted"] for line in read_lines(tmp_path / "answers-step-0.jsonl"))


def test_a_run_that_is_only_observed_goes_on(tmp_path, any_entropy):
    run, heard = do(tmp_path / "run", *AT_ONCE, "guard.mode=observe", "evaluation.completions=0")
    assert run.state.step == 3
    assert heard.text.count("guard, after step 2: entropy has collapsed") == 1
    assert heard.text.count("entropy has collapsed") == 1  # still so after step 3, and said already
    assert "ends the run" not in heard.text
    assert run.state.best_step == 1  # no step under alarm is called the best
