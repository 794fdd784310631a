"""`scrl audit`: would consensus lie on these questions, and which rule would notice?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table as RichTable
from rich.text import Text

from scrl.cli.file_options import DEFAULTS, ESTIMATED, PUSH, WHOLE, AsOptions, check_outputs
from scrl.cli.terminal import plain_console
from scrl.credit.elsewhere import MIN_OTHERS, few_others
from scrl.credit.rule import credit_rule
from scrl.files.whole_files import write_whole
from scrl.lab.audit import AUDITED, audit_file
from scrl.lab.stored_groups import several_golds_note
from scrl.reporting.tables import Cell, Table, as_terminal
from scrl.reporting.text import sentence


def audit(
    rollouts: Path,
    /,
    *,
    method: tuple[str, ...] = AUDITED,
    out: Path | None = None,
    seed: Annotated[int, WHOLE] = 0,
    label_votes: Path | None = None,
    file: AsOptions = DEFAULTS,
) -> None:
    """Look at stored completions before training: would consensus lie on these questions?

    Example: scrl audit rollouts.jsonl --out audit.json

    Shares and margins of the votes, what each method would label and where it would push, and answers that are popular
    across all questions. With gold answers, also how often labels are right.

    Parameters
    ----------
    rollouts
        File of completions, as for scrl label.
    method
        A method to look at in place of the default ones; repeat for more. One that the file cannot serve is named with
        the reason. etmr would have the row of ttrl: it differs in how completions are sampled.
    out
        File for all figures, as JSON.
    seed
        Seed of the resampling and of the intervals.
    label_votes
        Completions of the same questions, the start model's for instance, that vote in place of these: labels and
        shares are theirs, as in training with label_votes: start.
    """
    check_outputs(rollouts, out, label_votes=label_votes)
    reading = file.reading(rollouts)
    rules = {name: credit_rule(name, seed=seed, **reading) for name in method}
    result = audit_file(file.open(rollouts, label_votes), rules, seed=seed)
    if out is not None:
        write_whole(out, json.dumps(result, indent=2) + "\n")
    console = plain_console()
    for part in report(result):
        console.print(part)
    if out is not None:
        console.print(f"wrote {out}", soft_wrap=True)


def report(result: Mapping[str, Any]) -> Iterator[RichTable | Text | str]:
    """The audit for people: the verdict first, then the figures."""
    yield Text("Verdict", style="bold")
    for finding in result["verdict"]:
        yield Text(f"• {finding['words']}")
    if result["votes"]["entropy"] == "estimated":
        yield ESTIMATED
    if result["several_golds"]:
        yield several_golds_note(result["several_golds"])
    if result["questions"] <= MIN_OTHERS:
        yield sentence(few_others(result["questions"] - 1))
    yield _table("Votes", ("", ""), list(_facts(result).items()))
    yield _methods(result)
    yield PUSH
    for name, reason in result["refused"].items():
        yield f"{name} was left out: it needs {reason}."
    if result["gold"] is not None:
        rows = [
            (
                f"{row['from']:.0%}–{row['to']:.0%}",
                f"{row['groups']:,}",
                *map(_percent, (row["mean_share"], row["right"])),
            )
            for row in result["gold"]["calibration"]
        ]
        title = "Does the share of the vote say how often it is right?"
        yield _table(title, ("share", "groups", "mean share", "right"), rows)


def _table(title: str, header: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> RichTable:
    """Only words are broken, never figures; headings have one word per line."""
    headings = tuple(name.replace(" ", "\n") for name in header)
    return as_terminal(Table(headings, tuple(rows), title), wraps=True, justify="right")


def _facts(result: Mapping[str, Any]) -> dict[str, Cell]:
    votes, gold = result["votes"], result["gold"]
    popular = (f"{item['answer']} ({item['mean_share']:.0%})" for item in result["stock"]["popular"])
    facts: dict[str, Cell] = {
        "questions × completions": f"{result['questions']} × {' or '.join(map(str, result['group_sizes']))}",
        "groups (a question at a step), steps": f"{result['groups']:,}, {result['steps']}",
        "the most frequent answer has this share of the votes": _percent(votes["agreement"]),
        "its lead over the second": _percent(votes["margin"]),
        "questions with a sharp consensus (SCRL's rule)": _percent(votes["sharp_share"]),
        "questions on which all completions agree": _percent(votes["unanimous_share"]),
        "completions without an answer": _percent(votes["no_answer_share"]),
        "completions that were cut": _percent(votes["cut_share"]),
        "most popular answers over all questions, mean share": ", ".join(popular),
    }
    if result["steps"] == 1:
        del facts["groups (a question at a step), steps"]
    if gold is not None:
        facts |= {
            "questions with gold": f"{gold['questions']:,}",
            "the most frequent answer is right (ties shared)": _figure(gold["majority_accuracy"]),
            "a single completion is right (pass@1)": _figure(gold["pass@1"]),
            "some completion is right (pass@n)": _figure(gold["pass@n"]),
            "wrong answers more uncertain than the right one (AUROC)": _figure(gold["entropy_auroc"]),
            "… among rare answers, where the gate decides": _figure(gold["rare_entropy_auroc"]),
        }
    return facts


def _methods(result: Mapping[str, Any]) -> RichTable:
    has_gold = result["gold"] is not None
    has_stock = result["questions"] > MIN_OTHERS
    header = ["method", "labels", "ruled out", *["stock labels", "→ stock"] * has_stock]
    header += ["label right", "→ right", *["→ wrong stock"] * has_stock] if has_gold else []
    rows = []
    for name, figures in result["methods"].items():
        cells = [
            _percent(figures["coverage"]) if figures["has_labels"] else "none",
            f"{figures['negatives_per_question']:.1f}",
            *[_percent(figures["stock_label_share"]), push_text(figures["push_stock"])] * has_stock,
        ]
        if has_gold:
            right = {"mean": figures["positive_accuracy"], "interval": figures["positive_accuracy_interval"]}
            wrong_stock = [push_text(figures["push_stock_wrong"])] * has_stock
            cells += [_figure(right if right["interval"] else None), push_text(figures["push_right"]), *wrong_stock]
        rows.append((name, *cells))
    return _table("Methods: positive labels, answers ruled out a question, push (→) × 1,000", header, rows)


def _percent(share: float | None) -> Cell:
    return None if share is None else f"{share:.1%}"


def push_text(value: float | None) -> Cell:
    return None if value is None else f"{1000 * value:+.0f}"


def _figure(figure: Mapping[str, Any] | None) -> Cell:
    if figure is None:
        return None
    low, high = figure["interval"]
    return f"{figure['mean']:.1%} [{low:.0%}, {high:.0%}]"
