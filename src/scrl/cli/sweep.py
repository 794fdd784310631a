"""`scrl sweep`: thousands of settings of a method on stored completions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table as RichTable

from scrl.cli.audit import push_text
from scrl.cli.file_options import DEFAULTS, ESTIMATED, PUSH, WHOLE, AsOptions, check_outputs
from scrl.cli.terminal import plain_console
from scrl.credit.elsewhere import MIN_OTHERS, few_others
from scrl.credit.methods import find_method
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.files.whole_files import write_whole
from scrl.lab.stored_groups import StoredGroup, groups_for, lacking, several_golds, several_golds_note
from scrl.lab.sweep import front, sweep_settings
from scrl.reporting.tables import Cell, Table, as_csv, as_terminal, show_whole
from scrl.reporting.text import sentence
from scrl.setting_names import as_option

SWEPT = ("scrl", "ttrl", "contrast")
SHOWN = 12
"""Rows of the front that are shown; the file has all settings."""


def sweep(
    rollouts: Path,
    /,
    *,
    method: tuple[str, ...] = SWEPT,
    preset: str = "paper",
    out: Path | None = None,
    seed: Annotated[int, WHOLE] = 0,
    file: AsOptions = DEFAULTS,
    **settings: Annotated[str, Parameter(help="Values of a setting to try, with commas: --min-share 0.25,0.375,0.5")],
) -> None:
    """Try thousands of settings on stored completions: how many questions get a label, and how often is it right?

    Example: scrl sweep rollouts.jsonl --out sweep.csv
    Example: scrl sweep rollouts.jsonl --method scrl --min-share 0.25,0.375,0.5 --min-margin 0,0.125

    With gold answers it shows the settings that no other beats in both coverage and precision; without, in coverage and
    stability: how often a resample of the completions gives the same label. Every figure is that of scrl label.

    Parameters
    ----------
    rollouts
        File of completions, as for scrl label.
    method
        A method; repeat for more. One that the file cannot serve is named with the reason.
    preset
        paper, or official (the authors' released code).
    out
        File for all settings, one row each (.csv).
    seed
        Seed of the resampling.
    """
    tried = _values(method, settings, preset)
    check_outputs(rollouts, out)
    reading = file.reading(rollouts)
    rules = {name: credit_rule(name, preset=preset, **reading) for name in method}
    groups = groups_for(file.open(rollouts), list(rules.values()))
    console = plain_console()
    rows: list[dict[str, Any]] = []
    for name, rule in rules.items():
        reason = lacking(rule, groups)
        if reason is not None:
            console.print(f"{name} was left out: it needs {reason}.")
            continue
        values = {key: tried[key] for key in tried if key in rule.method.settings.model_fields}
        rows += sweep_settings(groups, name, values, preset=preset, seed=seed)
    if not rows:
        raise InputError(f"{rollouts}: no method is left. Use --method ttrl, which needs votes alone.")
    if out is not None:
        write_whole(out, as_csv(all_settings(rows)))
    unlabelled = {name for name, rule in rules.items() if not rule.method.has_labels}
    for part in report(rows, groups, unlabelled):
        if isinstance(part, RichTable):
            show_whole(part, console)
        else:
            console.print(part)
    if out is not None:
        console.print(f"wrote {out}", soft_wrap=True)


def _values(methods: Sequence[str], settings: Mapping[str, str], preset: str) -> dict[str, list[str]]:
    """The values to try, by setting; each must be valid for a setting of one of the methods."""
    fields = {method: find_method(method).settings.model_fields for method in methods}
    names = {name for own in fields.values() for name in own}
    values = {name.replace("-", "_"): [each.strip() for each in text.split(",")] for name, text in settings.items()}
    for name in values:
        if name not in names:
            hint = did_you_mean(as_option(name), map(as_option, names))
            raise ConfigError(f"unknown option {as_option(name)}.{hint}")
    for method, own in fields.items():
        for name in values.keys() & own.keys():
            for value in values[name]:
                choice: dict[str, Any] = {name: value}
                credit_rule(method, preset=preset, **choice)
    return values


def all_settings(rows: Sequence[Mapping[str, Any]]) -> Table:
    """All rows, settings before figures; a cell is empty where a method has no such setting, or no such figure."""
    names = dict.fromkeys(name for row in rows for name in row)
    header = sorted(names, key=lambda name: name in _FIGURES)
    return Table(tuple(header), tuple(tuple(row.get(name) for name in header) for row in rows))


_FIGURES = (
    "questions", "positive_questions", "coverage", "negative_answers", "entropy_only_questions", "positive_accuracy",
    "negative_accuracy", "truth_flagged", "stock_label_share", "push_stock", "push_right", "push_stock_wrong",
    "stability",
)  # fmt: skip


_SHARES = {"coverage": "labels", "positive_accuracy": "right", "stability": "stable", "stock_label_share": "stock"}
_PUSHES = {"push_stock": "→ stock", "push_right": "→ right", "push_stock_wrong": "→ stock wrong"}
"""The figures shown, and their headings."""
_OF_GOLD = ("positive_accuracy", "push_right", "push_stock_wrong")


def report(
    rows: Sequence[Mapping[str, Any]], groups: Sequence[StoredGroup], unlabelled: Collection[str]
) -> Iterator[RichTable | str]:
    """The front for people, and where it and the methods without labels, `unlabelled`, push."""
    has_gold = any(stored.truth is not None for stored in groups)
    quality, word = ("positive_accuracy", "precision") if has_gold else ("stability", "stability")
    shares, pushes = (
        {name: head for name, head in heads.items() if has_gold or name not in _OF_GOLD} for heads in (_SHARES, _PUSHES)
    )
    num_questions = len({stored.question_id for stored in groups})
    if num_questions <= MIN_OTHERS:
        shares, pushes = ({name: h for name, h in heads.items() if "stock" not in name} for heads in (shares, pushes))
    best = front(rows, quality)
    shown = _spread(best)
    yield f"{len(rows):,} setting{'s' * (len(rows) != 1)} on {len(groups):,} group{'s' * (len(groups) != 1)}."
    if shown:
        title = f"No setting beats these in both coverage and {word}"
        yield _rows_table(f"{title} ({len(shown)} of {len(best)})", shown, shares, "{:.1%}".format)
        yield _rows_table("Where these push, × 1,000", shown, pushes, push_text)
    judged = {row["method"] for row in rows if row[quality] is not None} | set(unlabelled)
    if others := [row for row in rows if row["method"] not in judged]:
        names = ", ".join(dict.fromkeys(row["method"] for row in others))
        some = _spread(sorted(others, key=itemgetter("coverage")))
        heads = {name: head for name, head in shares.items() if name != quality}
        yield _rows_table(f"By coverage; of {names} no {word} is known", some, heads, "{:.1%}".format)
        yield _rows_table("Where these push, × 1,000", some, pushes, push_text)
    without = [row for row in rows if row["method"] in unlabelled]
    if without:
        yield _rows_table("Without labels: where it pushes, × 1,000", without, pushes, push_text)
    if any(stored.num_estimates for stored in groups):
        yield ESTIMATED
    if number := several_golds(groups):
        yield several_golds_note(number)
    if num_questions <= MIN_OTHERS:
        yield sentence(few_others(num_questions - 1))
    if has_gold:
        yield f"Chosen on these questions, so expect less on others. {PUSH}"
    else:
        yield "Stability says how often a resample gives the same label, not how often it is right: that takes gold."


def _spread(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """All rows, or as many as are shown, from the first to the last."""
    last = len(rows) - 1
    return rows if last < SHOWN else [rows[round(i * last / (SHOWN - 1))] for i in range(SHOWN)]


def _rows_table(
    title: str, rows: Sequence[Mapping[str, Any]], figures: Mapping[str, str], shown: Callable[[float], Cell]
) -> RichTable:
    """One row per setting: the method, each setting in its own column, and some of the figures."""
    settings = list(dict.fromkeys(name for row in rows for name in row if name not in (*_FIGURES, "method")))
    lines = []
    for row in rows:
        chosen = (f"{value:.12g}" if isinstance(value := row.get(name), float) else value for name in settings)
        numbers = (None if row[name] is None else shown(row[name]) for name in figures)
        lines.append((row["method"], *chosen, *numbers))
    names = [name.replace("_", "\n") for name in settings]
    heads = (*names, *(head.replace("stock wrong", "stock\nwrong") for head in figures.values()))
    return as_terminal(Table(("method", *heads), tuple(lines), title), justify="right")
