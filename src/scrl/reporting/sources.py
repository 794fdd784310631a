"""What a page is about: a run, or a file of completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scrl.errors import InputError
from scrl.reporting.evaluations import Evaluation, Protocol, by_protocol
from scrl.reporting.questions import Question
from scrl.reporting.tables import Ratio

EXPLORED = ("scrl", "ttrl", "contrast")
"""The methods whose labels and rewards the page computes itself."""


@dataclass(frozen=True, slots=True)
class Source:
    """What the files of one run say; a file of completions has votes and an audit, and nothing of the rest."""

    name: str
    questions: tuple[Question, ...]
    num_groups: int
    num_completions: int
    is_graded: bool
    """Some completions were compared with a gold answer."""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    totals: Mapping[str, Ratio] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a reader must know about the files."""
    has_estimates: bool = False
    """Some entropies were estimated from log-probabilities."""
    audit: Mapping[str, Any] | None = None
    """Of a file of completions; None for a run."""

    @property
    def is_run(self) -> bool:
        """Whether it is a run."""
        return self.audit is None

    @property
    def method(self) -> str:
        """The method of a run."""
        return str(self.config.get("method", self.name))

    @property
    def is_unmeasured(self) -> bool:
        """Whether its evaluations are turned off."""
        evaluation = self.config.get("evaluation")
        return isinstance(evaluation, dict) and bool(evaluation.get("is_off"))

    @property
    def series(self) -> dict[Protocol, list[Evaluation]]:
        """The evaluations by how they were made, each in the order of its steps."""
        return by_protocol(self.evaluations)

    @property
    def steps_done(self) -> int:
        """Training steps that are finished."""
        return max((line["step"] + 1 for line in self.metrics), default=0)


def name_places(places: Sequence[Path]) -> list[str]:
    """A name for each folder or file: its last parts, as many as tell them apart."""
    if not places:
        raise InputError("give at least one run folder")
    paths = [Path(place).resolve() for place in places]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path}: stands among the run folders more than once")
    lengths = range(1, max(len(path.parts) for path in paths) + 1)
    names = (["/".join(path.parts[-length:]) for path in paths] for length in lengths)
    return next(named for named in names if len(set(named)) == len(paths))
