"""Places that hold evaluations, read and compared.

A place is the folder of a run, a folder that `scrl evaluate` made, or an evaluations.jsonl; `PLACE@40` means its
evaluation after step 40. Two evaluations are compared question by question, so both need the same questions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.errors import ConfigError, DataError, InputError, did_you_mean
from scrl.evaluation.statistics import Difference, paired_difference, sign_flip_p_value
from scrl.metrics import PASS_OR_MAJ
from scrl.reporting.run_folder import Protocol, is_number, read_config, read_evaluations

Evaluation = Mapping[str, Any]
"""One line of evaluations.jsonl, without what is null."""

EVALUATIONS = "evaluations.jsonl"
BY_QUESTION = "_by_question"
RESAMPLING_SEED = 0
"""Of the intervals and p-values that are computed when results are read: the same files give the same numbers."""
UNLIKELY = 0.05
"""A difference is clear when its p-value is below this and its interval leaves out 0."""


@dataclass(frozen=True, slots=True)
class Place:
    """The evaluations of one place."""

    name: str
    """As it was asked for."""
    evaluations: tuple[Evaluation, ...]
    """By step."""
    step: int | None = None
    """The step that was asked for."""
    config: Mapping[str, Any] | None = None
    """The settings of a run; none for an evaluation alone."""
    best_step: int | None = None
    """Where the checkpoint `best` was made, which is chosen without gold."""
    notes: tuple[str, ...] = ()
    """What a reader must know about the files."""

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """In the order of the file."""
        return tuple(dict.fromkeys(evaluation["benchmark"] for evaluation in self.evaluations))

    @property
    def has_steps(self) -> bool:
        """Whether it is a training run; what scrl evaluate measured is no step of anything, whatever model it was."""
        return self.config is not None or any(evaluation["step"] for evaluation in self.evaluations)

    def of(self, benchmark: str) -> tuple[Evaluation, ...]:
        """The evaluations on one benchmark, by step."""
        return tuple(evaluation for evaluation in self.evaluations if evaluation["benchmark"] == benchmark)


# Reading


def read_place(text: str) -> Place:
    """The place a user named."""
    path, step = split_step(text)
    file = _evaluations_file(path)
    notes: list[str] = []
    evaluations = read_evaluations(file, notes.append)
    if not evaluations:
        raise DataError(file, _why_empty(file))
    for evaluation in evaluations:
        _check(evaluation, file)
    steps = sorted({evaluation["step"] for evaluation in evaluations})
    if step is not None and step not in steps:
        raise InputError(f"{text}: has no evaluation after step {step}; there are those after {_listed(steps)}")
    config_file = file.with_name("config.yaml")
    is_run = file.name == EVALUATIONS and config_file.is_file()
    best_step = best_step_of(file.parent / "checkpoints") if is_run else None
    if best_step is not None and best_step not in steps:
        notes.append(f"checkpoints/best is of step {best_step}, which was not evaluated (evaluation.every)")
    return Place(
        name=text,
        evaluations=tuple(sorted(evaluations, key=lambda evaluation: int(evaluation["step"]))),
        step=step,
        config=read_config(config_file) if is_run else None,
        best_step=best_step,
        notes=tuple(f"{text}: {note}" for note in notes),
    )


def _why_empty(file: Path) -> str:
    config_file = file.with_name("config.yaml")
    evaluation = read_config(config_file).get("evaluation") if config_file.is_file() else None
    if not isinstance(evaluation, dict) or not evaluation.get("is_off"):
        return "holds no evaluation yet; wait for the run's first one, or run scrl evaluate"
    apart = _measured_apart(file.parent)
    fix = f"its last checkpoint was measured in {apart}" if apart else "measure it: scrl evaluate RUN/checkpoints/last"
    return f"holds no evaluation: the run was made without them (evaluation.is_off); {fix}"


def _measured_apart(run: Path) -> Path | None:
    """Where scrl reproduce keeps what it measured of a run: OUT/seed-0/evaluations/NAME, not OUT/seed-0/runs/NAME."""
    runs = (parent for parent in run.parents if parent.name == "runs")
    places = [parent.with_name("evaluations") / run.relative_to(parent) for parent in runs]
    return next((place for place in places if (place / EVALUATIONS).is_file()), None)


def split_step(text: str) -> tuple[Path, int | None]:
    """`runs/001@40` → runs/001 and 40; a path that exists as it is written is no step."""
    head, _, tail = text.rpartition("@")
    if head and tail.isdecimal() and not Path(text).exists():
        return Path(head), int(tail)
    return Path(text), None


def _evaluations_file(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(path, "there is no such folder or file; a step is named like this: runs/001@40")
    if (path / EVALUATIONS).is_file():
        return path / EVALUATIONS
    inner = sorted(str(file.parent) for file in path.glob(f"*/{EVALUATIONS}"))
    fix = f"it holds {_listed(inner)}: give these" if inner else "give the folder of a run or of scrl evaluate"
    raise DataError(path, f"has no {EVALUATIONS}; {fix}")


def _check(evaluation: Evaluation, file: Path) -> None:
    """Values by question are numbers by name; bounds are numbers."""
    place = f"the evaluation of {evaluation['benchmark']!r} at step {evaluation['step']}"
    for key, value in evaluation.items():
        is_bound = PASS_OR_MAJ.match(key) and key.endswith(("_low", "_high"))
        if is_bound and not is_number(value):
            raise DataError(file, f"{place}: field {key!r} must be a number, found {value!r}")
        if key.endswith(BY_QUESTION) and not _is_by_question(value):
            raise DataError(file, f"{place}: field {key!r} must hold a number for each of one or more questions")


def _is_by_question(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(map(is_number, value.values()))


def best_step_of(checkpoints: Path) -> int | None:
    """What the trainer noted; none where there is no such checkpoint, or its notes were removed."""
    state = checkpoints / "last" / "trainer_state.json"
    if not (checkpoints / "best").is_dir() or not state.is_file():
        return None
    try:
        step = json.loads(state.read_text(encoding="utf-8")).get("best_step")
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(state, f"cannot be read: {error}") from error
    return step if isinstance(step, int) else None


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


# Comparing


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two evaluations on the same questions."""

    benchmark: str
    metric: str
    before: float
    after: float
    questions: int
    difference: Difference
    """after − before."""
    p_value: float

    @property
    def is_clear(self) -> bool:
        """The interval and the p-value agree that it is not 0; of few questions the interval alone says so too soon."""
        return self.difference.is_clear and self.p_value < UNLIKELY


