"""The answers of a model to its questions, how far they agree, and, where some were checked, how far to trust them.

Read from evaluations.jsonl, whose lines hold the two most frequent answers to each question. Only checked answers turn
an agreement into a probability.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from scrl.answers.classes import same_answer
from scrl.answers.forms import canonical_form
from scrl.credit.labels import is_selected
from scrl.credit.methods.scrl import ScrlSettings
from scrl.data.questions import UNKNOWN
from scrl.data.tables import RawRow, read_table
from scrl.errors import DataError, InputError
from scrl.evaluation.gold import bare_gold
from scrl.evaluation.trust import ERROR_RATE, Calibration, Chance, Choice, choose_threshold, least_rate
from scrl.files.jsonl import read_json_lines
from scrl.files.printable import csv_cell
from scrl.files.run_state import Standing, standing_of
from scrl.files.whole_files import write_whole

MIN_CHECKS = 10
_VERDICTS = {"yes", "no", "right", "wrong", "true", "false", "correct", "incorrect", "y", "n"}
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
"""How spreadsheets write 0.5 where they separate columns by semicolons."""
LEAST_COMPLETIONS = 8
"""With fewer votes a few of them are a majority by chance, and no answer is trusted."""
Share = Annotated[float, Field(ge=0, le=1.000001, strict=True)]


@dataclass(frozen=True, slots=True)
class AnswerRow:
    question_id: str
    question: str
    answer: str | None
    """The answer with most votes; None where no completion has one."""
    share: float
    """Its share of all completions: agreement, not a probability."""
    runner_up: str | None
    runner_up_share: float
    is_trusted: bool
    """Whether SCRL's rule, with the paper's thresholds, would label it by the completions that were not cut; never
    where the guard stopped the run, or fewer than `LEAST_COMPLETIONS` voted."""
    start_answer: str | None = None
    start_share: float | None = None
    is_changed: bool | None = None
    """Whether the start model answered something else."""
    p_right: float | None = None
    p_right_low: float | None = None
    p_right_high: float | None = None
    checked: bool | None = None
    is_answered: bool | None = None
    """Whether it is among those answered, if a largest error rate was given."""
    note: str | None = None
    """What to know about the evaluation before any of its answers is used."""


def answer_rows(
    after: Mapping[str, Any], before: Mapping[str, Any] | None = None, standing: Standing | None = None
) -> list[AnswerRow]:
    """The answers of an evaluation, beside those of the start model where it was measured.

    `standing` is the state of the run that was measured: why the guard stopped it may be why answers agree.
    """
    if "answers" not in after:
        raise InputError("this evaluation was written before 0.2 and has no answers; measure again with scrl evaluate")
    ends, starts = _answers(after), _answers(before or {"answers": {}})
    rule, is_same = ScrlSettings(), partial(same_answer, significant_digits=digits_of(after))
    doubt = why_none_is_trusted(after, standing)
    note = doubt or (None if standing is None else measured_before(after["step"], standing))
    rows = []
    for question_id, entry in ends.items():
        (answer, share), (second, second_share) = [*entry.votes, *[(None, 0.0)] * 2][:2]
        whole = share - entry.cut
        is_clear = is_selected(whole, second_share, 1, min_share=rule.min_share, min_margin=rule.min_margin)
        is_enough = entry.completions is None or entry.completions >= LEAST_COMPLETIONS
        is_trusted = is_clear and is_enough and doubt is None
        votes = (answer, share, second, second_share)
        row = AnswerRow(question_id, entry.question, *votes, is_trusted, note=note)
        if question_id in starts:
            start, start_share = [*starts[question_id].votes, (None, 0.0)][0]
            is_kept = answer == start or (answer is not None and start is not None and is_same(answer, start))
            row = replace(row, start_answer=start, start_share=start_share, is_changed=not is_kept)
        rows.append(row)
    return rows


def why_none_is_trusted(evaluation: Mapping[str, Any], standing: Standing | None) -> str | None:
    """That the guard stopped the run after this step, or that too few completions voted; None if neither is so."""
    if standing is not None and standing.guard_stop and standing.step == evaluation["step"]:
        return standing.guard_stop
    if not isinstance(samples := evaluation.get("samples"), int):
        raise InputError("this evaluation does not say how many completions voted; measure again with scrl evaluate")
    return f"fewer than {LEAST_COMPLETIONS} completions of each question voted" if samples < LEAST_COMPLETIONS else None


class _Votes(BaseModel):
    """The votes for a question: its answers with their shares, and the share of the first that was cut short."""

    question: str
    votes: list[tuple[str | None, Share]]
    cut: Share = 0.0
    completions: int | None = None
    """How many voted, where questions may differ in that; None: as many as the evaluation says."""


_ANSWERS = TypeAdapter(dict[str, _Votes])


def _answers(evaluation: Mapping[str, Any]) -> dict[str, _Votes]:
    try:
        return _ANSWERS.validate_python(evaluation.get("answers", {}))
    except ValidationError as error:
        place, reason = error.errors()[0]["loc"], error.errors()[0]["msg"]
        where = ".".join(("answers", *map(str, place)))
        raise InputError(f"evaluations.jsonl: field {where!r:.100}: {reason}; measure again") from error


def digits_of(evaluation: Mapping[str, Any]) -> int | None:
    """The significant digits to which its answers were compared; None: exactly, also if the file does not say."""
    digits = evaluation.get("significant_digits")
    if digits is None or (type(digits) is int and 1 <= digits <= 15):
        return digits
    reason = f"must be a whole number from 1 to 15 or null, found {digits!r:.50}"
    raise InputError(f"evaluations.jsonl: field 'significant_digits' {reason}; measure again")


def measured_before(step: int, standing: Standing) -> str | None:
    """A note if an evaluation is of an earlier step than the run has reached; else None."""
    when = f"step {step}" if step else "step 0, before training"
    return f"measured at {when}; the run is at step {standing.step}" if step < standing.step else None


def how_to_measure(run: Path, config: Mapping[str, Any], standing: Standing) -> str:
    """How to get the answers of the step that a run has come to."""
    steps, questions = config.get("steps"), str(config.get("questions"))
    resume = shlex.join(["scrl", "train", "--resume", str(run)])
    go_on = "" if isinstance(steps, int) and standing.step >= steps else f"continue with {resume}, or "
    words = ["scrl", "answers", "--model", str(run / "checkpoints" / "last"), "--questions", questions]
    return f"{go_on}measure now with {shlex.join(words)} and the run's prompt and sampling options"


def run_answers(evaluations: Sequence[Mapping[str, Any]], standing: Standing | None) -> list[AnswerRow]:
    """The answers of a run to the questions it is trained on; none where these were not measured."""
    measured = with_answers(evaluations)
    return answer_rows(measured[-1], measured[0] if len(measured) > 1 else None, standing) if measured else []


def with_answers(evaluations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The evaluations of a run on the questions it is trained on that hold answers."""
    return [line for line in evaluations if line.get("benchmark") == "stream" and line.get("answers")]


