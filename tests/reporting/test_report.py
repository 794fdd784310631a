"""The page: safe, self-contained, and true to the files."""

import re
from pathlib import Path

import matplotlib
import pytest
from line_files import read_lines, write_lines
from pages import HOSTILE, Page, assert_safe, data_of, group_of, hostile_run, page_of
from processes import scrl
from run_files import CONFIG, evaluation_line, group_lines, metric_lines, read_runs, rollout_line, rollout_lines

from scrl.data.completion_files import open_completions
from scrl.errors import InputError
from scrl.metrics import STEP_METRICS
from scrl.reporting.plots import PANELS, draw_plots, smooth, smoothing_width
from scrl.reporting.report import write_report


@pytest.fixture(autouse=True)
def _few_plots(request, monkeypatch):
    """Drawing them is most of the time; tests that look at them ask for `plots`."""
    if "plots" not in request.fixturenames:
        monkeypatch.setattr("scrl.reporting.report.draw_plots", lambda runs: [])


@pytest.fixture
def plots():
    """The page with its plots."""


def test_the_page_is_whole_and_needs_nothing_else(make_run, plots):
    html = page_of(make_run())
    assert html.lstrip().startswith("<!doctype html>")
    page = assert_safe(html)
    assert page.tags.count("figure") == 7
    titles = [value for tag, name, value in page.attributes if (tag, name) == ("section", "id")]
    assert titles == ["story", "lies", "explorer", "steps", "settings"]  # the story first, settings last
    assert "scrl report scrl" in page.text


def test_hostile_text_appears_only_escaped(make_run):
    folder = hostile_run(make_run)
    html = page_of(folder)
    page = assert_safe(html)
    for poison in HOSTILE:
        assert poison in " ".join(page.words)
    body = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL).replace('<script type="application/json"', "")
    for raw in ("<script", "<img", "<h1>mine", "</pre></details></table>", "'alert"):
        assert raw not in body
    assert page.tags.count("h1") == 1
    (question,) = data_of(html)["sources"][0]["groups"]
    assert question["excerpts"][0]["text"] == "".join(HOSTILE)  # no template ran, nothing was swallowed
    assert_safe(page_of(folder, make_run("other")))


def test_numbers_are_those_of_the_files(make_run):
    folder = make_run()
    page = Page(page_of(folder))
    shown = {value for tag, name, value in page.attributes if (tag, name) == ("data", "value")}
    for line in read_lines(folder / "evaluations.jsonl")[::2]:
        for key in ("pass@1", "pass@16", "maj@16", "agreement", "answered", "truncated", "entropy_mean"):
            assert str(line[key]) in shown, key
    text = page.text.replace("\N{NARROW NO-BREAK SPACE}", " ")
    for words in ("+17.5 points", "went from 43.8 % to 61.3 %", "0.432",
                  "step 0 step 30 change pass@1 43.8 % 35.8 to 50.8 % 61.3 % 53.3 to 68.3 % +17.5 pp"):  # fmt: skip
        assert words.replace(" ", "") in text.replace(" ", ""), words
    assert "30 of 30 steps, 6 questions, 24 groups, 192 completions" in text
    for setting in ("method scrl", "model tiny/model", "seed 7", "learning_rate 5e-07", "sampling.completions 8"):
        assert setting.replace(" ", "") in text.replace(" ", "")


def test_votes_are_counted_by_hand(make_run):
    rollouts = [
        *group_lines("q1", 0, ["4", "4", "4", "7"], positive="4", negatives={"7"}),
        *group_lines("q1", 5, ["4", "4", "7", "7"]),  # a tie: half right
        *group_lines("q2", 0, ["8", "8", None, "4"], positive="8", negatives={"4"}),  # wrong, and the truth ruled out
    ]
    html = page_of(make_run(rollouts=rollouts))
    question = data_of(html)["sources"][0]["groups"][0]
    assert (question["named"], question["right"], question["visits"]) == (["4", "7"], [True, False], 2)
    assert question["bars"] == [[0, 3, 1, 0, 0], [5, 2, 2, 0, 0]]  # step, votes of 4 and of 7, others, missing
    group = group_of(html, 1)
    assert (group["keys"], group["counts"], group["labels"]) == (["4", "8"], [1, 2], [-1, 1])
    assert (group["missing"], group["right"]) == (1, 0)
    # every completion has the entropy 0.27; with two questions, p̄ counts as 0
    assert (group["entropies"], group["entropy"], group["missing_entropy"]) == ([0.27, 0.27], 0.27, 0.27)
    assert (group["elsewhere"], group["stock"]) == (None, None)


