"""Plots: there when there is something to see, and the same every time."""

import re

import matplotlib
import pytest
from run_files import read_runs

from scrl.metrics import STEP_METRICS
from scrl.reporting.plots import PANELS, draw_plots, smooth, smoothing_width


def test_every_number_drawn_is_in_the_vocabulary():
    assert {key for panel in PANELS for key in panel.keys} <= STEP_METRICS.keys()


def test_smoothing_is_a_mean_over_neighbours():
    assert smooth([0.0, 3.0, 6.0, 0.0], 3) == [1.5, 3.0, 3.0, 3.0]
    assert smooth([1.0, 2.0], 1) == [1.0, 2.0]
    assert [smoothing_width(steps) for steps in (1, 19, 20, 100, 1000)] == [1, 1, 3, 11, 15]


def test_a_plot_without_data_is_left_out(make_run):
    run = read_runs([make_run(evaluations=[], metrics=[{"step": 0, "entropy_mean": 0.5}])])
    assert [plot.title for plot in draw_plots(run)] == ["Entropy of a completion, in nats"]


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


@pytest.mark.parametrize(
    ("pushes", "lowest", "highest"),
    [((0.02, 0.01), 0.0, 0.02), ((0.02, -0.05), -0.05, 0.02), ((-0.02, -0.05), -0.05, 0.0)],
)
def test_a_push_away_from_stock_answers_is_drawn(make_run, pushes, lowest, highest):
    lines = [{"step": step, "push_stock": push} for step, push in enumerate(pushes)]
    [plot] = draw_plots(read_runs([make_run(evaluations=[], metrics=lines)]))
    ticks = [float(text.replace("\N{MINUS SIGN}", "-")) for text in re.findall(r">(\W?\d+\.\d+)</text>", plot.svg)]
    assert (min(ticks), max(ticks)) == pytest.approx((lowest, highest), abs=0.011)


def test_drawings_have_no_foreign_text_and_ignore_the_users_style(make_run):
    runs = read_runs([make_run("somebody")])
    plain = [plot.svg for plot in draw_plots(runs)]
    assert not any(word in svg for svg in plain for word in ("somebody", "toy", "<style", "<metadata", "http", "<!--"))
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "svg.fonttype": "path"}):
        assert [plot.svg for plot in draw_plots(runs)] == plain


@pytest.mark.parametrize("count", [1, 2, 9])
def test_more_runs_than_colours_differ_in_their_dashes(make_run, count):
    plots = draw_plots(read_runs([make_run(f"run{number}") for number in range(count)]))
    assert ("stroke-dasharray" in plots[0].svg) == (count > 6)
