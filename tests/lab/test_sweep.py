"""`scrl sweep` is `scrl label` at every setting, exactly; its front and its stability."""

import csv
import dataclasses
import random

import numpy as np
import pytest
from line_files import read_lines, write_lines
from processes import scrl

import scrl as package
from scrl.cli.main import main
from scrl.credit.method import Shaped, SplitAdvantage, needing
from scrl.credit.methods import find_method
from scrl.credit.methods.scrl import SCRL, ScrlSettings, shaped_reward
from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.errors import InputError
from scrl.lab.label import label_file
from scrl.lab.stored_groups import stored_groups
from scrl.lab.sweep import front, sweep_settings


def random_file(path, *, questions=14, size=16, steps=2, gold=True, seed=0):
    """Groups with ties, missing answers, stock answers, a question without gold, lines of a step mixed."""
    rng, rows = random.Random(seed), []
    for step in range(steps):
        for number in range(questions):
            pool = [*"01223", str(50 + number), str(50 + number), None, f"{number}/3"]
            for _ in range(size):
                row = {"question_id": f"q{number}", "step": step, "answer": rng.choice(pool), "entropy": rng.random()}
                rows.append(row | ({"gold": str(50 + number)} if gold and number else {}))
    rng.shuffle(rows)
    return write_lines(path, rows)


def groups_of(path):
    return stored_groups(open_completions(path), credit_rule("ttrl"), keep_texts=False)


def test_every_figure_equals_that_of_scrl_label_exactly(tmp_path):
    path = random_file(tmp_path / "r.jsonl")
    groups = groups_of(path)
    choices = {
        "scrl": {},
        "scrl-without-shaping": {"min_share": (0.2, 0.375), "max_negative_share": (0.1, 0.2), "advantage": ("centred",)},
        "scrl-without-negative": {"min_margin": (0.0, 0.1)},
        "ttrl": {"ties": ("smallest", "first-seen")},
        "contrast": {"missing_gap": (0.0, 0.2)},
    }  # fmt: skip
    rows = [row for method, given in choices.items() for row in sweep_settings(groups, method, given)]
    assert sum(row["method"] == "scrl" for row in rows) == 10_000
    sampled = random.Random(1).sample(rows[:10_000], 12) + random.Random(2).sample(rows[10_000:], 12)
    for row in sampled:
        names = find_method(row["method"]).settings.model_fields
        summary = label_file(path, credit_rule(row["method"], **{k: v for k, v in row.items() if k in names}))
        figures = {key: row[key] for key in row if key in summary and key != "method"}
        assert len(figures) >= 10
        assert figures == {key: summary[key] for key in figures}


def squared_advantage(_evidence, _labels, shaped, rows, _settings):
    rewards_M = shaped.rewards_G[list(rows)]
    return SplitAdvantage(rewards_M**2, np.minimum(rewards_M, 0))


def length_reward(evidence, labels, settings):
    return Shaped(shaped_reward(evidence, labels, settings).rewards_G - evidence.fact("length") / 100)


class StricterSettings(ScrlSettings):
    """SCRL with another default."""

    min_share: float = 0.6


@pytest.mark.parametrize("parts", [
    {"advantage": squared_advantage}, {"settings": StricterSettings}, {"name": "scrl", "advantage": squared_advantage},
    {"reward": length_reward, "needs": needing("entropy", "length")},
])  # fmt: skip
def test_a_method_made_from_scrl_is_swept_with_its_own_parts(tmp_path, parts):
    rows = read_lines(random_file(tmp_path / "r.jsonl"))
    path = write_lines(tmp_path / "r.jsonl", [line | {"num_tokens": n % 7} for n, line in enumerate(rows)])
    mine = dataclasses.replace(SCRL, **{"name": "mine", **parts})
    swept = package.sweep(path, mine, min_margin=[0.0, 0.125])
    assert [(row["method"], row["min_margin"]) for row in swept] == [(mine.name, 0.0), (mine.name, 0.125)]
    for row in swept:
        summary = package.label(path, mine, min_margin=row["min_margin"])
        figures = {key: row[key] for key in row if key in summary}
        assert len(figures) >= 10
        assert figures == {key: summary[key] for key in figures}
    given = {"min_share": 0.375, "min_margin": 0.125, "max_negative_share": 0.125, "entropy_weight": 0.1}
    (row,) = package.sweep(path, **given)
    assert swept[1]["push_stock"] != row["push_stock"]  # so the parts matter here


