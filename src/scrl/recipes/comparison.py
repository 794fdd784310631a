"""Runs side by side: what each gained, how right its labels were, and where consensus lied.

Everything is read from the run folders, so a sentence can only say what the files say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.evaluation.statistics import Difference, paired_difference

BENCHMARKS = ("stream", "held-out")


@dataclass(frozen=True)
class Outcome:
    """One run, read back from its folder."""

    name: str
    evaluations: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path) -> Outcome:
        """The run in `folder`."""
        return cls(folder.name, tuple(_lines(folder / "evaluations.jsonl")), tuple(_lines(folder / "metrics.jsonl")))

    def is_finished(self, steps: int) -> bool:
        """It was measured after its last step."""
        return any(record["step"] == steps for record in self.evaluations)

    def before(self, benchmark: str) -> dict[str, Any]:
        """The first evaluation."""
        return next(record for record in self.evaluations if record["benchmark"] == benchmark)

    def after(self, benchmark: str) -> dict[str, Any]:
        """The last evaluation."""
        return next(record for record in reversed(self.evaluations) if record["benchmark"] == benchmark)

    def gain(self, benchmark: str, *, seed: int) -> Difference:
        """pass@1 after minus before, over the same questions."""
        before, after = (record["pass@1_by_question"] for record in (self.before(benchmark), self.after(benchmark)))
        return paired_difference(list(before.values()), [after[key] for key in before], seed=seed)

    def mean(self, key: str) -> float | None:
        """A metric's mean over the steps that have it."""
        values = [line[key] for line in self.metrics if key in line]
        return sum(values) / len(values) if values else None


def lead(first: Outcome, second: Outcome, benchmark: str, *, seed: int) -> Difference:
    """pass@1 of `second` minus that of `first`, both after training, over the same questions."""
    one, other = (outcome.after(benchmark)["pass@1_by_question"] for outcome in (first, second))
    return paired_difference(list(one.values()), [other[key] for key in one], seed=seed)


@dataclass(frozen=True)
class Visit:
    """One question at one step of one run: its votes and what they earned."""

    step: int
    question: str
    gold: str
    counts: tuple[tuple[str, int], ...]
    """Answers with their votes, most first."""
    size: int
    positive: str | None
    negatives: frozenset[str]
    right: str | None
    """The key of the right answer, where somebody gave it."""
    push: float | None
    """Mean advantage of the trained completions with the most frequent answer."""

    @property
    def is_lie(self) -> bool:
        """The most frequent answer is wrong."""
        return bool(self.counts) and self.counts[0][0] != self.right

    def votes(self, answer: str | None) -> int:
        """How many gave this answer."""
        return dict(self.counts).get(answer or "", 0)


def read_visits(folder: Path) -> dict[str, list[Visit]]:
    """The visits to every question, in order."""
    grouped: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for line in _lines(folder / "rollouts.jsonl"):
        grouped.setdefault(line["question_id"], {}).setdefault(line["step"], []).append(line)
    return {name: [_visit(step, steps[step]) for step in sorted(steps)] for name, steps in grouped.items()}


def _visit(step: int, lines: Sequence[dict[str, Any]]) -> Visit:
    counts = Counter(line["answer_class"] for line in lines if line["answer_class"] is not None)
    by_label = {label: {x["answer_class"] for x in lines if x["label"] == label} for label in ("positive", "negative")}
    ranked = tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    top = ranked[0][0] if ranked else None
    pushes = [x["advantage"] for x in lines if x["answer_class"] == top and x["advantage"] is not None]
    return Visit(
        step=step,
        question=lines[0]["question"],
        gold=lines[0].get("gold", ""),
        counts=ranked,
        size=len(lines),
        positive=next(iter(by_label["positive"]), None),
        negatives=frozenset(by_label["negative"]),
        right=next((line["answer_class"] for line in lines if line.get("correct")), None),
        push=sum(pushes) / len(pushes) if pushes else None,
    )


def lies(folders: Sequence[Path], limit: int = 3) -> Iterator[str]:
    """Questions on which every run was lied to by the same answer at its first visit, and what each made of them.

    The boldest lie, then the boldest of those that not every run believed.
    """
    visits = {folder.name: read_visits(folder) for folder in folders}
    firsts = {name: [seen[name][0] for seen in visits.values() if name in seen] for name in visits[folders[0].name]}
    lied = [name for name, first_R in firsts.items() if _is_shared_lie(first_R, len(folders))]
    boldest = sorted(lied, key=lambda name: (-firsts[name][0].counts[0][1], name))
    disputed = [name for name in boldest[1:] if len({visit.positive for visit in firsts[name]}) > 1]
    for name in [*boldest[:1], *disputed][:limit]:
        yield _story(firsts[name][0], {run: seen[name] for run, seen in visits.items()})


def _is_shared_lie(first_R: Sequence[Visit], num_runs: int) -> bool:
    return (
        len(first_R) == num_runs
        and all(visit.is_lie for visit in first_R)
        and len({visit.counts[0][0] for visit in first_R}) == 1
    )


def _story(first: Visit, visits: dict[str, list[Visit]]) -> str:
    answer, votes = first.counts[0]
    right = first.votes(first.right)
    head = f"{first.question} {answer} gets {votes} of {first.size} votes and is wrong; {first.gold} gets {right}."
    return " ".join((head, *(_fate(run, seen[0], seen[-1]) for run, seen in visits.items())))


def _fate(run: str, first: Visit, last: Visit) -> str:
    answer = first.counts[0][0]
    did = f"rewards {first.positive or f'nothing and rules out {len(first.negatives)} answers'}"
    push = "" if first.push is None else f" (its completions move by {first.push:+.2f})"
    return (
        f"{run.upper()} {did}{push}; at its last visit {answer} has {last.votes(answer)} of {last.size} votes, "
        f"the right answer {last.votes(first.right) if first.right else last.votes(last.right)}."
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
