"""`scrl label`: labels, rewards and advantages for completions that were sampled elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.table import Table as RichTable

from scrl.cli.answers import FEW, SHOWN
from scrl.cli.file_options import DEFAULTS, ESTIMATED, PUSH, WHOLE, AsOptions, FileOptions, check_outputs
from scrl.cli.settings import Words, split_words
from scrl.cli.terminal import plain_console
from scrl.credit.elsewhere import NUM_STOCK
from scrl.credit.methods import METHODS, find_method
from scrl.credit.rule import CreditRule, credit_rule, too_few_to_rule_out
from scrl.errors import ConfigError, InputError
from scrl.files.whole_files import write_whole
from scrl.lab.label import label_file
from scrl.lab.stored_groups import several_golds_note
from scrl.reporting.tables import Cell, Table, as_terminal
from scrl.reporting.text import counted, shorten
from scrl.setting_names import Names, as_option

_SAMPLED = "the completions of the file were sampled already; it is a setting of scrl train"
NOT_HERE = {
    **dict.fromkeys(("model", "questions", "temperature", "max_tokens"), _SAMPLED),
    "completions": "all completions of the file vote; --trained says how many of them are trained on",
    "steps": "votes are counted step by step, as the file has them",
    "learning_rate": "nothing is trained here; it is a setting of scrl train",
}


def label(
    *words: Words,
    method: str = "scrl",
    preset: str = "paper",
    out: Path | None = None,
    summary: Path | None = None,
    audit: Path | None = None,
    trained: Annotated[int | None, WHOLE] = None,
    seed: Annotated[int, WHOLE] = 0,
    label_votes: Path | None = None,
    file: AsOptions = DEFAULTS,
) -> None:
    """Label the completions of a rollout file: what would this method trust, rule out and reward?

    Example: scrl label rollouts.jsonl --method scrl --out labels.jsonl --summary summary.json

    Every line of the file is one completion: {"question_id": "q1", "completion": "… \\boxed{4}", "entropy": 0.3}.
    Optional: "gold", the bare right answer, to see how often labels are right (it never changes one); "answer", an
    answer that was read already, taken instead of the completion; "step", as votes count step by step; "sample".

    Parameters
    ----------
    words
        The rollout file, .jsonl or .jsonl.gz, or completions as TRL, verl, lm-eval or OpenAI's API write them, lists of
        them or a table; then any setting of the method, as --min-share 0.5, which scrl methods NAME lists.
    method
        The method: scrl, ttrl, … (scrl methods lists all), or your own, as module:NAME.
    preset
        paper, or official (the authors' released code).
    out
        Labels file to write, one line per completion in the order of the rollouts; replaced if it exists.
    summary
        File for the summary as JSON.
    audit
        File that says, for each class of answers, which spellings were merged, and by what.
    trained
        Train on this many completions of each question: advantages are over them, null for the others.
    seed
        Seed for choosing the trained completions.
    label_votes
        Completions of the same questions, the start model's for instance, that vote in place of these: labels and
        shares are theirs, as in training with label_votes: start.
    """
    alone, given = split_words(words)
    if len(alone) != 1:
        raise InputError(f"scrl label ROLLOUTS: give one file of completions; got {' '.join(alone) or 'none'}")
    rollouts, chosen_settings = Path(alone[0]), _credit_settings(method, given)
    choices: dict[str, Any] = {**file.reading(rollouts), **chosen_settings}
    rule = credit_rule(method, preset=preset, num_trained=trained, seed=seed, **choices)
    check_outputs(rollouts, out, summary, audit, label_votes=label_votes)
    source = file.open(rollouts, label_votes)
    with Console(stderr=True).status(f"labelling {rollouts}"):
        result = label_file(source, rule, out=out, audit=audit)
    if summary is not None:
        write_whole(summary, json.dumps(result, indent=2) + "\n")
    console = plain_console()
    console.print(f"{rule.method.name}: {rule.method.idea}")
    table = as_terminal(summary_table(result))
    table.columns[0].no_wrap = False
    console.print(table)
    if rule.method.has_labels:
        console.print(labels_table(result["labels"]))
    for line in remarks(result, rule):
        console.print(line, style="yellow")
    for path in filter(None, (out, summary, audit)):
        console.print(f"wrote {path}", soft_wrap=True)


def _credit_settings(method: str, given: Sequence[str]) -> dict[str, Any]:
    """The settings of the method; an unknown one may also be a mistyped option of the command."""
    settings = {}
    for text in given:
        name, _, value = text.partition("=")
        settings[name.removeprefix("credit.")] = value
    options = [name for name, p in signature(label).parameters.items() if p.kind is p.KEYWORD_ONLY and name != "file"]
    options += [field.name for field in fields(FileOptions)]
    names = Names(find_method(method).settings, {}, not_here=NOT_HERE, listed_by=f"scrl methods {method}")
    for name in names.unknown(settings):
        if name in METHODS["scrl"].settings.model_fields:
            raise ConfigError(f"{as_option(name)}: method {method!r} has no such setting (scrl has)")
        raise ConfigError(names.about(name, is_option=True, more=options))
    return settings


_ROWS: dict[str, str] = {
    "questions": "questions (once per step)",
    "completions": "completions",
    "no_answer_share": "without an answer",
    "positive_questions": "questions with a positive label",
    "abstained_questions": "questions without one",
    "negative_answers": "answers ruled out",
    "entropy_only_questions": "questions whose only signal is entropy",
    "merged_spellings": "spellings merged into another",
    "gold_questions": "questions with gold",
    "majority_accuracy": "most frequent answer is right (ties shared)",
    "positive_accuracy": "positive label is right",
    "negative_accuracy": "ruled-out answer is wrong",
    "truth_flagged": "right answer was ruled out",
    "entropy_auroc": "wrong answers more uncertain than the right one",
    "pass@1": "completions that are right (pass@1)",
    "pass@n": "questions with a right completion (pass@n)",
    "stock_share": "completions that give a stock answer",
    "stock_label_share": "positive labels that are stock answers",
    "push_right": "push towards right answers, × 1,000",
    "push_stock": "push towards stock answers, × 1,000",
    "push_stock_wrong": "push towards stock answers that are wrong, × 1,000",
}


_OF_LABELS = (
    "positive_questions", "abstained_questions", "negative_answers", "positive_accuracy", "negative_accuracy",
    "truth_flagged", "stock_label_share",
)  # fmt: skip


def summary_table(result: dict[str, Any]) -> Table:
    def shown(key: str) -> Cell:
        value = result[key]
        if key.startswith("push_") and value is not None:
            return f"{1000 * value:+.1f}"
        return value if value is None else f"{value:.1%}" if isinstance(value, float) else f"{value:,}"

    absent = () if result["has_labels"] else _OF_LABELS
    rows = tuple((words, shown(key)) for key, words in _ROWS.items() if key in result and key not in absent)
    preset = "" if result["preset"] == "paper" else f" ({result['preset']})"
    return Table(("", ""), rows, f"{result['method']}{preset}")


def labels_table(labels: Sequence[dict[str, Any]]) -> RichTable:
    """The label of each question at its last step; of the first few where there are many."""
    rows = list({row["question_id"]: row for row in labels}.values())
    shown = rows if len(rows) <= FEW else rows[:SHOWN]
    title = f"Labels: {len(shown)} of {len(rows)}{'' if shown == rows else '; --out writes all'}"
    cells = tuple((shorten(row["question_id"], 24), row["label"], f"{row['share']:.0%}") for row in shown)
    table = as_terminal(Table(("question", "label", "share"), cells, title))
    table.columns[1].no_wrap, table.columns[1].overflow = False, "fold"  # never cut
    return table


def remarks(result: dict[str, Any], rule: CreditRule) -> Iterator[str]:
    if result["entropy_only_questions"] and not rule.settings.std_floor:
        where = f"On {result['entropy_only_questions']} of {result['questions']} questions"
        what = "no label tells the completions apart, and the entropy term alone is trained on at full strength"
        yield f"{where} {what}. --std-floor 0.18 damps that."
    if "estimated_entropies" in result and "entropy" in rule.needs:
        yield ESTIMATED
    if "several_golds" in result:
        yield several_golds_note(result["several_golds"])
    if result["given_answers"]:
        read_before = counted(result["given_answers"], "completion")
        yield f"{read_before} came with an 'answer', which was taken instead of reading the text."
    if "push_stock" in result or "elsewhere" in rule.needs:
        if result["steps"] == 1:
            which = "The file has one step: stock answers are the {} most popular answers of all other questions"
        else:
            which = "Stock answers are the {} most popular answers of the other questions at their last visit"
        yield f"{which.format(NUM_STOCK)}. {PUSH}"
    if result["no_answer_share"] > 0.9:
        yield "Hardly any completion has an answer. Try another --reader, such as boxed or last-number."
    if rule.num_trained == 1 and rule.method.advantage is None:
        yield "With --trained 1 every advantage is 0; train on two completions or more."
    yield from too_few_to_rule_out(rule, {int(size): count for size, count in result["group_sizes"].items()})
