"""`scrl answers`: what a model answers, how far its completions agree, and how far to trust it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table as RichTable
from rich.text import Text

from scrl.answers.forms import explain_answer
from scrl.answers.relations import Form
from scrl.cli.evaluate import given_settings, measure_and_show, measurement_settings
from scrl.cli.file_options import FileOptions
from scrl.cli.settings import Words
from scrl.cli.terminal import plain_console, say
from scrl.credit.rule import credit_rule
from scrl.errors import DataError, InputError
from scrl.evaluation import answer_sheet as sheet
from scrl.evaluation.settings import NAMES, file_name
from scrl.evaluation.trust import Choice
from scrl.files.folders import new_run_folder
from scrl.lab.stored_groups import voted
from scrl.reporting.evaluations import EVALUATIONS, Evaluation, Place, holds_evaluations, read_place, split_step
from scrl.reporting.tables import Table, as_terminal
from scrl.setting_names import as_option
from scrl.settings import leaves

UNCHECKED = "--max-error: needs checked answers; draw some with --draw-check 100, then give --check"
OF_A_FILE = ("reader", "significant_digits", "completion_column", "question_column", "id_column", "gold_column")
"""Options for a file of completions."""
SHOWN, FEW, QUESTION_WIDTH = 5, 20, 36
"""Rows of a table, unless there are few questions: then all."""


def answers(
    *words: Words,
    benchmark: str | None = None,
    out: Path | None = None,
    draw_check: int | None = None,
    check: Path | None = None,
    max_error: float | None = None,
    population: Annotated[bool, Parameter(negative="")] = False,
    completion_column: str | None = None,
    explain: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    r"""Write the answer to every question, from a run's files or with any model: answers.jsonl and answers.csv.

    Example: scrl answers runs/001
    Example: scrl answers --model Qwen/Qwen2.5-3B --questions mine.jsonl --completions 16
    Example: scrl answers rollouts.jsonl --reader number
    Example: scrl answers runs/001 --draw-check 100
    Example: scrl answers runs/001 --check checks.csv --max-error 0.2
    Example: scrl answers --explain '\frac12' 0.50 'x = 1/2'

    Parameters
    ----------
    words
        The folder of a run or of scrl evaluate (runs/001@40 for one step); completions, as for scrl label, with its
        options --reader and --…-column; or a model and its questions, with or without option names: the model answers
        them first, with the settings of scrl evaluate.
    benchmark
        Which set of questions, where the place has several; by default the questions trained on.
    out
        The folder for the files; by default the place itself.
    draw_check
        Write checks.csv with this many questions, drawn at random, for you to fill in the right answers; where it
        exists, add this many.
    check
        A file with the columns question_id and answer: right answers of a random subset of these questions; by default
        checks.csv, once it is filled in.
    max_error
        With --check: answer as many questions as possible with at most this share of them wrong, at 95 % confidence.
    population
        Bound the error rate of the population the questions are drawn from, not of these questions.
    completion_column
        Of a file of completions: the column with the completion, or a list.
    explain
        Show how the answers that follow are read, and which of them are the same; --significant-digits rounds them.
    """
    alone, given = given_settings(words)
    if explain:
        plain_console().print(Text("\n".join(explanation(alone, given))), soft_wrap=True)
        return
    if completion_column is not None:
        given["completion_column"] = completion_column
    place, questions = _places(alone, given)
    if max_error is not None and check is None and questions is not None:
        raise InputError(UNCHECKED)
    if max_error is not None and not 0 < max_error < 1:
        raise InputError(f"--max-error: must be above 0 and below 1; got {max_error}")
    console = plain_console()
    if questions is not None:
        settings = measurement_settings({**given, "model": place, "benchmarks": (questions,)})
        folder = new_run_folder(out)
        measure_and_show(settings, folder, console)
        place, out = str(folder), None
    is_evaluated = holds_evaluations(place)
    source = read_place(place) if is_evaluated else _voted(Path(place), given)
    after, before = _evaluations(source, benchmark)
    rows, choice, folder = sheet.answer_rows(after, before, source.standing), None, out or source.folder
    folder.mkdir(parents=True, exist_ok=True)
    # so that a run's answers to its own questions, after its last step, stay
    named = f"-{file_name(benchmark)}" if benchmark and len(source.benchmarks) > 1 and benchmark != "stream" else ""
    step = "" if source.step is None else f"-step-{source.step}"
    prefix = _prefix(place, is_evaluated=is_evaluated)
    checks_file = folder / f"{prefix}checks{named}.csv"
    if draw_check is not None:
        options = {"benchmark": benchmark} | ({} if is_evaluated else {name: given.get(name) for name in OF_A_FILE})
        said = [word for name, value in options.items() if value is not None for word in (as_option(name), str(value))]
        again = shlex.join(["scrl", "answers", place, *said, "--check", str(checks_file)])
        drawn = _draw(rows, draw_check, checks_file, seed=given.get("seed", 0))
        console.print(f"{drawn}: fill in the right answer of each, then {again}", soft_wrap=True)
        return
    filled, checks, is_asked_for = check or checks_file, None, check is not None or max_error is not None
    if check is None and not filled.is_file() and max_error is not None:
        raise InputError(UNCHECKED)
    if is_asked_for or filled.is_file():
        try:
            checks = sheet.read_checks(filled, rows)
        except DataError as error:
            if is_asked_for:
                raise
            say(console, f"not counted: {error}")
    if checks is not None:
        digits = sheet.digits_of(after)
        rows, choice = sheet.with_trust(rows, checks, max_error, significant_digits=digits, is_pool=not population)
        say(console, sheet.checked_note(rows, [*checks.values()].count(None), str(filled)))
    doubt = sheet.why_none_is_trusted(after, source.standing)
    for table in tables(rows, is_doubted=doubt is not None):
        console.print(table)
    say(console, *notes(source, after["step"], doubt))
    if choice is not None and max_error is not None:
        say(console, verdict(choice, rows, max_error, population))
    name = f"{prefix}answers{named}{step}"
    _refuse_to_replace(folder / f"{name}.jsonl", folder / f"{name}.csv")
    files = sheet.write_answers(rows, folder, name)
    console.print(f"wrote {' and '.join(map(str, files))}", soft_wrap=True)


def _places(alone: Sequence[str], given: Mapping[str, Any]) -> tuple[str, str | None]:
    """What to look at: a folder, or a model and its questions."""
    named = [given["model"]] if "model" in given else []
    places = [*named, *alone, *given.get("benchmarks", ())]
    is_sampled = len(places) > 1 or bool(named)
    if len(places) != 1 + is_sampled or (len(places) == 1 and not alone):
        raise InputError("scrl answers: give the folder of a run, or --model and one set of --questions")
    fitting = () if holds_evaluations(places[0]) else OF_A_FILE
    unused, _ = next(leaves({name: value for name, value in given.items() if name not in ("seed", *fitting)}))
    if unused and not is_sampled:
        option = as_option({setting: name for name, setting in NAMES.short.items()}.get(unused, unused))
        raise InputError(f"{option}: {places[0]} has its completions already; leave it out, or give --questions")
    if type(given.get("seed", 0)) is not int:
        raise InputError(f"--seed: must be a whole number; got {given['seed']!r}")
    return str(places[0]), str(places[1]) if is_sampled else None


def _voted(path: Path, given: Mapping[str, Any]) -> Place:
    """The votes in a file or folder of completions."""
    options = FileOptions(**{name: given.get(name) for name in OF_A_FILE})
    record = voted(options.open(path), credit_rule("ttrl", **options.reading(path)))
    return Place(str(path), path.resolve().parent, (record,))


def _prefix(place: str, *, is_evaluated: bool) -> str:
    """What begins the names of files beside completions or a renamed evaluations.jsonl; in a run's folder nothing."""
    path = split_step(place)[0]
    if is_evaluated and (path.is_dir() or path.name == EVALUATIONS):
        return ""
    return f"{path.resolve().name if path.is_dir() else Path(path.name.removesuffix('.gz')).stem}-"


