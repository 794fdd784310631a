"""The tables of docs/results.md, confirmation.md and both README.md, and docs/evidence.svg, made of the files here.

    python results/tables.py

A study is a folder of runs, STUDY/ARM-SEED; README.md says which files a run has. STUDIES says what each study compares
and on which questions; its seeds are those it has files of.

Fixed before the first run of the first study: what counts is MATH-500 pass@1 after training on AMC, contrast − scrl and
scrl − ttrl, mean over seeds, with a 95 % bootstrap over questions and a t-interval over seeds.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import signs
import yaml
from confirm import FOLDS, GSM8K, LARGE, LAST, MATH, RIVALS, SMALL, SMALL_ON_MATH
from keep import READERS
from mpmath import betainc, findroot

from scrl.credit.labels import SLACK
from scrl.evaluation.statistics import (
    bootstrap_interval,
    majority_at_k,
    mean_over_seeds,
    pass_at_k,
)
from scrl.files.jsonl import read_json_lines
from scrl.reporting.tables import Cell, Table, as_markdown

RESULTS = Path(__file__).parent
DOCS = RESULTS.parent / "docs"
PAGES = (DOCS / "results.md", RESULTS / "README.md", RESULTS / "confirmation.md", RESULTS.parent / "README.md")
TRAINED_ON, NEVER_SEEN = "trained on", "never seen"
START = "start"
"""The arm that is not trained; its evaluations, and those of a run before its first step, are the start's."""
WINDOW = 10
"""The number of steps that a figure is averaged over."""
BOOTSTRAPS = 10_000
EXPLORED, COLD, ROUNDS, RATE, VOTES = "explore-0.5b", "temperature-0.5b", "rounds", 3e-6, 8
"""Runs that were made to choose what to confirm; the learning rate of most of them, and the completions measured."""
UNSEEN = "gsm8k-513-768"
CHECKS = {
    "check": "[complete]",
    "sound": "[sound]",
    "label": "labels of complete votes",
    "both": "labels of complete votes, elsewhere [complete]",
    "half": "labels of complete votes, elsewhere [complete] / 2, advantage centred, rate 6e-06",
    "bothsound": "labels of sound votes, elsewhere [sound]",
    "chained": "contrast-label, min_contrast 0.5, votes start, seven chains per label",
}
"""What was rewarded, by arm; a reward of one's own is not in the settings, and chains are no longer."""
CHECKED = ("all", "sound", "complete", "voting")
SHARES = (0.3, 0.35, 0.4)
SOUND = "sound-0.5b"
DRAWS = "start-20"
"""One draw of the start model whose blocks of 32 completions stand for the seeds, in their order."""
DRAWN = f"{DRAWS}/votes-*.jsonl"
EXPLORING, MEASURED, THIRD = "credible-0.5b", "gsm8k-1-512", ("ttrl", "corrected", "faster", "longer")
"""The study that the third attempt is chosen from, the questions it measures, and the arms."""
METRICS = ("maj@16", "pass@1")
SOUND_VOTE = "vote of 16, sound alone"
FRONT = (
    ("1.5B, MATH-500, ours", "larger", ("ours",)),
    ("0.5B, GSM8K, ours", "second-attempt", ("rounds",)),
    ("0.5B, MATH-500, ours", "fourth-attempt", ("rounds",)),
    ("0.5B, GSM8K, TTRL", "rivals", ("ttrl-printed", "ttrl-sixteen")),
    ("0.5B, GSM8K, SCRL", "rivals", ("scrl-printed", "scrl-sixteen")),
)
"""The rows of the front page: in words, the table of confirmation.md, and the arms of which the best is shown."""
Row = tuple[Cell, ...]
NUM_TRAINED_ON = {GSM8K[0]: 256, FOLDS["a"]: 1024, FOLDS["b"]: 1063, MATH[0]: 250, MATH[1]: 250}


class Questions(NamedTuple):
    """A set of questions: its name in the files, in words, and the vote that is shown."""

    name: str
    words: str
    vote: str


@dataclass(frozen=True, slots=True)
class Study:
    """What is compared, and on which questions."""

    folder: str
    sets: tuple[Questions, ...]
    arms: tuple[str, ...] = ("ttrl", "scrl", "contrast")
    pairs: tuple[tuple[str, str], ...] = (("contrast", "scrl"), ("scrl", "ttrl"))
    """Besides these, each arm is compared with the start, the last one first."""


