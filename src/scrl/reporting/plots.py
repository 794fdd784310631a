"""Line plots over steps, as SVG inside the page.

Nothing in a picture is foreign text: names of runs and benchmarks are in the HTML beside it. Colours are CSS variables
(`--c0` …), so that the page decides how they look in light and in dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib import rc_context, style
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from scrl.metrics import STEP_METRICS
from scrl.reporting.evaluations import EvaluationProtocol, in_words
from scrl.reporting.sources import Source

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito: colour-blind readers can tell them apart too."""
DASHES = ("solid", "dashed", "dotted")
_INK = "#010203"  # stands for the colour of the page's text
_WIDTH, _HEIGHT = 4.4, 2.3
_ROUND = (1, 2, 2.5, 5, 10)  # ticks are at multiples of these
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color")
_STYLE: dict[Any, Any] = dict.fromkeys(_INKED, _INK) | {
    "svg.fonttype": "none",
    "svg.hashsalt": "scrl",
    "text.parse_math": False,
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot, with an interval around each value where it has a band."""

    name: str
    look: int
    """The number of its run, which decides the colour; more runs than colours differ in their dashes."""
    steps: tuple[int, ...]
    values: tuple[float, ...]
    band: tuple[tuple[float, float], ...] | None = None
    dashes: int = 0
    """Its index among several numbers of one run."""

    @property
    def style(self) -> str:
        return DASHES[(self.look // len(COLOURS) + self.dashes) % len(DASHES)]


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    legend: tuple[Curve, ...]
    """The lines that need a name; none where the title says it all."""
    note: str
    svg: Markup
    panel: Panel


@dataclass(frozen=True, slots=True)
class Panel:
    """Numbers of `metrics.jsonl` that belong together: one plot for one run, one plot per number for several."""

    title: str
    keys: tuple[str, ...]
    is_smoothed: bool = False
    top: float | None = None
    """The top of the vertical axis; by default that of the numbers."""
    from_zero: bool = True

    @property
    def is_share(self) -> bool:
        return self.keys[0].endswith(("_share", "_accuracy", "pass@1"))


PANELS = (
    Panel("Accuracy of the labels", ("positive_accuracy", "majority_accuracy", "negative_accuracy"), True, 1.0),
    Panel("Right completions while training", ("pass@1",), True, from_zero=False),
    Panel("Coverage", ("positive_share", "signal_share", "unanimous_share"), False, 1.0),
    Panel("Answers ruled out per question", ("negative_answers",)),
    Panel("Stock answers: completions and labels", ("stock_share", "stock_label_share"), True, 1.0),
    Panel("Where the rule pushes: cov(advantage, event)", ("push_right", "push_stock", "push_stock_wrong"), True),
    Panel("Entropy of a completion, in nats", ("entropy_mean",)),
    Panel("Tokens per completion", ("length_mean",), from_zero=False),
    Panel("Completions cut at the most tokens allowed", ("truncated_share",)),
    Panel("Seconds per step", ("seconds_rollout", "seconds_credit", "seconds_update")),
)
EVALUATION = Panel("pass@1", ("pass@1",), from_zero=False)


class _Number(NamedTuple):
    key: str
    name: str
    title: str
    """The title of its own plot, if there are several runs."""
    protocol: EvaluationProtocol | None = None


def draw_plots(runs: Sequence[Source]) -> list[Plot]:
    """All plots with a line to show: for one run a line per number, for several a plot per number."""
    protocols = list(dict.fromkeys(protocol for run in runs for protocol in run.series))
    benchmarks = [protocol.benchmark for protocol in protocols]
    panels: list[tuple[Panel, list[_Number]]] = [(EVALUATION, [])]
    for protocol in protocols:
        words = in_words(protocol.benchmark)
        name = words if benchmarks.count(protocol.benchmark) == 1 else f"{words} ({protocol.words})"
        panels[0][1].append(_Number("pass@1", name, f"pass@1 on {name}", protocol))
    for panel in PANELS:
        meanings = [(key, STEP_METRICS[key]) for key in panel.keys]
        numbers = [_Number(key, words, words[0].upper() + words[1:]) for key, words in meanings]
        panels.append((panel, numbers if len(numbers) > 1 else [_Number(panel.keys[0], "", panel.title)]))
    plots: list[Plot] = []
    for panel, numbers in panels:
        if len(runs) == 1:
            drafts = [(panel.title, [_curve(runs[0], each, each.name, 0, place) for place, each in enumerate(numbers)])]
        else:
            drafts = [
                (each.title, [_curve(run, each, run.name, look) for look, run in enumerate(runs)]) for each in numbers
            ]
        for title, curves in drafts:
            present = [curve for curve in curves if curve is not None]
            if any(len(curve.steps) > 1 for curve in present):
                plots.append(_draw(panel, title, present, f"plot{len(plots)}"))
    return plots


def _curve(run: Source, number: _Number, name: str, look: int, dashes: int = 0) -> Curve | None:
    """The curve, with a band if the file has an interval for every value."""
    lines = run.metrics if number.protocol is None else run.series.get(number.protocol, [])
    lines = sorted((line for line in lines if number.key in line), key=lambda line: int(line["step"]))
    is_of_labels = number.key in ("positive_share", "negative_answers")
    if not lines or (is_of_labels and not any(line[number.key] for line in lines)):
        return None  # its method may have no labels
    steps, values = (tuple(line[key] for line in lines) for key in ("step", number.key))
    low, high = f"{number.key}_low", f"{number.key}_high"
    has_band = all(low in line and high in line for line in lines)
    band = tuple((line[low], line[high]) for line in lines) if has_band else None
    return Curve(name, look, steps, values, band, dashes)


def smoothing_width(num_steps: int) -> int:
    """About a tenth of the steps, an odd number, at most 15."""
    return min(2 * (num_steps // 20) + 1, 15)


def smooth(values: Sequence[float], width: int) -> list[float]:
    """The mean around each value; fewer neighbours count at the ends."""
    half = width // 2
    windows = (values[max(0, place - half) : place + half + 1] for place in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _draw(panel: Panel, title: str, curves: Sequence[Curve], ident: str) -> Plot:
    width = smoothing_width(max(len(curve.steps) for curve in curves)) if panel.is_smoothed else 1
    with style.context("default"), rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        for curve in curves:
            colour = COLOURS[curve.look % len(COLOURS)]
            if curve.band is not None:
                lows, highs = zip(*curve.band, strict=True)
                axes.fill_between(curve.steps, lows, highs, color=colour, alpha=0.18, linewidth=0)
            if width > 1:
                axes.plot(curve.steps, curve.values, ".", color=colour, alpha=0.4, markersize=4, markeredgewidth=0)
            line, marker = smooth(curve.values, width), "o" if len(curve.steps) <= 12 else None
            axes.plot(curve.steps, line, color=colour, linestyle=curve.style, marker=marker, markersize=3.5)
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=_ROUND, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=_ROUND))
        if panel.is_share:
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        if panel.top is not None:
            axes.set_ylim(-0.02 * panel.top, 1.02 * panel.top)
        elif min(value for curve in curves for value in curve.values) < 0:
            axes.axhline(0, color=_INK, linewidth=0.6)
        elif panel.from_zero or axes.get_ylim()[0] < 0:
            axes.set_ylim(0, 1.05 * axes.get_ylim()[1])
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    band = "Band: 95 % interval over questions." if any(curve.band for curve in curves) else ""
    dots = f"Line: mean of {width} neighbouring steps; dots: single steps." if width > 1 else ""
    legend = tuple(curve for curve in curves if curve.name)
    return Plot(title, legend, f"{band} {dots}".strip(), _inline(file.getvalue(), ident), panel)


def _inline(svg: str, ident: str) -> Markup:
    """The drawing alone: no prolog, no metadata, no styles, and ids that no other plot has."""
    body = svg[svg.index(">", svg.index("<svg ")) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{ident}-", body).replace("xlink:href", "href")
    for place, colour in enumerate(COLOURS):
        body = body.replace(colour, f"var(--c{place})")
    body = re.sub(r"\s*\n\s*", "\n", body.replace(_INK, "currentColor"))
    size = f"0 0 {_WIDTH * 72:g} {_HEIGHT * 72:g}"
    return Markup(f'<svg class="plot" viewBox="{size}" role="img" aria-label="a line plot over the steps">{body}')  # noqa: S704 - no foreign text in there
