"""Files of completions from any tool, recognised by their columns and read as rollouts.

What a tool does not record is left out, except the entropy: where there are log-probabilities it is estimated from
them, and marked as an estimate. A folder is one source if all its files are of one kind: TRL and verl write one file
per step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from scrl.data.questions import COLUMN_NAMES
from scrl.data.rollouts import ESTIMATE, SEVERAL_GOLDS, SHAPE, Rollout, rollout_of
from scrl.data.tables import RawRow, did_you_mean_file, read_table
from scrl.errors import DataError, did_you_mean
from scrl.files.jsonl import kind, read_json_lines

Fields = dict[str, Any]
LEAST, ABOVE = -1e5, 1e-3
"""Where a log-probability lies: at most 0, but for rounding; those of tokens that were not drawn may be −∞."""
_TEXTS = ("completions", "responses", "outputs", "samples", "generations")
_TEXT = ("completion", "response", "output", "generation", "generated_text", "model_output")
_PROMPT = ("prompt", "question", "problem", "query", "input", "messages")
_ID = ("question_id", "id", "custom_id")
_NO_GOLD = ("final_answer", "label")
"""In a question file, the right answer; beside a completion, often its own answer, and whether that is right."""
_GOLD = (*(name for name in " ".join(COLUMN_NAMES["gold_column"]).split() if name not in _NO_GOLD), "gts")
_FLAT = (_TEXT, _PROMPT, _ID, _GOLD, ("entropy",))
_GROUPED = (_TEXTS, _PROMPT, _ID, _GOLD, ("entropies",))
"""Well-known names of the columns, best first, in the order of `CompletionColumns`."""
_TABLES = (".csv", ".tsv", ".json", ".parquet")
"""Suffixes that are read as tables; all others are read as one JSON object per line."""


class CompletionColumns(NamedTuple):
    """Columns that the user named; None: found by name."""

    completion: str | None = None
    question: str | None = None
    id: str | None = None
    gold: str | None = None
    entropy: str | None = None


ANY = CompletionColumns()


@dataclass(frozen=True, slots=True)
class ToolFormat:
    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    convert: Callable[[Fields, CompletionColumns], Iterator[Fields]]
    """A row → its completions, with `prompt` for a question that has no id; ValueError where it cannot be read."""


# One converter per layout


def _rollout(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:  # noqa: ARG001 - a layout's signature
    if row.get("completion") and "answer" in row and "gold" not in row:
        fix = "If that is the right one, say --gold-column answer; if it was read from the completion, add 'gold': null"
        raise ValueError(f"has a completion and an 'answer'. {fix}")
    yield row | _estimated(row)


def _trl(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    texts = {name: _message(row[name], name) for name in ("prompt", "completion")}
    yield {**texts, "step": row["step"], **_only(row.get(columns.gold or _first_of(row, _GOLD) or ""))}


def _verl(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    gold = row.get(columns.gold or "gts")
    yield {"prompt": row["input"], "completion": row["output"], "step": row["step"], **_only(gold)}


def _lm_eval(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    """One line per document and filter; `resps` is the same for all filters, so only the first filter's are read."""
    doc = row["doc"] if isinstance(row["doc"], dict) else {}
    gold = doc.get(columns.gold) if columns.gold else row["target"]
    for number, text in enumerate(row["resps"][0] if isinstance(row["resps"][0], list) else row["resps"]):
        yield {"question_id": row["doc_id"], "sample": number, "completion": text, **_only(gold)}


