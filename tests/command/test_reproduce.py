"""`scrl reproduce` as a user meets it, at a size that takes seconds."""

import csv
import json
import signal
from functools import partial

import pytest
from line_files import read_lines
from processes import Command, die_at, scrl, untraced

SMALL = (
    "--scale", "demo", "--limit=2", "--questions_per_step=2", "--completions=4",
    "--trained=2", "--sampling.max_tokens=40",
)  # fmt: skip
ONE_STEP = (*SMALL, "--steps", "1")
SCRL = "qwen2.5-3b/math500/32-16/scrl"
RUN = "runs/embedded/easy/32-16/scrl"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Without a network, and without the page about each run, which takes longer than these."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())


@pytest.fixture
def reproduce(call):
    return partial(call, "reproduce", "--run")


def state(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def table(path):
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_one_experiment_before_and_after_with_control_and_voting(reproduce, refusal, tmp_path, monkeypatch):
    changing = (SCRL, *SMALL, "--controls", "random", "--out", "r")
    words = (*changing, "--steps", "1")
    code, out, err = reproduce(*words)
    assert (code, err) == (0, "")
    assert "2 training runs and 4 evaluations, for seed 10:" in out
    assert "  start embedded/start, measured on arithmetic:easy:train:64" in out
    assert "  train embedded/easy/32-16/random, measured on arithmetic:easy:train:64\n" in out
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert [row.split("|")[2].strip() for row in rows[2:]] == [
        "embedded/start", "embedded/start, voting at 32/16", "embedded/easy/32-16/scrl", "embedded/easy/32-16/random",
    ]  # fmt: skip
    assert " votes" in rows[3]
    folder = tmp_path / "r"
    stem = SCRL.replace("/", "-")
    assert {path.name for path in folder.iterdir()} == {"seed-10", f"{stem}.md", f"{stem}.csv", f"{stem}.tex"}
    values = table(folder / f"{stem}.csv")
    names = ["embedded/start", *["embedded/easy/32-16/scrl"] * 2, "embedded/easy/32-16/random"]
    assert [line["experiment"] for line in values] == names
    assert "embedded/start: arithmetic:easy:train:64: pass@1 " in out  # not "after step 0"
    assert "embedded/easy/32-16/scrl: arithmetic:easy:train:64: pass@1 " in out
    after = read_lines(folder / "seed-10/evaluations/embedded/easy/32-16/scrl/evaluations.jsonl")
    assert float(values[2]["value"]) == pytest.approx(100 * after[0]["pass@1"])
    # votes: the run's tokens, in completions as long as the first step's, for each of two questions
    steps = read_lines(folder / "seed-10" / RUN / "metrics.jsonl")
    (vote,) = read_lines(folder / "seed-10/voting/embedded/easy/32-16/scrl/evaluations.jsonl")
    assert vote["samples"] == round(steps[0]["tokens"] / steps[0]["length_mean"] / 2) == 4

    before = state(folder / "seed-10")
    monkeypatch.setattr("scrl.sampling.local.LocalSampler.sample", lambda *a, **k: pytest.fail("drawn again"))
    code, again, _ = reproduce(*words, "--resume")
    assert code == 0
    assert state(folder / "seed-10") == before
    assert [line for line in again.splitlines() if line.startswith("|")] == rows

    for changed in (("2",), ("1", "--optimizer.learning_rate=1e-3"), ("1", "--limit=3")):
        error = refusal("reproduce", "--run", *changing, "--resume", "--steps", *changed)
        assert "--out" in error
    assert state(folder / "seed-10") == before
    assert "--out" in refusal("reproduce", "--run", *words)


def test_another_table_in_the_same_folder_shares_its_runs(reproduce, tmp_path):
    assert reproduce("qwen2.5-3b/start", *ONE_STEP, "--out", "r", "--no-voting")[0] == 0
    start = tmp_path / "r" / "seed-10" / "evaluations" / "embedded" / "start"
    kept = state(start / "rollouts")
    assert len(kept) == 3  # one per level
    code, out, _ = reproduce("figure-labels", *ONE_STEP, "--out", "r", "--resume")
    assert code == 0
    assert "2 training runs and 0 evaluations" in out
    assert (tmp_path / "r" / "figure-labels.html").is_file()
    runs = tmp_path / "r" / "seed-10" / "runs"
    trained = state(runs)
    code, *_ = reproduce("qwen2.5-3b/amc/32-16/scrl", *ONE_STEP, "--out", "r", "--resume", "--no-voting")
    assert code == 0
    assert state(runs) == trained  # the figure's run is measured, not made again
    assert state(start / "rollouts") == kept
    assert (tmp_path / "r/seed-10/evaluations/embedded/medium/32-16/scrl/evaluations.jsonl").is_file()


def test_several_seeds_have_folders_of_their_own_and_are_averaged(reproduce, tmp_path):
    code, out, _ = reproduce("table-entropy", *ONE_STEP, "--seeds", 1, 2, 1, "--out", "r")
    assert code == 0
    assert "0 training runs and 3 evaluations, for seed 1, 2:" in out
    assert {path.name for path in (tmp_path / "r").iterdir() if path.is_dir()} == {"seed-1", "seed-2"}
    files = [tmp_path / f"r/seed-{seed}/rollouts/embedded/start/evaluations.jsonl" for seed in (1, 2)]
    one, two = (line for file in files for line in read_lines(file) if line["benchmark"] == "arithmetic:hard:train:64")
    values = table(tmp_path / "r" / "table-entropy.csv")
    overall = next(v for v in values if (v["metric"], v["column"]) == ("entropy_mean", "hard"))
    assert float(overall["value"]) == pytest.approx((one["entropy_mean"] + two["entropy_mean"]) / 2)
    assert one["samples"] == 4  # as runs with these settings sample


def test_without_run_nothing_is_written(call, tmp_path):
    both = ("table-main", "table-ablation", "--scale", "demo", "--controls", "oracle", "random")
    code, out, err = call("reproduce", *both)
    assert (code, err) == (0, "")
    # levels × budgets × (TTRL, SCRL, two controls), and four ablations of two levels; SCRL's runs have votes to match
    assert f"{3 * 2 * 4 + 2 * 4} training runs and {3 + 3 * 2 * 4 + 2 * 4 + 3 * 2} evaluations, for seed 10:" in out
    alone = call("reproduce", "qwen2.5-3b/amc/32-16/scrl", *ONE_STEP, "--no-voting")
    assert "1 training run and 2 evaluations, for seed 10:" in alone[1]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("table-mian",), "'table-main'"),
        ((SCRL, "--scale", "dmeo"), "demo"),
        ((SCRL, "--scale", "demo", "--controls", "oracel"), "oracle"),
        ((SCRL, "--scale", "demo", "--steps", "0"), "steps"),
        ((SCRL, "--scale", "demo", "--seeds", "-1"), "seed"),
        ((SCRL, "--scale", "demo", "--lr=1"), "--lr"),
        (("table-entropy", "--scale", "demo", "--compute.rows=1"), "--compute.rows"),
        ((SCRL, "--resume"), "--out"),
        ((SCRL, "--resume", "--out", "nothing"), "--resume"),
        ((SCRL, "--data-dir", "nowhere", "--out", "r"), "nowhere"),
        ((SCRL, *ONE_STEP, "--model=./nothing", "--out", "r"), "model"),
    ],
)
def test_bad_input_is_named_and_nothing_stays_behind(refusal, tmp_path, words, reason):
    assert reason in refusal("reproduce", "--run", *words)
    assert not list(tmp_path.iterdir())


