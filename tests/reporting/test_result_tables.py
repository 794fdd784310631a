"""Tables of results: what a row is about, which runs share one, and cells that survive every format."""

import csv
import io

import pytest
from run_files import CONFIG, evaluation_line

from scrl.errors import DataError, InputError
from scrl.evaluation.statistics import Difference
from scrl.files.checkpoint_file import write_sums
from scrl.reporting.evaluations import read_place
from scrl.reporting.result_rows import group_by_seed, result_rows, result_table
from scrl.reporting.tables import Share, Table, as_csv, as_latex, as_markdown, cell_text, latex_escape


def graded(step, values, benchmark="toy", **more):
    """An evaluation with values by question, as it is written now."""
    mean = sum(values.values()) / len(values)
    scores = {"pass@1_by_question": values, "maj@16": mean, "maj@16_low": mean - 0.1, "maj@16_high": mean + 0.1}
    return evaluation_line(step, mean, benchmark) | {"questions": len(values)} | scores | more


def rows_of(*places):
    return result_rows([read_place(str(place)) for place in places])


def note_best(folder, step):
    (folder / "checkpoints" / "best").mkdir(parents=True)
    write_sums(folder / "checkpoints" / "best", step, "")


# Rows


def test_a_run_has_a_row_for_start_best_peak_and_last(make_run):
    scores = {0: 0.4, 10: 0.5, 20: 0.7, 30: 0.6}
    folder = make_run(evaluations=[evaluation_line(step, score) for step, score in scores.items()])
    note_best(folder, 10)
    rows = rows_of(folder)
    marks = [("start", 0), ("best", 10), ("peak", 20), ("last", 30)]
    assert [(row["evaluation"], row["step"]) for row in rows] == marks
    assert rows[-1] == {
        "place": str(folder), "model": "tiny/model", "method": "scrl", "benchmark": "toy", "evaluation": "last",
        "step": 30, "pass@1": Share(0.6, 0.52, 0.6 + 0.07), "pass@16": Share(0.6 + 0.2),  # without its interval
        "maj@16": Share(0.7),
        "agreement": Share(0.55), "answered": Share(0.98), "truncated": Share(0.015),
        "n": 12, "samples": 16, "temperature": 0.6, "seeds": 7,
    }  # fmt: skip


