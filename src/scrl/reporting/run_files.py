"""A run folder as the page reads it.

Read: `config.yaml`, `metrics.jsonl`, `evaluations.jsonl` and `rollouts.jsonl`. All four must be there; the last three
may be empty, and may end in half a line, while the run is going.
"""

from __future__ import annotations

from pathlib import Path

from scrl.data.yaml_files import read_yaml
from scrl.errors import DataError
from scrl.reporting.evaluations import read_evaluations, read_metrics
from scrl.reporting.label_totals import add_up, has_gold
from scrl.reporting.questions import load_questions
from scrl.reporting.rollout_votes import read_votes
from scrl.reporting.sources import Source

EVALUATION = "evaluation.yaml"
"""What a folder of scrl evaluate has instead."""
FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl")


def is_run_folder(path: Path) -> bool:
    """Whether a folder is, or was meant to be, that of a run, and not one of files of completions."""
    has_completions = path.is_dir() and any(file.suffix in (".jsonl", ".parquet") for file in path.iterdir())
    return path.is_dir() and (not has_completions or any((path / name).exists() for name in (*FILES, EVALUATION)))


def read_run(folder: Path, name: str) -> Source:
    """One run, under this name."""
    _check_files(folder)
    notes: list[str] = []
    rollouts = folder / "rollouts.jsonl"
    votes = read_votes(rollouts, notes.append)
    visits = [visit for question in votes.values() for visit in question.by_step.values()]
    return Source(
        name=name,
        config=read_yaml(folder / "config.yaml"),
        metrics=read_metrics(folder / "metrics.jsonl", notes.append),
        evaluations=read_evaluations(folder / "evaluations.jsonl", notes.append),
        questions=load_questions(rollouts, votes),
        num_groups=len(visits),
        num_completions=sum(visit.size for visit in visits),
        totals=add_up(visits),
        is_graded=any(map(has_gold, visits)),
        notes=tuple(notes),
    )


def _check_files(folder: Path) -> None:
    if not folder.is_dir():
        reason = "it is a file" if folder.exists() else "there is no such folder"
        raise DataError(folder, f"is not a run folder: {reason}")
    for name in FILES:
        if not (folder / name).is_file():
            is_evaluation = (folder / EVALUATION).is_file()
            hint = "; an evaluation has no page; for a table of it: --format markdown" if is_evaluation else ""
            raise DataError(folder / name, f"is missing; a run folder has {', '.join(FILES)}{hint}")
