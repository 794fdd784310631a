"""A run folder as the page reads it.

Read: `config.yaml`, `metrics.jsonl`, `evaluations.jsonl` and `rollouts.jsonl`. All four must be there; the last three
may be empty, and may end in half a line, while the run is going.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.data.yaml_files import read_yaml
from scrl.errors import DataError, InputError
from scrl.reporting.evaluations import Evaluation, Protocol, by_protocol, read_evaluations, read_metrics
from scrl.reporting.label_totals import add_up, has_gold
from scrl.reporting.questions import Question, choose_questions, load_questions
from scrl.reporting.rollout_votes import read_votes
from scrl.reporting.tables import Ratio

FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl")


@dataclass(frozen=True, slots=True)
class RunFiles:
    """What the files of one run say."""

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
    def series(self) -> dict[Protocol, list[Evaluation]]:
        """The evaluations by how they were made, each in the order of its steps."""
        return by_protocol(self.evaluations)

    @property
    def steps_done(self) -> int:
        """Training steps that are finished."""
        return max((line["step"] + 1 for line in self.metrics), default=0)


def read_runs(folders: Sequence[Path]) -> tuple[RunFiles, ...]:
    """Read one run, or several to compare; all of them show the same questions, where they have them."""
    named = _names(folders)
    notes: dict[str, list[str]] = {name: [] for name in named}
    votes = {name: read_votes(folder / "rollouts.jsonl", notes[name].append) for name, folder in named.items()}
    keys = choose_questions(list(votes.values()))
    runs = []
    for name, folder in named.items():
        visits = [visit for question in votes[name].values() for visit in question.by_step.values()]
        runs.append(
            RunFiles(
                name=name,
                config=read_yaml(folder / "config.yaml"),
                metrics=read_metrics(folder / "metrics.jsonl", notes[name].append),
                evaluations=read_evaluations(folder / "evaluations.jsonl", notes[name].append),
                questions=load_questions(folder / "rollouts.jsonl", votes[name], keys),
                num_questions=len(votes[name]),
                num_groups=len(visits),
                num_completions=sum(visit.size for visit in visits),
                totals=add_up(visits),
                is_graded=any(map(has_gold, visits)),
                notes=tuple(notes[name]),
            )
        )
    return tuple(runs)


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """A name for each folder: its last parts, as many as tell them apart."""
    if not folders:
        raise InputError("give at least one run folder")
    paths = [Path(folder).resolve() for folder in folders]
    for path in paths:
        _check_files(path)
        if paths.count(path) > 1:
            raise InputError(f"{path}: stands among the run folders more than once")
    lengths = range(1, max(len(path.parts) for path in paths) + 1)
    names = ({"/".join(path.parts[-length:]): path for path in paths} for length in lengths)
    return next(named for named in names if len(named) == len(paths))


def _check_files(folder: Path) -> None:
    if not folder.is_dir():
        reason = "it is a file" if folder.exists() else "there is no such folder"
        raise DataError(folder, f"is not a run folder: {reason}")
    for name in FILES:
        if not (folder / name).is_file():
            is_evaluation = (folder / "evaluation.yaml").is_file()
            hint = "; an evaluation has no page; for a table of it: --format markdown" if is_evaluation else ""
            raise DataError(folder / name, f"is missing; a run folder has {', '.join(FILES)}{hint}")
