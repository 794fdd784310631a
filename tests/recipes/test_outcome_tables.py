"""From the files of a reproduction to the paper's tables; the files are made up here, and so are their numbers."""

import csv
import io
from pathlib import Path

import pytest
from line_files import read_lines, write_lines

from scrl.errors import DataError
from scrl.recipes.catalogue import benchmark_at, table_at
from scrl.recipes.jobs import VOTING, jobs, with_controls, with_voting
from scrl.recipes.outcome_tables import Value, caption_of, number_table, ours_and_papers, outcome_table, values_of
from scrl.recipes.paper import GAIN, SERIES, TABLES
from scrl.recipes.reproduce import Choices
from scrl.reporting.tables import as_csv, as_latex, as_markdown
from scrl.seeds import generator_for

STEP = dict.fromkeys(SERIES, 0.25)
"""What every step of a made-up run measured."""


def evaluation(benchmark, values, samples=16, **more):
    """A line of evaluations.jsonl; values are those of the questions."""
    by_question = values if isinstance(values, dict) else {f"q{n}": value for n, value in enumerate(values)}
    names = ("pass@1", f"pass@{samples}", f"maj@{samples}")
    return {
        "benchmark": benchmark, "questions": len(by_question), "samples": samples, "temperature": 0.6, "top_p": 0.95,
        "entropy_correct": 0.1, "entropy_incorrect": 0.4, "entropy_mean": 0.2,
        **{name: sum(by_question.values()) / len(by_question) for name in names},
        **{f"{name}_by_question": by_question for name in names},
    } | more  # fmt: skip


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_lines(path, lines)


def fake(out, table, scale, seed=0):
    """All files that a reproduction of the table would leave, with numbers drawn from the names."""
    for job in jobs([table], scale):
        rng = generator_for(seed, "fake", job.name)
        for kind, names in {"evaluations": job.measured_on, "rollouts": job.rollouts_on}.items():
            lines = [evaluation(name, rng.random(5).tolist()) for name in names]
            write(out / f"seed-{seed}" / kind / job.name / "evaluations.jsonl", lines)
        if job.has_voting:
            line = evaluation(benchmark_at(job.experiment.trained_on, scale), rng.random(5).tolist(), samples=40)
            write(out / f"seed-{seed}" / "voting" / job.name / "evaluations.jsonl", [line])
        if job.is_run:
            steps = [{"step": step, **STEP, "pass@1": float(rng.random())} for step in range(3)]
            write(out / f"seed-{seed}" / "runs" / job.name / "metrics.jsonl", steps)
            sampled = {"questions": 5, "samples": 16, "temperature": 0.6, "top_p": 0.95}
            lines = [{"step": step, "benchmark": "stream", **sampled, "pass@1": float(rng.random())} for step in (0, 2)]
            write(out / f"seed-{seed}" / "runs" / job.name / "evaluations.jsonl", lines if job.has_curve else [])


# Every table


@pytest.mark.parametrize("scale", ["paper", "demo"])
@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_filled_from_its_files(name, scale, tmp_path):
    table, choices = with_controls(with_voting(TABLES[name]), ("oracle",)), Choices(scale=scale)
    scaled = table_at(table, scale)
    assert values_of(scaled, choices, tmp_path) == {}  # nothing is done yet
    made = outcome_table(scaled, {}, caption_of(scaled, {}, choices, tmp_path))
    assert all(cell.startswith("–") for row in made.rows for cell in row[2:])
    fake(tmp_path, table, scale)
    values = values_of(scaled, choices, tmp_path)
    assert not [cell for cell in scaled.cells if cell.place not in values]
    assert scale == "paper" or all(cell.paper is None for cell in scaled.cells)
    made = outcome_table(scaled, values, caption_of(scaled, values, choices, tmp_path))
    assert len(made.rows) == len(scaled.rows)
    for row in made.rows:
        assert len(row) == 2 + len(scaled.columns)
    for text in (as_markdown(made), as_latex(made)):
        assert "None" not in text
        assert "nan" not in text
    found = list(csv.DictReader(io.StringIO(as_csv(number_table(scaled, values)))))
    assert [bool(line["value"]) for line in found] == [cell.place in values for cell in scaled.cells]
    assert {line["experiment"] for line in found} - {""} == {job.name for job in jobs([table], scale)}


# Numbers by hand

SECTION = "32 completions, 16 trained"
A, B = "qwen2.5-3b/aime25/32-16/ttrl", "qwen2.5-3b/aime25/32-16/scrl"


def place(row, column="AIME25", metric="pass@1", section=SECTION):
    return section, row, column, metric


