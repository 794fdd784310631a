"""What came of the demo: what each run gained, how many stock answers it ended with, and where consensus lied.

Everything is read from the run folders, so a sentence can only say what the files say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.data.jsonl import OnCut, read_json_lines
from scrl.evaluation.statistics import Difference, paired_difference
from scrl.reporting.result_rows import score
from scrl.reporting.rollout_votes import QuestionVotes, Visit, read_votes
from scrl.reporting.tables import Cell, Share, Table

TITLES = {"ttrl": "TTRL", "scrl": "SCRL"}
"""Methods that are written in capitals."""
BLOCKS = "▁▂▃▄▅▆▇█"
EPOCH = 8
"""Steps until every question has been visited."""


@dataclass(frozen=True)
class Outcome:
    """One run, read back from its folder."""

    name: str
    evaluations: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path, on_cut: OnCut) -> Outcome:
        """The run in `folder`; `on_cut` receives a message about a last line that is incomplete."""
        evaluations, metrics = (
            tuple(line.fields for line in read_json_lines(folder / name, on_cut))
            for name in ("evaluations.jsonl", "metrics.jsonl")
        )
        return cls(folder.name, evaluations, metrics)

    def is_finished(self, steps: int) -> bool:
        return any(record["step"] == steps for record in self.evaluations)

    def before(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in self.evaluations if record["benchmark"] == benchmark)

    def after(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in reversed(self.evaluations) if record["benchmark"] == benchmark)

    @property
    def title(self) -> str:
        """The method's name as people write it."""
        return TITLES.get(self.name, self.name)

    def stock(self, first: int, last: int | None) -> float | None:
        """The share of stock answers among the completions of these steps."""
        values = [line["stock_share"] for line in self.metrics[first:last] if "stock_share" in line]
        return sum(values) / len(values) if values else None


def _difference(before: dict[str, Any], after: dict[str, Any], seed: int) -> Difference:
    first, second = (record["pass@1_by_question"] for record in (before, after))
    return paired_difference(list(first.values()), [second[name] for name in first], seed=seed)


def results_table(outcomes: Sequence[Outcome]) -> Table:
    """The start, and each method after its last step: right completions on both sets, votes, stock answers.

    Stock answers are known from the second step on: that step stands for the start, the last epoch for the end.
    """
    first = outcomes[0]
    ends = [("start", first.before, first.stock(0, 2))]
    ends += [(outcome.title, outcome.after, outcome.stock(-EPOCH, None)) for outcome in outcomes]
    rows: list[tuple[Cell, ...]] = []
    for name, evaluation, stock in ends:
        stream, held_out = evaluation("stream"), evaluation("held-out")
        scores = (score("pass@1", [stream]), Share(stream["maj@16"]), score("pass@1", [held_out]))
        rows.append((name, *scores, None if stock is None else Share(stock)))
    return Table(("in %", "pass@1 [95 %]", "maj@16", "held-out pass@1 [95 %]", "stock answers"), tuple(rows))


def curves(outcomes: Sequence[Outcome]) -> Table:
    """Stock answers and right answers among a step's completions, as a row of blocks: ▁ is none, █ all."""
    rows = tuple(
        (outcome.title, *(_blocks([line.get(key) for line in outcome.metrics]) for key in ("stock_share", "pass@1")))
        for outcome in outcomes
    )
    return Table(("", "stock answers", "right answers"), rows, "Completions step by step, ▁ 0 % … █ 100 %")


def _blocks(shares: Sequence[float | None]) -> str:
    return "".join(" " if share is None else BLOCKS[min(int(share * len(BLOCKS)), len(BLOCKS) - 1)] for share in shares)


def verdict(outcomes: Sequence[Outcome], seed: int) -> str:
    """Who ends highest on the stream, by how much, and who ends below the start."""
    best, *others = sorted(outcomes, key=lambda outcome: -outcome.after("stream")["pass@1"])
    shares = ", ".join(f"{outcome.title} {outcome.after('stream')['pass@1']:.1%}" for outcome in others)
    sentences = [f"{best.title} ends highest: {best.after('stream')['pass@1']:.1%} right, {shares}."]
    for outcome in others:
        lead = _difference(outcome.after("stream"), best.after("stream"), seed)
        sentences.append(f"{best.title} − {outcome.title}: {_signed(lead)}.")
    for outcome in (best, *others):
        gain = _difference(outcome.before("stream"), outcome.after("stream"), seed)
        if gain.mean < 0:
            sentences.append(f"{outcome.title} is worse than the start: {_signed(gain)}.")
    return " ".join(sentences)


def _signed(difference: Difference) -> str:
    mean, low, high = (f"{100 * value:+.1f}" for value in (difference.mean, difference.low, difference.high))
    return f"{mean} [{low}, {high}]{'' if difference.is_clear else ', within the noise'}"


# Where consensus lied


def lies(folders: Sequence[Path], on_cut: OnCut, limit: int = 3) -> Iterator[str]:
    """Questions whose most frequent answer at the first visit was the same wrong one in every run, and what followed.

    First the one with the most votes for it, then those on which the runs ended furthest apart.
    """
    votes = {folder.name: read_votes(folder / "rollouts.jsonl", on_cut) for folder in folders}
    names = set.intersection(*(set(questions) for questions in votes.values()))
    lied = []
    for name in sorted(names):
        runs = {run: questions[name] for run, questions in votes.items()}
        firsts = [question.visits[0] for question in runs.values()]
        if all(visit.is_majority_wrong for visit in firsts) and len({visit.majority for visit in firsts}) == 1:
            lied.append(runs)
    lied.sort(key=lambda runs: -_first(runs).count(_first(runs).majority))
    for runs in [*lied[:1], *sorted(lied[1:], key=lambda runs: -_spread(runs))][:limit]:
        yield _story(runs)


def _first(runs: dict[str, QuestionVotes]) -> Visit:
    return next(iter(runs.values())).visits[0]


def _spread(runs: dict[str, QuestionVotes]) -> int:
    """How far apart the runs are in votes for the right answer at the last visit."""
    right = [_votes_for_right(question.visits[-1]) for question in runs.values()]
    return max(right) - min(right)


def _votes_for_right(visit: Visit) -> int:
    return 0 if visit.right is None else visit.count(visit.right)


def _story(runs: dict[str, QuestionVotes]) -> str:
    question, first = next(iter(runs.values())), _first(runs)
    ends = ", ".join(f"{TITLES.get(run, run)} {_votes_for_right(votes.visits[-1])}" for run, votes in runs.items())
    return (
        f"{question.text} {first.majority} gets {first.count(first.majority)} of {first.size} votes and is wrong; "
        f"{question.gold} gets {_votes_for_right(first)}. At the last visit it has: {ends}."
    )
