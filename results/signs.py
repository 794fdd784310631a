"""Which signs without gold answers tell runs that lose against the start model from runs that gain.

    python results/signs.py

A run is lost, good, gold or neither by its vote and pass@1 on questions never seen; a sign compares the means over its
last 10 steps with those over its first 10, as the guard does. Limits are chosen on one half of the arms and judged on
the other. Classes, halves, signs and their bad sides were fixed before any sign was computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
import yaml

from scrl.config import GuardSettings
from scrl.files.jsonl import read_json_lines
from scrl.reporting.tables import Cell, Table, as_markdown
from scrl.training.guard import WATCHED, alarms

RESULTS, WINDOW, LOST, GOOD = Path(__file__).parent, 10, ("lost",), ("good", "gold")
UNSEEN = ("math500", "held-out", "gsm8k-513-768", "minerva", "gsm8k-1025-1319")
STUDIES = tuple("amc-1.5b/* chains-0.5b/* checks-0.5b/* confirm-0.5b/gold-1[12] explore-0.5b/*".split())
STUDIES += tuple("gsm8k-0.5b/* rates-0.5b/* rounds-0.5b/* rounds-1.5b/* temperature-0.5b/*".split())
LATER = RESULTS / "confirm-0.5b" / "start-20"
# The runs that there were when classes, halves and signs were fixed, and a draw of the start model since.
VOTE = {4: 29.6, 8: 33.4, 16: 35.3, 32: 36.0}  # maj@k of the 160 completions of confirm-0.5b/votes.jsonl
CHANGES = ("never seen: vote", "never seen: pass@1", "trained on: vote", "trained on: pass@1")
Line = Mapping[str, Any]
Mean = Callable[[str], float]
Course = Mapping[float, float]
Row = tuple[Cell, ...]


class Run(NamedTuple):
    arm: str
    seed: int
    asks: str  # all questions, or only those that have a label
    kind: str
    changes: tuple[float, ...]  # of the vote and pass@1, in points, never seen and trained on
    lines: Sequence[Line]
    how: tuple[Cell, ...]  # model, whose votes decide, method, temperature


class Sign(NamedTuple):
    """A value of the first and the last window; `bad` is 1 where a high one is bad, −1 where a low one is."""

    words: str
    bad: int
    value: Callable[[Mean, Mean], float]

    def at(self, run: Run, step: int) -> float:
        """How bad it is, higher is worse; nan where it is undefined."""
        return self.bad * self.value(mean_of(run.lines[:WINDOW], 1), mean_of(run.lines[step - WINDOW : step]))

    def course(self, run: Run) -> Course:
        """The same after each share of the run, where it is defined and two windows have passed."""
        steps = range(2 * WINDOW, len(run.lines) + 1)
        return {step / len(run.lines): bad for step in steps if not math.isnan(bad := self.at(run, step))}


def mean_of(window: Sequence[Line], least: float = WINDOW / 2) -> Mean:
    """The mean of a metric over the steps that have it, if these are enough."""

    def mean(name: str) -> float:
        values = [line[name] for line in window if line.get(name) is not None]
        return fmean(values) if len(values) >= least else math.nan

    return mean


def signs(words: str, bad: int, value: Callable[[float, float], float], *names: str) -> list[Sign]:
    return [Sign(name + words, bad, lambda a, b, name=name: value(a(name), b(name))) for name in names]


SIGNS = (
    *signs(", ratio", -1, lambda a, b: b / a, "length_mean", "entropy_mean", "distinct_answers"),
    *signs(", rise", 1, lambda a, b: b - a, "agreement", "agreement − ln length", "unanimous_share", "reward_mean"),
    *signs(", rise", 1, lambda a, b: b - a, "positive_share", "stock_share", "same_answer_share", "no_answer_share"),
    *signs(", rise", 1, lambda a, b: b - a, "truncated_share"),
    *signs("", 1, lambda _, b: b, "label_flip_share", "stock_label_share", "push_stock"),
    *signs("", -1, lambda _, b: b, "first_answer_share"),
)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [line.fields for line in read_json_lines(path)] if path.is_file() else []


def records_of(folder: Path) -> list[dict[str, Any]]:
    """Evaluations at T = 0.6 in the order of steps, without those of averaged weights."""
    files = [path for path in folder.glob("*.json") if path.stem != "about" and not path.stem.endswith("-half")]
    records = lines_of(folder / "evaluations.jsonl") + [json.loads(path.read_text(encoding="utf-8")) for path in files]
    return [record for record in records if record["temperature"] == 0.6]


def read_runs() -> list[Run]:
    """All runs that were trained, in the order of their arms."""
    starts: dict[str, dict[Any, Line]] = {}
    studies = sorted({study.partition("/")[0] for study in STUDIES})
    folders = {about.parent for study in studies for about in RESULTS.glob(f"{study}/*/about.json")}
    for folder in sorted(folders - {LATER}):
        for line in records_of(folder) if folder.name.startswith("start-") else lines_of(folder / "evaluations.jsonl"):
            if line["step"] == 0:
                starts.setdefault(line["questions_digest"], {})[line["seed"], line["samples"], line["pass@1"]] = line
    paths = [path for study in STUDIES for path in RESULTS.glob(f"{study}/config.yaml")]
    return sorted((read_run(path.parent, starts) for path in paths), key=lambda run: run[:2])


def read_run(folder: Path, starts: Mapping[str, Mapping[Any, Line]]) -> Run:
    settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    last = {record["benchmark"] in UNSEEN: record for record in records_of(folder)}
    new, old = (change(last[key], list(starts[last[key]["questions_digest"]].values())) for key in (True, False))
    is_by_votes = settings["method"] == "contrast-label" and settings["label_votes"] != "present"
    asks = "labelled" if is_by_votes or "labelled" in settings["questions"] else "all"
    kind = kind_of(new) if settings["method"] != "oracle" else "gold"
    lines = lines_of(folder / "metrics.jsonl")
    lines = [line | {"agreement − ln length": line["agreement"] - math.log(line["length_mean"])} for line in lines]
    seed, name = settings["seed"], f"{folder.parent.name}/{folder.name}"
    is_own = ":" in settings["method"]
    whose = "–" if is_own else settings["label_votes"] if not settings["label_votes"].endswith(".jsonl") else "start"
    method = "a reward of one's own" if is_own else settings["method"]
    method += ", with chains" if "chain" in name else ""
    how = ("1.5B" if "1.5b" in name else "0.5B", whose, method, settings["sampling"]["temperature"])
    return Run(name.removesuffix(f"-{seed}"), seed, asks, kind, (*new, *old), lines, how)


def kind_of(changes: Sequence[float]) -> str:
    vote, single, *_ = changes
    return "lost" if vote <= -3 else "good" if single >= 2 and vote >= -1 else "neither"


def change(record: Line, starts: Sequence[Line]) -> list[float]:
    """maj@k and pass@1 against all draws of the start model on the same questions; VOTE is what a larger k gains."""
    sizes = [(line, max(k for k in VOTE if f"maj@{k}" in line)) for line in (record, *starts)]
    after, *before = [np.array([100 * line[f"maj@{k}"] - VOTE[k], 100 * line["pass@1"]]) for line, k in sizes]
    return list(after - np.average(before, axis=0, weights=[start["samples"] for start in starts]))


def by_votes() -> str:
    """How runs end by whose votes decide: means of the changes, in points."""
    runs, rows = read_runs(), []
    for how in sorted({run.how for run in runs}, key=str):
        own = [run for run in runs if run.how == how]
        means = (f"{fmean(changes):+.1f}" for changes in zip(*(run.changes for run in own), strict=True))
        kinds = [kind_of(run.changes) for run in own]
        rows.append((*how, len(own), kinds.count("lost"), kinds.count("good"), *means))
    head = ("model", "votes of", "method", "T", "runs", "lost", "good", *CHANGES)
    return as_markdown(Table(head, tuple(rows))).rstrip()


def limits(groups: Sequence[Sequence[Run]]) -> Iterable[Row]:
    """The limits that stop none, and one, of the good runs of the first group, and what they do to all groups."""
    for sign in SIGNS:
        row: list[Cell] = [sign.words]
        courses = [[(run.kind, course) for run in group if (course := sign.course(run))] for group in groups]
        good, lost = ([max(c.values()) for kind, c in courses[0] if kind in kinds] for kinds in (GOOD, LOST))
        for allowed in (0, 1):
            cut = sorted(good, reverse=True)[allowed] if allowed < len(good) else math.inf
            limit = (cut + min((bad for bad in lost if bad > cut), default=math.inf)) / 2
            row.append(f"{sign.bad * limit:.2f}" if math.isfinite(limit) else None)
            row += [stopped(group, limit) for group in courses]
        yield tuple(row)


def stopped(courses: Sequence[tuple[str, Course]], limit: float) -> str:
    """Of the lost, after which share of the run, and of the good runs."""
    above = [(kind, [share for share, bad in course.items() if bad > limit]) for kind, course in courses]
    lost, good = ([shares for kind, shares in above if kind in kinds] for kinds in (LOST, GOOD))
    when = f" at {median(shares[0] for shares in lost if shares):.0%}" if any(lost) else ""
    return f"{sum(map(bool, lost))}/{len(lost)}{when}, {sum(map(bool, good))}/{len(good)}"


def aucs(runs: Sequence[Run]) -> Iterable[Row]:
    """How often a lost run has the worse sign of two, at the middle and at the end, with a bootstrap over arms."""
    rng, arms = np.random.default_rng(0), sorted({run.arm for run in runs})
    counts_DA = rng.multinomial(len(arms), np.full(len(arms), 1 / len(arms)), 2_000)
    for sign in SIGNS:
        row: list[Cell] = [sign.words]
        for part in (2, 1):
            known = [(run, bad) for run in runs if not math.isnan(bad := sign.at(run, len(run.lines) // part))]
            lost, good = ([(run, bad) for run, bad in known if run.kind in kinds] for kinds in (LOST, GOOD))
            wins_LG = np.array([[(a > b) + (a == b) / 2 for _, b in good] for _, a in lost])
            same_LG = np.array([[a.arm.split("/")[0] == b.arm.split("/")[0] for b, _ in good] for a, _ in lost])
            times_DL, times_DG = (counts_DA[:, [arms.index(run.arm) for run, _ in each]] for each in (lost, good))
            pairs_D = times_DL.sum(axis=1) * times_DG.sum(axis=1)
            draws_D = np.einsum("dl,lg,dg->d", times_DL, wins_LG, times_DG)[pairs_D > 0] / pairs_D[pairs_D > 0]
            interval = "[{:.2f}, {:.2f}]".format(*np.quantile(draws_D, [0.025, 0.975]))
            row.append(f"{wins_LG.mean():.2f} {interval} ({len(lost)}, {len(good)})")
            row.append(f"{wins_LG[same_LG].mean():.2f} ({same_LG.sum()})")
        yield tuple(row)


def guard(groups: Sequence[Sequence[Run]]) -> Iterable[Row]:
    """What each alarm that there is catches and stops."""
    settings = GuardSettings(mode="observe", window=WINDOW)
    for names in (*((name,) for name in WATCHED), WATCHED):
        row: list[Cell] = [names[0] if len(names) == 1 else "any"]
        for group in groups:
            kept = [(run.kind, [{name: line.get(name) for name in names} for line in run.lines]) for run in group]
            counts = [(k, {n / len(x): len(alarms(x[:n], settings)) for n in range(1, len(x) + 1)}) for k, x in kept]
            row.append(stopped(counts, 0))
        yield tuple(row)


def show(title: str, head: tuple[str, ...], rows: Iterable[Row]) -> None:
    print(f"## {title}\n\n{as_markdown(Table(head, tuple(rows)))}")


def long_runs(runs: Sequence[Run], asks: str) -> list[Run]:
    """Those of two windows and more."""
    return [run for run in runs if run.asks == asks and len(run.lines) >= 2 * WINDOW]


def main() -> None:
    runs = read_runs()
    rows = [(r.arm, r.seed, r.asks, len(r.lines), *(f"{points:+.1f}" for points in r.changes), r.kind) for r in runs]
    show("Change against the start model", ("arm", "seed", "asks", "steps", *CHANGES, "kind"), rows)
    arms, ask_all, labelled = sorted({run.arm for run in runs}), long_runs(runs, "all"), long_runs(runs, "labelled")
    for name, own in (("both models", ask_all), ("0.5B", [run for run in ask_all if "1.5b" not in run.arm])):
        halves = [[run for run in own if arms.index(run.arm) % 2 == half] for half in (0, 1)]
        for words, groups in (("first", halves), ("second", halves[::-1])):
            each = ("limit", "this half", "the other", "asks labelled")
            title = f"{name}, limits of the {words} half that stop no good run of it, or one"
            show(title, ("sign", *each, *each), limits((*groups, labelled)))
    show("AUC (lost, good)", ("sign", "middle", "within studies", "end", "within studies"), aucs(ask_all))
    show("The guard as it is", ("alarm", "asks all", "asks labelled"), guard((ask_all, labelled)))


if __name__ == "__main__":
    main()