def _draw(rows: Sequence[sheet.AnswerRow], number: int, path: Path, *, seed: int) -> str:
    """Draw questions to check into a file, which may have some already; what was done."""
    more = " more" * path.exists()
    drawn = sheet.draw_checks(rows, sheet.asked_in(path, rows) if more else set(), number, seed=seed)
    sheet.write_checks(drawn, path)
    return f"wrote {path}, {len(drawn)} questions{more}"


def _refuse_to_replace(*paths: Path) -> None:
    """Refuse where a file of this name has another first line than `scrl answers` writes."""
    for path in filter(Path.is_file, paths):
        with path.open(encoding="utf-8", errors="replace") as file:
            if "is_trusted" not in file.readline():
                raise InputError(f"{path} was not written by scrl answers, and would be replaced; give --out FOLDER")


def explanation(texts: Sequence[str], given: Mapping[str, Any]) -> Iterator[str]:
    """Of each answer its spelling, its structure and its key; equal keys are equal answers."""
    digits = given.get("significant_digits")
    if not texts or given.keys() - {"significant_digits"} or type(digits) not in (int, NoneType):
        raise InputError(r"--explain: give answers, for instance '\frac12' 0.5, and at most --significant-digits INT")
    classes: dict[str, list[str]] = {}
    for text in texts:
        reading = explain_answer(text, digits)
        yield text
        if reading.form is None:
            yield "  no answer"
            continue
        yield f"  read as  {reading.read_as}"
        yield f"  key      {reading.form.key}  ({reading.form.decided_by})"
        yield f"  is a     {reading.form.kind}"
        yield from _parts(reading.form)
        classes.setdefault(reading.form.key, []).append(text)
    same = [f"same: {'   '.join(texts)}" for texts in classes.values() if len(texts) > 1]
    if len(texts) > 1:
        yield from same or ["all different"]


def _parts(form: Form, depth: int = 1) -> Iterator[str]:
    for part in form.parts:
        yield f"  {'  ' * depth}- {part.key}  ({part.kind})"
        yield from _parts(part, depth + 1)


