"""`report.html`: what one run did, or how several compare, on one page that needs nothing else.

All text on it is foreign until shown otherwise: completions are written by a model. So everything is escaped, the page
has no scripts, and its policy forbids the browser to load or run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from scrl.data.printable import printable
from scrl.data.whole_files import write_whole
from scrl.errors import InputError
from scrl.evaluation.answer_sheet import AnswerRow, answer_rows
from scrl.evaluation.transitions import majority_transitions, transition_words
from scrl.reporting.evaluations import Evaluation, Protocol, metrics_of
from scrl.reporting.label_totals import TOTALS, TOTALS_WITH_GOLD
from scrl.reporting.plots import COLOURS, DASHES, draw_plots
from scrl.reporting.question_rows import BAR_STEP, question_rows
from scrl.reporting.result_rows import SHARES, score
from scrl.reporting.run_files import RunFiles, read_runs
from scrl.reporting.tables import NOTHING, Cell, Change, Table, as_html
from scrl.reporting.text import shorten

HEADLINE = frozenset(
    "method preset model questions completions trained questions_per_step questions_per_update steps seed "
    "optimizer.learning_rate sampling.temperature sampling.max_tokens loss_variant lora.rank".split()
)
"""Settings that the page always shows; the others unfold."""
ENTROPIES = {"entropy_mean": "entropy", "entropy_correct": "… if right", "entropy_incorrect": "… if wrong"}


def write_report(folders: Sequence[Path], out: Path) -> Path:
    """Read one run folder, or several to compare, and write the page; it appears whole or not at all."""
    if out.is_dir():
        raise InputError(f"{out}: cannot be written: it is a folder; give a file")
    if not out.parent.is_dir():
        raise InputError(f"{out}: cannot be written: there is no folder {out.parent}")
    page = render_report(read_runs(folders))
    try:
        write_whole(out, page, follows=out.parent.resolve() not in [each.resolve() for each in folders])
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from error
    return out


def render_report(runs: Sequence[RunFiles]) -> str:
    """The page as text: the same runs give the same bytes."""
    environment = Environment(
        loader=PackageLoader("scrl.reporting", ""),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    protocols = dict.fromkeys(protocol for run in runs for protocol in run.series)
    return environment.get_template("template.html").render(
        runs=runs,
        ungraded=[run.name for run in runs if not run.is_graded],
        settings=settings_of(runs),
        results=[before_and_after(protocol, runs) for protocol in protocols],
        plots=draw_plots(runs),
        is_unmeasured=all((run.config.get("evaluation") or {}).get("is_off") for run in runs),
        answers={run.name: rows for run in runs if (rows := answer_sheet(run))},
        totals=label_table(runs),
        questions=question_rows(runs),
        as_html=as_html,
        bar_step=BAR_STEP,
        num_colours=len(COLOURS),
        dashes=DASHES,
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, with its value in each run."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """The runs do not agree on it."""
        return len(set(self.values)) > 1

    @property
    def is_headline(self) -> bool:
        """The page shows it without unfolding."""
        return self.differs or self.name in HEADLINE


def settings_of(runs: Sequence[RunFiles]) -> list[Setting]:
    """All settings of all runs, nested ones under dotted names, in the order of the files."""
    flat = [dict(_flatten(run.config)) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    return [Setting(name, tuple(settings.get(name, NOTHING) for settings in flat)) for name in names]


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, shorten(_words(value), 300)


def _words(value: Any) -> str:
    if value is None or value in ([], {}):
        return NOTHING
    if value == "":
        return "''"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)


class BeforeAndAfter(NamedTuple):
    """One benchmark, evaluated in one way, by all runs that did."""

    protocol: Protocol
    is_graded: bool
    tables: dict[int, Table]
    """By the run's place: its first and last evaluation, and the change between them."""
    by_question: dict[int, str]
    """By the run's place: how many questions were learned, kept, lost or never right, where that is known."""


def before_and_after(protocol: Protocol, runs: Sequence[RunFiles]) -> BeforeAndAfter:
    """The first and the last evaluation of every run."""
    series = {place: run.series[protocol] for place, run in enumerate(runs) if protocol in run.series}
    ends = {place: lines[:1] if len(lines) == 1 else [lines[0], lines[-1]] for place, lines in series.items()}
    keys = {key for lines in ends.values() for line in lines for key in line}
    metrics = metrics_of([dict.fromkeys(keys)])
    columns = [*metrics, *(key for key in (*SHARES, *ENTROPIES) if key in keys)]
    header = ("", *(ENTROPIES.get(key, key) for key in columns))
    tables = {place: Table(header, tuple(_rows(lines, columns))) for place, lines in ends.items()}
    counts = {place: majority_transitions(lines[0], lines[1]) for place, lines in ends.items() if len(lines) == 2}
    by_question = {place: transition_words(found) for place, found in counts.items() if found is not None}
    return BeforeAndAfter(protocol, "pass@1" in keys, tables, by_question)


def _rows(lines: Sequence[Evaluation], columns: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
    for line in lines:
        cells = (None if key not in line else line[key] if key in ENTROPIES else score(key, [line]) for key in columns)
        yield f"step {line['step']}", *cells
    if len(lines) == 2:
        first, last = lines
        changes = (
            Change(last[key] - first[key], key not in ENTROPIES) if key in first and key in last else None
            for key in columns
        )
        yield "change", *changes


def answer_sheet(run: RunFiles) -> list[AnswerRow]:
    """What the model answers to the questions it was trained on, the most agreed first; empty where unmeasured."""
    measured = [line for line in run.evaluations if line["benchmark"] == "stream" and line.get("answers")]
    if not measured:
        return []
    rows = answer_rows(measured[-1], measured[0] if len(measured) > 1 else None)
    return sorted(rows, key=lambda row: -row.share)


def label_table(runs: Sequence[RunFiles]) -> Table:
    """What the labels add up to; without gold, only what needs none."""
    shown = [*TOTALS, *(TOTALS_WITH_GOLD if any(run.is_graded for run in runs) else ())]
    return Table(
        header=("", *(run.name for run in runs)),
        rows=tuple((words, *(run.totals[words] for run in runs)) for words in shown),
    )
