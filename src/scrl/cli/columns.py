"""Which columns of a file of completions are what, and the line that says how it was read."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scrl.data.completion_files import ROLLOUTS, Columns, CompletionFile, open_completions

ESTIMATED = "Entropies are estimates from log-probabilities: a gate or a term built on them is one too."


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Columns of a file that was not written by scrl; found by name unless given."""

    completion_column: Annotated[str | None, Parameter(help="The column with the completion, or a list of them.")] = (
        None
    )
    question_column: Annotated[str | None, Parameter(help="The column with the question.")] = None
    id_column: Annotated[str | None, Parameter(help="The column with the question's id.")] = None
    gold_column: Annotated[str | None, Parameter(help="The column with the right answer.")] = None
    entropy_column: Annotated[str | None, Parameter(help="The column with the mean entropy, in nats.")] = None

    @property
    def columns(self) -> Columns:
        """The same for `open_completions`."""
        names = (self.completion_column, self.question_column, self.id_column, self.gold_column, self.entropy_column)
        return Columns(*names)

    def open(self, path: Path) -> CompletionFile:
        """The file; what it was taken for is said on stderr where it is not our own."""
        source = open_completions(path, self.columns)
        if source.layout is not ROLLOUTS:
            print(source.note, file=sys.stderr)
        return source
