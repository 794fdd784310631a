"""Runs whose labels come from votes drawn apart: what is drawn when, what is sampled, and that a stop changes nothing."""

import json
import math
from collections import Counter

import pytest
from line_files import read_lines
from processes import scrl
from runs import GOLD_METRICS, SMALL, differences, do, go_on, metrics, small, state_of, stop_after_a_step, weights

from scrl.credit.label_votes import LabelVotes
from scrl.credit.rule import credit_rule
from scrl.data.arithmetic import arithmetic_questions
from scrl.errors import InputError, TrainingError
from scrl.training.crediting import label_note
from scrl.training.loop import train

HARD = (
    "model=embedded-hasty", "questions=arithmetic:medium:train:12", "method=contrast-label", "questions_per_step=6",
    "completions=8", "trained=4", "steps=5", "credit.min_contrast=0.4", "evaluation.completions=0", "sampling.temperature=1",
)  # fmt: skip
"""Two steps are a pass over the questions."""
SHORT = ("steps=1", "probe=0", "completions=4", "trained=4", "sampling.max_tokens=24", "evaluation.completions=0")
MODES = ("label_votes=start", "label_votes=round")


@pytest.fixture(scope="module", params=MODES)
def finished(request, tmp_path_factory, no_report_of_module):
    folder = tmp_path_factory.mktemp("votes") / "run"
    _, listener = do(folder, *HARD, request.param)
    return request.param, folder, listener


@pytest.fixture(scope="module")
def no_report_of_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())
        yield


def test_votes_are_drawn_before_the_first_step_and_for_rounds_before_every_pass(finished):
    mode, folder, _ = finished
    drawn = {line["step"]: line["votes_drawn"] for line in metrics(folder) if "votes_drawn" in line}
    labels = state_of(folder)["label_votes"]["labels"]
    if mode == "label_votes=start":
        assert drawn == {0: 8 * 12}
    else:
        assert set(drawn) == {0, 2, 4}
        assert drawn[0] == 8 * 12
        assert 8 * (12 - len(labels)) <= drawn[4] <= drawn[2] <= drawn[0]
    assert all(line["tokens_votes"] > 0 for line in metrics(folder) if "votes_drawn" in line)


def test_only_questions_with_a_label_are_sampled_and_their_label_stays(finished):
    _, folder, _ = finished
    labels = state_of(folder)["label_votes"]["labels"]
    assert 0 < len(labels) < 12
    given = {}
    for row in read_lines(folder / "rollouts.jsonl"):
        assert row["question_id"] in labels
        if row["label"] == "positive":
            assert given.setdefault(row["question_id"], row["answer_class"]) == row["answer_class"]
    assert given.items() <= labels.items()
    assert all(line["positive_share"] == 1 for line in metrics(folder))


def test_batches_are_of_nearly_equal_size(finished):
    _, folder, _ = finished
    asked = Counter(row["step"] for row in read_lines(folder / "rollouts.jsonl") if row["sample"] == 0)
    assert max(asked.values()) <= 6
    assert sorted(asked) == list(range(5))


def test_the_learning_rate_falls_to_its_end_however_few_questions_have_a_label(finished):
    _, folder, _ = finished
    rates = [line["learning_rate"] for line in metrics(folder)]
    sizes = Counter(row["step"] for row in read_lines(folder / "rollouts.jsonl") if row["sample"] == 0)
    falling = sum(sizes.values()) - round(0.03 * sum(sizes.values()))  # updates after the warm-up, one per question
    assert rates[-1] == pytest.approx(1e-4 * (1 + math.cos(math.pi * (falling - 1) / falling)) / 2)


def test_a_run_stopped_and_resumed_ends_the_same(finished, tmp_path, no_report):
    mode, folder, _ = finished
    stop_after_a_step(tmp_path / "run", *HARD, mode)
    go_on(tmp_path / "run")
    assert differences(folder, tmp_path / "run") == []


def test_a_run_stopped_while_votes_are_drawn_ends_the_same(finished, tmp_path, no_report):
    mode, folder, listener = finished

    class Stopper(type(listener)):
        def progress(self, benchmark, questions, total):
            if benchmark == "votes":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small(*HARD, mode), tmp_path / "run", Stopper())
    (tmp_path / "run" / "report.html").unlink()
    go_on(tmp_path / "run")
    assert differences(folder, tmp_path / "run") == []


def test_deleting_gold_changes_nothing(tmp_path, no_report):
    questions = [{"id": q.id, "question": q.text, "gold": q.gold} for q in arithmetic_questions("medium", 12)]
    runs = []
    for name, rows in (("with", questions), ("bare", [{**row, "gold": None} for row in questions])):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in rows))
        do(tmp_path / name, *HARD, "label_votes=round", "steps=3", f"questions={file}")
        runs.append(tmp_path / name)
    assert weights(runs[0]) == weights(runs[1])
    assert state_of(runs[0])["label_votes"] == state_of(runs[1])["label_votes"]
    graded, bare = ([{k: v for k, v in line.items() if k not in GOLD_METRICS} for line in metrics(run)] for run in runs)
    assert graded == bare


