"""The table of results: one row per evaluation worth reading, and one for runs that differ only in the seed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from scrl.evaluation.statistics import mean_over_seeds
from scrl.reporting.comparison import RESAMPLING_SEED
from scrl.reporting.evaluations import BY_QUESTION, Evaluation, Place, by_protocol, in_words, metrics_of
from scrl.reporting.tables import NOTHING, Cell, Share, Table

MARKS = {
    "start": "before the first step",
    "best": "the checkpoint chosen without gold",
    "peak": "the highest pass@1, chosen by the gold answers, so it flatters",
    "last": "after the last step",
    "chosen": "the step that was asked for",
    "only": "the only evaluation",
}
SHARES = ("agreement", "answered", "truncated")
ResultRow = dict[str, Cell]
"""Column → cell: one evaluation of one place on one benchmark; for runs that differ only in the seed, their mean."""


def result_rows(places: Sequence[Place]) -> list[ResultRow]:
    """The rows of the table, place by place and benchmark by benchmark, each by step."""
    return [row for group in group_by_seed(places) for row in _group_rows(group)]


def group_by_seed(places: Iterable[Place]) -> list[tuple[Place, ...]]:
    """Runs whose settings differ only in the seed are one group; a repeated seed splits it into single runs."""
    groups: dict[object, list[Place]] = {}
    for number, place in enumerate(places):
        settings = {str(name): value for name, value in (place.config or {}).items() if name != "seed"}
        key = number if place.config is None else (json.dumps(settings, sort_keys=True, default=str), place.step)
        groups.setdefault(key, []).append(place)
    joined: list[tuple[Place, ...]] = []
    for group in groups.values():
        is_one_of_each = len({(place.config or {}).get("seed") for place in group}) == len(group)
        joined += [tuple(group)] if is_one_of_each else [(place,) for place in group]
    return joined


def _group_rows(group: Sequence[Place]) -> Iterator[ResultRow]:
    """For each protocol, one row per mark, over the seeds that have it; marks on the same evaluations share one.

    `best` needs all seeds: those whose best step happened to be evaluated are not a fair selection.
    """
    series = [by_protocol(place.evaluations) for place in group]
    for protocol in dict.fromkeys(protocol for lines in series for protocol in lines):
        by_mark = [_by_mark(place, lines.get(protocol, [])) for place, lines in zip(group, series, strict=True)]
        marks: dict[tuple[tuple[int, int], ...], list[str]] = {}
        for mark in MARKS:
            steps = tuple((seed, lines[mark]["step"]) for seed, lines in enumerate(by_mark) if mark in lines)
            if steps and (mark != "best" or len(steps) == len(group)):
                marks.setdefault(steps, []).append(mark)
        for steps, names in sorted(marks.items(), key=lambda item: [step for _, step in item[0]]):
            yield _row([group[seed] for seed, _ in steps], [by_mark[seed][names[0]] for seed, _ in steps], names)


def _by_mark(place: Place, series: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Among the evaluations made in one way, by step: which is the start, the best, the peak, the last."""
    if not series:
        return {}
    by_step = {evaluation["step"]: evaluation for evaluation in series}
    if place.step is not None:
        return {"chosen": by_step[place.step]} if place.step in by_step else {}
    first, last = series[0], series[-1]
    if len(series) == 1:
        return {"start" if place.config is not None and first["step"] == 0 else "only": first}
    by_mark = {"start": first, "last": last}
    if place.best_step in by_step:
        by_mark["best"] = by_step[place.best_step]
    graded = [evaluation for evaluation in series if "pass@1" in evaluation]
    if graded:
        by_mark["peak"] = max(graded, key=lambda evaluation: float(evaluation["pass@1"]))
    return by_mark


def _row(places: Sequence[Place], lines: Sequence[Evaluation], marks: Sequence[str]) -> ResultRow:
    first, config, has_steps = lines[0], places[0].config, places[0].has_steps
    steps = [line["step"] for line in lines] if has_steps else []
    seeds = [
        (line if place.config is None else place.config).get("seed") for place, line in zip(places, lines, strict=True)
    ]
    questions = {name for line in lines for name in line.get("pass@1" + BY_QUESTION, ())}  # each seed may have its own
    metrics = [name for name in metrics_of(lines) if all(name in line for line in lines)]
    shares = {name: [line[name] for line in lines if name in line] for name in SHARES}
    return {
        "place": ", ".join(place.name for place in places),
        "model": str(first.get("model", NOTHING)),
        "method": str(config["method"]) if config and "method" in config else None,
        "benchmark": first["benchmark"],
        "evaluation": ", ".join(marks) if has_steps else None,
        "step": _listed(steps[:1] if len(set(steps)) == 1 else steps),
        **{name: score(name, lines) for name in metrics},
        **{name: Share(sum(values) / len(values)) for name, values in shares.items() if values},
        "n": len(questions) or first.get("questions", 0),
        "samples": first.get("samples"),
        "temperature": first.get("temperature"),
        "seeds": _listed([seed for seed in seeds if seed is not None]),
    }


def score(name: str, lines: Sequence[Evaluation]) -> Share:
    """A number with its interval: from the file, or over the questions of several seeds."""
    if len(lines) == 1:
        return Share(lines[0][name], lines[0].get(f"{name}_low"), lines[0].get(f"{name}_high"))
    if not all(name + BY_QUESTION in line for line in lines):
        values = [line[name] for line in lines]
        return Share(sum(values) / len(values), least=min(values), most=max(values))
    return Share(*mean_over_seeds([line[name + BY_QUESTION] for line in lines], seed=RESAMPLING_SEED))


def result_table(rows: Sequence[ResultRow]) -> Table:
    """The rows with everything that a number needs beside it: n, samples, temperature, seeds."""
    marks = {mark for row in rows for mark in str(row["evaluation"]).split(", ")}
    legend = "; ".join(f"{mark}: {words}" for mark, words in MARKS.items() if mark in marks)
    has_seeds = any(isinstance(cell, Share) and cell.least is not None for row in rows for cell in row.values())
    caption = "In %, with the 95 % interval over questions in brackets."
    caption += " Of several seeds: their mean, its interval, and the lowest to the highest seed." if has_seeds else ""
    caption += f" Evaluations: {legend}." if legend else ""
    about = ("place", "model", "method", "benchmark", "evaluation", "step")
    header = (*about, *metrics_of(rows), *SHARES, "n", "samples", "temperature", "seeds")
    named = [{**row, "benchmark": in_words(str(row["benchmark"]))} for row in rows]
    return Table(header, tuple(tuple(row.get(name) for name in header) for row in named), caption)


def _listed(numbers: Sequence[int]) -> Cell:
    return None if not numbers else numbers[0] if len(numbers) == 1 else ", ".join(map(str, numbers))
