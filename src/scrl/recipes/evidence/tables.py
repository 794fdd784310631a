"""The published tables and the picture of the campaign, from its small stored files.

The primary outcome was fixed before the first run: MATH-500 pass@1 after training on AMC, contrast − scrl and
scrl − ttrl, mean over seeds, with a 95 % bootstrap over questions and a t-interval over seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scrl.data.jsonl import read_json_lines
from scrl.errors import InputError
from scrl.evaluation.statistics import bootstrap_interval
from scrl.evaluation.transitions import TRANSITIONS, count_transitions
from scrl.recipes.evidence.campaign import METHODS, SEEDS, START, all_runs, missing_runs
from scrl.reporting.tables import Cell, Table, as_markdown

T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t at 97.5 %, by degrees of freedom."""
WINDOW = 10
"""The number of steps that a figure is averaged over."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one run."""

    method: str
    seed: int
    about: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    evaluations: Mapping[tuple[str, str], Mapping[str, Any]]
    """(`before` or `after`, set of questions) → evaluation."""


def read_kept(folder: Path) -> list[Kept]:
    """The runs of a campaign that have results."""
    runs = []
    for run in (path.parent for path in sorted(folder.glob("*/about.json"))):
        method, _, seed = run.name.rpartition("-")
        records = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(run.glob("*.json"))}
        about, when = records.pop("about.json"), "before" if method == START else "after"
        evaluations = {(when, record["benchmark"]): record for record in records.values()}
        for line in _lines(run, "evaluations"):
            evaluations["before" if line["step"] == 0 else "after", line["benchmark"]] = line
        runs.append(Kept(method, int(seed), about, _lines(run, "metrics"), evaluations))
    if not runs:
        raise InputError(f"{folder}: there are no results here")
    return runs


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / f"{name}.jsonl"
    return [line.fields for line in read_json_lines(path)] if path.is_file() else []


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, in %, with an interval over questions and, from two seeds on, one over seeds."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @property
    def over_seeds(self) -> tuple[float, float] | None:
        """mean ± t s / √S."""
        if len(self.seeds) < 2:
            return None
        half = T_975[len(self.seeds) - 1] * stdev(self.seeds) / math.sqrt(len(self.seeds))
        return self.mean - half, self.mean + half


def estimate(by_seed: Sequence[Mapping[str, float]]) -> Estimate:
    """Values per question, of every seed, as fractions → their mean in %; questions are resampled, seeds kept."""
    questions = sorted(by_seed[0])
    values_Q = [100 * fmean(values[name] for values in by_seed) for name in questions]
    low, high = bootstrap_interval(values_Q, seed=0)
    return Estimate(fmean(values_Q), low, high, tuple(100 * fmean(values.values()) for values in by_seed))


def by_question(runs: Sequence[Kept], method: str, questions: str, metric: str) -> dict[int, Mapping[str, float]]:
    """Seed → question → value; the start is that of any run of the seed, since all start from the same model."""
    when = "before" if method == START else "after"
    return {
        run.seed: run.evaluations[when, questions][f"{metric}_by_question"]
        for run in runs
        if (when, questions) in run.evaluations and (when == "before" or run.method == method)
    }


def mean_of(runs: Sequence[Kept], method: str, questions: str, metric: str) -> Estimate | None:
    """A metric of the start model or after training, over all seeds there are."""
    found = by_question(runs, method, questions, metric)
    return estimate(list(found.values())) if found else None


def difference(runs: Sequence[Kept], one: str, other: str, questions: str, metric: str) -> Estimate | None:
    """one − other over the seeds that both have, question by question."""
    ones, others = (by_question(runs, method, questions, metric) for method in (one, other))
    shared = sorted(ones.keys() & others.keys())
    changes = [{name: ones[seed][name] - others[seed][name] for name in ones[seed]} for seed in shared]
    return estimate(changes) if changes else None


SETS = {
    "amc-1.5b": (("stream", "AMC, trained on without answers", "maj@16"), ("math500", "MATH-500, never seen", "maj@4")),
    "gsm8k-0.5b": (
        ("stream", "GSM8K 1–256, trained on without answers", "maj@16"),
        ("held-out", "GSM8K 257–512, never seen", "maj@16"),
    ),
}
"""Campaign → its sets of questions: name in the files, in words, and the vote that is shown."""
PRIMARY = ("contrast", "scrl"), ("scrl", "ttrl")


def evidence_markdown(results: Path, campaign: str) -> str:
    """All tables of one campaign."""
    runs = read_kept(results / campaign)
    tables = (_scores(runs, campaign), _differences(runs, campaign), _labels(runs), _questions(runs))
    return "\n".join(map(as_markdown, tables)).rstrip()


def _scores(runs: Sequence[Kept], campaign: str) -> Table:
    rows = []
    for method in (START, *METHODS):
        own = [run for run in runs if run.method == method and run.metrics]
        cells: list[Cell] = []
        for name, _, vote in SETS[campaign]:
            score, votes = (mean_of(runs, method, name, metric) for metric in ("pass@1", vote))
            cells += [
                f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else None,
                f"{votes.mean:.1f}" if votes else None,
            ]
        shares = [[line["stock_share"] for line in run.metrics[-WINDOW:] if "stock_share" in line] for run in own]
        stock = f"{100 * fmean(map(fmean, shares)):.0f}" if own else None
        minutes = f"{fmean(run.about['seconds']['train'] for run in own) / 60:.0f}" if own else None
        seeds = ", ".join(str(run.seed) for run in sorted(own, key=lambda run: run.seed)) or None
        rows.append((method, seeds, *cells, stock, minutes))
    scores = [name for _, words, vote in SETS[campaign] for name in (f"{words}: pass@1 [95 %]", vote)]
    return Table(("in %", "seeds", *scores, "stock answers, last 10 steps", "minutes per run"), tuple(rows))


