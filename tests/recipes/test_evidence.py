"""The campaign on real models: every published table is made again from the small files that are kept."""

import json
import re
from pathlib import Path

import pytest
import yaml
from line_files import write_lines

from scrl.cli.main import main
from scrl.config import build_config
from scrl.errors import ConfigError, InputError
from scrl.evaluation.transitions import count_transitions
from scrl.recipes.evidence import campaign, tables
from scrl.recipes.evidence.campaign import CAMPAIGNS, METHODS, SEEDS, Code, all_runs, find_run, settings_of
from scrl.recipes.evidence.tables import Kept, difference, evidence_markdown, mean_of, step_mean

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "results"


# What is published


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_page_of_results_shows_the_tables_of_the_files(name):
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = re.search(rf"<!-- evidence {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert shown, name
    assert shown[1].strip() == evidence_markdown(RESULTS, name)


def test_the_command_prints_the_tables_and_draws_the_picture(tmp_path, capsys):
    assert main(["evidence", "--results", str(RESULTS), "--picture", str(tmp_path / "p.svg")]) == 0
    text = capsys.readouterr().out
    assert evidence_markdown(RESULTS, "amc-1.5b") in text
    assert re.search(r"\d+ of 21 runs of seeds 2, 3, 4", text)
    assert (tmp_path / "p.svg").read_bytes() == (ROOT / "docs" / "evidence.svg").read_bytes()


def test_kept_files_hold_no_text_of_a_benchmark_and_all_are_of_one_commit():
    commits = {}
    for path in RESULTS.rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r'"(question|completion|gold)":', text), path
        if path.name == "about.json":
            commits.setdefault(path.parent.parent.name, set()).add(json.loads(path.read_text())["commit"])
    assert all(len(of_one_kind) == 1 for of_one_kind in commits.values()), commits
    assert commits["amc-1.5b"] == commits["gsm8k-0.5b"]


def test_kept_runs_had_the_settings_of_the_recipe():
    for run in all_runs():
        file = RESULTS / run.name / "config.yaml"
        if file.is_file():
            assert build_config(yaml.safe_load(file.read_text())) == build_config(settings_of(run)), run.name


# How it is computed


def kept(method, seed, before, after):
    first, last = ({"pass@1_by_question": values, "maj@16_by_question": values} for values in (before, after))
    return Kept(method, seed, {}, (), {("before", "stream"): first, ("after", "stream"): last})


START = {"a": 0.0, "b": 0.5}
RUNS = [
    kept("scrl", 2, START, {"a": 0.25, "b": 0.5}), kept("scrl", 3, START, {"a": 0.5, "b": 0.75}),
    kept("contrast", 2, START, {"a": 0.5, "b": 0.75}), kept("contrast", 3, START, {"a": 0.5, "b": 1.0}),
]  # fmt: skip


def test_means_and_differences_over_seeds():
    assert mean_of(RUNS, "start", "stream", "pass@1").mean == 25.0
    assert mean_of(RUNS, "scrl", "stream", "pass@1").seeds == (37.5, 62.5)
    assert mean_of(RUNS, "ttrl", "stream", "pass@1") is None
    found = difference(RUNS, "contrast", "scrl", "stream", "pass@1")
    # seed 2: (0.25 + 0.25)/2; seed 3: (0 + 0.25)/2; a gains 12.5 points on average over seeds, b 25
    assert (found.mean, found.seeds, found.low, found.high) == (18.75, (25.0, 12.5), 12.5, 25.0)
    # t at 1 degree of freedom 12.706, s = 12.5/√2, half width 12.706 · (12.5/√2)/√2 = 79.4
    assert found.over_seeds == pytest.approx((18.75 - 79.4125, 18.75 + 79.4125))
    assert tables.estimate([START]).over_seeds is None


def test_a_labels_accuracy_counts_labels_not_steps():
    steps = [{"positive_share": 0.25, "positive_accuracy": 1.0}, {"positive_share": 0.75, "positive_accuracy": 0.0}]
    steps.append({"positive_share": 0.0})
    assert step_mean(steps, "positive_share") == "33"  # (0.25 + 0.75 + 0)/3
    assert step_mean(steps, "positive_accuracy", weight="positive_share") == "25"  # (0.25 · 1 + 0.75 · 0)/1
    assert step_mean(steps, "truth_flagged") == "–"


def test_questions_are_learned_kept_lost_or_never_right():
    before = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.4, "e": 0.5}
    after = {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0, "e": 0.5}
    assert count_transitions(before, after) == {"learned": 1, "kept": 2, "lost": 1, "never right": 1}


# The runs


