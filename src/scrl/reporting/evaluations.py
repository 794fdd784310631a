"""`evaluations.jsonl` and `metrics.jsonl`, read and checked, and the places with evaluations that a user can name.

A place is the folder of a run, a folder that `scrl evaluate` made, or an evaluations.jsonl; `PLACE@40` means its
evaluation after step 40.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from scrl.errors import DataError, InputError
from scrl.files.checkpoint_file import read_checkpoint_file
from scrl.files.jsonl import OnCut, read_json_lines
from scrl.files.run_state import Standing, standing_of
from scrl.files.yaml_files import read_yaml
from scrl.metrics import PASS_OR_MAJ, SETS, STEP_METRICS

Evaluation = Mapping[str, Any]
"""One line of evaluations.jsonl, without its null fields."""
EVALUATIONS = "evaluations.jsonl"
BY_QUESTION = "_by_question"
_NUMBERS = frozenset(
    "questions samples temperature top_p max_tokens significant_digits pass@1_low pass@1_high agreement answered "
    "truncated entropy_mean entropy_correct entropy_incorrect".split()
)


def in_words(benchmark: str) -> str:
    return SETS.get(benchmark, benchmark)


class EvaluationProtocol(NamedTuple):
    """How an evaluation was made; those made alike form one series."""

    benchmark: str
    questions: float | None
    samples: float | None
    temperature: float | None
    top_p: float | None
    max_tokens: float | None
    significant_digits: float | None

    @classmethod
    def of(cls, evaluation: Evaluation) -> EvaluationProtocol:
        return cls(*(evaluation.get(name) for name in cls._fields))  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """The protocol in a few words; what the file does not say is left out."""
        parts = {
            "{:g} questions": self.questions,
            "{:g} samples each": self.samples,
            "temperature {:g}": self.temperature,
            "top-p {:g}": self.top_p,
            "at most {:g} tokens": self.max_tokens,
            "equal to {:g} significant digits": self.significant_digits,
        }
        return ", ".join(words.format(value) for words, value in parts.items() if value is not None)


def by_protocol(evaluations: Iterable[Evaluation]) -> dict[EvaluationProtocol, list[Evaluation]]:
    """The evaluations by how they were made, each in the order of its steps."""
    series: dict[EvaluationProtocol, list[Evaluation]] = {}
    for evaluation in sorted(evaluations, key=lambda evaluation: int(evaluation["step"])):
        series.setdefault(EvaluationProtocol.of(evaluation), []).append(evaluation)
    return series


def read_evaluations(path: Path, on_cut: OnCut) -> list[dict[str, Any]]:
    def is_numeric(key: str) -> object:
        return key in _NUMBERS or (PASS_OR_MAJ.match(key) and not key.endswith(BY_QUESTION))

    return _read_steps(path, on_cut, is_numeric, has_protocol=True)


def read_metrics(path: Path, on_cut: OnCut) -> list[dict[str, Any]]:
    return _read_steps(path, on_cut, STEP_METRICS.__contains__, has_protocol=False)


def _read_steps(
    path: Path, on_cut: OnCut, is_numeric: Callable[[str], object], *, has_protocol: bool
) -> list[dict[str, Any]]:
    """The lines, without fields that are null, another way to say undefined."""
    steps: dict[object, dict[str, Any]] = {}
    for line in read_json_lines(path, on_cut):
        fields = {key: value for key, value in line.fields.items() if value is not None}
        if has_protocol and not isinstance(fields.get("benchmark"), str):
            reason = "is no evaluation (field 'benchmark' must be text); completions are for scrl answers and label"
            raise DataError(path, reason, line.number)
        step = fields.get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise DataError(path, f"field 'step' must be a whole number from 0 on, found {step!r}", line.number)
        for key in sorted(filter(is_numeric, fields)):
            if not _is_number(fields[key]):
                raise DataError(path, f"field {key!r} must be a number, found {fields[key]!r}", line.number)
        for key in (key for key in fields if key.endswith(BY_QUESTION)):
            values = fields[key]
            if not isinstance(values, dict) or not values or not all(map(_is_number, values.values())):
                reason = f"field {key!r} must hold a number for each of one or more questions"
                raise DataError(path, reason, line.number)
        identity = (step, EvaluationProtocol.of(fields)) if has_protocol else step
        if identity in steps:
            raise DataError(path, f"step {step} appears twice", line.number)
        steps[identity] = fields
    return list(steps.values())


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 1e300
    return isinstance(value, float) and math.isfinite(value)


def metrics_of(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """The names of pass@k by k, then of maj@k by k."""
    matches = {match for line in evaluations for match in map(PASS_OR_MAJ.fullmatch, line) if match}
    names = {match[0]: (match[1] == "maj", int(match[2])) for match in matches}
    return tuple(sorted(names, key=names.__getitem__))


@dataclass(frozen=True, slots=True)
class Place:
    """The evaluations of one place, by step, and what a reader must know about its files."""

    name: str
    folder: Path
    evaluations: tuple[Evaluation, ...]
    step: int | None = None
    """The step the user named."""
    config: Mapping[str, Any] | None = None
    """The settings of a run; None for an evaluation alone."""
    best_step: int | None = None
    """The step of the checkpoint `best`, which is chosen without gold."""
    standing: Standing | None = None
    notes: tuple[str, ...] = ()

    @property
    def benchmarks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(evaluation["benchmark"] for evaluation in self.evaluations))

    @property
    def has_steps(self) -> bool:
        """Whether it is a training run: what `scrl evaluate` measured has no step, whatever the model."""
        return self.config is not None or any(evaluation["step"] for evaluation in self.evaluations)

    def evaluations_on(self, benchmark: str) -> tuple[Evaluation, ...]:
        return tuple(evaluation for evaluation in self.evaluations if evaluation["benchmark"] == benchmark)

    def first(self, benchmark: str) -> Evaluation | None:
        series = self.evaluations_on(benchmark)
        return self._at_step(benchmark, series[0]["step"]) if series else None

    def chosen(self, benchmark: str) -> Evaluation | None:
        """The evaluation at the step the user named, or else the last."""
        series = self.evaluations_on(benchmark)
        return self._at_step(benchmark, series[-1]["step"] if self.step is None else self.step) if series else None

    def _at_step(self, benchmark: str, step: int) -> Evaluation | None:
        evaluations = [evaluation for evaluation in self.evaluations_on(benchmark) if evaluation["step"] == step]
        if len(evaluations) > 1:
            ways = " and ".join(EvaluationProtocol.of(evaluation).words for evaluation in evaluations)
            reason = f"was measured on {benchmark} at step {step} in more than one way ({ways})"
            raise InputError(f"{self.name}: {reason}; put each way into its own file and give that one")
        return evaluations[0] if evaluations else None


def read_place(text: str) -> Place:
    path, step = split_step(text)
    file = _evaluations_file(path)
    notes: list[str] = []
    evaluations = read_evaluations(file, notes.append)
    if not evaluations:
        fix = "wait for the run's first one, or measure its model: scrl evaluate RUN/checkpoints/last"
        raise DataError(file, f"holds no evaluation; {fix}")
    steps = sorted({evaluation["step"] for evaluation in evaluations})
    if step is not None and step not in steps:
        after = ", ".join(map(str, steps))
        raise InputError(f"{text}: has no evaluation after step {step}; there are those after {after}")
    config, best_step, standing, config_file = None, None, None, file.with_name("config.yaml")
    if file.name == EVALUATIONS and config_file.is_file():
        config = read_yaml(config_file)
        if not isinstance(seed := config.get("seed", 0), int):  # it tells runs apart
            raise DataError(config_file, f"seed: must be a whole number, found {seed!r:.50}")
        best_step, standing = best_step_of(file.parent / "checkpoints"), standing_of(file.parent)
    if best_step is not None and best_step not in steps:
        notes.append(f"checkpoints/best is of step {best_step}, which was not evaluated (evaluation.every)")
    if standing is not None and standing.guard_stop:
        notes.append(standing.guard_stop)
    by_step = tuple(sorted(evaluations, key=lambda evaluation: int(evaluation["step"])))
    named = tuple(f"{text}: {note}" for note in notes)
    return Place(text, file.parent, by_step, step, config, best_step, standing, named)


def split_step(text: str) -> tuple[Path, int | None]:
    """`runs/001@40` → runs/001 and 40; a path that exists as it is written has no step."""
    head, _, tail = text.rpartition("@")
    if head and tail.isdecimal() and len(tail) < 10 and not Path(text).exists():
        return Path(head), int(tail)
    return Path(text), None


def holds_evaluations(text: str) -> bool:
    """Whether a place is of `scrl train` or `scrl evaluate`, or is not there; all else holds completions."""
    path, step = split_step(text)
    if path.is_file():
        try:
            return path.name == EVALUATIONS or {"benchmark", "samples"} <= next(read_json_lines(path)).fields.keys()
        except (DataError, StopIteration):
            return False
    names = (EVALUATIONS, f"*/{EVALUATIONS}", "evaluation.yaml", "environment.json")
    return not path.exists() or step is not None or any(any(path.glob(name)) for name in names)


def _evaluations_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(path, "there is no such folder or file; a step is named like this: runs/001@40")
    if (path / EVALUATIONS).is_file():
        return path / EVALUATIONS
    inner = ", ".join(sorted(str(file.parent) for file in path.glob(f"*/{EVALUATIONS}")))
    fix = f"it holds {inner}: give these" if inner else "give the folder of a run or of scrl evaluate"
    if (path / "evaluation.yaml").is_file():
        fix = f"it was not finished; resume with: scrl evaluate --resume --out {path}"
    raise DataError(path, f"has no {EVALUATIONS}; {fix}")


def best_step_of(checkpoints: Path) -> int | None:
    """The step of the checkpoint `best`; None where there is none."""
    about = read_checkpoint_file(checkpoints / "best")
    return None if about is None else int(about["step"])