def compare_evaluations(before: Evaluation, after: Evaluation, metric: str, names: tuple[str, str]) -> Comparison:
    """The paired difference of two evaluations on one benchmark; `names` are what messages call them."""
    first, second = (evaluation[metric + BY_QUESTION] for evaluation in (before, after))
    _check_same_questions(before["benchmark"], first.keys(), second.keys(), names)
    _check_same_texts(before, after, names)
    questions = sorted(first)
    before_Q, after_Q = ([values[name] for name in questions] for values in (first, second))
    gains_Q = [late - early for early, late in zip(before_Q, after_Q, strict=True)]
    return Comparison(
        benchmark=before["benchmark"],
        metric=metric,
        before=math.fsum(before_Q) / len(questions),
        after=math.fsum(after_Q) / len(questions),
        questions=len(questions),
        difference=paired_difference(before_Q, after_Q, seed=RESAMPLING_SEED),
        p_value=sign_flip_p_value(gains_Q, seed=RESAMPLING_SEED),
    )


def _check_same_questions(benchmark: str, first: Set[str], second: Set[str], names: tuple[str, str]) -> None:
    """Those that both have are not taken instead: a difference over some of the questions answers another question."""
    if first == second:
        return
    raise InputError(
        f"{benchmark}: {names[0]} and {names[1]} were not measured on the same questions: {len(first - second)} are "
        f"only in the first, {len(second - first)} only in the second (for instance {min(first ^ second)!r}); "
        "evaluate both on the same ones"
    )


def _check_same_texts(before: Evaluation, after: Evaluation, names: tuple[str, str]) -> None:
    """Questions of the same id may ask something else; evaluations of older versions do not tell."""
    first, second = (evaluation.get("questions_digest") for evaluation in (before, after))
    if first is not None and second is not None and first != second:
        raise InputError(
            f"{before['benchmark']}: the questions of {names[0]} and {names[1]} have the same ids, but other texts; "
            "evaluate both on the same file"
        )


