"""The demo: a small model that lies as large ones do, on generated arithmetic, with no answers given; and the outcome.

Model, level and the settings below were chosen on seeds 0–4; what the documentation reports are seeds 10–12. All
methods get all of them, `std_floor` too: without it a question on which SCRL abstains is trained on its entropy at full
strength (docs/method.md, "in practice"). Completions, temperature and whose votes decide are each method's own. What is
said about the outcome is read from the run folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.config import RunConfig, build_config
from scrl.evaluation.settings import SAMPLING
from scrl.evaluation.statistics import paired_difference
from scrl.files.jsonl import OnCut, read_json_lines
from scrl.policy.model_paths import HASTY
from scrl.reporting.result_rows import score
from scrl.reporting.rollout_votes import read_votes
from scrl.reporting.tables import Cell, Share, Table
from scrl.settings import merged

SEED = 10
"""The default of `scrl demo` and of everything at demo scale."""
STEPS = 24
METHODS = ("ttrl", "scrl", "contrast-label")
"""All from the same start, on the same stream, measured alike."""
MEASURED = {"evaluation": {"temperature": SAMPLING.temperature, "top_p": SAMPLING.top_p}}
"""As `scrl evaluate` measures."""
TOY_STEPS = 40
"""Steps of a run at demo scale, whose model, EMBEDDED, slips but does not guess."""


def demo_config(method: str, *, seed: int, steps: int, model: str = HASTY, more: Mapping[str, Any] = {}) -> RunConfig:
    """A run of the demo, about a minute on a laptop, with the settings `more` on top."""
    settings = {
        "model": model,
        "questions": "arithmetic:medium:train:64",
        "method": method,
        "credit": {"std_floor": 0.18},
        "probe": 0,
        "seed": seed,
        "steps": steps,
        "prompt": {"instruction": ""},
        "sampling": {"max_tokens": 72},
        "optimizer": {"learning_rate": 2e-5, "weight_decay": 0.0},
        "evaluation": {"completions": 16, "held_out": "arithmetic:medium:held-out:64"},
        "guard": {"mode": "observe"},
        "checkpoint_every": 20,
    }
    return build_config(merged(settings, more))


# The outcome

TITLES = {"ttrl": "TTRL", "scrl": "SCRL", "contrast-label": "ours"}
BLOCKS = "▁▂▃▄▅▆▇█"
EPOCH = 8
"""Steps until every question has been visited."""


@dataclass(frozen=True)
class Outcome:
    name: str
    evaluations: tuple[dict[str, Any], ...]
    metrics: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path, on_cut: OnCut) -> Outcome:
        """The run in `folder`; `on_cut` receives a message about a last line that is incomplete."""
        files = [read_json_lines(folder / name, on_cut) for name in ("evaluations.jsonl", "metrics.jsonl")]
        return cls(folder.name, *(tuple(line.fields for line in file) for file in files))

    def before(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in self.evaluations if record["benchmark"] == benchmark)

    def after(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in reversed(self.evaluations) if record["benchmark"] == benchmark)

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    def stock(self, first: int, last: int | None) -> float | None:
        """The share of stock answers among the completions of these steps."""
        values = [line["stock_share"] for line in self.metrics[first:last] if "stock_share" in line]
        return sum(values) / len(values) if values else None


def results_table(outcomes: Sequence[Outcome]) -> Table:
    """The start, and each method after its last step: right completions on both sets, votes, stock answers.

    Stock answers are known from the second step on: that step represents the start, the last epoch the end.
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

    def blocks(outcome: Outcome, key: str) -> str:
        shares = [line.get(key) for line in outcome.metrics]
        return "".join(" " if share is None else BLOCKS[min(int(share * 8), 7)] for share in shares)

    rows = tuple((each.title, blocks(each, "stock_share"), blocks(each, "pass@1")) for each in outcomes)
    return Table(("", "stock answers", "right answers"), rows, "Completions step by step, ▁ 0 % … █ 100 %")


def verdict(outcomes: Sequence[Outcome], seed: int) -> str:
    """Which method ends highest on the stream, by how much, and which end below the start."""

    def change(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, str]:
        first, second = (record["pass@1_by_question"] for record in (before, after))
        found = paired_difference(list(first.values()), [second[name] for name in first], seed=seed)
        mean, low, high = (f"{100 * value:+.1f}" for value in (found.mean, found.low, found.high))
        return found.mean, f"{mean} [{low}, {high}]{'' if found.is_clear else ', within the noise'}"

    best, *others = sorted(outcomes, key=lambda outcome: -outcome.after("stream")["pass@1"])
    shares = ", ".join(f"{outcome.title} {outcome.after('stream')['pass@1']:.1%}" for outcome in others)
    sentences = [f"{best.title} ends highest: {best.after('stream')['pass@1']:.1%} right, {shares}."]
    for outcome in others:
        _, lead = change(outcome.after("stream"), best.after("stream"))
        sentences.append(f"{best.title} − {outcome.title}: {lead}.")
    for outcome in (best, *others):
        mean, gain = change(outcome.before("stream"), outcome.after("stream"))
        if mean < 0:
            sentences.append(f"{outcome.title} is worse than the start: {gain}.")
    return " ".join(sentences)


def lies(folders: Sequence[Path], on_cut: OnCut) -> list[str]:
    """Three questions whose most frequent answer at first was the same wrong one in every run, and what followed.

    First the one with the most votes for it, then those on which the runs ended furthest apart.
    """
    votes = {folder.name: read_votes(folder / "rollouts.jsonl", on_cut) for folder in folders}
    stories: list[tuple[int, float, str]] = []  # the votes for the lie, how far apart the runs ended, and the story
    for name in sorted(set.intersection(*map(set, votes.values()))):
        runs = {run: questions[name] for run, questions in votes.items()}
        firsts = [question.visits[0] for question in runs.values()]
        if not all(visit.is_majority_wrong for visit in firsts) or len({visit.majority for visit in firsts}) > 1:
            continue
        question, first = next(iter(runs.values())), firsts[0]
        at_end = {run: question.visits[-1] for run, question in runs.items()}
        ends = ", ".join(f"{TITLES.get(run, run)} {end.right_votes} of {end.size}" for run, end in at_end.items())
        shares = [end.right_votes / end.size for end in at_end.values()]
        count = first.count(first.majority)
        words = (
            f"{question.text} {first.majority} gets {count} of {first.size} votes and is wrong; "
            f"{question.gold} gets {first.right_votes}. At the last visit it has: {ends}."
        )
        stories.append((count, max(shares) - min(shares), words))
    stories.sort(key=lambda story: -story[0])
    stories[1:] = sorted(stories[1:], key=lambda story: -story[1])
    return [words for _, _, words in stories[:3]]
