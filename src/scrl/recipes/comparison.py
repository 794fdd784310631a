"""Runs side by side: what each gained, how right its labels were, and where consensus lied.

Everything is read from the run folders, so a sentence can only say what the files say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.evaluation.statistics import Difference, paired_difference
from scrl.reporting.json_lines import OnCut, read_json_lines
from scrl.reporting.rollout_votes import QuestionVotes, Visit, read_votes

BENCHMARKS = ("stream", "held-out")


@dataclass(frozen=True)
class Outcome:
    """One run, read back from its folder."""

    name: str
    evaluations: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path, on_cut: OnCut) -> Outcome:
        """The run in `folder`; `on_cut` hears of a last line that is incomplete."""
        evaluations, metrics = (
            tuple(line.fields for line in read_json_lines(folder / name, on_cut))
            for name in ("evaluations.jsonl", "metrics.jsonl")
        )
        return cls(folder.name, evaluations, metrics)

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


def lies(folders: Sequence[Path], on_cut: OnCut, limit: int = 3) -> Iterator[str]:
    """Questions on which every run was lied to by the same answer at its first visit, and what each made of them.

    The boldest lie, then the boldest of those that not every run believed.
    """
    votes = {folder.name: read_votes(folder / "rollouts.jsonl", on_cut) for folder in folders}
    names = set.intersection(*(set(questions) for questions in votes.values()))
    asked = {name: {run: questions[name] for run, questions in votes.items()} for name in names}
    firsts = {name: [question.visits_V[0] for question in runs.values()] for name, runs in asked.items()}
    lied = [name for name, first_R in firsts.items() if _is_shared_lie(first_R)]
    boldest = sorted(lied, key=lambda name: (-_most_votes(firsts[name][0]), name))
    disputed = [name for name in boldest[1:] if len({_believed(visit) for visit in firsts[name]}) > 1]
    for name in [*boldest[:1], *disputed][:limit]:
        yield _story(asked[name])


def _is_shared_lie(first_R: Sequence[Visit]) -> bool:
    return all(visit.is_majority_wrong for visit in first_R) and len({visit.majority for visit in first_R}) == 1


def _most_votes(visit: Visit) -> int:
    return visit.count(visit.majority)


def _believed(visit: Visit) -> str | None:
    """The positive label."""
    return next(iter(visit.labelled("positive")), None)


def _story(runs: dict[str, QuestionVotes]) -> str:
    question = next(iter(runs.values()))
    first = question.visits_V[0]
    head = (
        f"{question.text} {first.majority} gets {_most_votes(first)} of {first.size} votes and is wrong; "
        f"{question.gold} gets {_right_votes(first, first.right)}."
    )
    return " ".join((head, *(_fate(run, asked.visits_V[0], asked.visits_V[-1]) for run, asked in runs.items())))


def _fate(run: str, first: Visit, last: Visit) -> str:
    answer, num_ruled_out = first.majority, len(first.labelled("negative"))
    did = f"rewards {_believed(first) or f'nothing and rules out {num_ruled_out} answers'}"
    moved = first.votes[answer].push
    push = "" if moved is None else f" (its completions move by {moved:+.2f})"
    return (
        f"{run.upper()} {did}{push}; at its last visit {answer} has {last.count(answer)} of {last.size} votes, "
        f"the right answer {_right_votes(last, first.right or last.right)}."
    )


def _right_votes(visit: Visit, right: str | None) -> int:
    """The votes for the right answer, which nobody may have given."""
    return 0 if right is None else visit.count(right)