def test_what_a_reader_must_know_about_the_files_is_told(make_run):
    folder = make_run()
    note_best(folder, 20)
    with (folder / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 45, "bench')
    place = read_place(str(folder))
    cut, best = place.notes
    assert "evaluations.jsonl: line 4" in cut
    assert "step 20" in best
    assert all("best" not in str(row["evaluation"]) for row in result_rows([place]))


def test_one_evaluation_is_the_start_and_a_step_can_be_named(make_run):
    once = make_run("once", evaluations=[evaluation_line(0, 0.5)])
    assert [row["evaluation"] for row in rows_of(once)] == ["start"]
    (row,) = rows_of(f"{make_run()}@15")
    assert (row["evaluation"], row["step"]) == ("chosen", 15)
    ways = [evaluation_line(0, 0.2), evaluation_line(0, 0.3, temperature=0.0)]
    assert [row["temperature"] for row in rows_of(make_run("ways", evaluations=ways))] == [0.6, 0.0]


# Seeds


def seeded(make_run, seed, last):
    lines = [graded(0, {"q1": 0.0, "q2": 0.5}), graded(30, last)]
    return make_run(f"seed-{seed}", config=CONFIG | {"seed": seed}, evaluations=lines)


def test_runs_that_differ_in_the_seed_alone_share_a_row(make_run):
    folders = [seeded(make_run, 10, {"q1": 0.25, "q2": 1.0}), seeded(make_run, 11, {"q1": 1.0, "q2": 0.25})]
    start, last = rows_of(*folders)
    assert (last["place"], last["seeds"]) == (", ".join(map(str, folders)), "10, 11")
    assert (last["evaluation"], last["step"]) == ("peak, last", 30)
    assert last["pass@1"] == Share(0.625, 0.625, 0.625, 0.625, 0.625)  # (0.25 + 1)/2 on each question
    assert start["pass@1"] == Share(0.25, 0.0, 0.5, 0.25, 0.25)
    assert last["maj@16"] == Share(0.625, least=0.625, most=0.625)  # not by question: no interval
    assert last["n"] == 2
    table = result_table([start, last])
    assert (table.rows[1][-1], table.rows[1][5]) == ("10, 11", 30)


def test_a_seed_that_is_not_done_is_missing_from_the_later_rows(make_run):
    done = seeded(make_run, 1, {"q1": 1.0, "q2": 1.0})
    begun = make_run("begun", config=CONFIG | {"seed": 2}, evaluations=[graded(0, {"q1": 1.0, "q2": 0.5})])
    rows = [(row["evaluation"], row["seeds"]) for row in rows_of(done, begun)]
    assert rows == [("start", "1, 2"), ("peak, last", 1)]


def test_the_best_of_some_seeds_is_not_shown(make_run):
    folders = [seeded(make_run, seed, {"q1": 1.0, "q2": 1.0}) for seed in (1, 2)]
    note_best(folders[0], 30)
    note_best(folders[1], 20)
    assert [row["evaluation"] for row in rows_of(*folders)] == ["start", "peak, last"]
    assert [row["evaluation"] for row in rows_of(folders[0])] == ["start", "best, peak, last"]


@pytest.mark.parametrize("change", [{"seed": 1}, {"seed": 2, "steps": 31}, {"seed": 2, "guard": {"patience": 4}}])
def test_other_runs_keep_their_own_rows(make_run, change):
    values = {"q1": 1.0, "q2": 1.0}
    folders = [seeded(make_run, 1, values), make_run("other", config=CONFIG | change)]
    assert [len(group) for group in group_by_seed([read_place(str(folder)) for folder in folders])] == [1, 1]


# Reading


def test_places_that_hold_nothing_say_what_to_give_instead(make_run, tmp_path):
    (tmp_path / "empty").mkdir()
    inner = make_run("demo/scrl")
    for place, words in {
        tmp_path / "nowhere": "nowhere",
        tmp_path / "empty": r"evaluations\.jsonl",
        tmp_path / "demo": str(inner),
        make_run("new", evaluations=[]): "scrl evaluate RUN/checkpoints/last",
    }.items():
        with pytest.raises(DataError, match=words):
            read_place(str(place))
    with pytest.raises(InputError, match="step 7"):
        read_place(f"{inner}@7")


@pytest.mark.parametrize(
    ("key", "value"),
    [("pass@1_by_question", [1.0]), ("pass@1_by_question", {}), ("pass@1_by_question", {"q": "1"}), ("maj@16_low", "low")],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused(make_run, key, value):
    folder = make_run(evaluations=[evaluation_line(3, 0.5) | {key: value}])
    with pytest.raises(DataError, match=r"evaluations.jsonl"):
        read_place(str(folder))


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"step": 1', '{"step": 1, "stopped_for": []}', '{"version": 2}', '{"version": 1, "step": "1"}',
        '{"version": 1, "step": 1, "stopped_for": 7}',
    ],
)  # fmt: skip
def test_a_broken_state_is_named(make_run, text):
    folder = make_run()
    (folder / "checkpoints" / "last").mkdir(parents=True)
    (folder / "checkpoints" / "last" / "trainer_state.json").write_text(text)
    with pytest.raises(DataError, match=r"trainer_state\.json"):
        read_place(str(folder))


# Formats


TABLE = Table(
    header=("method", "pass@1", "gain", "n"),
    rows=(
        ("scrl | ttrl", Share(1 / 3, 0.25, 0.4375), Difference(-0.0625, -0.1, 0.02), 64),
        ("50%_a & b#1", Share(0.5, least=0.4, most=0.6), None, None),
    ),
    caption="pass@1 ± 95 % → better",
)


def test_cells_are_rounded_to_a_tenth_of_a_percent_point():
    assert cell_text(Share(1 / 3, 0.25, 0.4375)) == "33.3 [25.0, 43.8]"
    assert cell_text(Share(0.5, 0.4, 0.6, 0.45, 0.55)) == "50.0 [40.0, 60.0], 45.0 to 55.0"
    assert cell_text(Difference(0.0625, -0.0004, 0.125)) == "+6.2 [0.0, +12.5]"
    assert [cell_text(cell) for cell in (None, 0.6, 1.0, 64, "x")] == ["–", "0.6", "1", "64", "x"]


