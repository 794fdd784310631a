"""Line plots over steps, as SVG that stands in the page itself.

Nothing in a picture comes from outside: names of runs and benchmarks stand in the HTML beside it. Colours are CSS
variables (`--c0` …), so that the page decides how they look in light and in dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib import rc_context, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from scrl.metrics import STEP_METRICS
from scrl.reporting.run_folder import Protocol, Run

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito: told apart by colour-blind readers too."""
DASHES = ("solid", "dashed", "dotted")
_INK = "#010203"  # stands for the colour of the page's text
_WIDTH, _HEIGHT = 4.4, 2.3
_ROUND = (1, 2, 2.5, 5, 10)  # ticks stand at multiples of these
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "scrl",
    "text.parse_math": False,
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot."""

    name: str
    look: int
    """Its colour and dashes."""
    steps_T: tuple[int, ...]
    values_T: tuple[float, ...]
    band_T: tuple[tuple[float, float], ...] | None = None
    """An interval around each value."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture, with what the page writes around it."""

    title: str
    legend: tuple[tuple[int, str], ...]
    """(look, name) of each line; empty where the title says it all."""
    note: str
    svg: Markup


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of `metrics.jsonl` that belong together: one plot for one run, one plot a number for several."""

    title: str
    keys: tuple[str, ...]
    is_smoothed: bool = False
    top: float | None = None
    """Where the vertical axis ends; by default where the numbers do."""
    from_zero: bool = True


PANELS = (
    Panel("Accuracy of the labels", ("positive_accuracy", "majority_accuracy", "negative_accuracy"), True, 1.0),
    Panel("Right completions while training", ("pass@1",), True, from_zero=False),
    Panel("Coverage", ("positive_share", "signal_share", "unanimous_share"), False, 1.0),
    Panel("Entropy of a completion, in nats", ("entropy_mean",)),
    Panel("Tokens a completion", ("length_mean",), from_zero=False),
    Panel("Completions cut at the most tokens allowed", ("truncated_share",)),
    Panel("Seconds a step", ("seconds_rollout", "seconds_credit", "seconds_update")),
)


def draw_plots(runs: Sequence[Run]) -> list[Plot]:
    """All plots that have something to show."""
    drawn = [*_evaluation_plots(runs), *(plot for panel in PANELS for plot in _panel_plots(panel, runs))]
    return [draft.draw(place) for place, draft in enumerate(drawn) if draft.curves]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A plot before it is drawn."""

    title: str
    curves: tuple[Curve, ...]
    is_share: bool
    is_smoothed: bool = False
    top: float | None = None
    from_zero: bool = False

    @property
    def width(self) -> int:
        """How many steps a point of the line stands for."""
        return smoothing_width(max(len(curve.steps_T) for curve in self.curves)) if self.is_smoothed else 1

    @property
    def note(self) -> str:
        """How to read it."""
        band = "Band: 95 % interval over questions." if any(curve.band_T for curve in self.curves) else ""
        dots = f"Line: mean of {self.width} neighbouring steps; dots: single steps." if self.width > 1 else ""
        return f"{band} {dots}".strip()

    def draw(self, place: int) -> Plot:
        with style.context("default"), rc_context(_STYLE):
            svg = _draw(self, f"plot{place}")
        legend = tuple((curve.look, curve.name) for curve in self.curves if curve.name)
        return Plot(self.title, legend, self.note, svg)


def _evaluation_plots(runs: Sequence[Run]) -> Iterator[_Draft]:
    """pass@1 with its interval: for one run a line a benchmark, for several a plot a benchmark and a line a run."""
    names = series_names(runs)
    if len(runs) == 1:
        curves = [
            _evaluation_curve(runs[0], protocol, name, look) for look, (protocol, name) in enumerate(names.items())
        ]
        yield _Draft("pass@1", _present(curves), is_share=True)
        return
    for protocol, name in names.items():
        curves = [_evaluation_curve(run, protocol, run.name, look) for look, run in enumerate(runs)]
        yield _Draft(f"pass@1 on {name}", _present(curves), is_share=True)


def series_names(runs: Sequence[Run]) -> dict[Protocol, str]:
    """Benchmarks by name; where one was evaluated in several ways, with the way."""
    protocols = list(dict.fromkeys(protocol for run in runs for protocol in run.series))
    benchmarks = [protocol.benchmark for protocol in protocols]
    return {
        protocol: protocol.benchmark
        if benchmarks.count(protocol.benchmark) == 1
        else f"{protocol.benchmark} ({protocol.words})"
        for protocol in protocols
    }


