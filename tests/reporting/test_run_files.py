"""Run folders: what is read, what is chosen, and what is refused."""

import pytest
from line_files import write_lines
from run_files import evaluation_line, group_lines, read_runs, rollout_line

from scrl.errors import DataError, InputError
from scrl.reporting.rollout_votes import read_votes
from scrl.reporting.sources import load_questions


def read_one(folder):
    return read_runs([folder])[0]


def test_a_run_is_read_as_its_files_tell_it(make_run):
    run = read_one(make_run())
    assert run.name == "scrl"
    assert run.config["sampling"]["completions"] == 8
    assert [line["step"] for line in run.metrics] == list(range(30))
    assert [line["pass@1"] for line in run.evaluations] == [0.4375, 0.5, 0.6125]
    assert (run.num_groups, run.num_completions, run.steps_done) == (24, 192, 30)
    assert run.is_graded
    assert run.notes == ()
    assert [question.votes.id for question in run.questions] == ["q1", "q2", "q3", "q4", "q5", "q6"]


def test_excerpts_are_of_the_last_visit_two_answers_each(make_run):
    rollouts = [*group_lines("q", 0, ["8", "8"]), *group_lines("q", 2, ["5", "4", "4", "6", "6"])]  # a tie: 4 leads
    (question,) = read_one(make_run("a", rollouts=rollouts)).questions
    assert [found.answer for found in question.excerpts] == ["4", "6"]
    (question,) = read_one(make_run("b", rollouts=list(group_lines("q", 0, [None, "4"])))).questions
    assert [found.answer for found in question.excerpts] == ["4", None]


@pytest.mark.parametrize("lines", [[rollout_line("q2")], [{"broken": 1}], []])
def test_rollouts_that_change_while_they_are_read_are_refused(tmp_path, lines):
    path = write_lines(tmp_path / "rollouts.jsonl", [rollout_line("q1")])
    votes = read_votes(path, pytest.fail)
    write_lines(path, lines)
    with pytest.raises(DataError, match="changed"):
        load_questions(path, votes)


def test_lines_of_a_group_may_stand_anywhere(make_run):
    rollouts = [line for step in (0, 1) for line in group_lines("q", step, ["4", "5", "4"])]
    (question,) = read_one(make_run(rollouts=rollouts[::-1])).questions
    visits = [(visit.step, visit.size, visit.majority, visit.count("4")) for visit in question.votes.visits]
    assert visits == [(0, 3, "4", 2), (1, 3, "4", 2)]


@pytest.mark.parametrize("name", ["metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl"])
@pytest.mark.parametrize("broken", [b'{"step": 1, "cut', b"[1, 2]"])  # and all else that tests/data/test_jsonl.py has
def test_a_broken_line_in_the_middle_is_an_error_with_its_line(make_run, name, broken):
    folder = make_run()
    lines = (folder / name).read_bytes().splitlines()
    (folder / name).write_bytes(b"\n".join([lines[0], broken, *lines[1:], b""]))
    with pytest.raises(DataError, match=f"{name}:2: "):
        read_one(folder)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl"])
def test_a_missing_file_is_named(make_run, name):
    folder = make_run()
    (folder / name).unlink()
    with pytest.raises(DataError, match=name):
        read_one(folder)


@pytest.mark.parametrize(
    ("text", "place"),
    [("a: [1\nb: 2\n", "config.yaml:2: "), ("- 1\n", "config.yaml:1: "), ("", "config.yaml:1: "), ("\x00", "config.yaml: ")],
)  # fmt: skip
def test_a_broken_config_is_refused(make_run, text, place):
    folder = make_run()
    (folder / "config.yaml").write_text(text)
    with pytest.raises(DataError, match=place):
        read_one(folder)


@pytest.mark.parametrize(
    ("file", "line", "reason"),
    [
        ("rollouts", rollout_line(sample=1, step=-1), "'step'"),
        ("rollouts", rollout_line(sample=1, step=True), "'step'"),
        ("rollouts", rollout_line(sample=1, completion=None), "'completion'"),
        ("rollouts", rollout_line(sample=1, answer_class=4), "'answer_class'"),
        ("rollouts", rollout_line(sample=1, label="maybe"), "'label'"),
        ("rollouts", rollout_line(sample=1, reward=float("nan")), "'reward'"),
        ("rollouts", rollout_line(sample=1, correct="yes"), "'correct'"),
        ("rollouts", rollout_line(sample=1, gold="5"), "'gold'"),
        ("rollouts", rollout_line(sample=1, question="Which?"), "'question'"),
        ("rollouts", rollout_line(sample=0), "sample 0"),
        ("rollouts", rollout_line(sample=1, label="positive"), "'answer_class'"),
        ("rollouts", rollout_line(sample=1, correct=False), "'answer_class'"),
        *(
            (
                "rollouts",
                {key: value for key, value in rollout_line(sample=1).items() if key != missing},
                f"'{missing}'",
            )
            for missing in ("question_id", "question", "step", "sample", "completion", "answer_class", "label")
        ),
        ("metrics", {"step": 1, "entropy_mean": "low"}, "'entropy_mean'"),
        ("metrics", {"step": 1, "entropy_mean": float("inf")}, "'entropy_mean'"),
        ("metrics", {"step": 1, "loss": True}, "'loss'"),
        ("metrics", {"entropy_mean": 1.0}, "'step'"),
        ("metrics", {"step": 0}, "step 0"),
        ("evaluations", evaluation_line(1, 0.5) | {"pass@4": "half"}, "'pass@4'"),
        ("evaluations", evaluation_line(1, 0.5) | {"benchmark": 3}, "'benchmark'"),
        ("evaluations", evaluation_line(0, 0.5), "step 0"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(make_run, file, line, reason):
    first = {"rollouts": rollout_line(sample=0), "metrics": {"step": 0}, "evaluations": evaluation_line(0, 0.25)}[file]
    with pytest.raises(DataError, match=rf"{file}\.jsonl:2: ") as caught:
        read_one(make_run(**{file: [first, line]}))
    assert reason in str(caught.value)


def test_only_evaluations_made_alike_are_put_together(make_run):
    lines = [evaluation_line(0, 0.2), evaluation_line(0, 0.3, temperature=0.0), evaluation_line(5, 0.4)]
    series = read_one(make_run(evaluations=lines)).series
    assert [[line["step"] for line in found] for found in series.values()] == [[0, 5], [0]]


def test_folders_must_be_given_once_and_exist(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(InputError, match="run folder"):
        read_runs([])
    with pytest.raises(InputError, match="more than once"):
        read_runs([folder, tmp_path / "scrl" / ".." / "scrl"])
    with pytest.raises(DataError, match="no such folder"):
        read_runs([tmp_path / "nowhere"])
