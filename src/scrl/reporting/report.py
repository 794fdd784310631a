"""`report.html`: what runs did, or what files of completions hold, on one self-contained page.

All text on it is untrusted by default: completions are written by a model. So everything is escaped, the only script is
the page's own, known to the browser by its hash, and the page's policy forbids loading or running anything else.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.completion_files import CompletionFile
from scrl.errors import InputError
from scrl.evaluation.answer_sheet import AnswerRow, how_to_measure, run_answers, why_none_is_trusted, with_answers
from scrl.evaluation.statistics import TIES, Difference, majority_transitions, paired_difference
from scrl.files.printable import printable
from scrl.files.whole_files import write_whole
from scrl.lab.stored_groups import several_golds_note
from scrl.reporting.comparison import RESAMPLING_SEED
from scrl.reporting.evaluations import BY_QUESTION, Evaluation, EvaluationProtocol, metrics_of
from scrl.reporting.page_data import page_data
from scrl.reporting.plots import COLOURS, DASHES, EVALUATION, draw_plots
from scrl.reporting.result_rows import SHARES, score
from scrl.reporting.sources import Source, name_places, read_run, read_stored
from scrl.reporting.tables import NOTHING, Cell, Change, Table, as_html
from scrl.reporting.text import percent, sentence, shorten, templates
from scrl.settings import leaves

HEADLINE = frozenset(
    "method preset model questions completions trained questions_per_step questions_per_update steps seed "
    "optimizer.learning_rate sampling.temperature sampling.max_tokens loss_variant lora.rank".split()
)
ENTROPIES = {"entropy_mean": "entropy", "entropy_correct": "entropy if right", "entropy_incorrect": "entropy if wrong"}


def write_report(places: Sequence[Path | CompletionFile], out: Path, rule: CreditRule | None = None) -> Path:
    """Read folders of runs and files of completions, and write the page; it appears whole or not at all.

    `rule` says how answers in files of completions are read and compared.
    """
    names = name_places([place.path if isinstance(place, CompletionFile) else place for place in places])
    rule = rule or credit_rule("ttrl")
    page = render_report([
        read_stored(place, rule, name) if isinstance(place, CompletionFile) else read_run(place, name)
        for place, name in zip(places, names, strict=True)
    ])  # fmt: skip
    try:
        write_whole(out, page)
    except OSError as error:
        raise InputError(f"{out}: cannot be written: {error.strerror or error}") from error
    return out


def render_report(sources: Sequence[Source]) -> str:
    """The page as text: the same files give the same bytes."""
    environment = templates("reporting/page", finalize=printable)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    page = files("scrl.reporting").joinpath("page")
    script = "".join(page.joinpath(name).read_text(encoding="utf-8") for name in ("rules.js", "page.js"))
    runs = [source for source in sources if source.is_run]
    protocols = list(dict.fromkeys(protocol for run in runs for protocol in run.series))
    lead = next((p for p in protocols if any("pass@1" in line for run in runs for line in run.series.get(p, ()))), None)
    plots = draw_plots(runs)
    answers = [RunAnswers.of(run) for run in runs]
    return environment.get_template("page.html").render(
        sources=sources,
        runs=runs,
        ungraded=[source.name for source in sources if not source.is_graded],
        stories=[story_of(run, lead or next(iter(run.series), None), look) for look, run in enumerate(runs)],
        curves=[plot for plot in plots if plot.panel is EVALUATION],
        plots=[plot for plot in plots if plot.panel is not EVALUATION],
        results=[before_and_after(protocol, runs) for protocol in protocols],
        answers=[each for each in answers if each.rows],
        settings=settings_of(runs),
        data=page_data(sources),
        script=Markup(script),  # noqa: S704 - the package's own
        script_hash=b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode(),
        as_html=as_html,
        several_golds_note=several_golds_note,
        ties=TIES,
        percent=percent,
        sentence=sentence,
        num_colours=len(COLOURS),
        dashes=DASHES,
    )


class Story(NamedTuple):
    """What training did, on the benchmark at the top of the page."""

    look: int
    run: Source
    protocol: EvaluationProtocol | None
    metric: str = ""
    ends: tuple[Evaluation, ...] = ()
    """The first and the last evaluation, or the only one."""
    change: Difference | None = None
    """None unless both ends have values by question."""
    transitions: Mapping[str, int] | None = None


def story_of(run: Source, protocol: EvaluationProtocol | None, look: int) -> Story:
    """By pass@1 if there is gold, or else by agreement."""
    lines = run.series.get(protocol, []) if protocol is not None else []
    metric = next((name for name in ("pass@1", "agreement") if lines and all(name in line for line in lines)), "")
    if not metric:
        return Story(look, run, None)
    first, last = lines[0], lines[-1]
    if len(lines) == 1:
        return Story(look, run, protocol, metric, (first,))
    before, after = (line.get(metric + BY_QUESTION) or {} for line in (first, last))
    is_paired = bool(before) and before.keys() == after.keys()
    values = [[found[name] for name in sorted(before)] for found in (before, after)] if is_paired else []
    change = paired_difference(*values, seed=RESAMPLING_SEED) if values else None
    return Story(look, run, protocol, metric, (first, last), change, majority_transitions(first, last))


class RunAnswers(NamedTuple):
    """The answers of a run, those with most agreement first."""

    name: str
    rows: list[AnswerRow]
    note: str | None
    is_doubted: bool
    """Whether none of them is trusted, as the note says."""

    @classmethod
    def of(cls, run: Source) -> RunAnswers:
        rows, standing = sorted(run_answers(run.evaluations, run.standing), key=lambda row: -row.share), run.standing
        note = rows[0].note if rows else None
        is_doubted = bool(rows) and why_none_is_trusted(with_answers(run.evaluations)[-1], standing) is not None
        if standing is not None and note is not None and not is_doubted:
            note = f"{note}: {how_to_measure(run.folder, run.config, standing)}"
        return cls(run.name, rows, note, is_doubted)


class BeforeAndAfter(NamedTuple):
    """One benchmark, evaluated in one way, for all runs that have it."""

    protocol: EvaluationProtocol
    is_graded: bool
    tables: dict[int, Table]
    """By the run's index: the first and the last evaluation, and the change."""


