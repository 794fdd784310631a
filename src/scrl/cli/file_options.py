"""What commands on a file of completions share: how it is read, and where they may write."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from scrl.answers.readers import READERS, SOUND
from scrl.data.completion_files import ROLLOUTS, CompletionColumns, CompletionFile, file_of, open_completions
from scrl.errors import ConfigError, InputError
from scrl.files.yaml_files import read_yaml
from scrl.setting_names import as_option

PUSH = "A push above 0 makes such answers more frequent: the covariance of advantage and event."
ESTIMATED = "Entropies are estimates from log-probabilities: a gate or a term built on them is one too."


def _whole_number(_type: object, tokens: Sequence[Token]) -> int:
    """An option's value; 2.5 is refused, not rounded."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ConfigError(f"{tokens[0].keyword}: must be a whole number; got {tokens[0].value!r}") from None


WHOLE = Parameter(converter=_whole_number)
"""An option that takes a whole number."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How answers are read and compared; and the columns of a file not written by scrl, found by name unless given."""

    reader: Annotated[
        str | None,
        Parameter(
            help="How to read an answer: boxed, last-box, number, last-number, choice, regex:PATTERN, "
            "module:NAME, or sound: before any of them; none: as the run that wrote the file did, else boxed."
        ),
    ] = None
    significant_digits: Annotated[
        int | None, WHOLE, Parameter(help="Round numbers to this many digits before comparing them (physics answers).")
    ] = None
    completion_column: Annotated[str | None, Parameter(help="The column with the completion, or a list.")] = None
    question_column: Annotated[str | None, Parameter(help="The column with the question.")] = None
    id_column: Annotated[str | None, Parameter(help="The column with the question's id.")] = None
    gold_column: Annotated[str | None, Parameter(help="The column with the right answer.")] = None
    entropy_column: Annotated[str | None, Parameter(help="The column with the mean entropy, in nats.")] = None

    def reading(self, path: Path) -> dict[str, Any]:
        """What a rule has to know to read answers: as given, else as the run or evaluation that wrote the file did."""
        path = file_of(path)
        folder, is_evaluation = path.parent, path.parent.name == "rollouts"
        settings = folder.parent / "evaluation.yaml" if is_evaluation else folder / "config.yaml"
        is_ours = (is_evaluation or path.name == "rollouts.jsonl") and settings.is_file()
        known = read_yaml(settings) if is_ours else {}
        given = {"reader": self.reader, "significant_digits": self.significant_digits}
        taken = {name: known[name] for name, value in given.items() if value is None and known.get(name) is not None}
        is_usable = {
            # one's own is code or a pattern: only if asked for
            "reader": str(taken.get("reader", "boxed")).removeprefix(SOUND) in READERS,
            "significant_digits": type(taken.get("significant_digits", 1)) is int,
        }
        if wrong := next((name for name, is_so in is_usable.items() if not is_so), None):
            found = f"{taken[wrong]!r:.80}"
            raise InputError(f"{settings}: {wrong}: {found} is used only if you name it: give {as_option(wrong)}")
        if taken not in ({}, {"reader": "boxed"}):
            how = " ".join(f"{as_option(name)} {value}" for name, value in taken.items())
            print(f"{path}: answers are read as they were when it was sampled: {how}", file=sys.stderr)
        if is_ours and known.get("label_votes", "present") != "present":
            only = "may have sampled only questions with a label, on which its model is more certain"
            print(f"{path}: this run (label_votes: {known['label_votes']}) {only}", file=sys.stderr)
        return {"reader": "boxed"} | {name: value for name, value in given.items() if value is not None} | taken

    @property
    def columns(self) -> CompletionColumns:
        return CompletionColumns(*(getattr(self, f"{name}_column") for name in CompletionColumns._fields))

    def open(self, path: Path, label_votes: Path | None = None) -> CompletionFile:
        """Read the file; if its format is not our own, say on stderr what it was taken for.

        `label_votes`: the file whose completions vote in place of these.
        """
        source = open_completions(file_of(path), self.columns)
        if source.layout is not ROLLOUTS:
            print(source.note, file=sys.stderr)
        return source if label_votes is None else replace(source, label_votes=self.open(label_votes))


AsOptions = Annotated[FileOptions, Parameter(name="*")]
DEFAULTS = FileOptions()


def check_outputs(rollouts: Path, *outputs: Path | None, label_votes: Path | None = None) -> None:
    """Refuse to write where nothing can be written, or over the input, in a run's folder too."""
    paths = [path for path in outputs if path is not None]
    inputs = {os.path.realpath(file_of(path)) for path in (rollouts, label_votes) if path is not None}
    for path in paths:
        if os.path.realpath(path) in inputs:
            raise InputError(f"{path}: would overwrite the rollouts; give another file")
        if (path.exists() and not path.is_file()) or not path.parent.is_dir():
            raise InputError(f"{path}: give a regular file in a folder that exists")
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise InputError("--out, --summary and --audit name the same file; give each its own")
