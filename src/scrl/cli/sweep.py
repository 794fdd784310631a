"""`scrl sweep`: thousands of settings of a method on stored completions."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scrl.cli.columns import ESTIMATED, ColumnOptions
from scrl.cli.label import WHOLE, check_outputs
from scrl.credit.methods import find_method
from scrl.credit.rule import credit_rule
from scrl.data.whole_files import write_whole
from scrl.errors import ConfigError, InputError, did_you_mean
from scrl.lab.stored_groups import StoredGroup, lacking, stored_groups
from scrl.lab.sweep import GRID, front, sweep_settings

SWEPT = ("scrl", "ttrl", "contrast")
SHOWN = 12
"""Rows of the front on the screen; the file has all settings."""


def sweep(
    rollouts: Path,
    /,
    *,
    method: tuple[str, ...] = SWEPT,
    preset: str = "paper",
    reader: str = "boxed",
    out: Path | None = None,
    significant_digits: Annotated[int | None, WHOLE] = None,
    seed: Annotated[int, WHOLE] = 0,
    columns: Annotated[ColumnOptions, Parameter(name="*")] = ColumnOptions(),  # noqa: B008 - frozen
    **settings: Annotated[str, Parameter(help="Values of a setting to try, with commas: --min-share 0.25,0.375,0.5")],
) -> None:
    """Try thousands of settings on stored completions: how many questions get a label, and how right are these?

    Example: scrl sweep rollouts.jsonl --out sweep.csv

    Example: scrl sweep rollouts.jsonl --method scrl --min-share 0.25,0.375,0.5 --min-margin 0,0.125

    With gold answers it shows the settings that no other beats in both coverage and precision; without, in coverage and
    stability: how often a resample of the completions gives the same label. Every figure is that of scrl label.

    Parameters
    ----------
    rollouts
        File of completions, as for scrl label.
    method
        A method; again for another. One that the file cannot serve is named with the reason.
    preset
        paper, or official (the authors' released code).
    reader
        How to read an answer: boxed, last-box, number, last-number, choice, regex:PATTERN, or package.module.function.
    out
        File for all settings, one row each (.csv).
    significant_digits
        Round numbers to this many digits before comparing them (physics answers).
    seed
        Seed of the resampling.
    """
    given = _values(method, settings, preset)
    check_outputs(rollouts, out)
    rule = credit_rule(method[0], preset=preset, reader=reader, significant_digits=significant_digits)
    groups = stored_groups(columns.open(rollouts), rule, keep_texts=False)
    console = Console(highlight=False, markup=False)
    rows: list[dict[str, Any]] = []
    for name in method:
        reason = lacking(credit_rule(name, preset=preset), groups)
        if reason is not None:
            console.print(f"{name} was left out: it needs {reason}.")
            continue
        values = {key: given[key] for key in given if key in find_method(name).settings.model_fields}
        rows += sweep_settings(groups, name, values, preset=preset, seed=seed)
    if not rows:
        raise InputError(f"{rollouts}: no method is left. Use --method ttrl, which needs votes alone.")
    if out is not None:
        write_whole(out, table_text(rows))
    for part in report(rows, groups):
        console.print(part)
    if out is not None:
        console.print(f"wrote {out}", soft_wrap=True)


def _values(methods: Sequence[str], settings: Mapping[str, str], preset: str) -> dict[str, list[str]]:
    """The values to try, by setting; each must be a setting of one of the methods, and possible there."""
    known = {name for method in methods for name in find_method(method).settings.model_fields}
    for name in settings:
        if name.replace("-", "_") not in known:
            flags = [f"--{each.replace('_', '-')}" for each in known]
            raise ConfigError(f"unknown option --{name}.{did_you_mean(f'--{name}', flags)}")
    given = {name.replace("-", "_"): [each.strip() for each in text.split(",")] for name, text in settings.items()}
    for method in methods:
        for name in given.keys() & find_method(method).settings.model_fields.keys():
            for value in given[name]:
                chosen: dict[str, Any] = {name: value}
                credit_rule(method, preset=preset, **chosen)
    return given


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """All rows as CSV; a cell is empty where a method has no such setting, or a figure is not defined."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    figures = [name for name in names if name in _FIGURES]
    settings = [name for name in names if name not in _FIGURES]
    writer = csv.DictWriter(text, [*settings, *figures], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


_FIGURES = (
    "questions", "positive_questions", "coverage", "negative_answers", "entropy_only_questions", "positive_accuracy",
    "negative_accuracy", "truth_flagged", "stock_label_share", "push_stock", "push_right", "push_stock_wrong",
    "stability",
)  # fmt: skip


def report(rows: Sequence[Mapping[str, Any]], groups: Sequence[StoredGroup]) -> Iterator[Table | str]:
    """The front for people, and the pushes of methods without labels."""
    has_gold = any(stored.truth is not None for stored in groups)
    quality = "positive_accuracy" if has_gold else "stability"
    best = front(rows, quality)
    shown = best if len(best) <= SHOWN else [best[round(i * (len(best) - 1) / (SHOWN - 1))] for i in range(SHOWN)]
    yield f"{len(rows):,} settings on {len(groups):,} groups."
    if shown:
        title = f"No setting beats these in both coverage and {'precision' if has_gold else 'stability'}"
        yield _rows_table(f"{title} ({len(shown)} of {len(best)})", shown, has_gold=has_gold)
    without = [row for row in rows if not row["coverage"] and row["method"] == "contrast"]
    if without:
        yield _rows_table("Without labels: where it pushes", without, has_gold=has_gold)
    if any(stored.num_estimates for stored in groups):
        yield ESTIMATED
    if has_gold:
        yield "Chosen on these questions, so expect less on others. A push is the covariance of advantage and event."
    else:
        yield "Stability says how often a resample gives the same label, not how often it is right: that takes gold."


def _rows_table(title: str, rows: Sequence[Mapping[str, Any]], *, has_gold: bool) -> Table:
    names = ["coverage", *(["positive_accuracy"] if has_gold else []), "stability", "stock_label_share"]
    pushes = ["push_stock", *(["push_right", "push_stock_wrong"] if has_gold else [])]
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in (
        "setting",
        "labels",
        *(["right"] if has_gold else []),
        "stable",
        "stock",
        *(f"→ {n[5:]}" for n in pushes),
    ):
        table.add_column(name.replace("_", " "), justify="left" if name == "setting" else "right")
    for row in rows:
        chosen = (f"{name}={row[name]:g}" for name in GRID.get(row["method"], {}) if name in row)
        shares = ("–" if row[name] is None else f"{row[name]:.1%}" for name in names)
        moved = ("–" if row[name] is None else f"{1000 * row[name]:+.0f}" for name in pushes)
        table.add_row(" ".join([row["method"], *chosen]), *shares, *moved)
    return table