def _evaluations(source: Place, benchmark: str | None) -> tuple[Evaluation, Evaluation | None]:
    """The evaluation to look at, and the start model's if that is a different one."""
    name, there = benchmark or "stream", source.benchmarks
    if benchmark is None and "stream" not in there:
        if len(there) > 1:
            raise InputError(f"--benchmark: {source.name} has several sets of questions, {', '.join(there)}: say which")
        name = there[0]
    first, after = source.first(name), source.chosen(name)
    if first is None or after is None:
        found = ", ".join(f"{each['benchmark']} after step {each['step']}" for each in source.evaluations)
        raise InputError(f"--benchmark: {source.name} has no {name!r}; it has {found}")
    return after, first if first["step"] < after["step"] else None


def notes(source: Place, step: int, doubt: str | None) -> Iterator[str]:
    """What to know before the answers of this step are used."""
    yield from source.notes
    standing, config = source.standing, source.config
    if doubt is not None:
        is_said = standing is not None and doubt == standing.guard_stop
        yield f"None of these answers is trusted{'' if is_said else f': {doubt}'}."
    if standing is None or config is None:
        return
    if when := sheet.measured_before(step, standing):
        ways = f": {sheet.how_to_measure(source.folder, config, standing)}" if source.step is None else ""
        yield f"These answers were {when}{ways}"


def tables(rows: Sequence[sheet.AnswerRow], *, is_doubted: bool) -> list[RichTable]:
    """The most certain answers, the changed ones and, unless none is trusted, the questions without a clear one."""
    by_share = sorted(rows, key=lambda row: -row.share)
    kinds = {
        "Most agreement": by_share,
        "Changed, by agreement": [row for row in by_share if row.is_changed],
        "No clear answer (SCRL's rule abstains)": sorted(
            (row for row in rows if not (row.is_trusted or is_doubted)), key=lambda row: row.share
        ),
    }
    most = FEW if len(rows) <= FEW else SHOWN
    return [
        _table(f"{title}: {min(most, len(some))} of {len(some)}", some[:most]) for title, some in kinds.items() if some
    ]


def _table(title: str, rows: Sequence[sheet.AnswerRow]) -> RichTable:
    """Only the question may be cut; long answers are broken."""
    has_start, has_chance = (any(getattr(row, name) is not None for row in rows) for name in ("start_share", "p_right"))
    header = ("question", "answer", "agree", "runner-up", *["start"] * has_start, *["right"] * has_chance)
    lines = []
    for row in rows:
        second = "" if row.runner_up is None else f"{row.runner_up} ({row.runner_up_share:.0%})"
        start = "" if row.start_share is None else f"{row.start_answer} ({row.start_share:.0%})"
        chance = "" if row.p_right is None else f"{row.p_right:.0%} [{row.p_right_low:.0%}, {row.p_right_high:.0%}]"
        question = " ".join((row.question or row.question_id).split())
        begun = question if len(question) <= QUESTION_WIDTH else f"{question[: QUESTION_WIDTH - 1]}…"
        cells = (begun, row.answer or None, f"{row.share:.0%}", second)
        lines.append((*cells, *[start] * has_start, *[chance] * has_chance))
    table = as_terminal(Table(header, tuple(lines), title))
    for column in table.columns:
        column.no_wrap, column.overflow = column.header in ("agree", "right"), "fold"
        column.justify = "right" if column.no_wrap else "left"
        column.max_width = None if column.no_wrap or column.header == "question" else 18
    return table


def verdict(choice: Choice, rows: Sequence[sheet.AnswerRow], max_error: float, population: bool) -> str:
    checked = [row for row in rows if row.checked is not None]
    if len(checked) == len(rows) and not population:
        return "All questions are checked: none is left to answer."
    if choice.chosen is None:
        right = f"{sum(bool(row.checked) for row in checked)} of {len(checked)} checked answers are right"
        none = f"No answers qualify: an error rate of at most {_percent(max_error)} is not shown ({right})."
        if choice.tried:
            tried = choice.tried[0]
            seen = f"{tried.wrong} of the {tried.checked} checked with an agreement of at least"
            why = "Too many are wrong" if tried.wrong > max_error * tried.checked else "Too few are checked to be sure"
            fix = "Check more, or allow more errors; the 95 % hold for the first look alone"
            return f"{none} {why}: wrong are {seen} {_percent(tried.threshold)}. {fix}."
        if choice.checks_needed is None:
            return f"{none} {len(rows)} questions are too few to show it with any number of checks; allow more errors."
        return f"{none} Check at least {choice.checks_needed}: with fewer it cannot be shown, however many are right."
    chosen = choice.chosen
    answered = sum(bool(row.is_answered) for row in rows if row.checked is None)
    whose = "the answers to all such questions with this agreement" if population else "these"
    return (
        f"{answered} of {len(rows) - len(checked)} unchecked questions are answered, those with an agreement of at "
        f"least {_percent(chosen.threshold)}. With 95 % confidence at most {_percent(max_error)} of {whose} are wrong "
        f"(wrong of the {chosen.checked} checked with this agreement: {chosen.wrong})."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