def test_markdown_stays_in_its_cells():
    assert as_markdown(TABLE) == (
        "pass@1 ± 95 % → better\n"
        "\n"
        "| method       |             pass@1 |               gain |   n |\n"
        "| ------------ | -----------------: | -----------------: | --: |\n"
        "| scrl \\| ttrl |  33.3 [25.0, 43.8] | −6.2 [−10.0, +2.0] |  64 |\n"
        "| 50%\\_a & b#1 | 50.0, 40.0 to 60.0 |                  – |   – |\n"
    )


@pytest.mark.parametrize(("text", "shown"), [
    ("a\nb\r\n c", "a b c"), (r"a\|b", r"a\\\|b"), ("<script>", r"\<script>"), ("p < 0.05", "p < 0.05"),
    ("_x_ a_b *y* `z`", r"\_x\_ a_b \*y\* \`z\`"), ("\u202eevil", "⟨U+202E⟩evil"),
])  # fmt: skip
def test_markdown_shows_text_as_it_stands(text, shown):
    assert as_markdown(Table((text,), ())) == f"| {shown} |\n| {'-' * (len(shown))} |\n"


def test_latex_is_a_booktabs_table():
    assert as_latex(TABLE) == (
        "\\begin{table}[t]\n"
        "\\centering\n"
        "\\caption{pass@1 $\\pm$ 95 \\% $\\rightarrow$ better}\n"
        "\\begin{tabular}{lrrr}\n"
        "\\toprule\n"
        "method & pass@1 & gain & n \\\\\n"
        "\\midrule\n"
        "scrl \\textbar{} ttrl & 33.3 [25.0, 43.8] & $-$6.2 [$-$10.0, +2.0] & 64 \\\\\n"
        "50\\%\\_a \\& b\\#1 & 50.0, 40.0 to 60.0 & -- & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_latex_escapes_every_special_character_once():
    assert latex_escape(r"\ { } $ ~ ^ < >") == (
        r"\textbackslash{} \{ \} \$ \textasciitilde{} \textasciicircum{} \textless{} \textgreater{}"
    )
    assert latex_escape("τ ≥ 0.375, 32×16, a—b…") == r"$\tau$ $\geq$ 0.375, 32$\times$16, a---b\dots{}"
    assert latex_escape("a\n\tb") == "a b"
    text = as_latex(Table(("a",), (("[1em]",), ("*",))))
    assert "caption" not in text
    assert "\n{}[1em] \\\\\n{}* \\\\\n" in text  # not an argument of the line end before it


def test_csv_has_full_numbers_and_a_column_a_bound():
    read = list(csv.reader(io.StringIO(as_csv(TABLE))))
    assert read == [
        ["method", "pass@1", "pass@1_low", "pass@1_high", "pass@1_least", "pass@1_most", "gain", "gain_low", "gain_high", "n"],
        ["scrl | ttrl", repr(1 / 3), "0.25", "0.4375", "", "", "-0.0625", "-0.1", "0.02", "64"],
        ["50%_a & b#1", "0.5", "", "", "0.4", "0.6", "", "", "", ""],
    ]  # fmt: skip
    assert as_csv(Table(('say "a, b"',), (("x\ny",),))) == '"say ""a, b"""\n"x\ny"\n'


def test_the_table_of_results_says_all_that_belongs_to_a_number(make_run):
    lines = [evaluation_line(0, 0.25), evaluation_line(30, 0.5, **{"pass@4": 0.6, "maj@4": 0.55})]
    table = result_table(rows_of(make_run(evaluations=lines)))
    assert table.header == (
        "place", "model", "method", "benchmark", "evaluation", "step", "pass@1", "pass@4", "pass@16", "maj@4", "maj@16",
        "agreement", "answered", "truncated", "n", "samples", "temperature", "seeds",
    )  # fmt: skip
    assert [cell_text(cell) for cell in table.rows[0]][4:] == [
        "start", "0", "25.0 [17.0, 32.0]", "–", "45.0", "–", "35.0", "55.0", "98.0", "1.5", "12", "16", "0.6", "7",
    ]  # fmt: skip
