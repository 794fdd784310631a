"""A figure of curves over training steps, side by side in panels, as an SVG file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from scrl.reporting.plots import COLOURS, DASHES, smooth, smoothing_width

Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Name → (step, value)."""


def write_curves(panels: Mapping[str, Curves], path: Path) -> None:
    """One panel each: the values as points, and their running mean as a line."""
    with rc_context({"svg.hashsalt": "scrl", "font.size": 9, "text.parse_math": False}):
        figure = Figure(figsize=(3.6 * len(panels), 2.8), layout="constrained")
        for place, (title, curves) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(1, len(panels), place)
            for look, (name, points) in enumerate(curves.items()):
                steps_T, values_T = [step for step, _ in points], [value for _, value in points]
                colour = COLOURS[look % len(COLOURS)]
                dashes = DASHES[look // len(COLOURS) % len(DASHES)]
                axes.plot(steps_T, values_T, ".", color=colour, alpha=0.25, markersize=3)
                line_T = smooth(values_T, smoothing_width(len(values_T)))
                axes.plot(steps_T, line_T, color=colour, linestyle=dashes, label=name)
            axes.set(title=title, xlabel="step")
            axes.spines[["top", "right"]].set_visible(False)
            axes.legend(frameon=False, fontsize=8)
        figure.savefig(path, format="svg", metadata={"Date": None})