def _openai(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    """A line of a batch's output, or a bare response; each of its choices is a completion."""
    if _has_failed(row):
        return
    body = row["response"]["body"] if row.get("response") else row
    question = row.get(columns.id or "custom_id") or body.get("id")
    gold = _only(row.get(columns.gold or "gold"))
    for choice in body["choices"]:
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        fields = {"question_id": question, "completion": text or "", **gold}
        if choice.get("finish_reason"):
            fields["finished"] = choice["finish_reason"] != "length"
        yield fields | _estimated({"logprobs": choice.get("logprobs")})


def _has_failed(row: Mapping[str, Any]) -> bool:
    """Whether no completion came of a request to OpenAI."""
    body = row["response"].get("body") if row.get("response") else row
    is_refused = row.get("error") or (row.get("response") or {}).get("status_code", 200) != 200
    return bool(is_refused) or not isinstance(body, dict) or "choices" not in body


def _grouped(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    taken = _taken(row, columns, _GROUPED)
    name, entropies = taken.completion, row.get(taken.entropy or "")
    if name is None:
        raise ValueError(_no_completion(row))
    if entropies is not None and len(entropies) != len(row[name]):
        raise ValueError(f"field {name!r} has {len(row[name])} completions, but there are {len(entropies)} entropies")
    shared = _about_the_question(row, taken)
    for number, item in enumerate(row[name]):
        fields = dict(shared)
        if isinstance(item, dict):
            text = item.get(_first_of(item, ("text", *_TEXT)) or "")
            fields |= {"completion": text, "entropy": item.get("entropy")} | _estimated(item)
        else:
            fields |= {"completion": item, "entropy": None if entropies is None else entropies[number]}
        yield fields


def _flat(row: Fields, columns: CompletionColumns) -> Iterator[Fields]:
    taken = _taken(row, columns, _FLAT)
    if taken.completion is None:
        raise ValueError(_no_completion(row))
    fields = _about_the_question(row, taken) | {"completion": _message(row.get(taken.completion), taken.completion)}
    entropy = {"entropy": _number(row.get(taken.entropy or ""))}
    yield fields | entropy | _estimated(entropy | {"logprobs": row.get("logprobs")})


def _taken(row: Mapping[str, Any], columns: CompletionColumns, usual: Sequence[Sequence[str]]) -> CompletionColumns:
    """Which column of a row is what: the one that the user named, else one with a usual name."""
    free = {name: value for name, value in row.items() if name not in columns}
    return CompletionColumns(*(named or _first_of(free, names) for named, names in zip(columns, usual, strict=True)))


def _about_the_question(row: Fields, taken: CompletionColumns) -> Fields:
    if taken.id is None and taken.question is None:
        raise ValueError(f"no column names the question; there are: {', '.join(row)}. Say which with --question-column")
    step = row.get("step") or 0
    return {
        "question_id": None if taken.id is None else row[taken.id],
        "prompt": None if taken.question is None else _message(row[taken.question], taken.question),
        "step": int(step) if isinstance(step, str) and step.isdecimal() else step,
        **_only(None if taken.gold is None else row[taken.gold]),
    }


def _no_completion(row: Mapping[str, Any]) -> str:
    fix = "Say which does with --completion-column, and --question-column for the question"
    return f"no column looks like the completion; there are: {', '.join(row) or 'none'}. {fix}"


# Cells


def _first_of(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _message(value: Any, name: str) -> str:
    """Text, or the last message of a chat."""
    if isinstance(value, list) and value and isinstance(value[-1], dict) and isinstance(value[-1].get("content"), str):
        return str(value[-1]["content"])
    if not isinstance(value, str):
        raise ValueError(f"field {name!r} must be text or chat messages, found {kind(value)}")
    return value


def _number(cell: Any) -> Any:
    """The number in a cell's text, None if it is blank; all else unchanged."""
    if not isinstance(cell, str):
        return cell
    try:
        return float(cell) if cell.strip() else None
    except ValueError:
        return cell


def _only(gold: Any) -> Fields:
    """The gold answer, or the only one of a list; several cannot be measured against, and are marked."""
    if not isinstance(gold, list):
        return {"gold": gold}
    return {"gold": gold[0] if len(gold) == 1 else None, SEVERAL_GOLDS: len(gold) > 1}


# Entropy from log-probabilities


def _estimated(row: Mapping[str, Any]) -> Fields:
    """The entropy of a completion from its tokens' log-probabilities, where it is not given."""
    if row.get("entropy") is not None or row.get("logprobs") is None:
        return {}
    tokens = list(_tokens(row["logprobs"]))
    if not all(LEAST <= drawn <= ABOVE and all(top <= ABOVE for top in tops) for drawn, tops in tokens):
        raise ValueError(f"field 'logprobs': must be numbers from {LEAST:g} to 0, of every token")
    if not tokens:
        return {}
    entropies = [_token_entropy(*token) for token in tokens]
    return {"entropy": math.fsum(entropies) / len(entropies), ESTIMATE: True}


def _tokens(logprobs: Any) -> Iterator[tuple[float, list[float]]]:
    """(log-probability of the token drawn, those of the likeliest ones), from each of the shapes that servers write."""
    try:
        if isinstance(logprobs, dict) and "content" in logprobs:  # chat completions
            for token in logprobs["content"] or ():
                yield token["logprob"], [top["logprob"] for top in token.get("top_logprobs") or ()]
        elif isinstance(logprobs, dict):  # completions
            tops = logprobs.get("top_logprobs") or [{}] * len(logprobs["token_logprobs"])
            for logprob, top in zip(logprobs["token_logprobs"], tops, strict=True):
                if logprob is not None:  # of the first token of an echoed prompt
                    yield logprob, list((top or {}).values())
        else:  # a list of numbers
            yield from ((logprob, []) for logprob in logprobs)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"field 'logprobs' cannot be read: {error!r}") from error


def _token_entropy(drawn: float, tops: Sequence[float]) -> float:
    """−Σ p log p over the likeliest tokens and all others as one, a lower bound; or −log p of the token drawn.

    The latter is right on average, for tokens drawn at temperature 1 without top-p.
    """
    if len(tops) < 2:
        return -drawn
    shares = [math.exp(top) for top in tops]
    rest = max(0.0, 1.0 - math.fsum(shares))
    return math.fsum(-share * math.log(share) for share in (*shares, rest) if share > 0)


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: set(names) <= row.keys()


def _has_list(row: Mapping[str, Any]) -> bool:
    return isinstance(row.get(_first_of(row, _TEXTS) or ""), list)


def _is_rollout(row: Mapping[str, Any]) -> bool:
    is_text_elsewhere = _has_list(row) or _first_of(row, _TEXT) is not None
    return "question_id" in row and ("completion" in row or ("answer" in row and not is_text_elsewhere))


ROLLOUTS = ToolFormat("rollouts", _is_rollout, _rollout)
GROUPED = ToolFormat("completions in lists, one per question", _has_list, _grouped)
FLAT = ToolFormat("one completion per row", lambda row: _first_of(row, _TEXT) is not None, _flat)
LM_EVAL = ToolFormat("lm-eval samples", _has("doc_id", "doc", "target", "resps"), _lm_eval)
OPENAI = ToolFormat("OpenAI responses", _has("choices"), _openai)
BATCH = ToolFormat("OpenAI batch output", _has("custom_id", "response"), _openai)
LAYOUTS = (
    ROLLOUTS,
    LM_EVAL,
    ToolFormat("verl rollout dump", _has("input", "output", "gts", "score", "step"), _verl),
    ToolFormat("TRL completions", _has("step", "prompt", "completion", "advantage"), _trl),
    BATCH,
    OPENAI,
    GROUPED,
    FLAT,
)


def layout_of(row: Mapping[str, Any]) -> ToolFormat | None:
    return next((layout for layout in LAYOUTS if layout.fits(row)), None)


# Files


@dataclass(frozen=True, slots=True)
class CompletionFile:
    path: Path
    layout: ToolFormat
    columns: CompletionColumns = ANY
    first: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The first row of the file, as it stands there."""
    label_votes: CompletionFile | None = None
    """Completions of the same questions that vote in place of these."""

    @property
    def note(self) -> str:
        """What it was taken for; for a table or lists, also which column is what."""
        note = f"{self.path}: read as {self.layout.name}"
        if self.layout is BATCH and (failed := sum(_has_failed(row.fields) for row in _rows(self.path))):
            note += f"; requests that failed and are left out: {failed:,}"
        if self.layout not in (FLAT, GROUPED):
            return note
        taken = _taken(self.first, self.columns, _FLAT if self.layout is FLAT else _GROUPED)
        return f"{note}; " + ", ".join(f"{what}: {name or 'no column'}" for what, name in taken._asdict().items())

    def rollouts(self) -> Iterator[Rollout]:
        """Its completions, in order; questions without an id are numbered by their text."""
        numbers: dict[str, int] = {}
        first_filter: object = None
        source = ""
        for row in _rows(self.path):
            if row.source != source and not any(self.columns):
                source, found = row.source, layout_of(row.fields)
                if found is not self.layout:  # a folder's next file
                    name = found.name if found else "no completions"
                    raise row.error(
                        f"looks like {name}, and the files before it like {self.layout.name}: give one kind"
                    )
            first_filter = row.fields.get("filter") if first_filter is None else first_filter
            if self.layout is LM_EVAL and row.fields.get("filter") != first_filter:
                continue
            try:
                for fields in self.layout.convert(row.fields, self.columns):
                    if (prompt := fields.pop("prompt", None)) is not None:
                        fields["question"] = prompt
                        if fields.get("question_id") is None:
                            fields["question_id"] = f"{self.path.stem}-{numbers.setdefault(prompt, len(numbers))}"
                    yield rollout_of(fields, row.line or 0)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                is_explained = type(error) is ValueError
                reason = str(error) if is_explained else f"does not look like {self.layout.name}: {error!r}"
                raise row.error(reason) from error


def file_of(path: Path) -> Path:
    """The completions of our own runs and evaluations, where `path` is such a folder; else `path` itself."""
    found = [file for pattern in ("rollouts.jsonl", "rollouts/*.jsonl") for file in sorted(path.glob(pattern))]
    if len(found) > 1:
        raise DataError(path, f"has several files of completions; give one: {', '.join(map(str, found))}")
    return found[0] if found else path


def open_completions(path: Path, columns: CompletionColumns = ANY) -> CompletionFile:
    """Recognise the layout of a file or folder by the columns of its first row."""
    if not os.path.exists(path):
        raise DataError(path, f"there is no such file or folder.{did_you_mean_file(path, '.gz')}")
    if not path.is_file() and not path.is_dir():
        raise DataError(path, "is not a regular file; it is read twice, so give a file on disk")
    first = next(_rows(path), None)
    if first is None:
        return CompletionFile(path, ROLLOUTS, columns)
    for option, name in columns._asdict().items():
        if name is not None and name not in first.fields:
            reason = f"there is no column {name!r}, given as --{option}-column"
            raise first.error(f"{reason}.{did_you_mean(name, first.fields)}")
    layout = layout_of(first.fields)
    if columns.completion is not None:
        layout = GROUPED if isinstance(first.fields[columns.completion], list) else FLAT
    if layout is None:
        raise first.error(_no_completion(first.fields))
    return CompletionFile(path, FLAT if layout is ROLLOUTS and any(columns) else layout, columns, first.fields)


def _rows(path: Path) -> Iterator[RawRow]:
    """Rows of a file without lines are counted from 1 as if they were lines."""
    for file in _files(path):
        if file.suffix.lower() in _TABLES:
            table, _ = read_table(file)
            yield from (row._replace(line=row.line or row.number + 1) for row in table.rows)
        else:
            lines = read_json_lines(file, hint=SHAPE)
            yield from (RawRow(str(file), line.number - 1, line.number, line.fields) for line in lines)


def _files(path: Path) -> list[Path]:
    """The file itself, or those of a folder, or of TRL's `completions/` in it, in order, 2.jsonl before 10.jsonl."""
    if not path.is_dir():
        return [path]
    path = path / "completions" if (path / "completions").is_dir() else path
    files = [file for file in path.iterdir() if file.suffix.lower() in (".jsonl", ".parquet")]
    if len({file.suffix.lower() for file in files}) != 1:
        reason = "is not a regular file, nor a folder with one kind of files of completions (.jsonl or .parquet)"
        raise DataError(path, f"{reason}; give a file")
    return sorted(files, key=lambda file: (len(file.stem) if file.stem.isdecimal() else 0, file.name))
