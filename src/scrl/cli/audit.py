"""`scrl audit`: would consensus lie on these questions, and which rule would notice?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrl.cli.columns import ESTIMATED, ColumnOptions
from scrl.cli.label import WHOLE, check_outputs
from scrl.credit.rule import credit_rule
from scrl.data.whole_files import write_whole
from scrl.lab.audit import AUDITED, audit_file

SHOWN = 5


def audit(
    rollouts: Path,
    /,
    *,
    method: tuple[str, ...] = AUDITED,
    reader: str = "boxed",
    out: Path | None = None,
    significant_digits: Annotated[int | None, WHOLE] = None,
    seed: Annotated[int, WHOLE] = 0,
    columns: Annotated[ColumnOptions, Parameter(name="*")] = ColumnOptions(),  # noqa: B008 - frozen
) -> None:
    """Look at stored completions before training: would consensus lie on these questions?

    Example: scrl audit rollouts.jsonl --out audit.json

    Shares and margins of the votes, what each method would label and where it would push, how labels change with fewer
    completions, and answers that are popular over all questions. With gold answers also how often labels are right.

    Parameters
    ----------
    rollouts
        File of completions, as for scrl label.
    method
        A method to look at; again for another. One that the file cannot serve is named with the reason.
    reader
        How to read an answer: boxed, last-box, number, last-number, choice, regex:PATTERN, or package.module.function.
    out
        File for all figures, as JSON.
    significant_digits
        Round numbers to this many digits before comparing them (physics answers).
    seed
        Seed of the resampling and of the intervals.
    """
    rules = {
        name: credit_rule(name, reader=reader, seed=seed, significant_digits=significant_digits) for name in method
    }
    check_outputs(rollouts, out)
    found = audit_file(columns.open(rollouts), rules, seed=seed)
    if out is not None:
        write_whole(out, json.dumps(found, indent=2) + "\n")
    console = Console(highlight=False, markup=False)
    for part in report(found):
        console.print(part)
    if out is not None:
        console.print(f"wrote {out}", soft_wrap=True)


def report(found: Mapping[str, Any]) -> Iterator[Table | Text | str]:
    """The audit for people: the verdict first, then the figures."""
    yield Text("Verdict", style="bold")
    for finding in found["verdict"]:
        yield Text(f"• {finding['words']}")
    if found["votes"]["entropy"] == "estimated":
        yield ESTIMATED
    yield _facts(found)
    yield _methods(found)
    for name, reason in found["refused"].items():
        yield f"{name} was left out: it needs {reason}."
    yield from _disagreements(found)
    if found["fewer_completions"]:
        yield _fewer(found)
    if found["gold"] is not None:
        yield _calibration(found["gold"])
    if found["windows"]:
        yield _windows(found["windows"])


def _table(title: str, *columns: str, wrapped: Collection[str] = ()) -> Table:
    """A table whose figures are never broken, only the words of `wrapped` columns; headings have a word a line."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(columns):
        heading = name.replace(" ", "\n")
        table.add_column(heading, justify="right" if number else "left", no_wrap=name not in wrapped)
    return table


def _facts(found: Mapping[str, Any]) -> Table:
    votes, stock, gold = found["votes"], found["stock"], found["gold"]
    table = _table("Votes", "", "", wrapped=("",))
    table.show_header = False
    sizes = " or ".join(map(str, found["group_sizes"]))
    table.add_row("questions × completions", f"{found['questions']} × {sizes}")
    if found["steps"] > 1:
        table.add_row("groups (a question at a step), steps", f"{found['groups']:,}, {found['steps']}")
    table.add_row("the most frequent answer has this share of the votes", _percent(votes["agreement"]))
    table.add_row("its lead over the second", _percent(votes["margin"]))
    table.add_row("questions with a sharp consensus (SCRL's rule)", _percent(votes["sharp_share"]))
    table.add_row("questions on which all completions agree", _percent(votes["unanimous_share"]))
    table.add_row("completions without an answer", _percent(votes["no_answer_share"]))
    table.add_row("completions that were cut", _percent(votes["cut_share"]))
    popular = ", ".join(f"{item['answer']} ({item['mean_share']:.0%})" for item in stock["popular"])
    table.add_row("most popular answers over all questions, mean share", Text(popular))
    if gold is not None:
        table.add_row("questions with gold", f"{gold['questions']:,}")
        table.add_row("the most frequent answer is right", _figure(gold["majority_accuracy"]))
        table.add_row("a single completion is right (pass@1)", _figure(gold["pass@1"]))
        table.add_row("some completion is right (pass@n)", _figure(gold["pass@n"]))
        table.add_row("wrong answers more uncertain than the right one (AUROC)", _figure(gold["entropy_auroc"]))
        table.add_row("… among rare answers, where the gate decides", _figure(gold["rare_entropy_auroc"]))
    return table