def _differences(runs: Sequence[Kept], campaign: str) -> Table:
    rows = []
    for one, other in (*PRIMARY, ("contrast", START), ("scrl", START), ("ttrl", START)):
        for name, words, _ in SETS[campaign]:
            found = difference(runs, one, other, name, "pass@1")
            if found is not None:
                interval = f"{found.low:+.1f} to {found.high:+.1f}"
                over_seeds = "{:+.1f} to {:+.1f}".format(*found.over_seeds) if found.over_seeds else "one seed"
                each = ", ".join(f"{value:+.1f}" for value in found.seeds)
                rows.append((f"{one} − {other}", words, f"{found.mean:+.1f}", interval, over_seeds, each))
    first = ("difference in pass@1, points", "questions", "mean")
    return Table((*first, "95 % over questions", "95 % over seeds", "each seed"), tuple(rows))


def _labels(runs: Sequence[Kept]) -> Table:
    """What the rules did, the mean over steps, of which the last of an epoch may have fewer questions.

    A push is a covariance with the advantage, times 100.
    """
    columns = {
        "labelled questions, %": ("positive_share", None, 0),
        "labels right, %": ("positive_accuracy", "positive_share", 0),
        "answers ruled out that are wrong, %": ("negative_accuracy", "negative_answers", 0),
        "right answer ruled out, %": ("truth_flagged", None, 0),
        "push × 100 to the right answer": ("push_right", None, 1),
        "push × 100 to wrong stock answers": ("push_stock_wrong", None, 1),
    }
    rows = []
    for method in METHODS:
        steps = [line for run in runs if run.method == method for line in run.metrics]
        if steps:
            rows.append((method, *(step_mean(steps, *column) for column in columns.values())))
    return Table(("mean over steps", *columns), tuple(rows))


def step_mean(steps: Sequence[Mapping[str, Any]], name: str, weight: str | None = None, digits: int = 0) -> str:
    """100 Σ w x / Σ w over the steps that have x; without a weight w = 1."""
    pairs = [(line[weight] if weight else 1.0, line[name]) for line in steps if line.get(name) is not None]
    total = sum(w for w, _ in pairs)
    return f"{100 * sum(w * x for w, x in pairs) / total:.{digits}f}" if total else "–"


def _questions(runs: Sequence[Kept]) -> Table:
    """How many questions each run learned, kept, lost and never got right, seed by seed."""
    rows: list[tuple[Cell, ...]] = []
    for method in METHODS:
        counts = []
        for run in sorted((run for run in runs if run.method == method), key=lambda run: run.seed):
            before, after = (run.evaluations[when, "stream"]["maj@16_by_question"] for when in ("before", "after"))
            counts.append(count_transitions(before, after).values())
        if counts:
            rows.append((method, *(", ".join(map(str, column)) for column in zip(*counts, strict=True))))
    return Table(("trained questions, by their majority, each seed", *TRANSITIONS), tuple(rows))


def draw_picture(results: Path, campaign: str, out: Path) -> None:
    """Stock answers and right completions over the steps: a line per method, the mean of its seeds over 10 steps."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    runs = read_kept(results / campaign)
    titles = {"stock_share": "completions that give a stock answer, %", "pass@1": "completions that are right, %"}
    with rc_context({"svg.hashsalt": "scrl", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        for axes, (metric, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
            for method, colour in zip(METHODS, ("#d55e00", "#0072b2", "#009e73"), strict=True):
                curves = [_smooth(run.metrics, metric) for run in runs if run.method == method]
                if curves:
                    mean = [100 * fmean(values) for values in zip(*curves, strict=True)]
                    axes.plot(range(WINDOW, WINDOW + len(mean)), mean, color=colour, label=f"{method} ({len(curves)})")
            axes.set(title=title, xlabel="step (mean of the last 10)", ylim=(0, None))
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.2)
        axes.legend(frameon=False, title="method (seeds)")
        figure.savefig(out, format="svg", metadata={"Date": None})


def _smooth(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Means over WINDOW steps; steps without a value are left out of them."""
    windows = (metrics[end - WINDOW : end] for end in range(WINDOW, len(metrics) + 1))
    return [fmean([line[name] for line in window if name in line] or [math.nan]) for window in windows]


def progress(results: Path) -> str:
    """`3 of 21 runs`, and the commits they were made with."""
    there = [run for run in all_runs() if run not in missing_runs(results)]
    commits = {json.loads((results / run.name / "about.json").read_text(encoding="utf-8"))["commit"] for run in there}
    names = ", ".join(sorted((commit or "unknown")[:7] for commit in commits)) or "none"
    return f"{len(there)} of {len(all_runs())} runs of seeds {', '.join(map(str, SEEDS))}; commit {names}"
