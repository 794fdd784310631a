"""Results on real models: every published table is made again from the small files that are kept."""

import json
import math
import re
from pathlib import Path

import confirm
import keep
import numpy as np
import pytest
import signs
import tables
import yaml
from line_files import write_lines
from tables import RESULTS, STUDIES, Kept, Questions, Study, difference, mean_of, step_mean

from scrl.cli.evaluate import given_settings, measurement_settings
from scrl.config import GONE, PASSES, build_config, read_config
from scrl.evaluation.statistics import majority_transitions
from scrl.settings import merged, without_equal

DOCS = RESULTS.parent / "docs"


# What is published


PUBLISHED = {
    f"{page.parent.name}/{page.name} {part.split()[2]}": part
    for page in tables.PAGES
    for part in re.findall(r"<!-- evidence .*?<!-- end -->", page.read_text(encoding="utf-8"), re.DOTALL)
}


@pytest.mark.parametrize("part", PUBLISHED.values(), ids=PUBLISHED)
def test_pages_show_the_tables_of_the_files(part):
    assert tables.with_tables(part) == part


def test_the_minutes_and_speeds_of_the_front_page_are_those_of_the_files():
    page = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert "Eight to thirteen minutes" in " ".join(page.split())
    for runs, minutes in (
        ("confirm-math-0.5b/rounds-*", 8),
        ("confirm-0.5b/rounds-*", 10),
        ("confirm-1.5b/ours-*", 13),
    ):
        seconds = [json.loads(path.read_text())["seconds"]["train"] for path in RESULTS.glob(f"{runs}/about.json")]
        assert max(seconds) / 60 == pytest.approx(minutes, abs=0.5)
    benchmarks = (RESULTS.parent / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    rows = {cells[1].strip(" *"): cells[2:] for line in benchmarks.splitlines() if len(cells := line.split("|")) > 6}
    speeds = [
        [float(re.sub(r"\D", "", cell)) for cell in rows[name][1:4]] for name in ("ours", "vLLM 0.24, in one process")
    ]
    ratios = [ours / theirs for ours, theirs in zip(*speeds, strict=True)]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} × vLLM's speed" in page


def test_the_picture_is_that_of_the_files(tmp_path):
    tables.draw_picture(STUDIES[0], tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_bytes() == (DOCS / "evidence.svg").read_bytes()


def test_kept_files_hold_no_text_of_a_benchmark_and_a_published_study_is_of_one_commit():
    commits = {}
    for path in RESULTS.rglob("*.json*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'"(question|completion|gold)":', text), path
        if path.name == "about.json":
            commits.setdefault(path.parent.parent.name, set()).add(json.loads(text)["commit"])
    assert all(len(commits[study.folder]) == 1 for study in STUDIES), commits


def test_kept_settings_are_complete_and_none_is_gone():
    for path in RESULTS.glob("*/*/config.yaml"):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = {"method": "oracle", "credit": {}} if ":" in settings["method"] else {}  # one's own reward is not kept
        assert build_config(settings | known).model_dump(mode="json") == without_equal(settings | known, GONE), path


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.folder)
def test_runs_of_a_study_differ_in_method_and_seed_alone(study):
    files = list((RESULTS / study.folder).glob("*/config.yaml"))
    configs = [build_config(yaml.safe_load(file.read_text())) for file in files]
    names = {f"{config.method}-{config.seed}" for config in configs}
    assert names == {file.parent.name for file in files}
    assert {config.method for config in configs} == set(study.arms)
    own = {"method": "scrl", "credit": {}, "seed": 0}
    first, *others = (build_config(config.model_dump(mode="json") | own) for config in configs)
    assert all(config == first for config in others)


# How it is computed


def kept(arm, seed, before, after):
    first, last = ({"pass@1_by_question": values, "maj@16_by_question": values} for values in (before, after))
    return Kept(arm, seed, {}, (), {("before", "stream"): first, ("after", "stream"): last})


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
    # t at 1 degree of freedom 12.7062, s = 12.5/√2, half width 12.7062 · (12.5/√2)/√2 = 79.414
    assert found.over_seeds == pytest.approx((18.75 - 79.414, 18.75 + 79.414), abs=1e-3)
    assert tables.estimate([START]).over_seeds is None


def test_an_interval_over_seeds_and_questions():
    """Values s + q with s and q normal: the variance of the mean is σ_s²/S + σ_q²/Q, of 40 and 400 of them."""
    rng = np.random.default_rng(0)
    of_seed_S, of_question_Q = rng.normal(0, 0.1, 40), rng.normal(0, 0.3, 400)
    by_seed = [{str(q): s + value for q, value in enumerate(of_question_Q)} for s in of_seed_S]
    half = 196 * np.sqrt(of_seed_S.var() / 40 + of_question_Q.var() / 400)
    mean = 100 * (of_seed_S.mean() + of_question_Q.mean())
    assert tables.crossed_interval(by_seed) == pytest.approx((mean - half, mean + half), abs=0.15)
    first, second = (np.ptp(tables.crossed_interval(by_seed, attempts)) for attempts in (1, 2))
    assert second / first == pytest.approx(2.2414 / 1.96, abs=0.03)  # the normal's quantiles at 98.75 and 97.5 %
    alone = [{"a": 0.1, "b": 0.3}]
    assert tables.crossed_interval(alone) == pytest.approx((10, 30))


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (2, 4.303), (9, 2.262), (29, 2.045), (120, 1.980)])
def test_students_t_is_that_of_the_printed_tables(freedom, t):
    assert tables.t_quantile(freedom) == pytest.approx(t, abs=5e-4)