def measured(out, name, benchmark, values, seed=0, kind="evaluations", **more):
    path = Path(out) / f"seed-{seed}" / kind / name / "evaluations.jsonl"
    before = read_lines(path) if path.exists() else []
    write(path, [*before, evaluation(benchmark, values, **more)])


def test_a_gain_is_the_paired_difference(tmp_path):
    measured(tmp_path, A, "aime25", {"a": 0.0, "b": 0.5, "c": 0.25, "d": 0.25})
    measured(tmp_path, B, "aime25", {"d": 0.5, "c": 0.5, "b": 0.75, "a": 0.25})  # another order; + ¼ everywhere
    values = values_of(TABLES["table-main"], Choices(), tmp_path)
    assert values[place("Qwen2.5-3B + TTRL")].mean == pytest.approx(25)
    assert values[place("Qwen2.5-3B + SCRL")].mean == pytest.approx(50)
    gain = values[place("Qwen2.5-3B Δ", metric=GAIN)]
    assert (gain.mean, gain.low, gain.high) == pytest.approx((25, 25, 25))  # paired: no spread at all
    assert values[place("Qwen2.5-3B + SCRL")].low < 50 < values[place("Qwen2.5-3B + SCRL")].high
    assert place("Qwen2.5-3B + SCRL", "Avg") not in values  # four columns are missing


def test_an_average_is_the_mean_of_its_columns(tmp_path):
    for number, benchmark in enumerate(("aime25", "amc", "math500", "minerva", "gpqa")):
        measured(tmp_path, "qwen2.5-3b/start", benchmark, [0.1 * number])
        for method, more in {"ttrl": 0.1, "scrl": 0.3}.items():
            measured(tmp_path, f"qwen2.5-3b/{benchmark}/32-16/{method}", benchmark, [0.1 * number + more])
    values = values_of(TABLES["table-main"], Choices(), tmp_path)
    assert values[place("Qwen2.5-3B", "Avg")].mean == pytest.approx((0 + 10 + 20 + 30 + 40) / 5)
    assert values[place("Qwen2.5-3B + SCRL", "Avg")].mean == pytest.approx(50)
    assert values[place("Qwen2.5-3B Δ", "Avg", GAIN)].mean == pytest.approx(20)


def test_seeds_are_averaged_question_by_question(tmp_path):
    measured(tmp_path, A, "aime25", [0.0, 0.5], seed=1)
    measured(tmp_path, A, "aime25", [1.0, 0.5], seed=2)
    row = place("Qwen2.5-3B + TTRL")
    both = values_of(TABLES["table-main"], Choices(seeds=(1, 2)), tmp_path)[row]
    assert both.by_question == {"q0": 0.5, "q1": 0.5}
    assert (both.mean, both.low, both.high) == pytest.approx((50, 50, 50))
    assert values_of(TABLES["table-main"], Choices(seeds=(1,)), tmp_path)[row].mean == pytest.approx(25)
    assert row not in values_of(TABLES["table-main"], Choices(seeds=(1, 2, 3)), tmp_path)  # a seed is not done yet
    measured(tmp_path, A, "aime25", {"other": 0.5, "another": 1.0}, seed=4)  # questions of its own
    three = values_of(TABLES["table-main"], Choices(seeds=(1, 4)), tmp_path)[row]
    assert three.mean == pytest.approx(100 * (0 + 0.5 + 0.5 + 1.0) / 4)


def test_every_seed_counts_alike_however_many_questions_it_has(tmp_path):
    """Seed 1 is right on ¼ of two questions, seed 2 on its one: (¼ + 1) / 2, where a mean over three has ½."""
    measured(tmp_path, A, "aime25", {"a": 0.0, "b": 0.5}, seed=1)
    measured(tmp_path, A, "aime25", {"c": 1.0}, seed=2)
    for seed in (1, 2):  # ¼ more on each question
        measured(tmp_path, B, "aime25", {"a": 0.25, "b": 0.75} if seed == 1 else {"c": 1.25}, seed=seed)
    values = values_of(TABLES["table-main"], Choices(seeds=(1, 2)), tmp_path)
    assert values[place("Qwen2.5-3B + TTRL")].mean == pytest.approx(62.5)
    assert values[place("Qwen2.5-3B + TTRL")].by_question == pytest.approx({"a": 0, "b": 0.375, "c": 1.5})
    assert values[place("Qwen2.5-3B Δ", metric=GAIN)].mean == pytest.approx(25)