def test_ctrl_c_in_the_middle_of_a_run_and_resumed(reproduce, tmp_path):
    words = (SCRL, *SMALL, "--no-voting", "--steps", "12", "--checkpoint_every=50", "--out", "r")
    command = Command("reproduce", "--run", *words, cwd=tmp_path, prepare=untraced)
    metrics = tmp_path / "r" / "seed-10" / RUN / "metrics.jsonl"
    command.wait_for(lambda: metrics.exists() and metrics.stat().st_size)
    command.signal(signal.SIGINT)
    stopped = command.finish()
    assert stopped.returncode == 130, stopped
    assert "--resume --out r" in stopped.stdout
    assert "Traceback" not in stopped.stderr
    done = len(read_lines(metrics))
    assert 0 < done < 12
    start = state(tmp_path / "r" / "seed-10" / "evaluations" / "embedded" / "start")
    code, out, err = reproduce(*words, "--resume")
    assert (code, err) == (0, "")
    assert f"resuming after step {done}" in out
    assert [line["step"] for line in read_lines(metrics)] == list(range(12))
    again = state(tmp_path / "r" / "seed-10" / "evaluations" / "embedded" / "start")
    assert again.items() <= start.items()  # the start model is not measured again
    assert json.loads((tmp_path / "r/seed-10" / RUN / "checkpoints/last/trainer_state.json").read_text())["step"] == 12


def left_behind(folder):
    """What a reproduction ends with, but for seconds and for where it lies."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.name.endswith(".part")}
    rows = [
        {key: value for key, value in line.items() if key != "model" and not key.startswith("seconds_")}
        for name in ("metrics.jsonl", "evaluations.jsonl")
        for path in sorted(folder.rglob(name))
        for line in read_lines(path)
    ]
    return names, rows, [path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))]


def test_one_that_was_killed_is_finished_by_a_second_call(reproduce, tmp_path):
    words = (SCRL, *ONE_STEP, "--no-voting", "--out")
    assert reproduce(*words, "whole")[0] == 0
    for operation in (15, 60):  # while the start model is measured, and in training
        folder = tmp_path / f"killed-{operation}"
        dying = partial(die_at, operation, str(folder))
        assert scrl("reproduce", "--run", *words, folder, cwd=tmp_path, prepare=dying).returncode == -signal.SIGKILL
        assert reproduce(*words, folder, "--resume")[0] == 0
        assert left_behind(folder) == left_behind(tmp_path / "whole")