STUDIES = (
    Study(
        "amc-1.5b",
        (
            Questions("stream", "AMC, trained on", "maj@16"),
            Questions("math500", "MATH-500, never seen", "maj@4"),
        ),
    ),
    Study(
        "gsm8k-0.5b",
        (
            Questions("stream", "GSM8K 1–256, trained on", "maj@16"),
            Questions("held-out", "GSM8K 257–512, never seen", "maj@16"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one run."""

    arm: str
    seed: int
    about: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    evaluations: Mapping[tuple[str, str], Mapping[str, Any]]
    """(`before` or `after`, set of questions) → evaluation."""


def read_kept(folder: Path) -> list[Kept]:
    """All runs of a study, in the order of their seeds."""
    runs = []
    for run in (path.parent for path in folder.glob("*/about.json")):
        arm, _, seed = run.name.rpartition("-")
        records = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in run.glob("*.json")}
        about, when = records.pop("about.json"), "before" if arm == START else "after"
        evaluations = {(when, record["benchmark"]): record for record in records.values()}
        for line in _lines(run / "evaluations.jsonl"):
            evaluations["before" if line["step"] == 0 else "after", line["benchmark"]] = line
        runs.append(Kept(arm, int(seed), about, _lines(run / "metrics.jsonl"), evaluations))
    return sorted(runs, key=lambda run: (run.seed, run.arm))


def _lines(path: Path) -> list[dict[str, Any]]:
    return [line.fields for line in read_json_lines(path)] if path.is_file() else []


# Means over seeds


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over seeds, in %, with its interval over questions; and the mean of each seed."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]

    @property
    def over_seeds(self) -> tuple[float, float] | None:
        """mean ± t s / √S, from two seeds on."""
        size = len(self.seeds)
        if size < 2:
            return None
        half = t_quantile(size - 1) * stdev(self.seeds) / math.sqrt(size)
        return self.mean - half, self.mean + half


def t_quantile(freedom: int) -> float:
    """Student's t at 97.5 %: both tails together hold 5 %."""

    def beyond(t: float) -> Any:
        return betainc(freedom / 2, 0.5, 0, freedom / (freedom + t * t), regularized=True) - 0.05

    return float(findroot(beyond, (1.9, 13), solver="anderson"))


def estimate(by_seed: Sequence[Mapping[str, float]]) -> Estimate:
    """Values per question, of every seed, as fractions → their mean in %; questions are resampled, seeds kept."""
    found = mean_over_seeds(by_seed, seed=0)
    seeds = tuple(100 * fmean(values.values()) for values in by_seed)
    return Estimate(fmean(seeds), 100 * found.low, 100 * found.high, seeds)


def crossed_interval(by_seed: Sequence[Mapping[str, float]], attempts: int = 1) -> tuple[float, float]:
    """The interval of the mean where other seeds and other questions might have been drawn, in %.

        quantiles α/2, 1 − α/2 of { mean over i, j of value[s_i][q_j] },   s_i and q_j uniform over seeds and questions

    with α = 5 % / attempts: the second attempt at a claim needs more than the first. Every seed has the same questions.
    """
    values_SQ = np.array([[values[name] for name in sorted(by_seed[0])] for values in by_seed])
    times_DS, times_DQ = _draws(*values_SQ.shape)
    means_D = ((times_DS @ values_SQ) * times_DQ).sum(axis=1) / values_SQ.size
    tail = 0.05 / attempts / 2
    low, high = np.quantile(means_D, [tail, 1 - tail])
    return 100 * float(low), 100 * float(high)


@cache
def _draws(seeds: int, questions: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Of each of D = BOOTSTRAPS draws, how often every seed and every question is in it."""
    rng = np.random.default_rng(0)
    sizes = (seeds, questions)
    draws = [[np.bincount(rng.integers(n, size=n), minlength=n) for n in sizes] for _ in range(BOOTSTRAPS)]
    times_DS, times_DQ = (np.array(each, dtype=np.uint8) for each in zip(*draws, strict=True))
    return times_DS, times_DQ


def by_question(runs: Sequence[Kept], arm: str, questions: str, metric: str) -> dict[int, Mapping[str, float]]:
    """Seed → question → value; the start is that of any run of the seed, since all start from the same model."""
    when = "before" if arm == START else "after"
    return {
        run.seed: run.evaluations[when, questions][f"{metric}_by_question"]
        for run in runs
        if (when, questions) in run.evaluations and arm in (START, run.arm)
    }


def mean_of(runs: Sequence[Kept], arm: str, questions: str, metric: str) -> Estimate | None:
    """A metric of the start model or after training, over all seeds there are."""
    found = by_question(runs, arm, questions, metric)
    return estimate(list(found.values())) if found else None


def difference(runs: Sequence[Kept], one: str, other: str, questions: str, metric: str) -> Estimate | None:
    """one − other over the seeds that both have, question by question."""
    found = changes(runs, one, other, questions, metric)
    return estimate(found) if found else None


def changes(runs: Sequence[Kept], one: str, other: str, questions: str, metric: str) -> list[dict[str, float]]:
    """one − other of each question, seed by seed."""
    ones, others = (by_question(runs, arm, questions, metric) for arm in (one, other))
    shared = sorted(ones.keys() & others.keys())
    return [{name: ones[seed][name] - others[seed][name] for name in ones[seed]} for seed in shared]


# The tables


def study_markdown(study: Study) -> str:
    """All tables of a study that have something to show."""
    runs = read_kept(RESULTS / study.folder)
    tables = (_scores(runs, study), _differences(runs, study), _labels(runs, study))
    return "\n".join(as_markdown(table) for table in tables if table.rows).rstrip()


def _scores(runs: Sequence[Kept], study: Study) -> Table:
    rows = []
    for arm in (START, *study.arms):
        own = [run for run in runs if run.arm == arm and run.metrics]
        cells: list[Cell] = []
        for name, _, vote in study.sets:
            score, votes = (mean_of(runs, arm, name, metric) for metric in ("pass@1", vote))
            cells += [
                f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else None,
                f"{votes.mean:.1f}" if votes else None,
            ]
        stock = f"{fmean(map(stock_at_end, own)):.0f}" if own else None
        minutes = f"{fmean(run.about['seconds']['train'] for run in own) / 60:.0f}" if own else None
        rows.append((arm, ", ".join(str(run.seed) for run in own) or None, *cells, stock, minutes))
    scores = [name for _, words, vote in study.sets for name in (f"{words}: pass@1 [95 %]", vote)]
    return Table(("in %", "seeds", *scores, "stock answers, last 10 steps", "minutes per run"), tuple(rows))


def stock_at_end(run: Kept) -> float:
    """Completions that give a stock answer, in %, in the last steps."""
    return 100 * fmean(line["stock_share"] for line in run.metrics[-WINDOW:] if "stock_share" in line)


def _differences(runs: Sequence[Kept], study: Study) -> Table:
    rows = []
    for one, other in (*study.pairs, *((arm, START) for arm in reversed(study.arms))):
        for name, words, _ in study.sets:
            found = difference(runs, one, other, name, "pass@1")
            if found is not None:
                interval = f"[{found.low:+.1f}, {found.high:+.1f}]"
                over_seeds = "[{:+.1f}, {:+.1f}]".format(*found.over_seeds) if found.over_seeds else "one seed"
                each = ", ".join(f"{value:+.1f}" for value in found.seeds)
                rows.append((f"{one} − {other}", words, f"{found.mean:+.1f}", interval, over_seeds, each))
    first = ("difference in pass@1, points", "questions", "mean")
    return Table((*first, "95 % over questions", "95 % over seeds", "each seed"), tuple(rows))


def _labels(runs: Sequence[Kept], study: Study) -> Table:
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
    for arm in study.arms:
        steps = [line for run in runs if run.arm == arm for line in run.metrics]
        if steps:
            rows.append((arm, *(step_mean(steps, *column) for column in columns.values())))
    return Table(("mean over steps", *columns), tuple(rows))


def step_mean(steps: Sequence[Mapping[str, Any]], name: str, weight: str | None = None, digits: int = 0) -> str:
    """100 Σ w x / Σ w over the steps that have x; without a weight w = 1."""
    pairs = [(line[weight] if weight else 1.0, line[name]) for line in steps if line.get(name) is not None]
    total = sum(w for w, _ in pairs)
    return f"{100 * sum(w * x for w, x in pairs) / total:.{digits}f}" if total else "–"


def front() -> str:
    """The table of README.md: the default and the rivals, from the tables of confirmation.md.

    Of a rival the update is shown whose vote on questions never seen is higher.
    """
    page = (RESULTS / "confirmation.md").read_text(encoding="utf-8")
    rows: list[Row] = []
    for words, name, arms in FRONT:
        table = page.partition(f"<!-- evidence {name} -->")[2].partition("<!-- end -->")[0]
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n")]
        by_arm = [{(line[2], line[3]): line for line in lines if line[:1] == [arm]} for arm in arms]
        best = max(by_arm, key=lambda cells: float(cells[NEVER_SEEN, "maj@16"][6]))
        shown = (best[key] for key in ((NEVER_SEEN, "pass@1"), (NEVER_SEEN, "maj@16"), (TRAINED_ON, "pass@1")))
        first, vote, asked = (f"{line[4]} → {line[5].split()[0]}" for line in shown)
        *_, as_many = best.values()
        gain, over = ("{6} {7}".format(*line) for line in (best[NEVER_SEEN, "maj@16"], as_many))
        rows.append((words, as_many[1].count(",") + 1, first, vote, gain, asked, over))
    heads = ("seeds", "new: pass@1", "new: vote", "gain", "asked: pass@1", "vote − untrained")
    return as_markdown(Table(("in %", *heads), tuple(rows))).rstrip()


def exploration() -> str:
    """All runs that looked for what to try on fresh questions: what was set, and what came out."""
    rows: list[Row] = []
    for folder in (about.parent for about in RESULTS.glob(f"{EXPLORED}/*/about.json")):
        config = folder / "config.yaml"
        cells: list[Cell] = [*_arm_and_seed(config)] if config.is_file() else ["the start model", None]
        for path in sorted(folder.glob("gsm8k-*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            size = record["samples"]
            vote = f"{100 * record[f'maj@{size}']:.1f}" + (f" (of {size})" if size != VOTES else "")
            cells += [f"{100 * record['pass@1']:.1f}", vote]
            cells += [f"{100 * record['agreement']:.0f}", f"{record['length_mean']:.0f}"]
        rows.append(tuple(cells))
    names = ("pass@1", f"maj@{VOTES}", "agree", "tokens")
    columns = [f"{words}: {name}" for words in ("trained on", "never seen") for name in names]
    return as_markdown(Table(("in %", "seed", *columns), tuple(sorted(rows, key=str)))).rstrip()


def colder() -> str:
    """The same for runs that sample at 0.6, as they are measured, or at 1, on questions never seen."""
    rows: list[Row] = []
    for folder in (about.parent for about in RESULTS.glob(f"{COLD}/*/about.json")):
        arm: tuple[Cell, ...] = ("the start model, 64 completions", None)
        half: Cell = None
        hot = _record(folder / "gsm8k-513-768-t1.json")["maj@16"]
        if (folder / "config.yaml").is_file():
            arm = _arm_and_seed(folder / "config.yaml")
            lines = [line.fields for line in read_json_lines(folder / "evaluations.jsonl")]
            _, middle, last = (line for line in lines if line["benchmark"] == "gsm8k-513-768")
            half = f"{100 * middle['maj@16']:.1f}"
        else:
            last = _record(folder / "gsm8k-513-768.json")
        figures = (last["maj@16"], hot, last["pass@1"], last["pass@16"], last["agreement"])
        rows.append((*arm, half, *(f"{100 * figure:.1f}" for figure in figures), f"{last['length_mean']:.0f}"))
    votes = ("maj@16, 32 steps", "maj@16, 64 steps", "maj@16 at T = 1")
    columns = ("in %", "seed", *votes, "pass@1", "pass@16", "agree", "tokens")
    return as_markdown(Table(columns, tuple(sorted(rows, key=str)))).rstrip()


def rounds() -> str:
    """The same for runs on fewer questions and on a second model, each with the start model that it measured itself."""
    rows: list[Row] = []
    for folder in (about.parent for about in RESULTS.glob(f"{ROUNDS}-*/*/about.json")):
        arm, seed = _arm_and_seed(folder / "config.yaml")
        by_set: dict[str, list[dict[str, Any]]] = {}
        for line in _lines(folder / "evaluations.jsonl"):
            by_set.setdefault(line["benchmark"], []).append(line)
        cells = [
            " → ".join(f"{100 * line[metric]:.1f}" for line in (lines[0], lines[-1]))
            for lines, metrics in zip(by_set.values(), (("maj@16",), ("maj@16", "pass@1", "pass@16")), strict=True)
            for metric in metrics
        ]
        labels = [line["positive_accuracy"] for line in _lines(folder / "metrics.jsonl") if line["positive_share"]]
        ends = " → ".join(
            f"{100 * fmean(quarter):.0f}" for quarter in (labels[: len(labels) // 4], labels[-len(labels) // 4 :])
        )
        rows.append((folder.parent.name.removeprefix(f"{ROUNDS}-").upper(), arm, seed, *cells, ends))
    seen = ("trained on: maj@16", "never seen: maj@16", "pass@1", "pass@16", "labels right, first and last quarter")
    return as_markdown(Table(("model", "in %", "seed", *seen), tuple(sorted(rows, key=str)))).rstrip()


def where() -> str:
    """Which votes change, by how often the start model is right: mean maj@16 of runs on questions never seen."""
    start = _record(RESULTS / COLD / "start-7" / f"{UNSEEN}.json")["pass@1_by_question"]
    found: dict[str, list[Mapping[str, float]]] = {}
    for folder in sorted(path.parent for path in RESULTS.glob("*-0.5b/*/evaluations.jsonl")):
        lines = [line for line in _lines(folder / "evaluations.jsonl") if line["benchmark"] == UNSEEN]
        if lines and "maj@16" in lines[0]:
            method = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))["method"]
            found.setdefault(method, []).append(lines[-1]["maj@16_by_question"])
            if folder.name in ("single-1", "single-2"):  # the other runs of a seed share its start
                found.setdefault("the start model, drawn again", []).append(lines[0]["maj@16_by_question"])
    edges: dict[str, float] = {"≤ 5 %": 0.05, "≤ 15 %": 0.15, "≤ 30 %": 0.3, "≤ 50 %": 0.5, "above": 1}
    bounds = zip((-1.0, *edges.values()), edges.values(), strict=False)
    inside = [[name for name, share in start.items() if low < share <= high] for low, high in bounds]
    heads = (f"{words}: {len(names)}" for words, names in zip(edges, inside, strict=True))
    rows: list[Row] = [
        (method, len(runs), *(f"{100 * fmean(run[name] for run in runs for name in names):.0f}" for names in inside))
        for method, runs in sorted(found.items())
    ]
    return as_markdown(Table(("maj@16 in %", "runs", *heads), tuple(rows))).rstrip()


def checks() -> str:
    """Runs whose reward looks at equations, and those with chains, after training."""
    rows: list[Row] = []
    for folder in (about.parent for about in RESULTS.glob("ch*-0.5b/*/about.json")):
        arm, _, seed = folder.name.rpartition("-")
        records = (_record(folder / f"{name}.json") for name in ("gsm8k-1-256", UNSEEN))
        rows.append((CHECKS[arm], int(seed), *(cell for record in records for cell in _measured(record))))
    start = _start_scores([line for line in _lines(RESULTS / "checks-0.5b" / "votes.jsonl") if line["way"] == "base"])
    unseen = _measured(_record(RESULTS / COLD / "start-7" / f"{UNSEEN}.json"))
    rows.append(("the start model, 32 and 64 completions", None, *start, *unseen))
    names = ("maj@16", "pass@1", "pass@16", "agree", "tokens")
    columns = [f"{words}: {name}" for words in ("trained on", "never seen") for name in names]
    return as_markdown(Table(("in %", "seed", *columns), tuple(sorted(rows, key=str)))).rstrip()


def _measured(record: Mapping[str, Any]) -> list[str]:
    figures = (record[name] for name in ("maj@16", "pass@1", "pass@16", "agreement"))
    return [*(f"{100 * figure:.1f}" for figure in figures), f"{record['length_mean']:.0f}"]


def _start_scores(lines: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """The same figures of votes, which know nothing of tokens."""
    figures_Q = []
    for line in lines:
        size, place, counts = line["completions"], line["right"], [votes[0] for votes in line["votes"]]
        right = 0 if place is None else counts[place]
        vote = majority_at_k(counts, place, size - sum(counts), 16, seed=0)
        figures_Q.append((vote, right / size, pass_at_k(size, right, 16), max(counts) / size))
    return [*(f"{100 * figure:.1f}" for figure in np.mean(figures_Q, axis=0)), None]


def checked_votes() -> str:
    """Votes of all completions, of checked ones, and of those that `sound:boxed` lets vote, without training."""
    by_way: dict[str, list[dict[str, Any]]] = {}
    for line in _lines(RESULTS / "checks-0.5b" / "votes.jsonl"):
        by_way.setdefault(line["way"], []).append(line)
    rows: list[Row] = []
    for way, lines in by_way.items():
        size = sum(line["completions"] for line in lines)
        given = np.sum([votes for line in lines for votes in line["votes"]], axis=0)
        right = np.sum([line["votes"][line["right"]] for line in lines if line["right"] is not None], axis=0)
        shares = [f"{100 * share:.0f}" for share in (given / size)[1:]]
        right_of = [f"{100 * share:.0f}" for share in (right[0] / size, *(right / given)[1:])]
        votes_KQ = np.array([[kept_vote(line, kind) for line in lines] for kind in range(len(CHECKED))])
        gains = []
        for gain_Q in votes_KQ[1:] - votes_KQ[0]:
            low, high = bootstrap_interval(gain_Q, seed=0)
            gains.append(f"{100 * gain_Q.mean():+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]")
        votes = [f"{100 * vote:.1f}" for vote in votes_KQ.mean(axis=1)]
        equations = f"{sum(line['equations'] for line in lines) / size:.1f}"
        rows.append((way, lines[0]["completions"], equations, ", ".join(shares), ", ".join(right_of), *votes, *gains))
    shown = ("completions", "equations each", ", ".join(CHECKED[1:]), f"right: of {', '.join(CHECKED)}")
    votes = [*(f"vote of {kind}" for kind in CHECKED), *(f"{kind} − all [95 %]" for kind in CHECKED[1:])]
    return as_markdown(Table(("in %", *shown, *votes), tuple(rows))).rstrip()


def labels_by_votes() -> str:
    """How many questions a share of the start model's votes labels, and how many of these labels are right."""
    lines = [line for line in _lines(RESULTS / "checks-0.5b" / "votes.jsonl") if line["way"] == "base"]
    rows: list[Row] = []
    for kind in (CHECKED.index("all"), CHECKED.index("voting")):
        for size in (16, 32):
            odds = np.mean([label_odds(line, kind, size, SHARES) for line in lines], axis=0)
            cells = (f"{100 * labelled:.0f} with {100 * right / labelled:.0f}" for labelled, right in odds)
            rows.append(("boxed" if kind == 0 else "sound:boxed", size, *cells))
    return as_markdown(Table(("reader", "votes", *map(str, SHARES)), tuple(rows))).rstrip()


def label_odds(line: Mapping[str, Any], kind: int, size: int, shares: Sequence[float]) -> list[tuple[float, float]]:
    """The odds that the most frequent answer of `size` completions, of those drawn, has a share; and is right."""
    counts = np.array([votes[kind] for votes in line["votes"]], dtype=int)
    colours = [*counts, line["completions"] - counts.sum()]  # the last: no answer
    drawn = np.random.default_rng(0).multivariate_hypergeometric(colours, size, 500)[:, :-1]
    is_right = drawn.argmax(axis=1) == line["right"]
    labelled = [drawn.max(axis=1) >= share * size - SLACK for share in shares]
    return [(float(has_label.mean()), float((has_label & is_right).mean())) for has_label in labelled]


def kept_vote(line: Mapping[str, Any], kind: int) -> float:
    """1 if most completions of a kind give the right answer; answers that tie share it; 0 without any of the kind."""
    counts = [votes[kind] for votes in line["votes"]]
    winners = [place for place, count in enumerate(counts) if count and count == max(counts)]
    return (line["right"] in winners) / len(winners) if winners else 0.0


class Compared(NamedTuple):
    """An arm of the confirmation: the runs ARM-SEED that are trained on some questions, or have never seen them."""

    arm: str
    trained_on: tuple[tuple[str, str], ...]
    """(runs, questions): all of these together."""
    never_seen: tuple[tuple[str, str], ...]


def first_attempt() -> str:
    """Ours on rows 1 to 1,024, and gold on rows 769 to 1,024, against the start models of their seeds."""
    return _compared(SMALL.study, [_of_sets(arm, GSM8K) for arm in ("gold", "ours")], "votes.jsonl", first_seed=11)


def rivals() -> str:
    """Gold and the rivals on the first attempt's questions."""
    arms = [_of_sets(arm, GSM8K) for arm in ("gold-wide", *sorted(RIVALS))]
    return _compared(SMALL.study, arms, "votes.jsonl", first_seed=11, metrics=METRICS)


def second_attempt() -> str:
    """Rounds on two folds of GSM8K."""
    return _compared(SMALL.study, [_of_folds("rounds")], DRAWN, first_seed=21, attempts=2)


def third_attempt() -> str:
    """The first attempt's rule on the same folds."""
    return _compared(SMALL.study, [_of_folds("ttrl")], DRAWN, first_seed=31, attempts=3)


def fourth_attempt() -> str:
    """The 1.5B's settings and questions with the 0.5B, trained on either half."""
    arms = [_of_folds("rounds", MATH)]
    return _compared(SMALL_ON_MATH.study, arms, DRAWN, first_seed=41, attempts=4, metrics=METRICS)


def _of_folds(arm: str, sets: tuple[str, str] = GSM8K) -> Compared:
    """An arm of two folds: each question is judged by the runs that are trained on it, or have never seen it."""
    a, b = f"{arm}-a", f"{arm}-b"
    return Compared(arm, ((a, sets[0]), (b, sets[1])), ((a, sets[1]), (b, sets[0])))


def larger() -> str:
    """Each arm of the 1.5B, trained on the odd questions of MATH-500."""
    folders = (path.parent.name for path in RESULTS.glob(f"{LARGE.study}/*/config.yaml"))
    arms = [_of_sets(arm, MATH) for arm in sorted({name.rpartition("-")[0] for name in folders})]
    return _compared(LARGE.study, arms, DRAWN, first_seed=11)


def _of_sets(arm: str, sets: tuple[str, str]) -> Compared:
    """An arm trained on the first of two sets of questions."""
    return Compared(arm, ((arm, sets[0]),), ((arm, sets[1]),))


def _compared(
    study: str,
    arms: Sequence[Compared],
    votes: str,
    *,
    first_seed: int,
    attempts: int = 1,
    metrics: Sequence[str] = (*METRICS, SOUND_VOTE),
) -> str:
    """Every arm against the start model, question by question.

    On the questions trained on also against the start model's vote of as many completions as the arm has drawn.
    """
    drawn = [line for path in sorted((RESULTS / study).glob(votes)) for line in _lines(path)]
    rows: list[Row] = []
    for arm in arms:
        for words, parts in ((TRAINED_ON, arm.trained_on), (NEVER_SEEN, arm.never_seen)):
            for metric in metrics:
                after = _joined([run_values(study, *part, metric) for part in parts])
                start = _start(study, [name for _, name in parts], metric, has_draws=votes.startswith(DRAWS))
                places = {seed: seed - first_seed for seed in after}
                if not after or not all(place in start for place in places.values()):
                    continue
                before = {seed: start[place] for seed, place in places.items()}
                mean_before = f"{100 * fmean(fmean(values.values()) for values in before.values()):.1f}"
                each = [100 * fmean(values.values()) for values in after.values()]
                scores = f"{fmean(each):.1f} ({', '.join(f'{score:.1f}' for score in each)})"
                gains = [{name: after[seed][name] - before[seed][name] for name in after[seed]} for seed in after]
                rows.append(
                    (arm.arm, ", ".join(map(str, after)), words, metric, mean_before, scores, *_gain(gains, attempts))
                )
        after = _joined([run_values(study, *part, "maj@16") for part in arm.trained_on])
        asked = {name for values in after.values() for name in values}
        lines = [line for line in drawn if line["question_id"] in asked]
        if lines and len(lines) == len(asked):
            k = max(
                completions_drawn(RESULTS / study / f"{name}-{seed}") for seed in after for name, _ in arm.trained_on
            )
            k = min(k, *(sum(line["completions"]) for line in lines))
            vote = start_votes(lines, k)
            gains = [{name: after[seed][name] - vote[name] for name in vote} for seed in after]
            named = (arm.arm, ", ".join(map(str, after)), TRAINED_ON, f"maj@16 − the start's maj@{k}")
            rows.append((*named, f"{100 * fmean(vote.values()):.1f}", None, *_gain(gains, attempts)))
    head = ("in %", "seeds", "questions", "metric", "before", "after (each seed)", "after − before")
    interval = f"{100 - 5 / attempts:.3g} % over seeds"
    return as_markdown(Table((*head, f"{interval} and questions", "95 % over seeds"), tuple(rows))).rstrip()


def _joined(parts: Sequence[Mapping[int, Mapping[str, float]]]) -> dict[int, dict[str, float]]:
    """Of the seeds that all parts have, the values of all their questions."""
    seeds = sorted(set(parts[0]).intersection(*parts[1:]))
    return {seed: {name: value for part in parts for name, value in part[seed].items()} for seed in seeds}


def run_values(study: str, arm: str, questions: str, metric: str) -> dict[int, dict[str, float]]:
    """Seed → question → value of the runs of an arm."""
    found = {}
    for folder in (RESULTS / study).glob(f"{arm}-*"):
        seed, measured = folder.name.removeprefix(f"{arm}-"), folder / f"{questions}.json"
        lines = _lines(folder / f"votes-{questions}.jsonl")
        if seed.isdecimal() and metric == SOUND_VOTE and lines:
            found[int(seed)] = {line["question_id"]: line["sound:boxed"] for line in lines}
        elif seed.isdecimal() and metric != SOUND_VOTE and (folder / LAST).is_file() and measured.is_file():
            found[int(seed)] = _record(measured)[f"{metric}_by_question"]
    return found


def _start(study: str, questions: Sequence[str], metric: str, *, has_draws: bool) -> dict[int, dict[str, float]]:
    """The same of the start model, for the first seed, the second, …: of blocks of one draw, else of its own runs."""
    if not has_draws or metric == SOUND_VOTE:
        folder = SOUND if metric == SOUND_VOTE else study
        found = _joined([run_values(folder, START, name, metric) for name in questions])
        return {place: values for place, (_, values) in enumerate(sorted(found.items()))}
    drawn = [RESULTS / study / DRAWS / f"votes-{name}.jsonl" for name in questions]
    return _joined([dict(enumerate(block_scores(path, metric))) for path in drawn])


def by_difficulty() -> str:
    """The first attempt and gold, by ten draws of the start model."""
    after = {arm: run_values(SMALL.study, arm, GSM8K[1], "maj@16") for arm in ("ours", "gold")}
    before = run_values(SMALL.study, START, GSM8K[1], "maj@16")
    studies = (run_values(study, START, GSM8K[1], "pass@1") for study in (SMALL.study, SOUND))
    draws = [draw for found in studies for seed, draw in found.items() if seed in after["ours"]]
    return _by_difficulty(after, before, draws)


def larger_by_difficulty() -> str:
    """The 1.5B, by the blocks of its start model's draw."""
    after = run_values(LARGE.study, "ours", MATH[1], "maj@16")
    votes, draws = (_start(LARGE.study, MATH[1:], metric, has_draws=True) for metric in ("maj@16", "pass@1"))
    return _by_difficulty({"ours": after}, {seed: votes[seed - 11] for seed in after}, list(draws.values()))


def _by_difficulty(
    after: Mapping[str, Mapping[int, Mapping[str, float]]],
    before: Mapping[int, Mapping[str, float]],
    draws: Sequence[Mapping[str, float]],
) -> str:
    """How the vote never seen changes, by how often draws of the start model are right, ± the standard error."""
    start = {name: fmean(draw[name] for draw in draws) for name in draws[0]}
    rows: list[Row] = []
    for low, high in pairwise((-1, 0.02, 0.2, 0.7, 1)):
        names = [name for name, share in start.items() if low < share <= high]
        cells = []
        for each in after.values():
            gains = [100 * fmean(each[seed][name] - before[seed][name] for seed in each) for name in names]
            cells.append(f"{fmean(gains):+.1f} ± {stdev(gains) / math.sqrt(len(gains)):.1f}")
        rows.append((f"≤ {high:.0%}", len(names), *cells))
    return as_markdown(Table(("right", "questions", *after), tuple(rows))).rstrip()


def by_label() -> str:
    """maj@16 of the second attempt by the label that a question got, trained on and, in the other fold, never seen."""
    start = _start(SMALL.study, GSM8K, "maj@16", has_draws=True)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for arm, part, other in (("rounds-a", GSM8K[0], "rounds-b"), ("rounds-b", GSM8K[1], "rounds-a")):
        own, others = (run_values(SMALL.study, name, part, "maj@16") for name in (arm, other))
        for seed in sorted(own.keys() & others.keys()):
            labels = labels_given(RESULTS / SMALL.study / f"{arm}-{seed}")
            for name, after in own[seed].items():
                found.setdefault(labels.get(name, "no label"), []).append(
                    (start[seed - 21][name], after, others[seed][name])
                )
    total = sum(map(len, found.values()))
    rows: list[Row] = []
    for words, scores in sorted(found.items()):
        before, *after = 100 * np.mean(scores, axis=0)
        share = len(scores) / total
        cells = (cell for score in after for cell in (f"{score:.1f}", f"{share * (score - before):+.2f}"))
        rows.append((words, f"{100 * share:.0f}", f"{before:.1f}", *cells))
    part = "its part of the gain"
    heads = ("in %", "questions", "before", TRAINED_ON, part, NEVER_SEEN, part)
    return as_markdown(Table(heads, tuple(rows))).rstrip()


def labels_given(run: Path) -> dict[str, str]:
    """Question → the half of the run in which it got its label, and whether that is right."""
    lines = _lines(run / "votes.jsonl")
    firsts = {line["question_id"]: line["step"] for line in reversed(lines)}
    found = {}
    for line in lines:
        if line["positive"] is not None:
            is_right = line["votes"][str(line["positive"])] == line["right"]
            half = "first" if firsts[line["question_id"]] < lines[-1]["step"] / 2 else "second"
            found[line["question_id"]] = f"{half} round, {'right' if is_right else 'wrong'}"
    return found


def while_others_are_learned() -> str:
    """The share of a label at a question's first visit, where some completion gave it, over the first pass."""
    rows: list[Row] = []
    shares: dict[tuple[bool, int], list[float]] = {}
    for path in sorted((RESULTS / SMALL.study).glob("ours-*/votes.jsonl")):
        firsts = {line["question_id"]: line for line in reversed(_lines(path))}
        for line in firsts.values():
            if line["positive"] is not None:
                given = line["votes"][str(line["positive"])]
                shares.setdefault((given == line["right"], line["step"] // 8), []).append(given / line["completions"])
    for is_right, words in ((True, "right labels"), (False, "wrong labels")):
        rows.append((words, *(f"{100 * fmean(shares[is_right, quarter]):.0f}" for quarter in range(4))))
    return as_markdown(Table(("in %", "steps 1 to 8", "9 to 16", "17 to 24", "25 to 32"), tuple(rows))).rstrip()


@cache
def block_scores(votes: Path, metric: str) -> list[dict[str, float]]:
    """maj@16 or pass@1 of each question, for each block of completions."""
    lines = _lines(votes)

    def score(line: Mapping[str, Any], block: int) -> float:
        counts, size = [votes[block] for votes in line["votes"]], line["completions"][block]
        if metric == "pass@1":
            return 0.0 if line["right"] is None else counts[line["right"]] / size
        return majority_at_k(counts, line["right"], size - sum(counts), 16, seed=0)

    blocks = min((len(line["completions"]) for line in lines), default=0)
    return [{line["question_id"]: score(line, block) for line in lines} for block in range(blocks)]


def _gain(by_seed: Sequence[Mapping[str, float]], attempts: int = 1) -> tuple[Cell, Cell, Cell]:
    """The mean of differences, and its two intervals."""
    gain = estimate(by_seed)
    intervals = (crossed_interval(by_seed, attempts), gain.over_seeds)
    crossed, over_seeds = ("[{:+.1f}, {:+.1f}]".format(*found) if found else "one seed" for found in intervals)
    return f"{gain.mean:+.1f}", crossed, over_seeds


def completions_drawn(run: Path) -> int:
    """16 + the completions that training drew, votes included, per question trained on."""
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    votes: int = sum(line.get("votes_drawn", 0) for line in _lines(run / "metrics.jsonl"))
    trained: int = sum(line["completions"] for line in _lines(run / "votes.jsonl"))
    if not trained:  # these votes were not kept
        trained = settings["steps"] * settings["questions_per_step"] * settings["completions"]
    return 16 + round((votes + trained) / NUM_TRAINED_ON[Path(settings["questions"]).stem])


def start_votes(lines: Sequence[Mapping[str, Any]], k: int) -> dict[str, float]:
    """The start model's maj@k of each question, of all completions of all seeds."""
    found = {}
    for line in lines:
        counts = [sum(by_seed) for by_seed in line["votes"]]
        missing = sum(line["completions"]) - sum(counts)
        found[line["question_id"]] = majority_at_k(counts, line["right"], missing, k, seed=0)
    return found


def tried() -> str:
    """The runs with sound votes that ours is chosen from, on questions never seen."""
    configs = sorted(RESULTS.glob(f"{SOUND}/*/config.yaml"))
    rows: list[Row] = [(*_arm_and_seed(path), *_measured(_record(path.parent / f"{UNSEEN}.json"))) for path in configs]
    start = _measured(_record(RESULTS / COLD / "start-7" / f"{UNSEEN}.json"))
    rows.append(("the start model, 64 completions", None, *start))
    return as_markdown(Table(("in %", "seed", "maj@16", "pass@1", "pass@16", "agree", "tokens"), tuple(rows))).rstrip()


def third_dropped() -> str:
    """The plan dropped before the third attempt, with the weights half-way to each, beside TTRL."""
    names = {path.name.removesuffix("-1") for path in (RESULTS / EXPLORING).glob("*-1")}
    return _beside_start(sorted(names - set(THIRD[1:])))


def third_explored() -> str:
    """What the third attempt is chosen from."""
    return _beside_start(THIRD)


def _beside_start(arms: Iterable[str]) -> str:
    """Runs on rows 1 to 512, with what they gain over the start model."""
    start = run_values(EXPLORING, START, MEASURED, "maj@16")[30]
    rows: list[Row] = []
    for name, seed in ((START, 30), *((arm, 1) for arm in arms)):
        path = RESULTS / EXPLORING / f"{name}-{seed}"
        maj, *others = _measured(_record(path / f"{MEASURED}.json"))
        sound = fmean(line["sound:boxed"] for line in _lines(path / f"votes-{MEASURED}.jsonl"))
        after = run_values(EXPLORING, name, MEASURED, "maj@16")[seed]
        gain = _gain([{question: after[question] - start[question] for question in start}])
        gained = " ".join(map(str, gain[:2])) if name != START else None
        rows.append((name, maj, gained, *others, f"{100 * sound:.1f}"))
    head = ("in %", "maj@16", "− start, 95 % over questions", "pass@1", "pass@16", "agree", "tokens", SOUND_VOTE)
    return as_markdown(Table(head, tuple(rows))).rstrip()


def sound_votes() -> str:
    """How right the start model's vote of all completions and of sound ones is, without training."""
    rows: list[Row] = []
    for names in (("gsm8k-1-256",), *((name,) for name in GSM8K), GSM8K):
        kept: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(RESULTS.glob(f"{SOUND}/start-*/votes-*.jsonl")):
            if path.stem.removeprefix("votes-") in names:
                kept.setdefault(path.parent.name.rpartition("-")[2], []).extend(_lines(path))
        if not kept:
            continue
        by_seed = [kept[seed] for seed in sorted(kept)]
        votes = ([100 * fmean(line[reader] for line in lines) for lines in by_seed] for reader in READERS)
        means = (f"{fmean(each):.1f} ({', '.join(f'{vote:.1f}' for vote in each)})" for each in votes)
        gains = [{line["question_id"]: line["sound:boxed"] - line["boxed"] for line in lines} for lines in by_seed]
        rows.append((" and ".join(names), ", ".join(sorted(kept)), *means, *_gain(gains)))
    head = ("in %", "seeds", "vote of all", "vote of sound", "sound − all")
    return as_markdown(Table((*head, "95 % over seeds and questions", "95 % over seeds"), tuple(rows))).rstrip()


def _record(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _arm_and_seed(config: Path) -> tuple[str, int]:
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    credit = ", ".join(f"{name} {value}" for name, value in settings["credit"].items())
    votes = "start" if settings["label_votes"].endswith(".jsonl") else settings["label_votes"]
    arm = f"{settings['method']}{credit and ', '}{credit}, votes {votes}, N {settings['completions']}"
    usual = {
        f"T {settings['sampling']['temperature']:g}": settings["sampling"]["temperature"] == 1,
        f"KL {settings['loss']['kl_weight']:g}": settings["loss"]["kl_weight"] == 0,
        f"{settings['questions_per_update']} question per update": settings["questions_per_update"] == 16,
        "sound completions": settings["reader"] == "boxed",
        f"rate {settings['optimizer']['learning_rate']:g}": settings["optimizer"]["learning_rate"] == RATE,
    }
    return ", ".join([arm, *(words for words, is_usual in usual.items() if not is_usual)]), settings["seed"]


def with_tables(page: str) -> str:
    """The page with what the files say between its marks: tables of studies, or all runs that explored."""
    for name in re.findall(r"<!-- evidence (\S+) -->", page):
        table = OTHER_TABLES[name]() if name in OTHER_TABLES else study_markdown(_STUDY[name])
        mark = f"<!-- evidence {name} -->\n"
        before, rest = page.split(mark)
        _, after = rest.split("\n<!-- end -->", 1)
        page = f"{before}{mark}{table}\n<!-- end -->{after}"
    return page


_STUDY = {study.folder: study for study in STUDIES}
OTHER_TABLES = {
    EXPLORED: exploration, COLD: colder, ROUNDS: rounds, "where": where, "front": front, "checks": checks,
    "votes": checked_votes, "label-votes": labels_by_votes, "whose": signs.by_votes, "tried": tried,
    "sound": sound_votes,
    "first-attempt": first_attempt, "rivals": rivals, "second-attempt": second_attempt, "larger": larger,
    "difficulty": by_difficulty, "larger-difficulty": larger_by_difficulty, "others": while_others_are_learned,
    "by-label": by_label, "third-dropped": third_dropped,
    "third-explored": third_explored, "third-attempt": third_attempt, "fourth-attempt": fourth_attempt,
}  # fmt: skip


# The picture


def draw_picture(study: Study, out: Path) -> None:
    """Stock answers and right completions over the steps: a line per arm, the mean of its seeds over 10 steps."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    runs = read_kept(RESULTS / study.folder)
    titles = {"stock_share": "completions that give a stock answer, %", "pass@1": "completions that are right, %"}
    with rc_context({"svg.hashsalt": "scrl", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        for axes, (metric, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
            for arm, colour in zip(study.arms, ("#d55e00", "#0072b2", "#009e73"), strict=True):
                curves = [_smooth(run.metrics, metric) for run in runs if run.arm == arm]
                mean = [100 * fmean(values) for values in zip(*curves, strict=True)]
                axes.plot(range(WINDOW, WINDOW + len(mean)), mean, color=colour, label=f"{arm} ({len(curves)})")
            axes.set(title=title, xlabel="step (mean of the last 10)", ylim=(0, None))
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.2)
        axes.legend(frameon=False, title="method (seeds)")
        figure.savefig(out, format="svg", metadata={"Date": None})


def _smooth(metrics: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Means over WINDOW steps; steps without a value are left out of them."""
    windows = (metrics[end - WINDOW : end] for end in range(WINDOW, len(metrics) + 1))
    return [fmean([line[name] for line in window if name in line] or [math.nan]) for window in windows]


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    draw_picture(STUDIES[0], DOCS / "evidence.svg")