def test_the_campaign_is_complete_and_every_setting_is_written_out():
    runs = all_runs()
    assert len(runs) == len(CAMPAIGNS) * len(METHODS) * len(SEEDS) + len(SEEDS)
    for run in runs:
        if run.method in METHODS:
            settings = settings_of(run)
            config = build_config(settings)
            assert config.model_dump(mode="json")["sampling"] == settings["sampling"]
            assert (config.completions, config.trained, config.seed) == (32, 16, run.seed)
            assert settings["credit"].keys() == config.rule().settings.model_dump().keys()
    with pytest.raises(ConfigError, match="no such run in the campaign"):
        find_run("amc-1.5b/scrl-9")


def fake_scrl(calls):
    """Stands in for the commands: writes what they would leave behind."""

    def run(work, code, *words):
        calls.append([str(word) for word in words])
        out = Path(words[words.index("--out") + 1])
        (out / "checkpoints" / "last").mkdir(parents=True)
        if words[0] == "train":
            row = {"step": 0, "question_id": "q", "correct": True, "label": "positive", "answer_class": "4"}
            wrong, missing = {"answer_class": "5", "correct": False, "label": None}, {"answer_class": None}
            write_lines(out / "rollouts.jsonl", [row, row, row | wrong, row | missing])
            (out / "environment.json").write_text(json.dumps({"commit": "abc", "versions": {"torch": "2"}}))
            for name in ("config.yaml", "metrics.jsonl", "evaluations.jsonl"):
                (out / name).write_text("")
        else:
            write_lines(out / "evaluations.jsonl", [{"benchmark": "math500", "pass@1": 0.5}])
        return 61.2

    return run


def test_a_run_is_trained_measured_condensed_and_its_weights_deleted(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(campaign, "_scrl", fake_scrl(calls))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "gsm8k.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(600)))
    run = find_run("amc-1.5b/contrast-2")
    campaign.carry_out(run, tmp_path, tmp_path / "results", Code())
    assert [words[0] for words in calls] == ["train", "evaluate"]
    assert calls[1][2:] == [
        "math500", "--data-dir", "data", "--seed", "2", "--samples", "4", "--temperature", "0.6", "--top-p", "0.95",
        "--max-tokens", "1536", "--out", str(tmp_path / "campaign" / run.name / "measured"),
    ]  # fmt: skip
    out = tmp_path / "results" / run.name
    names = {"about.json", "config.yaml", "evaluations.jsonl", "math500.json", "metrics.jsonl", "votes.jsonl"}
    assert {path.name for path in out.iterdir()} == names
    assert json.loads((out / "votes.jsonl").read_text()) == {
        "step": 0, "question_id": "q", "completions": 4, "right": 3, "positive": "4", "votes": {"4": 2, "5": 1},
    }  # fmt: skip
    about = json.loads((out / "about.json").read_text())
    assert (about["commit"], about["seconds"]) == ("abc", {"train": 61, "math500": 61})
    assert not (tmp_path / "campaign" / run.name).exists()
    halves = [(tmp_path / "data" / name).read_text().splitlines() for name in campaign.HALVES]
    assert [(len(half), json.loads(half[0])["id"]) for half in halves] == [(256, 0), (256, 256)]
    assert run not in campaign.missing_runs(tmp_path / "results")
    campaign.carry_out(find_run("amc-1.5b/start-2"), tmp_path, tmp_path / "results", Code())
    assert calls[-1][:2] == ["evaluate", "models/qwen2.5-coder-1.5b-instruct"]


def test_what_cannot_be_is_refused(tmp_path, capsys):
    with pytest.raises(InputError, match="there are no results here"):
        tables.read_kept(tmp_path)
    nowhere = ["--results", str(tmp_path / "nowhere")]
    for words, reason in ((nowhere, "nowhere: there is no such folder"), (["--run"], "--work: name the folder")):
        assert main(["evidence", *words]) == 2
        assert reason in capsys.readouterr().err
    (tmp_path / "campaign" / "amc-1.5b" / "scrl-2").mkdir(parents=True)
    with pytest.raises(InputError, match="is left from a run that did not end"):
        campaign.carry_out(find_run("amc-1.5b/scrl-2"), tmp_path, tmp_path / "results", Code())
    with pytest.raises(FileExistsError):
        campaign.condense(tmp_path, None, {}, tmp_path / "campaign")


def test_the_picture_needs_no_more_than_one_run(tmp_path):
    tables.draw_picture(RESULTS, "gsm8k-0.5b", tmp_path / "p.svg")
    assert "completions that are right" in (tmp_path / "p.svg").read_text()