def test_a_labels_accuracy_counts_labels_not_steps():
    steps = [{"positive_share": 0.25, "positive_accuracy": 1.0}, {"positive_share": 0.75, "positive_accuracy": 0.0}]
    steps.append({"positive_share": 0.0})
    assert step_mean(steps, "positive_share") == "33"  # (0.25 + 0.75 + 0)/3
    assert step_mean(steps, "positive_accuracy", weight="positive_share") == "25"  # (0.25 · 1 + 0.75 · 0)/1
    assert step_mean(steps, "truth_flagged") == "–"


def test_questions_are_learned_kept_lost_or_never_right():
    before = {"maj@4_by_question": {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.4, "e": 0.5}}
    after = {"maj@4_by_question": {"a": 1.0, "b": 1.0, "c": 0.0, "d": 0.0, "e": 0.5}}
    assert majority_transitions(before, after) == {"learned": 1, "kept": 2, "lost": 1, "never right": 1}


def test_a_vote_that_counts_some_completions_alone():
    """Answers have [all, sound, complete] completions, or more kinds."""
    line = {"right": 1, "votes": [[5, 1, 0], [3, 1, 0], [3, 2, 0]]}
    assert [tables.kept_vote(line, kind) for kind in range(3)] == [0, 0, 0]  # the first; the third; none is complete
    assert [tables.kept_vote(line | {"right": 0}, kind) for kind in range(3)] == [1, 0, 0]
    assert [tables.kept_vote(line | {"right": None}, kind) for kind in range(3)] == [0, 0, 0]
    tie = {"right": 1, "votes": [[5, 1, 2], [6, 2, 2], [6, 1, 2]]}
    assert [tables.kept_vote(tie, kind) for kind in range(3)] == [0.5, 1, pytest.approx(1 / 3)]


def test_what_training_drew_and_the_votes_of_as_many(tmp_path):
    """256 questions: (64 · 16 · 16 + 8,192 votes)/256 = 96, and 16 that are measured."""
    (tmp_path / "config.yaml").write_text(
        "{steps: 64, questions_per_step: 16, completions: 16, questions: data/gsm8k-769-1024.jsonl}"
    )
    write_lines(tmp_path / "metrics.jsonl", [{"votes_drawn": 8000}, {}, {"votes_drawn": 192}])
    assert tables.completions_drawn(tmp_path) == 112
    write_lines(tmp_path / "votes.jsonl", [{"completions": 16}] * 960)  # (960 · 16 + 8,192)/256 = 92 were drawn
    assert tables.completions_drawn(tmp_path) == 108
    lines = [{"question_id": "a", "completions": [3, 3], "right": 0, "votes": [[1, 2], [1, 1]]}]
    lines += [{"question_id": "b", "completions": [3, 3], "right": 1, "votes": [[2, 1], [1, 2]]}]
    lines += [{"question_id": "c", "completions": [3, 3], "right": None, "votes": [[3, 3]]}]
    assert tables.start_votes(lines, 6) == {"a": 1.0, "b": 0.5, "c": 0.0}  # 3 of 5; 3 and 3 of 6
    assert tables.start_votes(lines, 1)["a"] == 0.5  # 3 of 6, one without an answer


