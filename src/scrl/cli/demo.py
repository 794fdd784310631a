"""`scrl demo`: what consensus would do to ten real questions, under TTRL and under SCRL.

Until the trainer is here, the demo stops at the labels: it takes completions that ship with the package, labels them
with both methods, and says what each would reward. Every word about the outcome is computed from the files it writes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrl.cli.folders import new_run_folder
from scrl.credit.assign import credit_rule
from scrl.data.rollouts import read_rollouts
from scrl.evaluation.label_quality import is_right
from scrl.lab.label import label_file

METHODS = ("ttrl", "scrl")
INTRO = """\
Ten questions, 32 completions each, of a small language model
(Qwen2.5-Coder-0.5B-Instruct, temperature 0.8). Nobody tells the methods the
right answers. Both count votes; what differs is whom they believe.

  TTRL  rewards the most frequent answer, always.
  SCRL  rewards it only with {min_share:.1%} of the votes and a lead above {min_margin:.1%}, and
        rules out answers that are rare (below {max_negative_share:.1%}) and uncertain (entropy
        not below the question's mean).
"""


def demo(*, out: Path | None = None) -> None:
    """Label shipped completions of a real model with TTRL and SCRL, and explain what each method would do.

    Example: scrl demo --out my-demo

    Parameters
    ----------
    out
        New folder for the labels of both methods; by default a new numbered one under runs/.
    """
    console = Console(highlight=False, markup=False)
    folder = new_run_folder(out)
    console.print(INTRO.format_map(credit_rule("scrl").settings.model_dump()))
    with as_file(files("scrl.data") / "demo_rollouts.jsonl.gz") as rollouts:
        gold = {r.question_id: r.gold or "" for r in read_rollouts(rollouts)}
        summaries = {method: _label(method, rollouts, folder / method) for method in METHODS}
    questions = [Votes.of(name, gold[name], folder) for name in gold]
    console.print(votes_table(questions))
    for remark in remarks(questions):
        console.print(Text(f"* {remark}\n"))
    console.print(comparison(summaries))
    console.print(f"Labels, rewards and advantages of every completion: {folder}/scrl, {folder}/ttrl", soft_wrap=True)
    console.print("With completions of your own: scrl label ROLLOUTS.jsonl --out LABELS.jsonl")


def _label(method: str, rollouts: Path, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    summary = label_file(rollouts, credit_rule(method), out=folder / "labels.jsonl", audit=folder / "answers.jsonl")
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


@dataclass(frozen=True)
class Votes:
    """One question as both methods see it, read back from the files they wrote."""

    name: str
    gold: str
    counts: list[tuple[str, int]]
    """The answers in their most frequent spelling, most votes first."""
    merged: int
    """Completions whose answer was spelled in another way than most of its class."""
    lines: dict[str, list[dict[str, Any]]]

    @classmethod
    def of(cls, name: str, gold: str, folder: Path) -> Votes:
        """Collect the question's lines of both methods."""
        lines = {method: _lines(folder / method / "labels.jsonl", name) for method in METHODS}
        spellings: dict[str, Counter[str]] = {}
        for line in lines["scrl"]:
            if line["answer_class"] is not None:
                spellings.setdefault(line["answer_class"], Counter())[line["answer"]] += 1
        counts = [(votes.most_common(1)[0][0], votes.total()) for votes in spellings.values()]
        merged = sum(votes.total() - votes.most_common(1)[0][1] for votes in spellings.values())
        return cls(name, gold, sorted(counts, key=lambda pair: -pair[1]), merged, lines)

    @property
    def size(self) -> int:
        """N."""
        return len(self.lines["scrl"])

    def positive(self, method: str) -> str | None:
        """The answer that this method rewards."""
        return next((line["answer"] for line in self.lines[method] if line["label"] == "positive"), None)

    def negatives(self) -> set[str]:
        """The answers that SCRL rules out."""
        return {line["answer_class"] for line in self.lines["scrl"] if line["label"] == "negative"}

    def advantage(self, method: str) -> float:
        """What a completion with the positive answer is pushed by."""
        return next(float(line["advantage"]) for line in self.lines[method] if line["label"] == "positive")


def _lines(path: Path, name: str) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["question_id"] == name]


def votes_table(questions: list[Votes]) -> Table:
    """One row a question: its votes, and whether what each method rewards is right."""
    table = Table(
        title="The votes; is what is rewarded right? How many are ruled out?", title_justify="left", box=SIMPLE_HEAD
    )
    for column in ("question", "most votes", "in truth", "TTRL", "SCRL", "out"):
        table.add_column(column, no_wrap=True)
    for question in questions:
        answer, votes = question.counts[0]
        verdicts = (_verdict(question.positive(method), question.gold) for method in METHODS)
        top = Text(f"{votes:2} × {answer}" if len(answer) <= 11 else f"{votes:2} × {answer[:8]}...")
        table.add_row(question.name, top, Text(question.gold), *verdicts, f"{len(question.negatives()):2}")
    return table


def _verdict(answer: str | None, gold: str) -> Text:
    if answer is None:
        return Text("nothing", style="dim")
    return Text("right", style="green") if is_right(answer, gold) else Text("wrong", style="red")


def remarks(questions: list[Votes]) -> Iterator[str]:
    """What the votes show, in words."""
    for q in questions:
        positive = q.positive("ttrl")
        if positive is not None and not is_right(positive, q.gold):
            yield _lie(q)
    most_merged = max(questions, key=lambda q: q.merged)
    if most_merged.merged:
        yield (
            f"{most_merged.name}: {most_merged.merged} votes were spelled in another way and counted with the same "
            "answer; answers.jsonl lists which spellings were merged, and by whom."
        )


def _lie(q: Votes) -> str:
    (answer, votes), (_, rival) = [*q.counts, ("", 0)][:2]
    lie = f"{q.name}: consensus lies. {answer} has the most votes, {votes} of {q.size}, and is wrong."
    push = f"TTRL pushes its completions up by {q.advantage('ttrl'):+.2f} standard deviations."
    if q.positive("scrl") is None:
        return f"{lie} {push} SCRL rewards nothing here and rules out {len(q.negatives())} other answers instead."
    return f"{lie} {push} It leads by {votes - rival}, so SCRL believes it too: votes alone cannot show this one."


def comparison(summaries: dict[str, dict[str, Any]]) -> Table:
    """Both methods side by side."""
    table = Table(title="Both methods", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("")
    for method in summaries:
        table.add_column(method.upper(), justify="right")
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "questions with a reward": lambda s: f"{s['positive_questions']} of {s['questions']}",
        "rewarded answer is right": lambda s: _count(s["positive_accuracy"], s["positive_questions"]),
        "answers ruled out": lambda s: str(s["negative_answers"]),
        "ruled-out answer is wrong": lambda s: _count(s["negative_accuracy"], s["negative_answers"]),
        "right answer was ruled out": lambda s: "–" if s["truth_flagged"] is None else f"{s['truth_flagged']:.0%}",
    }
    for words, show in rows.items():
        table.add_row(words, *(show(summary) for summary in summaries.values()))
    return table


def _count(share: float | None, total: int) -> str:
    return "–" if share is None else f"{round(share * total)} of {total}"