def test_two_runs_are_compared_side_by_side(make_run, plots):
    folders = [make_run("first/scrl"), make_run("second/scrl", config=CONFIG | {"method": "ttrl"})]
    page = assert_safe(page_of(*folders))
    assert page.tags.count("figure") == 1 + 3 + 3 + 1 + 1 + 1 + 3
    assert "pass@1 on toy" in page.text
    assert "scrl report first/scrl second/scrl" in page.text  # as much of the path as tells them apart
    assert "methodscrlttrl" in page.text  # a setting that differs has a value a run


def test_questions_are_matched_by_id_and_text(make_run):
    other = [rollout_line("q1", question="Another question with the same id?"), rollout_line("q2")]
    html = page_of(make_run("a", rollouts=[rollout_line("q1"), rollout_line("q2")]), make_run("b", rollouts=other))
    shown = [[found is not None for found in source["groups"]] for source in data_of(html)["sources"]]
    assert shown == [[True, True, False], [False, True, True]]


def test_without_gold_the_page_says_so(make_run):
    folder = make_run(gold=False, metrics=metric_lines(gold=False))
    page = assert_safe(page_of(folder))
    assert "No gold answers" in page.text
    for words in ("pass@1", "label is right", "right answer"):
        assert words not in page.text.partition("Explorer")[0], words


def test_a_run_that_has_just_begun(make_run, plots):
    page = assert_safe(page_of(make_run("new", metrics=[], evaluations=[], rollouts=[])))
    assert "0 of 30 steps" in page.text
    assert assert_safe(page_of(make_run("unmeasured", evaluations=[]))).tags.count("figure") == 6
    once = Page(page_of(make_run("once", evaluations=[evaluation_line(0, 0.25)])))
    assert "pass@1 on toy at step 0" in once.text


def test_a_cut_last_line_is_left_out_and_told(make_run):
    folder = make_run()
    for name in ("metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl"):
        path = folder / name
        path.write_bytes(path.read_bytes() + '{"step": 31, "completion": "é'.encode()[:-1])
    page = Page(page_of(folder))
    for place in ("metrics.jsonl: line 31", "evaluations.jsonl: line 4", "rollouts.jsonl: line 193"):
        assert place in page.text
    assert "192 completions" in page.text


def test_the_same_files_give_the_same_bytes(make_run, tmp_path, plots):
    folders = [make_run("scrl"), make_run("ttrl")]
    pages = [write_report(folders, tmp_path / name).read_bytes() for name in ("one.html", "two.html")]
    assert pages[0] == pages[1]
    assert str(tmp_path).encode() not in pages[0]


def test_the_page_appears_whole_or_not_at_all(make_run, tmp_path):
    folder = make_run()
    with pytest.raises(InputError, match="cannot be written"):
        write_report([folder], tmp_path / "nowhere" / "report.html")
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_report([folder], tmp_path / "taken")
    with pytest.raises(InputError, match="cannot be written"):
        write_report([folder], Path())
    assert not list(tmp_path.glob(".*"))
    out = tmp_path / "report.html"
    assert write_report([folder], out) == out
    before = out.read_bytes()
    (folder / "config.yaml").unlink()
    with pytest.raises(InputError):
        write_report([folder], out)
    assert out.read_bytes() == before


def test_all_questions_are_there_and_many_visits_are_thinned_out(make_run):
    html = page_of(make_run(rollouts=rollout_lines(questions=50, steps=range(60))))
    groups = data_of(html)["sources"][0]["groups"]
    assert len(groups) == 50
    assert {(found["visits"], len(found["bars"])) for found in groups} == {(60, 48)}
    assert (groups[0]["bars"][0][0], groups[0]["bars"][-1][0]) == (0, 59)


def test_a_change_has_its_interval_where_both_ends_have_values_by_question(make_run):
    first = {"pass@1_by_question": {"a": 0.0, "b": 0.5}}
    last = {"pass@1_by_question": {"a": 0.5, "b": 1.0}}  # + 0.5 on each: an interval of width 0
    lines = [evaluation_line(0, 0.25, **first), evaluation_line(30, 0.75, **last)]
    assert "+50.0 points +50.0 to +50.0: 95 % interval" in Page(page_of(make_run("a", evaluations=lines))).text
    lines[1]["pass@1_by_question"] = {"a": 0.5, "c": 1.0}
    assert "+50.0 points pass@1 on toy" in Page(page_of(make_run("b", evaluations=lines))).text