def test_pages_say_what_sound_votes_gain_on_fresh_questions():
    cells = [cell.strip() for cell in tables.sound_votes().splitlines()[-1].split("|")]
    of_all, of_sound = (cell.split()[0] for cell in cells[3:5])
    for page in ("README.md", "docs/answers.md"):
        assert f"{of_all} → {of_sound} % (+4.1 [+2.3, +6.0])" in (RESULTS.parent / page).read_text()
    assert cells[5:7] == ["+4.1", "[+2.3, +6.0]"]


def test_what_votes_label():
    line = {"completions": 8, "right": 0, "votes": [[4], [2]]}
    # all eight are drawn: 4/8; two of eight: both right in 4·3 / (8·7) of the draws, both the other in 2·1 / (8·7)
    assert tables.label_odds(line, 0, 8, [0.5, 0.6]) == [(1.0, 1.0), (0.0, 0.0)]
    [(labelled, right)] = tables.label_odds(line, 0, 2, [1.0])
    assert (labelled, right) == (pytest.approx(14 / 56, abs=0.05), pytest.approx(12 / 56, abs=0.05))


def test_sound_votes_of_the_start_model_over_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    for name, seed, sound in (
        ("gsm8k-1-256", 1, 1.0), ("gsm8k-769-1024", 11, 1.0), ("gsm8k-1025-1319", 11, 0.0),
    ):  # fmt: skip
        (tmp_path / "sound-0.5b" / f"start-{seed}").mkdir(parents=True, exist_ok=True)
        lines = [{"question_id": name + q, "boxed": 0.5, "sound:boxed": sound} for q in "ab"]
        write_lines(tmp_path / "sound-0.5b" / f"start-{seed}" / f"votes-{name}.jsonl", lines)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables.sound_votes().splitlines()[2:]]
    assert [row[:5] for row in rows] == [
        ["gsm8k-1-256", "1", "50.0 (50.0)", "100.0 (100.0)", "+50.0"],
        ["gsm8k-769-1024", "11", "50.0 (50.0)", "100.0 (100.0)", "+50.0"],
        ["gsm8k-1025-1319", "11", "50.0 (50.0)", "0.0 (0.0)", "-50.0"],
        ["gsm8k-769-1024 and gsm8k-1025-1319", "11", "50.0 (50.0)", "50.0 (50.0)", "+0.0"],
    ]
    assert rows[3][5] == "[-50.0, +50.0]"  # questions of +50 and −50