def before_and_after(protocol: EvaluationProtocol, runs: Sequence[Source]) -> BeforeAndAfter:
    series = {place: run.series[protocol] for place, run in enumerate(runs) if protocol in run.series}
    ends = {place: lines[:1] if len(lines) == 1 else [lines[0], lines[-1]] for place, lines in series.items()}
    keys = {key for lines in ends.values() for line in lines for key in line}
    names = [*metrics_of([dict.fromkeys(keys)]), *(key for key in (*SHARES, *ENTROPIES) if key in keys)]
    tables = {}
    for place, lines in ends.items():
        header = ("", *(f"step {line['step']}" for line in lines), *["change"] * (len(lines) > 1))
        tables[place] = Table(header, tuple((ENTROPIES.get(name, name), *_cells(lines, name)) for name in names))
    return BeforeAndAfter(protocol, "pass@1" in keys, tables)


def _cells(lines: Sequence[Evaluation], name: str) -> Iterator[Cell]:
    for line in lines:
        yield None if name not in line else line[name] if name in ENTROPIES else score(name, [line])
    if len(lines) == 2:
        first, last = lines
        yield Change(last[name] - first[name], name not in ENTROPIES) if name in first and name in last else None


class Setting(NamedTuple):
    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1

    @property
    def is_headline(self) -> bool:
        return self.differs or self.name in HEADLINE


def settings_of(runs: Sequence[Source]) -> list[Setting]:
    """All settings of all runs, nested ones under dotted names, in the order of the files."""
    flat = [{name: shorten(_words(value), 300) for name, value in leaves(run.config)} for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    return [Setting(name, tuple(settings.get(name, NOTHING) for settings in flat)) for name in names]


def _words(value: Any) -> str:
    if value is None or value in ([], {}):
        return NOTHING
    if value == "":
        return "''"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(_words, value)) if isinstance(value, list) else str(value)