def test_a_method_that_looks_at_texts_is_swept_where_the_file_has_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wordy.py").write_text(
        "from scrl.credit.method import *\n"
        "def reward(evidence, labels, settings):\n"
        "    return Shaped([float(len(completion.text)) for completion in evidence.group.completions])\n"
        "WORDY = Method('wordy', 'length', 'R = |text|', 'mine', CreditSettings, no_labels, reward, needing('text'))\n"
    )
    rows = [{"question_id": q, "completion": f"{n} so \\boxed{{{n % 3}}}"} for q in "ab" for n in range(8)]
    texts = write_lines(tmp_path / "texts.jsonl", rows)
    (row,) = package.sweep(texts, "wordy:WORDY")
    summary = package.label(texts, "wordy:WORDY") | {"method": "wordy:WORDY"}
    assert {key: row[key] for key in row if key in summary} == {key: summary[key] for key in row if key in summary}
    assert main(["sweep", str(texts), "--method", "ttrl", "--method", "wordy:WORDY"]) == 0
    assert "2 settings on 2 groups." in capsys.readouterr().out
    answers = write_lines(tmp_path / "answers.jsonl", [{"question_id": q, "answer": "1"} for q in "aabb"])
    with pytest.raises(InputError, match=r"answers\.jsonl"):
        package.sweep(answers, "wordy:WORDY")
    assert main(["sweep", str(answers), "--method", "ttrl", "--method", "wordy:WORDY"]) == 0
    assert "wordy:WORDY was left out" in capsys.readouterr().out


def test_without_gold_the_figures_of_gold_are_none(tmp_path):
    groups = groups_of(random_file(tmp_path / "r.jsonl", gold=False))
    for row in sweep_settings(groups, "scrl", {"min_share": (0.2, 0.9), "min_margin": (0,), "entropy_weight": (0.1,)}):
        assert row["positive_accuracy"] is row["truth_flagged"] is row["push_right"] is None
        assert row["push_stock"] is not None


def test_a_method_without_stability_is_shown_by_coverage_where_there_is_no_gold(tmp_path, capsys):
    path = random_file(tmp_path / "r.jsonl", gold=False)
    assert main(["sweep", str(path), "--method", "contrast-label", "--min-contrast", "0.1,0.2,0.9"]) == 0
    shown = capsys.readouterr().out
    assert [shown.count(f"  {value} ") for value in ("0.1", "0.2", "0.9")] == [8] * 3  # 12 of 39 rows, twice


def test_stability_is_that_of_a_binomial_majority(tmp_path):
    # 4 of 5 votes for 1, one for 2: drawn anew, 1 wins if it has 3 or more of 5 at p = 4/5: 0.942
    rows = [{"question_id": f"q{i}", "answer": answer} for i in range(200) for answer in "11112"]
    path = write_lines(tmp_path / "r.jsonl", rows)
    (row,) = sweep_settings(groups_of(path), "ttrl", {})
    assert row["stability"] == pytest.approx(0.942, abs=0.01)
    path = write_lines(path, [line | {"entropy": 0.1} for line in rows])
    for share in (0.0, 1.0):  # a threshold that this ablation does not look at
        (other,) = sweep_settings(groups_of(path), "scrl-without-selective", {"min_share": (share,)})
        assert (other["coverage"], other["stability"]) == (1.0, row["stability"])


def test_the_front_is_what_nothing_beats_in_both(tmp_path):
    def point(coverage, right, push=0.0):
        return {"coverage": coverage, "positive_accuracy": right, "push_right": push, "push_stock": 0.0}

    rows = [
        point(1.0, 0.2), point(0.5, 0.4, 0.1), point(0.5, 0.4, 0.3), point(0.4, 0.3), point(0.1, 0.9), point(0.0, None),
    ]  # fmt: skip
    assert front(rows, "positive_accuracy") == [rows[4], rows[2], rows[0]]


def test_where_others_never_count_contrast_is_tried_once(tmp_path):
    lines = [{"question_id": f"q{q}", "answer": str(a)} for q in range(8) for a in (1, 1, q)]
    assert len(package.sweep(write_lines(tmp_path / "few.jsonl", lines), "contrast")) == 1
    lines += [line | {"question_id": "q8"} for line in lines[:3]]
    assert len(package.sweep(write_lines(tmp_path / "more.jsonl", lines), "contrast")) == 13


def test_the_command_writes_a_row_a_setting(tmp_path):
    path = random_file(tmp_path / "r.jsonl")
    done = scrl("sweep", path, "--min-share", "0.25,0.375", "--min-margin", "0,0.125", "--max-negative-share", "0.125",
                "--entropy-weight", "0.1", "--elsewhere-weight", "1.5", "--out", tmp_path / "s.csv")  # fmt: skip
    assert done.returncode == 0, done.stderr
    with (tmp_path / "s.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["scrl"] * 4 + ["ttrl", "contrast"]
    assert "6 settings on 28 groups" in done.stdout
    for words, reason in ((("--min-shore", "1"), "--min-share"), (("--min-share", "2"), "min_share")):
        refused = scrl("sweep", path, *words, "--out", tmp_path / "no.csv")
        assert refused.returncode == 2
        assert reason in refused.stderr
        assert not (tmp_path / "no.csv").exists()