# Checked answers


def draw_checks(rows: Sequence[AnswerRow], asked: Collection[str], number: int, seed: int) -> list[AnswerRow]:
    """This many rows at random, of those not `asked` yet: with these they are a random subset again."""
    rest = [row for row in rows if row.question_id not in asked]
    if number < 1 or not rest:
        raise InputError(f"--draw-check: give at least 1; {len(rest)} of the {len(rows)} questions can still be drawn")
    if len(asked) + min(number, len(rest)) < MIN_CHECKS:
        raise InputError(
            f"--draw-check: at least {MIN_CHECKS} of the {len(rows)} questions must be checked; got {number}"
        )
    return random.Random(f"{seed} {len(asked)}").sample(rest, min(number, len(rest)))  # noqa: S311 - no secret


def asked_in(path: Path, rows: Sequence[AnswerRow]) -> set[str]:
    """The questions of a file of checks, filled in or not."""
    (table, _), ids = read_table(path), _ids(rows)
    return {_known(row, str(row.fields.get("question_id")), ids) for row in table.rows}


def _known(row: RawRow, name: str, ids: Mapping[str, str]) -> str:
    if name not in ids:
        raise row.error(f"there is no question {name!r} among these answers")
    return ids[name]


def write_checks(drawn: Sequence[AnswerRow], path: Path) -> None:
    """The questions drawn, for the user to fill in, after those that are in the file already, as that is written."""
    before, delimiter, table = "question_id,question,answer\n", ",", io.StringIO()
    if path.exists():
        before, delimiter = path.read_text(encoding="utf-8"), read_table(path)[0].delimiter or ","
    lines = csv.reader(io.StringIO(before.removeprefix("\ufeff")), delimiter=delimiter)
    header = next(cells for cells in lines if any(cells))
    writer = csv.DictWriter(table, header, "", "ignore", delimiter=delimiter, lineterminator="\n")
    writer.writerows({"question_id": csv_cell(row.question_id), "question": csv_cell(row.question)} for row in drawn)
    write_whole(path, before + "\n" * (not before.endswith("\n")) + table.getvalue())


def _ids(rows: Sequence[AnswerRow]) -> dict[str, str]:
    """What stands for a question in a table → its id."""
    names = [row.question_id for row in rows]
    return {str(csv_cell(name)): name for name in names} | {name: name for name in names}


def checked_note(rows: Sequence[AnswerRow], num_unread: int, file: str) -> str:
    """How often the checked answers are right; their questions are a random subset of all."""
    rights = [row.checked for row in rows if row.checked is not None]
    n, k, level = len(rights), sum(rights), ERROR_RATE / 2
    low, high = least_rate(k, n, level), 1 - least_rate(n - k, n, level)
    unread = f"; {num_unread} could not be checked and count as wrong" if num_unread else ""
    return f"{k} of the {n} answers checked in {file} are right: {k / n:.0%} [{low:.0%}, {high:.0%}]{unread}"