def test_the_page_lists_the_answers_to_the_questions_trained_on(make_run):
    before = {"q1": {"question": "2 + 2?", "votes": [["5", 0.5], ["4", 0.25]]}}
    after = {"q1": {"question": "2 + 2?", "votes": [["<b>4</b>", 0.75]]}}
    lines = [evaluation_line(step, benchmark="stream", answers=found) for step, found in ((0, before), (8, after))]
    folder = make_run(evaluations=lines)
    page = Page(page_of(folder))
    assert "2 + 2?<b>4</b> changed75%–5 50%" in page.text


def test_a_file_of_completions_has_a_page_with_the_audits_verdict(tmp_path):
    rows = [{"question_id": f"q{n}", "question": f"Is it {n}?", "completion": f"\\boxed{{{a}}}", "gold": "4", "logprobs": [-0.5]}
            for n in range(3) for a in (4, 4, 4, 5)]  # fmt: skip
    path = write_lines(tmp_path / "votes.jsonl", rows)
    html = write_report([open_completions(path)], tmp_path / "page.html").read_text(encoding="utf-8")
    page = assert_safe(html)
    assert "100.0 % of the most frequent" in page.text
    assert "3 questions, 3 groups, 12 completions" in page.text
    data = data_of(html)
    assert data["questions"][2] == {"id": "q2", "text": "Is it 2?", "gold": "4"}
    excerpts = [(found["answer"], found["text"]) for found in data["sources"][0]["groups"][2]["excerpts"]]
    assert excerpts == [("4", "\\boxed{4}"), ("5", "\\boxed{5}")]
    group = group_of(html, 0)
    assert (group["counts"], group["right"], group["entropies"], group["entropy"]) == ([3, 1], 0, [0.5, 0.5], 0.5)


def test_the_command_takes_files_and_refuses_to_overwrite_them(tmp_path, make_run):
    path = tmp_path / "votes.csv"
    path.write_text("question,output\nOne?,4\nOne?,5\n")
    done = scrl("report", path, "--reader", "last-number")
    assert (done.returncode, done.stdout) == (0, f"wrote {tmp_path / 'votes.html'}\n")
    assert "one completion per row" in done.stderr
    before = path.read_bytes()
    for words, reason in (
        ((path, "--out", path), "votes.csv"),
        ((tmp_path / "nowhere",), "nowhere"),
        ((path, make_run()), "--out"),
        ((path, "--question-column", "promt"), "'promt'"),
    ):
        refused = scrl("report", *words)
        assert (refused.returncode, path.read_bytes()) == (2, before)
        assert reason in refused.stderr


# Plots


def test_every_number_drawn_is_in_the_vocabulary():
    assert {key for panel in PANELS for key in panel.keys} <= STEP_METRICS.keys()


def test_smoothing_is_a_mean_over_neighbours():
    assert smooth([0.0, 3.0, 6.0, 0.0], 3) == [1.5, 3.0, 3.0, 3.0]
    assert smooth([1.0, 2.0], 1) == [1.0, 2.0]
    assert [smoothing_width(steps) for steps in (1, 19, 20, 100, 1000)] == [1, 1, 3, 11, 15]


def test_a_run_has_a_colour_and_its_numbers_differ_in_their_dashes(make_run):
    folders = [make_run("a"), make_run("b")]
    alone = {plot.title: plot for plot in draw_plots(read_runs(folders[:1]))}
    styles = [(curve.look, curve.style) for curve in alone["Coverage"].legend]
    assert styles == [(0, "solid"), (0, "dashed"), (0, "dotted")]
    assert [(curve.look, curve.name) for curve in alone["pass@1"].legend] == [(0, "toy")]
    assert not any("var(--c1)" in plot.svg for plot in alone.values())
    both = {plot.title: plot for plot in draw_plots(read_runs(folders))}
    shown = both["Questions with a positive label"].legend
    assert [(curve.look, curve.name, curve.style) for curve in shown] == [(0, "a", "solid"), (1, "b", "solid")]
    assert "var(--c1)" in both["pass@1 on toy"].svg
    assert "Band" in both["pass@1 on toy"].note


def test_drawings_have_no_foreign_text_and_ignore_the_users_style(make_run):
    runs = read_runs([make_run("somebody")])
    plain = [plot.svg for plot in draw_plots(runs)]
    assert not any(word in svg for svg in plain for word in ("somebody", "toy", "<style", "<metadata", "http", "<!--"))
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.fonttype": "path"}):
        assert [plot.svg for plot in draw_plots(runs)] == plain
