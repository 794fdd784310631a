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
from scrl.reporting.rollout_votes import QuestionVotes, read_votes
from scrl.reporting.tables import Cell, Share, Table

BENCHMARKS = ("stream", "held-out")
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
        return _difference(self.before(benchmark), self.after(benchmark), seed)

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
    rows = [_result("start", {name: first.before(name) for name in BENCHMARKS}, first.stock(0, 2))]
    for outcome in outcomes:
        after = {name: outcome.after(name) for name in BENCHMARKS}
        rows.append(_result(outcome.title, after, outcome.stock(-EPOCH, None)))
    header = ("in %", "pass@1 [95 %]", "maj@16", "held-out pass@1 [95 %]", "stock answers")
    return Table(header, tuple(rows))


def _result(name: str, records: dict[str, dict[str, Any]], stock: float | None) -> tuple[Cell, ...]:
    stream, held_out = (
        Share(record["pass@1"], record["pass@1_low"], record["pass@1_high"]) for record in records.values()
    )
    return (name, stream, Share(records["stream"]["maj@16"]), held_out, None if stock is None else Share(stock))


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
    ranked = sorted(outcomes, key=lambda outcome: -outcome.after("stream")["pass@1"])
    best, *others = ranked
    shares = ", ".join(f"{outcome.title} {outcome.after('stream')['pass@1']:.1%}" for outcome in others)
    sentences = [f"{best.title} ends highest: {best.after('stream')['pass@1']:.1%} right, {shares}."]
    for outcome in others:
        lead = _difference(outcome.after("stream"), best.after("stream"), seed)
        clear = "" if lead.is_clear else ", within the noise"
        sentences.append(f"{best.title} − {outcome.title}: {_signed(lead)}{clear}.")
    below = [outcome for outcome in ranked if outcome.gain("stream", seed=seed).mean < 0]
    for outcome in below:
        gain = outcome.gain("stream", seed=seed)
        clear = "" if gain.is_clear else ", within the noise"
        sentences.append(f"{outcome.title} is worse than the start: {_signed(gain)}{clear}.")
    return " ".join(sentences)


def _signed(difference: Difference) -> str:
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


# Where consensus lied


def lies(folders: Sequence[Path], on_cut: OnCut, limit: int = 3) -> Iterator[str]:
    """Questions whose most frequent answer at the first visit was the same wrong one in every run, and what followed.

    First the one with the most votes for it, then those on which the runs ended furthest apart.
    """
    votes = {folder.name: read_votes(folder / "rollouts.jsonl", on_cut) for folder in folders}
    names = set.intersection(*(set(questions) for questions in votes.values()))
    questions = {name: {run: found[name] for run, found in votes.items()} for name in sorted(names)}
    firsts = {name: [question.visits[0] for question in runs.values()] for name, runs in questions.items()}
    lied = [
        name
        for name, visits in firsts.items()
        if all(visit.is_majority_wrong for visit in visits) and len({visit.majority for visit in visits}) == 1
    ]
    boldest = sorted(lied, key=lambda name: -firsts[name][0].count(firsts[name][0].majority))
    apart = sorted(
        boldest[1:], key=lambda name: -_spread([_right_at_the_end(runs) for runs in questions[name].values()])
    )
    for name in [*boldest[:1], *apart][:limit]:
        yield _story(questions[name])


def _story(runs: dict[str, QuestionVotes]) -> str:
    question = next(iter(runs.values()))
    first = question.visits[0]
    votes_for_gold = 0 if first.right is None else first.count(first.right)
    ends = ", ".join(f"{TITLES.get(run, run)} {_right_at_the_end(votes)}" for run, votes in runs.items())
    return (
        f"{question.text} {first.majority} gets {first.count(first.majority)} of {first.size} votes and is wrong; "
        f"{question.gold} gets {votes_for_gold}. At the last visit it has: {ends}."
    )


def _right_at_the_end(question: QuestionVotes) -> int:
    """The votes for the right answer at the last visit."""
    last = question.visits[-1]
    return 0 if last.right is None else last.count(last.right)


def _spread(numbers: Sequence[int]) -> int:
    return max(numbers) - min(numbers)