def test_votes_are_no_evaluation_and_more_of_them_can_be_asked_for(tmp_path, no_report):
    do(tmp_path / "run", *HARD, "label_votes=start", "label_completions=12", "steps=1")
    assert {len(votes) for votes in state_of(tmp_path / "run")["label_votes"]["votes"].values()} == {12}


def test_a_run_without_any_label_says_so(tmp_path, no_report):
    with pytest.raises(TrainingError, match=r"label_votes.*--credit.elsewhere-weight 0"):
        do(tmp_path / "run", *HARD, "label_votes=start", "credit.min_contrast=1", "credit.elsewhere_weight=9")


def test_where_few_answers_win_most_questions_the_run_says_what_to_do():
    """Nine of twelve questions are won by yes or no; contrast takes these for stock answers."""

    def won_by(*keys):
        return LabelVotes({f"q{q}": (key,) * 3 for q, key in enumerate(keys)}, {"q11": "11"})

    ours, repeated = credit_rule("contrast-label"), won_by("no", *["yes", "no"] * 4, "9", "10", "11")
    assert "3 answers win 10 of the questions" in label_note(repeated, ours, 12)
    plain = credit_rule("contrast-label", elsewhere_weight=0)
    for rule, votes in ((plain, repeated), (credit_rule("ttrl"), repeated), (ours, won_by(*map(str, range(12))))):
        assert "WARNING" not in label_note(votes, rule, 12)


def test_methods_that_pay_without_a_label_sample_every_question(tmp_path, no_report):
    run, _ = do(
        tmp_path / "run",
        *[each for each in HARD if "contrast" not in each],
        "method=contrast",
        "label_votes=start",
        "steps=3",
    )
    assert len({row["question_id"] for row in read_lines(tmp_path / "run" / "rollouts.jsonl")}) == 12
    assert run.state.label_votes.labels == {}


def votes_file(path, answers):
    """Eight completions of every question; the first two answers of each are given by `answers(place)`."""
    rows = [
        {"question_id": q.id, "step": 0, "sample": n, "completion": rf"\boxed{{{answers(place) if n < 6 else 7}}}"}
        for place, q in enumerate(arithmetic_questions("medium", 12))
        for n in range(8)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_votes_of_a_file_decide(tmp_path, no_report):
    file = votes_file(tmp_path / "votes.jsonl", lambda place: 1000 + place if place < 5 else place)
    run, _ = do(tmp_path / "run", *HARD, f"label_votes={file}", "credit.min_contrast=0.7", "steps=2")
    assert set(run.state.label_votes.labels.values()) == {
        *map(str, range(1000, 1005)),
        *map(str, {*range(5, 12)} - {7}),
    }
    assert "votes_drawn" not in metrics(tmp_path / "run")[0]
    file.unlink()  # what they said is in the checkpoint
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("steps: 2", "steps: 3"))
    go_on(tmp_path / "run")
    with pytest.raises(InputError, match="label_votes"):
        do(tmp_path / "other", *HARD, f"label_votes={file}")


@pytest.mark.parametrize("votes", ["start", "round", "a file"])
def test_restrain_knows_how_sure_the_start_model_was_whoever_votes(votes, tmp_path, no_report):
    votes = votes_file(tmp_path / "votes.jsonl", str) if votes == "a file" else votes
    run, _ = do(tmp_path / "run", *HARD[:2], *SHORT, "method=restrain", f"label_votes={votes}")
    assert len(run.state.reference_shares) == len(run.state.label_votes.votes) == 12
    assert metrics(tmp_path / "run")[0]["votes_drawn"] == 4 * 12


def test_votes_of_a_file_hide_no_gold_of_the_questions(tmp_path, no_report):
    golds = [question.gold for question in arithmetic_questions("medium", 12)]
    votes = votes_file(tmp_path / "votes.jsonl", golds.__getitem__)
    run, _ = do(tmp_path / "run", *HARD[:2], *SHORT, "method=oracle", f"label_votes={votes}")
    assert list(run.state.label_votes.labels.values()) == golds


def test_a_file_without_votes_on_a_question_is_refused(tmp_path, no_report):
    file = votes_file(tmp_path / "votes.jsonl", str)
    file.write_text("\n".join(file.read_text().splitlines()[8:]) + "\n")
    with pytest.raises(InputError, match=r"label_votes.*medium-train-0-0"):
        do(tmp_path / "run", *HARD, f"label_votes={file}")


def test_a_mistyped_name_is_refused_before_anything_is_drawn(tmp_path):
    done = scrl("train", *SMALL, *HARD, "--label-votes", "strat", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "label_votes" in done.stderr
    assert "start" in done.stderr
    assert not (tmp_path / "run").exists()