def read_checks(path: Path, rows: Sequence[AnswerRow]) -> dict[str, str | None]:
    """Question → right answer, from a file with the columns question_id and answer; None where none can be read."""
    if not path.exists():
        raise DataError(path, "there is no such file; --draw-check writes checks.csv beside the answers")
    table, _ = read_table(path)
    ids, texts = _ids(rows), {row.question_id: _one_line(csv_cell(row.question)) for row in rows}
    checks: dict[str, str | None] = {}
    for row in table.rows:
        for name in ("question_id", "answer"):
            if name not in row.fields:
                raise row.error(f"has no column {name!r}; fill in a file that --draw-check wrote")
        cells = (row.fields[name] for name in ("question_id", "answer"))
        question_id, answer = ("" if cell is None else str(cell).strip() for cell in cells)
        if not question_id or not answer:
            name = "answer" if question_id else "question_id"
            raise row.error(f"{name!r} is empty; fill in every row, since a subset without the hard ones is not random")
        if table.delimiter == ";" and _DECIMAL_COMMA.fullmatch(answer):
            answer = answer.replace(",", ".")
        known = _known(row, question_id, ids)
        if _one_line(row.fields.get("question") or "") not in ("", texts[known]):  # held out, perhaps
            raise row.error(f"question {question_id!r} has another text here; check the file, or leave that column out")
        if known in checks:
            raise row.error(f"question {question_id!r} appears twice; keep one of the rows")
        unguarded = answer.removeprefix("'")  # copied from answers.csv
        right = bare_gold(unguarded if csv_cell(unguarded) == answer else answer)
        is_known = canonical_form(right) is not None and not UNKNOWN.fullmatch(right)
        checks[known] = right if is_known else None
    words = {right.lower() for right in checks.values() if right is not None}
    if words and words <= _VERDICTS and not any(str(row.answer).lower() in _VERDICTS for row in rows):
        raise DataError(path, "says whether answers are right; fill in the right answers themselves")
    if len(checks) < MIN_CHECKS:
        raise DataError(path, f"has {len(checks)} checked answers; give at least {MIN_CHECKS} (--draw-check adds some)")
    return checks


def _one_line(cell: object) -> str:
    return " ".join(str(cell).split())


def with_trust(
    rows: Sequence[AnswerRow],
    checks: Mapping[str, str | None],
    max_error: float | None,
    *,
    significant_digits: int | None,
    is_pool: bool = True,
) -> tuple[list[AnswerRow], Choice | None]:
    """The rows with their chances of being right, and whether each is answered at this error rate.

    An answer that nobody could check counts as wrong: such questions are the hard ones, and the rest no random subset.
    """
    is_same = partial(same_answer, significant_digits=significant_digits)
    checked = {}
    for place, row in enumerate(rows):
        if row.question_id in checks:
            right = checks[row.question_id]
            checked[place] = right is not None and row.answer is not None and is_same(row.answer, right)
    calibration = Calibration([rows[place].share for place in checked], list(checked.values()))
    choice, least_share = None, math.inf
    if max_error is not None:
        choice = choose_threshold([row.share for row in rows], checked, max_error, is_pool=is_pool)
        least_share = math.inf if choice.chosen is None else choice.chosen.threshold
    trusted = []
    for place, row in enumerate(rows):
        chance = Chance(0.0, 0.0, 0.0) if row.answer is None else calibration.chance(row.share)
        trusted.append(replace(
            row, p_right=chance.rate, p_right_low=chance.low, p_right_high=chance.high, checked=checked.get(place),
            is_answered=None if choice is None else row.answer is not None and row.share >= least_share,
        ))  # fmt: skip
    return trusted, choice


def write_run_answers(folder: Path) -> None:
    """Write the files of a run that has been measured; nothing if it has not."""
    file = folder / "evaluations.jsonl"
    lines = [line.fields for line in read_json_lines(file, on_cut=lambda _: None)] if file.is_file() else []
    if rows := run_answers(lines, standing_of(folder)):
        write_answers(rows, folder)


def write_answers(rows: Sequence[AnswerRow], folder: Path, name: str = "answers") -> list[Path]:
    """Write answers.jsonl and answers.csv, without columns that are empty in every row."""
    used = [field.name for field in fields(AnswerRow) if any(getattr(row, field.name) is not None for row in rows)]
    lines = [{name: getattr(row, name) for name in used} for row in rows]
    table = io.StringIO()
    writer = csv.DictWriter(table, used, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: csv_cell(value) for name, value in line.items()} for line in lines)
    paths = [folder / f"{name}.jsonl", folder / f"{name}.csv"]
    write_whole(paths[0], "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    write_whole(paths[1], table.getvalue())
    return paths
