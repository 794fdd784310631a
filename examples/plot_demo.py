"""The picture in the README: a demo's folder → one SVG.

python examples/plot_demo.py runs/001 docs/demo.svg
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

PANELS = {"stock_share": "completions that give a stock answer", "pass@1": "completions that are right"}
COLOURS = {"ttrl": "#d55e00", "scrl": "#0072b2", "contrast-label": "#009e73"}
EPOCH = 8
"""Steps until every question was visited; curves are averaged over as many."""


def curve(folder: Path, key: str) -> tuple[list[int], list[float]]:
    """Steps and the mean of a metric over the last epoch."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in (folder / "metrics.jsonl").open(encoding="utf-8")]
    values = np.asarray([line.get(key, np.nan) for line in lines])
    ends = range(EPOCH, len(values) + 1)
    return list(ends), [100 * float(np.nanmean(values[end - EPOCH : end])) for end in ends]


def draw(demo: Path) -> Figure:
    """All methods, side by side in each panel."""
    figure = Figure(figsize=(8, 2.8), layout="constrained")
    for axes, (key, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for method, colour in COLOURS.items():
            axes.plot(*curve(demo / method, key), color=colour, label=method)
        axes.set(title=title, xlabel="step", ylabel="%")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    mpl.rcParams["svg.hashsalt"] = "scrl"
    draw(Path(sys.argv[1])).savefig(sys.argv[2], metadata={"Date": None})
