"""`scrl demo`, the first thing anyone runs."""

import json
import subprocess
import sys


def scrl(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "scrl", *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=cwd
    )


def test_the_demo_labels_real_completions_with_both_methods(tmp_path):
    done = scrl("demo", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summaries = {m: json.loads((tmp_path / "here" / m / "summary.json").read_text()) for m in ("ttrl", "scrl")}
    assert summaries["ttrl"]["completions"] == summaries["scrl"]["completions"] == 320
    assert summaries["ttrl"]["positive_questions"] == 10
    assert summaries["scrl"]["abstained_questions"] == 4
    # 7 of 10 majorities are right; 5 of the 6 that SCRL trusts
    assert summaries["ttrl"]["positive_accuracy"] == 0.7
    assert round(summaries["scrl"]["positive_accuracy"], 3) == 0.833
    assert "consensus lies" in done.stdout
    assert "votes alone cannot show this one" in " ".join(done.stdout.split())  # where SCRL is wrong too, it says so
    lines = (tmp_path / "here" / "scrl" / "labels.jsonl").read_text().splitlines()
    assert len(lines) == 320


def test_folders_are_numbered_and_never_overwritten(tmp_path):
    assert scrl("demo", cwd=tmp_path).returncode == 0
    assert scrl("demo", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["001", "002"]
    refused = scrl("demo", "--out", "runs/001", cwd=tmp_path)
    assert refused.returncode == 2
    assert "exists already" in refused.stderr
