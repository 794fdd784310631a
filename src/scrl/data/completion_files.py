"""Files of completions from any tool, recognised by their columns and read as rollouts.

A folder is one source if all its files are of one kind: TRL and verl write one file per step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scrl.data.jsonl import read_json_lines
from scrl.data.layouts import ANY, ESTIMATE, FLAT, GROUPED, LAYOUTS, LM_EVAL, ROLLOUTS, Columns, Layout
from scrl.data.rollouts import SHAPE, Rollout, rollout_of
from scrl.data.tables import Row, read_table
from scrl.errors import DataError, did_you_mean

_TABLES = (".csv", ".tsv", ".json", ".parquet")
"""Suffixes that are read as tables; all others are read as one JSON object per line."""


@dataclass(frozen=True, slots=True)
class CompletionFile:
    """A source of completions and how it is read."""

    path: Path
    layout: Layout
    columns: Columns = ANY

    @property
    def note(self) -> str:
        return f"{self.path}: read as {self.layout.name}"

    def rollouts(self, on_bytes: Callable[[int], None] | None = None) -> Iterator[Rollout]:
        """Its completions, in order; questions without an id are numbered by their text."""
        numbers: dict[str, int] = {}
        first_filter: object = None
        for row in _rows(self.path, on_bytes):
            first_filter = row.fields.get("filter") if first_filter is None else first_filter
            if self.layout is LM_EVAL and row.fields.get("filter") != first_filter:
                continue
            try:
                for fields in self.layout.convert(row.fields, self.columns):
                    prompt = fields.pop("prompt", None)
                    if fields.get("question_id") is None and prompt is not None:
                        fields["question_id"] = f"{self.path.stem}-{numbers.setdefault(prompt, len(numbers))}"
                    text = prompt if prompt is not None else fields.get("question")
                    yield rollout_of(fields, row.line or 0)._replace(
                        is_entropy_estimate=fields.get(ESTIMATE) is True, question=text if isinstance(text, str) else ""
                    )
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                is_explained = type(error) is ValueError
                reason = str(error) if is_explained else f"does not look like {self.layout.name}: {error!r}"
                raise row.error(reason) from error


def open_completions(path: Path, columns: Columns = ANY) -> CompletionFile:
    """Recognise the layout of a file or folder by the columns of its first row."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(path, "is not a regular file; it is read twice, so give a file on disk")
    first = next(_rows(path, None), None)
    if first is None:
        return CompletionFile(path, ROLLOUTS, columns)
    for option, name in columns._asdict().items():
        if name is not None and name not in first.fields:
            reason = f"there is no column {name!r}, given as --{option}-column"
            raise first.error(f"{reason}.{did_you_mean(name, first.fields)}")
    if columns.completion is not None:
        is_list = isinstance(first.fields[columns.completion], list)
        return CompletionFile(path, GROUPED if is_list else FLAT, columns)
    layout = next((layout for layout in LAYOUTS if layout.fits(first.fields)), ROLLOUTS)
    return CompletionFile(path, FLAT if layout is ROLLOUTS and any(columns) else layout, columns)


def _rows(path: Path, on_bytes: Callable[[int], None] | None) -> Iterator[Row]:
    """Rows of a file without lines are counted from 1 as if they were lines."""
    for file in _files(path):
        if file.suffix.lower() in _TABLES:
            table, _ = read_table(file)
            yield from (row._replace(line=row.line or row.number + 1) for row in table.rows)
        else:
            lines = read_json_lines(file, hint=SHAPE, on_bytes=on_bytes)
            yield from (Row(str(file), line.number - 1, line.number, line.fields) for line in lines)


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a folder in order, 2.jsonl before 10.jsonl."""
    if not path.is_dir():
        return [path]
    files = [file for file in path.iterdir() if file.suffix.lower() in (".jsonl", ".parquet")]
    if len({file.suffix.lower() for file in files}) != 1:
        reason = "is not a regular file, nor a folder with one kind of files of completions (.jsonl or .parquet)"
        raise DataError(path, f"{reason}; give a file")
    return sorted(files, key=lambda file: (len(file.stem) if file.stem.isdecimal() else 0, file.name))