def test_a_study_that_measures_its_last_checkpoints_alone(tmp_path, monkeypatch):
    """Two seeds of the start and of two arms, on a set of questions that no run measured itself."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    right = {"start-5": 0.2, "start-6": 0.4, "a-5": 0.5, "a-6": 0.6, "b-5": 0.4, "b-6": 0.8}
    for name, share in right.items():
        (tmp_path / "more" / name).mkdir(parents=True)
        by_question = {"pass@1_by_question": {"q": share}, "maj@4_by_question": {"q": share}}
        (tmp_path / "more" / name / "new.json").write_text(json.dumps({"benchmark": "new", **by_question}))
        (tmp_path / "more" / name / "about.json").write_text("{}")
    study = Study("more", (Questions("new", "New", "maj@4"),), arms=("a", "b"), pairs=(("b", "a"),))
    lines = tables.study_markdown(study).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    means = {row[0]: row[2] for row in rows if "−" in row[0]}
    assert means == {"b − a": "+5.0", "b − start": "+30.0", "a − start": "+25.0"}


# Signs without gold


def test_what_the_guard_would_have_stopped_is_said_as_the_files_have_it():
    """Of lost and of good runs; those that sample labelled questions alone apart."""
    runs = signs.read_runs()
    *_, (alarm, ask_all, labelled) = signs.guard([signs.long_runs(runs, asks) for asks in ("all", "labelled")])
    assert (alarm, ask_all, labelled) == ("any", "3/22 at 62%, 0/18", "0/1, 0/21")


def test_a_sign_and_its_limit_by_hand():
    """Lengths fall from 100 to 60, 65 and 80 in lost runs, to 75 and 90 in good ones: 70 catches two and stops none."""

    def run(kind, length):
        lines = [{"length_mean": 100.0}] * 10 + [{"length_mean": length}] * 10
        return signs.Run("a/b", 1, "all", kind, (), lines, ())

    group = [run("lost", 60.0), run("lost", 65.0), run("lost", 80.0), run("good", 75.0), run("gold", 90.0)]
    length, *_ = signs.SIGNS
    assert [length.at(each, 20) for each in group] == [-0.6, -0.65, -0.8, -0.75, -0.9]
    assert length.course(group[0]) == {1.0: -0.6}
    words, limit, own, loose, *_ = next(iter(signs.limits([group])))
    assert (words, limit, own) == ("length_mean, ratio", "0.70", "2/3 at 100%, 0/2")
    assert loose == "0.85"  # which stops the one at 0.75: between 0.8 and 0.9


# What is kept


def test_what_is_kept_of_a_run_and_of_an_evaluation(tmp_path):
    run, measured, out = tmp_path / "run", tmp_path / "measured", tmp_path / "results" / "scrl-2"
    run.mkdir()
    measured.mkdir()
    row = {"step": 0, "question_id": "q", "correct": True, "label": "positive", "answer_class": "4"}
    wrong, missing = {"answer_class": "5", "correct": False, "label": None}, {"answer_class": None}
    write_lines(run / "rollouts.jsonl", [row, row, row | wrong, row | missing])
    (run / "environment.json").write_text(json.dumps({"versions": {"torch": "2"}}))
    for name in ("config.yaml", "metrics.jsonl", "evaluations.jsonl"):
        (run / name).write_text("")
    write_lines(measured / "evaluations.jsonl", [{"benchmark": "math500", "pass@1": 0.5, "answers": ["text"]}])
    keep.keep(out, run, measured, commit="abc")
    names = {"about.json", "config.yaml", "evaluations.jsonl", "math500.json", "metrics.jsonl", "votes.jsonl"}
    assert {path.name for path in out.iterdir()} == names
    assert json.loads((out / "votes.jsonl").read_text()) == {
        "step": 0, "question_id": "q", "completions": 4, "right": 3, "positive": 0, "votes": {"0": 2, "1": 1},
    }  # fmt: skip
    assert json.loads((out / "math500.json").read_text()) == {"benchmark": "math500", "pass@1": 0.5}
    about = json.loads((out / "about.json").read_text())
    assert about["seconds"]["train"] >= 0
    assert about["commit"] == "abc"
    with pytest.raises(FileExistsError):
        keep.keep(out, run, commit="abc")


def test_of_an_evaluation_the_votes_are_kept_in_blocks_of_32(tmp_path):
    """Two completions of four are sound and say 6, which is right; the first 16 are tied between 6 and 7."""
    texts = ["2 * 3 = 6, so \\boxed{6}", "3 * 2 = 6, so \\boxed{6}", "2 * 3 = 7, so \\boxed{7}", "\\boxed{7}"]
    rows = [{"question_id": "q", "completion": text, "gold": "6"} for text in texts * 8]
    rows += [rows[0], rows[0] | {"completion": "none"}]  # the 33rd and the 34th
    rows += [row | {"question_id": "r", "gold": "8"} for row in rows]
    (tmp_path / "measured" / "rollouts").mkdir(parents=True)
    write_lines(tmp_path / "measured" / "rollouts" / "new.jsonl", rows)
    write_lines(tmp_path / "measured" / "evaluations.jsonl", [{"benchmark": "data/new.jsonl"}])
    keep.keep(tmp_path / "start-1", tmp_path / "measured", commit="abc")
    assert json.loads((tmp_path / "start-1" / "new.json").read_text()) == {"benchmark": "new"}
    votes = {"completions": [32, 2], "votes": [[16, 1], [16, 0]]}
    assert [json.loads(line) for line in (tmp_path / "start-1" / "votes-new.jsonl").read_text().splitlines()] == [
        {"question_id": "q", **votes, "right": 0, "boxed": 0.5, "sound:boxed": 1.0},
        {"question_id": "r", **votes, "right": None, "boxed": 0.0, "sound:boxed": 0.0},
    ]


# The runs of the confirmation


def test_runs_to_come_have_settings_that_there_are():
    runs = [run for stage in confirm.STAGES for run in confirm.runs_of(stage)]
    assert len({run.name for run in runs}) == len(runs)
    configs = {run.name: build_config(run.settings) for run in runs if run.settings is not None}
    assert all(name.endswith(f"-{config.seed}") for name, config in configs.items())
    assert {config.questions.removeprefix("data/").removesuffix(".jsonl") for config in configs.values()} == {
        *confirm.FOLDS.values(), *confirm.MATH,
    }  # fmt: skip
    for run in runs:  # those to come are as those that are there
        if run.is_kept and run.settings is not None:
            kept = yaml.safe_load((RESULTS / run.name / "config.yaml").read_text(encoding="utf-8"))
            assert merged(kept, run.settings) == kept, run.name
    for run in (*confirm.runs_of("larger"), *confirm.runs_of("fourth")):  # as confirmation.md says
        config = configs[run.name]
        votes = (config.label_votes, config.label_completions, config.credit["min_contrast"])
        assert (config.method, *votes) == ("contrast-label", "round", 16, 0.4)
        assert (config.completions, config.trained, config.sampling.temperature) == (16, 16, 0.6)
        assert (config.steps, config.questions_per_step, config.questions_per_update) == (24, 32, 1)
        assert (config.reader, config.optimizer.learning_rate) == ("boxed", 1e-6)
    bare = build_config({"model": "mine", "questions": "mine.txt"}).model_dump()
    passes = configs["confirm-1.5b/ours-11"].steps / math.ceil(250 / 32)
    assert (bare["optimizer"]["learning_rate"], PASSES) == (1e-6, passes)  # as the front page says
    own = {"model", "questions", "seed", "probe", "evaluation", "checkpoint_every", "guard"}
    for run in confirm.runs_of("larger-default"):  # what a user gets who says nothing else
        assert {name for name, value in configs[run.name].model_dump().items() if value != bare[name]} <= own


def test_a_fold_leaves_out_what_the_other_has_never_seen(tmp_path):
    (tmp_path / "data").mkdir()
    for name, rows in (("gsm8k", 1319), ("math500", 500)):
        write_lines(tmp_path / "data" / f"{name}.jsonl", [{"id": row} for row in range(rows)])
    confirm.write_questions(tmp_path)

    def ids(name):
        return [json.loads(line)["id"] for line in (tmp_path / "data" / f"{name}.jsonl").read_text().splitlines()]

    first, last = (ids(name) for name in confirm.GSM8K)
    assert (first, last) == ([*range(768, 1024)], [*range(1024, 1319)])
    assert sorted(ids(confirm.FOLDS["a"]) + last) == sorted(ids(confirm.FOLDS["b"]) + first) == [*range(1319)]
    assert [ids(name)[:2] for name in confirm.MATH] == [[0, 2], [1, 3]]
    for name, rows in tables.NUM_TRAINED_ON.items():
        assert len(ids(name)) == rows


@pytest.mark.parametrize("is_trial", [False, True])
@pytest.mark.parametrize("stage", ["larger", "second"])
def test_a_run_is_trained_measured_and_kept_by_commands_that_there_are(stage, is_trial, tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr("subprocess.run", lambda command, **_: commands.append(command))
    run = confirm.runs_of(stage)[0]
    confirm.make(run, tmp_path, "abc", is_trial=is_trial)
    train, evaluate, keep_it = commands
    config = read_config(Path(train[4]))
    assert (config.method, config.steps) == ("contrast-label", 1 if is_trial else run.settings["steps"])
    (model, *questions), given = given_settings(evaluate[4:-2])
    settings = measurement_settings(given | {"model": model, "benchmarks": tuple(questions)})
    assert (settings.ks, settings.samples) == ((16,), 32)  # so that there is maj@16
    assert (settings.reader, settings.seed) == ("boxed", run.seed)
    assert questions == [f"data/{name}.jsonl" for name in (confirm.MATH if stage == "larger" else confirm.GSM8K)]
    place = tmp_path / "tried" if is_trial else confirm.RESULTS  # a trial counts for nothing
    assert keep_it[2:5] == ["--commit", "abc", str(place / run.name)]


def test_runs_are_made_once_in_the_order_of_the_stages(tmp_path, monkeypatch):
    monkeypatch.setattr(confirm, "RESULTS", tmp_path)
    made = []

    def make(run):
        made.append(run.name)
        if run.name == "confirm-0.5b/gold-wide-12":
            raise OSError("lost")
        (tmp_path / run.name).mkdir(parents=True)
        (tmp_path / run.name / "about.json").write_text("{}")
        return 1.0

    make(confirm.runs_of("gold")[0])
    assert confirm.work_through(["gold", "start"], 1, make) == ["confirm-0.5b/gold-wide-12"]
    assert made == [*(f"confirm-0.5b/gold-wide-{seed}" for seed in (11, 12, 13, 14, 15)), "confirm-0.5b/start-20"]
    monkeypatch.setattr(confirm, "RESULTS", tmp_path / "none")
    assert confirm.work_through(["gold", "start"], 2, lambda run: made.append(run.name) or 1.0, [12, 20]) == []
    assert made[-2:] == ["confirm-0.5b/gold-wide-12", "confirm-0.5b/start-20"]


def test_an_arm_of_two_folds_is_judged_by_the_runs_that_have_never_seen_a_question(tmp_path, monkeypatch):
    """One question in each set; a block of 32 of the start model's draw stands for each seed."""
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    settings = "{steps: 2, questions_per_step: 32, completions: 16, questions: data/%s.jsonl}"
    scores = {"a": (1.0, 0.5), "b": (0.25, 1.0)}  # trained on the first, trained on the last
    for fold, values in scores.items():
        for seed in (21, 22):
            folder = tmp_path / "confirm-0.5b" / f"rounds-{fold}-{seed}"
            folder.mkdir(parents=True)
            (folder / "about.json").write_text("{}")
            (folder / "config.yaml").write_text(settings % confirm.FOLDS[fold])
            for name, value in zip(confirm.GSM8K, values, strict=True):
                by_question = {"maj@16_by_question": {name: value}, "pass@1_by_question": {name: value / 2}}
                (folder / f"{name}.json").write_text(json.dumps(by_question))
                write_lines(folder / f"votes-{name}.jsonl", [{"question_id": name, "sound:boxed": 1.0}])
    (tmp_path / "confirm-0.5b" / "start-20").mkdir()
    for seed, value in ((11, 0.5), (12, 0.0)):
        (tmp_path / "sound-0.5b" / f"start-{seed}").mkdir(parents=True)
        for name in confirm.GSM8K:
            lines = [{"question_id": name, "sound:boxed": value}]
            write_lines(tmp_path / "sound-0.5b" / f"start-{seed}" / f"votes-{name}.jsonl", lines)
    for name in confirm.GSM8K:
        line = {"question_id": name, "completions": [32, 32], "right": 1, "votes": [[0, 32], [32, 0]]}
        write_lines(tmp_path / "confirm-0.5b" / "start-20" / f"votes-{name}.jsonl", [line])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables.second_attempt().splitlines()[2:]]
    found = {(row[2], row[3]): (row[1], *row[4:7]) for row in rows}
    # of block 0 all 32 completions are right, of block 1 none
    assert found["trained on", "pass@1"] == ("21, 22", "50.0", "50.0 (50.0, 50.0)", "+0.0")
    assert found["never seen", "pass@1"] == ("21, 22", "50.0", "18.8 (18.8, 18.8)", "-31.2")  # (0.5 + 0.25)/2/2
    assert found["never seen", "maj@16"] == ("21, 22", "50.0", "37.5 (37.5, 37.5)", "-12.5")
    # the sound votes of the start model are those of its own runs, 11 and 12 for 21 and 22
    assert found["never seen", tables.SOUND_VOTE] == ("21, 22", "25.0", "100.0 (100.0, 100.0)", "+75.0")
    # 2 · 32 · 16 completions on 1,024 questions are 1 each; of all 64 completions half are right
    vote, gain = (float(found["trained on", "maj@16 − the start's maj@17"][column]) for column in (1, 3))
    assert vote == pytest.approx(50, abs=3)
    assert vote + gain == 100