def test_a_starred_value_is_the_peak_of_the_runs_own_evaluations(tmp_path):
    name, row = "qwen2.5-math-7b/minerva/32-16/ttrl", place("Qwen2.5-Math-7B + TTRL", "Minerva")
    measured(tmp_path, name, "minerva", [0.1])
    assert values_of(TABLES["table-main"], Choices(), tmp_path)[row].mean == pytest.approx(10)
    lines = [evaluation("stream", [value], step=step) for step, value in enumerate((0.2, 0.45, 0.3))]
    write(tmp_path / "seed-0" / "runs" / name / "evaluations.jsonl", [*lines, evaluation("held-out", [0.9])])
    values = values_of(TABLES["table-main"], Choices(), tmp_path)
    assert values[row].mean == pytest.approx(45)
    cell = next(cell for cell in TABLES["table-main"].cells if cell.place == row)
    assert ours_and_papers(cell, values[row]) == "45.0 [45.0, 45.0] (14.5*)"


def test_voting_shows_the_majority_of_all_votes_and_their_number(tmp_path):
    table = with_voting(TABLES["table-main"])
    for seed, votes in {0: 10, 1: 10, 2: 16}.items():
        line = {"samples": votes, f"maj@{votes}_by_question": {"q0": 1.0, "q1": 0.5}}
        measured(tmp_path, B, "aime25", [0.0, 0.0], seed=seed, kind="voting", **line)
    row = place("Qwen2.5-3B, voting at 32/16", metric=VOTING)
    value = values_of(table, Choices(seeds=(0, 1, 2)), tmp_path)[row]
    assert (value.mean, value.votes) == (pytest.approx(75), 12)  # 36 votes in 3 seeds
    cell = next(cell for cell in table.cells if cell.place == row)
    assert ours_and_papers(cell, value).endswith(" with 12 votes")


def test_dynamics_are_the_evaluations_on_the_way_not_what_training_sampled(tmp_path):
    run, sampled = tmp_path / "seed-0" / "runs" / "qwen2.5-3b" / "amc" / "32-16" / "scrl", {"questions": 83}
    sampled |= {"samples": 16, "temperature": 0.6, "top_p": 0.95}
    write(run / "metrics.jsonl", [{"step": 0, "pass@1": 0.9}])
    found = [(0, "stream", 0.25), (20, "stream", 0.5), (20, "held-out", 0.9)]
    lines = [{"step": step, "benchmark": name, "pass@1": value} | sampled for step, name, value in found]
    write(run / "evaluations.jsonl", lines)
    table = TABLES["figure-dynamics-3b"]
    values = values_of(table, Choices(), tmp_path)
    (value,) = values.values()
    assert value.mean == pytest.approx(37.5)  # in %, as everywhere
    caption = caption_of(table, values, Choices(), tmp_path)
    assert "83 questions, 16 samples each" in caption


# Text


def test_cells_say_ours_first_then_the_papers():
    cells = {cell.place: cell for cell in TABLES["table-main"].cells}
    scrl, gain = cells[place("Qwen2.5-3B + SCRL")], cells[place("Qwen2.5-3B Δ", metric=GAIN)]
    assert ours_and_papers(scrl, Value(8.44, 2.0, 15.06)) == "8.4 [2.0, 15.1] (8.4)"
    assert ours_and_papers(scrl, None) == "– (8.4)"
    assert ours_and_papers(gain, Value(5.76, -1.0, 9.0)) == "Δ +5.8 [-1.0, 9.0] (5.8)"
    assert ours_and_papers(gain, Value(-5.76)) == "Δ -5.8 (5.8)"
    copied = next(cell for cell in TABLES["table-llama"].cells if cell.copied_from == "COMPASS")
    assert ours_and_papers(copied, None) == f"– ({copied.paper:g}, COMPASS)"


def test_the_caption_says_how_many_of_what_for_this_table_alone(tmp_path):
    measured(tmp_path, B, "aime25", [0.5] * 30)
    measured(tmp_path, B, "amc", [0.5] * 83)  # of another table
    measured(tmp_path, "qwen3-4b/start/10240", "aime25", [0.5] * 7)
    some = {place("SCRL"): Value(50, 40, 60)}
    caption = caption_of(TABLES["table-ablation"], some, Choices(seeds=(0, 5)), tmp_path)
    assert "30 questions, 16 samples each, temperature 0.6, top-p 0.95" in caption
    assert "seed 0, 5" in caption
    assert "7 questions" not in caption


def test_files_that_nobody_wrote_are_named(tmp_path):
    path = tmp_path / "seed-0" / "evaluations" / "qwen2.5-3b" / "start" / "evaluations.jsonl"
    path.parent.mkdir(parents=True)
    for text in ('{"benchmark": "amc"}\n{"bench', "{\n"):
        path.write_text(text)
        with pytest.raises(DataError, match=r"evaluations\.jsonl"):
            values_of(TABLES["table-main"], Choices(), tmp_path)