def first_and_last(place: Place) -> dict[str, tuple[Evaluation, Evaluation]]:
    """What one place has to compare: on each benchmark its first evaluation and its last, or that of the step."""
    pairs = _pairs({name: (first_evaluation(place, name), chosen_evaluation(place, name)) for name in place.benchmarks})
    moved = {name: (first, last) for name, (first, last) in pairs.items() if first["step"] < last["step"]}
    if not moved:
        raise InputError(f"{place.name}: has no later evaluation to compare its first one with; give a second place")
    return moved


def in_both(baseline: Place, other: Place) -> dict[str, tuple[Evaluation, Evaluation]]:
    """The evaluations of two places on the benchmarks that both have, the last ones or those of the steps."""
    names = baseline.benchmarks
    common = _pairs({name: (chosen_evaluation(baseline, name), chosen_evaluation(other, name)) for name in names})
    if not common:
        raise InputError(
            f"{baseline.name} has {_listed(baseline.benchmarks)} and {other.name} has {_listed(other.benchmarks)}: "
            "no benchmark in common; evaluate one of them on what the other has"
        )
    return common


def _pairs(
    found: Mapping[str, tuple[Evaluation | None, Evaluation | None]],
) -> dict[str, tuple[Evaluation, Evaluation]]:
    return {name: (one, two) for name, (one, two) in found.items() if one is not None and two is not None}


def first_evaluation(place: Place, benchmark: str) -> Evaluation | None:
    """The evaluation before the first step."""
    return _at_step(place, benchmark, place.of(benchmark)[0]["step"])


def chosen_evaluation(place: Place, benchmark: str) -> Evaluation | None:
    """The evaluation of the step that was asked for, or else the last."""
    series = place.of(benchmark)
    if not series:
        return None
    return _at_step(place, benchmark, series[-1]["step"] if place.step is None else place.step)


def _at_step(place: Place, benchmark: str, step: int) -> Evaluation | None:
    found = [evaluation for evaluation in place.of(benchmark) if evaluation["step"] == step]
    if len(found) > 1:
        ways = " and ".join(Protocol.of(evaluation).words for evaluation in found)
        raise InputError(
            f"{place.name}: was measured on {benchmark} at step {step} in more than one way ({ways}); "
            f"put each way into a file of its own and give that one"
        )
    return found[0] if found else None


def is_graded(evaluation: Evaluation) -> bool:
    """Some of its questions have gold."""
    return any(PASS_OR_MAJ.fullmatch(key) for key in evaluation)


def check_metric(metric: str, name: str, evaluation: Evaluation, known: Iterable[str]) -> None:
    """The metric exists, and this evaluation has it question by question."""
    if metric + BY_QUESTION in evaluation:
        return
    benchmark = evaluation["benchmark"]
    if metric in evaluation:
        paired = _by_question(evaluation)
        raise InputError(
            f"{name}: has {metric} of {benchmark} only as a mean, as older versions wrote it; evaluate it again"
            + (f", or compare {_listed(paired)}" if paired else "")
        )
    if metric in known:
        others = _listed(metrics_of([evaluation])) or "none: its questions have no gold"
        raise InputError(f"{name}: has no {metric} of {benchmark}; it has {others}")
    raise ConfigError(f"--metric: nobody measured {metric!r}.{did_you_mean(metric, known)}")


def metrics_of(evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """pass@k by k, then maj@k by k."""
    found = {match for line in evaluations for match in map(PASS_OR_MAJ.fullmatch, line) if match}
    names = {match[0]: (match[1] == "maj", int(match[2])) for match in found}
    return tuple(sorted(names, key=names.__getitem__))


def _by_question(evaluation: Evaluation) -> list[str]:
    return [name for name in metrics_of([evaluation]) if name + BY_QUESTION in evaluation]


def unlike(before: Evaluation, after: Evaluation) -> Iterator[tuple[str, object, object]]:
    """How two evaluations were made differently: what, and both values. The questions are held apart from this."""
    for name in ("samples", "temperature", "top_p", "max_tokens"):
        if before.get(name) != after.get(name):
            yield name, before.get(name, "unknown"), after.get(name, "unknown")
    first, second = (_ks(metrics_of([evaluation])) for evaluation in (before, after))
    if first != second:
        yield "k", _listed(first), _listed(second)


def _ks(metrics: Sequence[str]) -> list[int]:
    return sorted({int(name.partition("@")[2]) for name in metrics} - {1})
