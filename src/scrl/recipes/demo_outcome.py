"""What came of the demo: what each run gained, how right its labels were, and where consensus lied.

Everything is read from the run folders, so a sentence can only say what the files say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.data.jsonl import OnCut, read_json_lines
from scrl.evaluation.statistics import Difference, paired_difference
from scrl.reporting.rollout_votes import QuestionVotes, Visit, read_votes
from scrl.reporting.tables import Share, Table

BENCHMARKS = ("stream", "held-out")


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

    def mean(self, key: str) -> float | None:
        """A metric's mean over the steps that have it."""
        values = [line[key] for line in self.metrics if key in line]
        return sum(values) / len(values) if values else None


def _difference(before: dict[str, Any], after: dict[str, Any], seed: int) -> Difference:
    first, second = (record["pass@1_by_question"] for record in (before, after))
    return paired_difference(list(first.values()), [second[name] for name in first], seed=seed)


def results_table(ttrl: Outcome, scrl: Outcome, seed: int) -> Table:
    """pass@1 with its interval, pass@k and maj@k, before and after, on the stream and held out."""
    rows = []
    for benchmark in BENCHMARKS:
        records = {"start": ttrl.before(benchmark), "TTRL": ttrl.after(benchmark), "SCRL": scrl.after(benchmark)}
        gains = {name: _signed(run.gain(benchmark, seed=seed)) for name, run in {"TTRL": ttrl, "SCRL": scrl}.items()}
        for name, record in records.items():
            pass_1 = Share(record["pass@1"], record["pass@1_low"], record["pass@1_high"])
            at_16 = (Share(record["pass@16"]), Share(record["maj@16"]))
            rows.append((f"{benchmark}, {name}", pass_1, *at_16, gains.get(name, "")))
    header = ("", "pass@1 [95 %]", "pass@16", "maj@16", "gain in pass@1 [95 %]")
    return Table(header, tuple(rows), "Before and after, in %")


def labels_table(ttrl: Outcome, scrl: Outcome) -> Table:
    """How right the labels were, and how many questions had one."""
    meanings = {
        "positive_share": "questions with a positive label",
        "positive_accuracy": "that label is right",
        "negative_accuracy": "an answer that was ruled out is wrong",
        "truth_flagged": "the right answer was ruled out",
    }
    means = {key: [outcome.mean(key) for outcome in (ttrl, scrl)] for key in meanings}
    rows = tuple(
        (words, *(None if mean is None else f"{mean:.1%}" for mean in means[key])) for key, words in meanings.items()
    )
    return Table(("", "TTRL", "SCRL"), rows, "Labels, mean over all steps")


def verdicts(ttrl: Outcome, scrl: Outcome, seed: int) -> Iterator[str]:
    """What may be said, and where SCRL is not ahead."""
    for outcome in (ttrl, scrl):
        gain = outcome.gain("stream", seed=seed)
        where = "above" if gain.mean > 0 else "below" if gain.mean < 0 else "level with"
        sure = f"clearly {where}" if gain.is_clear else f"{where}, but not clearly," if gain.mean else where
        yield f"{outcome.name.upper()} is {sure} its start in pass@1 on the stream: {_signed(gain)}."
    for benchmark in BENCHMARKS:
        lead = _difference(ttrl.after(benchmark), scrl.after(benchmark), seed)
        who = "SCRL is ahead of TTRL" if lead.mean > 0 else "SCRL is NOT ahead of TTRL"
        sure = "" if lead.is_clear else " (within the noise)"
        yield f"{who} in pass@1 on {benchmark}: {_signed(lead)}{sure}."
        for key in ("pass@16", "maj@16"):
            ours, theirs = scrl.after(benchmark)[key], ttrl.after(benchmark)[key]
            if ours <= theirs:
                yield f"SCRL is NOT ahead of TTRL in {key} on {benchmark}: {ours:.1%} against {theirs:.1%}."


def _signed(difference: Difference) -> str:
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"


# Where consensus lied


def lies(folders: Sequence[Path], on_cut: OnCut, limit: int = 3) -> Iterator[str]:
    """Questions whose most frequent answer at the first visit was the same wrong one in every run, and what followed.

    First the one with the most votes for it, then those with the most votes of which not every run believed it.
    """
    votes = {folder.name: read_votes(folder / "rollouts.jsonl", on_cut) for folder in folders}
    names = set.intersection(*(set(questions) for questions in votes.values()))
    questions = {name: {run: found[name] for run, found in votes.items()} for name in names}
    firsts = {name: [question.visits[0] for question in runs.values()] for name, runs in questions.items()}
    lied = [
        name
        for name, visits in firsts.items()
        if all(visit.is_majority_wrong for visit in visits) and len({visit.majority for visit in visits}) == 1
    ]
    boldest = sorted(lied, key=lambda name: (-firsts[name][0].count(firsts[name][0].majority), name))
    disputed = [name for name in boldest[1:] if len({_believed(visit) for visit in firsts[name]}) > 1]
    for name in [*boldest[:1], *disputed][:limit]:
        yield _story(questions[name])


def _believed(visit: Visit) -> str | None:
    """The positive label."""
    return next(iter(visit.labelled("positive")), None)


def _story(runs: dict[str, QuestionVotes]) -> str:
    question = next(iter(runs.values()))
    first = question.visits[0]
    sentences = [
        f"{question.text} {first.majority} gets {first.count(first.majority)} of {first.size} votes and is wrong; "
        f"{question.gold} gets {_right_votes(first, first.right)}."
    ]
    for run, votes in runs.items():
        first, last = votes.visits[0], votes.visits[-1]
        answer, num_ruled_out = first.majority, len(first.labelled("negative"))
        push = first.votes[answer].push
        sentences.append(
            f"{run.upper()} rewards {_believed(first) or f'nothing and rules out {num_ruled_out} answers'}"
            + ("" if push is None else f" (its completions move by {push:+.2f})")
            + f"; at its last visit {answer} has {last.count(answer)} of {last.size} votes, "
            f"the right answer {_right_votes(last, first.right or last.right)}."
        )
    return " ".join(sentences)


def _right_votes(visit: Visit, right: str | None) -> int:
    """The votes for the right answer, which may not have been given."""
    return 0 if right is None else visit.count(right)