def _evaluation_curve(run: Run, protocol: Protocol, name: str, look: int) -> Curve | None:
    lines = [line for line in run.series.get(protocol, []) if "pass@1" in line]
    if not lines:
        return None
    has_band = all("pass@1_low" in line and "pass@1_high" in line for line in lines)
    band_T = tuple((line["pass@1_low"], line["pass@1_high"]) for line in lines) if has_band else None
    return Curve(name, look, tuple(line["step"] for line in lines), tuple(line["pass@1"] for line in lines), band_T)


def _panel_plots(panel: Panel, runs: Sequence[Run]) -> Iterator[_Draft]:
    if len(runs) == 1:
        names = {key: STEP_METRICS[key].meaning if len(panel.keys) > 1 else "" for key in panel.keys}
        curves = [_metric_curve(runs[0], key, name, look) for look, (key, name) in enumerate(names.items())]
        yield _panel_draft(panel, panel.title, curves)
        return
    for key in panel.keys:
        curves = [_metric_curve(run, key, run.name, look) for look, run in enumerate(runs)]
        meaning = STEP_METRICS[key].meaning
        title = panel.title if len(panel.keys) == 1 else meaning[0].upper() + meaning[1:]
        yield _panel_draft(panel, title, curves)


def _panel_draft(panel: Panel, title: str, curves: Sequence[Curve | None]) -> _Draft:
    is_share = STEP_METRICS[panel.keys[0]].is_share
    return _Draft(title, _present(curves), is_share, panel.is_smoothed, panel.top, panel.from_zero)


def _metric_curve(run: Run, key: str, name: str, look: int) -> Curve | None:
    lines = sorted((line["step"], line[key]) for line in run.metrics if key in line)
    return Curve(name, look, *map(tuple, zip(*lines, strict=True))) if lines else None


def _present(curves: Sequence[Curve | None]) -> tuple[Curve, ...]:
    return tuple(curve for curve in curves if curve is not None)


def smoothing_width(num_steps: int) -> int:
    """About a tenth of the steps, an odd number, at most 15."""
    return min(2 * (num_steps // 20) + 1, 15)


def smooth(values_T: Sequence[float], width: int) -> list[float]:
    """The mean around each value; fewer neighbours count at the ends."""
    half = width // 2
    windows = (values_T[max(0, place - half) : place + half + 1] for place in range(len(values_T)))
    return [sum(window) / len(window) for window in windows]


def _draw(draft: _Draft, ident: str) -> Markup:
    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    for curve in draft.curves:
        _draw_curve(axes, curve, draft.width)
    _finish_axes(axes, draft)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    return _inline(file.getvalue(), ident)


def _draw_curve(axes: Axes, curve: Curve, width: int) -> None:
    colour = COLOURS[curve.look % len(COLOURS)]
    if curve.band_T is not None:
        lows_T, highs_T = zip(*curve.band_T, strict=True)
        axes.fill_between(curve.steps_T, lows_T, highs_T, color=colour, alpha=0.18, linewidth=0)
    if width > 1:
        axes.plot(curve.steps_T, curve.values_T, ".", color=colour, alpha=0.4, markersize=4, markeredgewidth=0)
    axes.plot(
        curve.steps_T,
        smooth(curve.values_T, width),
        color=colour,
        linestyle=DASHES[curve.look // len(COLOURS) % len(DASHES)],
        marker="o" if len(curve.steps_T) <= 12 else None,
        markersize=3.5,
    )


def _finish_axes(axes: Axes, draft: _Draft) -> None:
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=_ROUND, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=_ROUND))
    if draft.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if draft.top is not None:
        axes.set_ylim(-0.02 * draft.top, 1.02 * draft.top)
    elif draft.from_zero or axes.get_ylim()[0] < 0:
        axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _inline(svg: str, ident: str) -> Markup:
    """The drawing alone: no prolog, no metadata, no styles of its own, and names that no other plot has."""
    body = svg[svg.index(">", svg.index("<svg ")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{ident}-", body).replace("xlink:href", "href")
    for place, colour in enumerate(COLOURS):
        body = body.replace(colour, f"var(--c{place})")
    body = re.sub(r"\s*\n\s*", "\n", body.replace(_INK, "currentColor"))
    size = f"0 0 {_WIDTH * 72:g} {_HEIGHT * 72:g}"
    return Markup(f'<svg class="plot" viewBox="{size}" role="img">{body}')  # noqa: S704 - no foreign text in there