def _methods(found: Mapping[str, Any]) -> Table:
    has_gold = found["gold"] is not None
    names = ["labels", "ruled out", "stock labels", "→ stock"]
    table = _table(
        "Methods: positive labels, answers ruled out a question, push × 1,000",
        "method", *names, *(["label right", "→ right", "→ wrong stock"] if has_gold else []),
    )  # fmt: skip
    for name, figures in found["methods"].items():
        labels = _percent(figures["coverage"]) if figures["has_labels"] else "none"
        cells = [labels, f"{figures['negatives_per_question']:.1f}", _percent(figures["stock_label_share"])]
        cells.append(_push(figures["push_stock"]))
        if has_gold:
            right = {"mean": figures["positive_accuracy"], "interval": figures["positive_accuracy_interval"]}
            cells += [_figure(right if right["interval"] else None), _push(figures["push_right"])]
            cells.append(_push(figures["push_stock_wrong"]))
        table.add_row(name, *cells)
    return table


def _disagreements(found: Mapping[str, Any]) -> Iterator[str]:
    differing = found["disagreements"]
    if differing:
        first = ", ".join(dict.fromkeys(item["question_id"] for item in differing[: 2 * SHOWN]))
        yield f"Methods differ in their label on {len(differing):,} of {found['groups']:,} groups: {first}, …"


def _fewer(found: Mapping[str, Any]) -> Table:
    table = _table(
        "With fewer completions", "completions", "same majority", "sharp", "sharp label kept", "new sharp label"
    )
    for row in found["fewer_completions"]:
        shares = (row[name] for name in ("majority_same", "sharp_share", "sharp_same", "sharp_new"))
        table.add_row(str(row["completions"]), *map(_percent, shares))
    return table


def _calibration(gold: Mapping[str, Any]) -> Table:
    table = _table("Does the share of the vote say how often it is right?", "share", "groups", "mean share", "right")
    for row in gold["calibration"]:
        cells = (f"{row['groups']:,}", _percent(row["mean_share"]), _percent(row["right"]))
        table.add_row(f"{row['from']:.0%}–{row['to']:.0%}", *cells)
    return table


def _windows(windows: Sequence[Mapping[str, Any]]) -> Table:
    names = list(windows[0]["methods"])
    title = "Over the steps: frequent majorities; sharp labels right, popular elsewhere / not; push → stock"
    table = _table(title, "steps", "majorities", "popular", "not", *names, wrapped=("majorities",))
    for window in windows:
        wins = ", ".join(f"{answer}: {count}" for answer, count in window["stock"]["most_wins"][:SHOWN])
        labels = [window["stock"]["labels"][kind] for kind in ("popular", "other")]
        shown = [f"{label['labels']}" if label["right"] is None else _right_of(label) for label in labels]
        pushes = [_push(window["methods"][name]["push_stock"]) for name in names]
        table.add_row(f"{window['first_step']}–{window['last_step']}", Text(wins), *shown, *pushes)
    return table


def _right_of(label: Mapping[str, Any]) -> str:
    return f"{label['right']:.0%} of {label['labels']}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _push(value: float | None) -> str:
    return "–" if value is None else f"{1000 * value:+.0f}"


def _figure(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return "–"
    low, high = figure["interval"]
    return f"{figure['mean']:.1%} [{low:.0%}, {high:.0%}]"
