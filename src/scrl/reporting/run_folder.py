"""A run folder → one frozen `Run`: all that the page says about it.

Read: `config.yaml`, `metrics.jsonl`, `evaluations.jsonl` and `rollouts.jsonl`. All four must be there; the last three
may be empty, and may end in half a line, while the run is going.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from scrl.errors import DataError, InputError
from scrl.metrics import PASS_OR_MAJ, STEP_METRICS
from scrl.reporting.json_lines import JsonLine, OnCut, read_json_lines
from scrl.reporting.label_totals import Ratio, add_up, has_gold
from scrl.reporting.questions import Question, QuestionKey, choose_questions, load_questions
from scrl.reporting.rollout_votes import QuestionVotes, read_votes

FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl")
_EVALUATION_NUMBERS = frozenset(
    "questions samples temperature top_p max_tokens pass@1_low pass@1_high agreement answered truncated "
    "entropy_mean entropy_correct entropy_incorrect".split()
)


class Protocol(NamedTuple):
    """How an evaluation was made; only evaluations made alike can be compared."""

    benchmark: str
    questions: float | None
    samples: float | None
    temperature: float | None
    top_p: float | None
    max_tokens: float | None

    @classmethod
    def of(cls, evaluation: Mapping[str, Any]) -> Protocol:
        """The fields that say how."""
        return cls(*(evaluation.get(name) for name in cls._fields))  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """In a few words; what was not written down is not said."""
        parts = {
            "{:g} questions": self.questions,
            "{:g} samples each": self.samples,
            "temperature {:g}": self.temperature,
            "top-p {:g}": self.top_p,
            "at most {:g} tokens": self.max_tokens,
        }
        return ", ".join(words.format(value) for words, value in parts.items() if value is not None)


@dataclass(frozen=True, slots=True)
class Run:
    """One run, as its files tell it."""

    name: str
    config: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    questions: tuple[Question, ...]
    """Those chosen for the page, with some of their completions."""
    num_questions: int
    num_groups: int
    num_completions: int
    totals: dict[str, Ratio]
    is_graded: bool
    """Some completions were compared with a gold answer."""
    notes: tuple[str, ...]
    """What a reader must know about the files."""

    @property
    def series(self) -> dict[Protocol, list[dict[str, Any]]]:
        """The evaluations by how they were made, each in the order of its steps."""
        series: dict[Protocol, list[dict[str, Any]]] = {}
        for evaluation in sorted(self.evaluations, key=lambda evaluation: evaluation["step"]):
            series.setdefault(Protocol.of(evaluation), []).append(evaluation)
        return series

    @property
    def steps_done(self) -> int:
        """Training steps that are finished."""
        return max((line["step"] + 1 for line in self.metrics), default=0)


def read_runs(folders: Sequence[Path]) -> tuple[Run, ...]:
    """Read one run, or several to compare; all of them show the same questions, where they have them."""
    named = _names(folders)
    notes: dict[str, list[str]] = {name: [] for name in named}
    votes = {name: read_votes(folder / "rollouts.jsonl", notes[name].append) for name, folder in named.items()}
    keys = choose_questions(list(votes.values()))
    return tuple(_read(name, folder, votes[name], keys, notes[name]) for name, folder in named.items())


def _read(name: str, folder: Path, votes: dict[str, QuestionVotes], keys: list[QuestionKey], notes: list[str]) -> Run:
    visits = [visit for question in votes.values() for visit in question.visits.values()]
    return Run(
        name=name,
        config=read_config(folder / "config.yaml"),
        metrics=_read_metrics(folder / "metrics.jsonl", notes.append),
        evaluations=read_evaluations(folder / "evaluations.jsonl", notes.append),
        questions=load_questions(folder / "rollouts.jsonl", votes, keys),
        num_questions=len(votes),
        num_groups=len(visits),
        num_completions=sum(visit.size for visit in visits),
        totals=add_up(votes.values()),
        is_graded=any(has_gold(visit) for visit in visits),
        notes=tuple(notes),
    )


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """A name for each folder: its last parts, as many as tell them apart."""
    if not folders:
        raise InputError("give at least one run folder")
    paths = [Path(folder).resolve() for folder in folders]
    for path in paths:
        _check_files(path)
        if paths.count(path) > 1:
            raise InputError(f"{path}: stands among the run folders more than once")
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = {"/".join(path.parts[-length:]): path for path in paths}
        if len(names) == len(paths):
            return names
    raise AssertionError("different folders have different names")


def _check_files(folder: Path) -> None:
    if not folder.is_dir():
        reason = "it is a file" if folder.exists() else "there is no such folder"
        raise DataError(folder, f"is not a run folder: {reason}")
    for name in FILES:
        if not (folder / name).is_file():
            is_evaluation = (folder / "evaluation.yaml").is_file()
            hint = "; an evaluation has no page; for a table of it: --format markdown" if is_evaluation else ""
            raise DataError(folder / name, f"is missing; a run folder has {', '.join(FILES)}{hint}")


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise DataError(path, f"is not YAML: {error.problem}", line) from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise DataError(path, f"is not YAML: {error}") from error
    if not isinstance(config, dict):
        raise DataError(path, "must hold settings by name, such as `method: scrl`", 1)
    return config


def _read_metrics(path: Path, on_cut: OnCut) -> list[dict[str, Any]]:
    seen: set[object] = set()
    lines = read_json_lines(path, on_cut)
    return [_checked(line, path, line.fields.keys() & STEP_METRICS.keys(), seen) for line in lines]


def read_evaluations(path: Path, on_cut: OnCut) -> list[dict[str, Any]]:
    seen: set[object] = set()
    evaluations = []
    for line in read_json_lines(path, on_cut):
        if not isinstance(line.fields.get("benchmark"), str):
            raise DataError(path, "field 'benchmark' must be text", line.number)
        numbers = {key for key in line.fields if key in _EVALUATION_NUMBERS or PASS_OR_MAJ.fullmatch(key)}
        evaluations.append(_checked(line, path, numbers, seen))
    return evaluations


def _checked(line: JsonLine, path: Path, numbers: set[str], seen: set[object]) -> dict[str, Any]:
    """The fields without those that are null, which is another way to say undefined."""
    fields = {key: value for key, value in line.fields.items() if value is not None}
    step = fields.get("step")
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise DataError(path, f"field 'step' must be a whole number from 0 on, found {step!r}", line.number)
    for key in sorted(numbers & fields.keys()):
        if not is_number(fields[key]):
            raise DataError(path, f"field {key!r} must be a number, found {fields[key]!r}", line.number)
    place = (step, Protocol.of(fields)) if "benchmark" in fields else step
    if place in seen:
        raise DataError(path, f"step {step} stands here a second time", line.number)
    seen.add(place)
    return fields


def is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 1e300 if isinstance(value, int) else math.isfinite(value)
