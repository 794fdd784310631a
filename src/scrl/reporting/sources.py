"""What a page is about: a run, read from its folder, or a file of completions; and its questions, with texts to read.

A run folder must have `config.yaml`, `metrics.jsonl`, `evaluations.jsonl` and `rollouts.jsonl`; the last three may be
empty, and may end in half a line while the run is going.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import IO, Any

from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.completion_files import CompletionFile
from scrl.errors import DataError, InputError
from scrl.files.jsonl import parse_object
from scrl.files.run_state import Standing, standing_of
from scrl.files.yaml_files import read_yaml
from scrl.lab.audit import audit_groups
from scrl.lab.stored_groups import StoredGroup, stored_groups
from scrl.reporting.evaluations import Evaluation, EvaluationProtocol, by_protocol, read_evaluations, read_metrics
from scrl.reporting.rollout_votes import QuestionVotes, RolloutLine, Visit, Votes, parse_rollout, read_votes
from scrl.reporting.text import plain, shorten, signed

NUM_EXCERPTS = 2
MOST_CHARACTERS = 2_000_000
"""The most characters of all excerpts of a page together; with many questions each is shorter."""
LABEL_WORDS = {"positive": "positive label", "negative": "ruled out", None: "no label"}
EXPLORED = ("scrl", "ttrl", "contrast", "contrast-label")
"""The methods whose labels and rewards the page computes itself."""
FILES = ("config.yaml", "metrics.jsonl", "evaluations.jsonl", "rollouts.jsonl")
EVALUATION = "evaluation.yaml"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One completion to read, with the key of its answer's class and what else is known about it."""

    answer: str | None
    text: str
    facts: str = ""


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """One question of a run or file, and completions of its last visit: with the most frequent answer, and another."""

    votes: QuestionVotes
    excerpts: tuple[Excerpt, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from other questions: runs on other data may use the same ids."""
        return (self.votes.id, self.votes.text)


@dataclass(frozen=True, slots=True)
class Source:
    """What the files of one run say; a file of completions has votes and an audit, and nothing of the rest."""

    name: str
    questions: tuple[ShownQuestion, ...]
    num_groups: int
    num_completions: int
    is_graded: bool
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    folder: Path = Path()
    standing: Standing | None = None
    notes: tuple[str, ...] = ()
    has_estimates: bool = False
    """Whether some entropies were estimated from log-probabilities."""
    audit: Mapping[str, Any] | None = None
    """The audit of a file of completions; None for a run."""

    @property
    def is_run(self) -> bool:
        return self.audit is None

    @property
    def method(self) -> str:
        return str(self.config.get("method", self.name))

    @property
    def is_unmeasured(self) -> bool:
        evaluation = self.config.get("evaluation")
        return isinstance(evaluation, dict) and evaluation.get("completions") == 0

    @property
    def series(self) -> dict[EvaluationProtocol, list[Evaluation]]:
        return by_protocol(self.evaluations)

    @property
    def steps_done(self) -> int:
        return max((line["step"] + 1 for line in self.metrics), default=0)


def name_places(places: Sequence[Path]) -> list[str]:
    """A name for each folder or file: its last parts, as many as tell them apart."""
    if not places:
        raise InputError("give at least one run folder")
    paths = [Path(place).resolve() for place in places]
    for path in paths:
        if paths.count(path) > 1:
            raise InputError(f"{path}: appears among the run folders more than once")
    lengths = range(1, max(len(path.parts) for path in paths) + 1)
    names = (["/".join(path.parts[-length:]) for path in paths] for length in lengths)
    return next(named for named in names if len(set(named)) == len(paths))


def is_run_folder(path: Path) -> bool:
    """Whether a folder is, or was meant to be, that of a run rather than one with files of completions."""
    has_completions = path.is_dir() and any(file.suffix in (".jsonl", ".parquet") for file in path.iterdir())
    return path.is_dir() and (not has_completions or any((path / name).exists() for name in (*FILES, EVALUATION)))


def read_run(folder: Path, name: str) -> Source:
    if not folder.is_dir():
        reason = "it is a file" if folder.exists() else "there is no such folder"
        raise DataError(folder, f"is not a run folder: {reason}")
    for file in FILES:
        if not (folder / file).is_file():
            is_evaluation = (folder / EVALUATION).is_file()
            hint = "; an evaluation has no page; for a table of it: --format markdown" if is_evaluation else ""
            raise DataError(folder / file, f"is missing; a run folder has {', '.join(FILES)}{hint}")
    notes: list[str] = []
    rollouts = folder / "rollouts.jsonl"
    votes = read_votes(rollouts, notes.append)
    visits = [visit for question in votes.values() for visit in question.by_step.values()]
    return Source(
        name=name,
        config=read_yaml(folder / "config.yaml"),
        metrics=read_metrics(folder / "metrics.jsonl", notes.append),
        evaluations=read_evaluations(folder / "evaluations.jsonl", notes.append),
        folder=folder,
        standing=standing_of(folder),
        questions=load_questions(rollouts, votes),
        num_groups=len(visits),
        num_completions=sum(visit.size for visit in visits),
        is_graded=any(visit.is_graded for visit in visits),
        notes=tuple(notes),
    )


# Files of completions


def read_stored(source: CompletionFile, rule: CreditRule, name: str) -> Source:
    """A file of completions; `rule` says how answers are read and compared."""
    groups = stored_groups(source, rule, keep_texts=True)
    by_question: dict[str, list[StoredGroup]] = {}
    for stored in groups:
        by_question.setdefault(stored.question_id, []).append(stored)
    ids = sorted(by_question, key=lambda question_id: (natural_order(question_id), question_id))
    return Source(
        name=name,
        questions=tuple(_question(by_question[question_id], len(ids)) for question_id in ids),
        num_groups=len(groups),
        num_completions=sum(stored.tally.size for stored in groups),
        is_graded=any(stored.truth is not None for stored in groups),
        has_estimates=any(stored.num_estimates for stored in groups),
        audit=audit_groups(groups, {method: credit_rule(method) for method in EXPLORED}),
    )


def _question(groups: Sequence[StoredGroup], num_questions: int) -> ShownQuestion:
    last, texts = groups[-1], [stored.question for stored in groups if stored.question]
    gold = next((stored.gold for stored in groups if stored.gold is not None), None)
    votes = QuestionVotes(last.question_id, texts[-1] if texts else "", gold)
    votes.by_step.update({stored.group.step: _visit(stored) for stored in groups})
    keys_G, completions = last.tally.vote_keys, last.group.completions
    chosen = [(key, completions[keys_G.index(key)].text) for key in classes_to_read(votes.visits[-1])]
    return ShownQuestion(votes, tuple(Excerpt(key, excerpt(text, num_questions)) for key, text in chosen if text))


def _visit(stored: StoredGroup) -> Visit:
    truth, entropies_G = stored.truth, stored.tally.entropies_G or (nan,) * stored.tally.size
    visit = Visit(stored.group.step, samples=set(range(stored.tally.size)))
    for key, entropy in zip(stored.tally.vote_keys, entropies_G, strict=True):
        is_right = None if truth is None else key is not None and key == truth.key
        votes = visit.votes.setdefault(key, Votes(None, is_right, 0))
        votes.count += 1
        votes.entropies.append(entropy)
    return visit


# Completions to read


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """A sort key that puts `q9` before `q10`."""
    parts = (part.lstrip("0") if part.isdecimal() else part for part in re.split("([0-9]+)", name))
    return tuple((len(part) if place % 2 else 0, part) for place, part in enumerate(parts))


def excerpt(text: str, num_questions: int) -> str:
    """The beginning and the end of a completion, as much as there is room for."""
    room = max(200, min(2000, MOST_CHARACTERS // (NUM_EXCERPTS * max(1, num_questions))))
    return shorten(text, room // 2, room - room // 2)


def classes_to_read(visit: Visit) -> list[str | None]:
    """The two most frequent answers, or the only one and a missing answer."""
    keys: list[str | None] = [key for key, _ in visit.classes[:NUM_EXCERPTS]]
    return [*keys, None] if len(keys) < NUM_EXCERPTS and None in visit.votes else keys


def load_questions(path: Path, votes: Mapping[str, QuestionVotes]) -> tuple[ShownQuestion, ...]:
    """All questions of a run by their ids, with completions fetched from its rollouts."""
    chosen = sorted(votes.values(), key=lambda question: (natural_order(question.id), question.id))
    try:
        with path.open("rb") as file:
            return tuple(ShownQuestion(each, tuple(_excerpts(file, path, each, len(votes)))) for each in chosen)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def _excerpts(file: IO[bytes], path: Path, question: QuestionVotes, num_questions: int) -> Iterator[Excerpt]:
    """Completions of the last visit, fetched from their places in the file."""
    last = question.visits[-1]
    for key in classes_to_read(last):
        file.seek(last.votes[key].offset)
        try:
            rollout = parse_rollout(parse_object(file.readline(), path, 0), path, 0)
        except DataError as error:
            raise DataError(path, "has changed while it was read") from error
        if (str(rollout.question_id), rollout.step, rollout.answer_class) != (question.id, last.step, key):
            raise DataError(path, "has changed while it was read")
        yield Excerpt(rollout.answer_class, excerpt(rollout.completion, num_questions), _facts(rollout))


def _facts(rollout: RolloutLine) -> str:
    facts = {
        f"step {rollout.step}": True,
        "right" if rollout.correct else "wrong": rollout.correct is not None,
        LABEL_WORDS[rollout.label]: True,
        f"reward {signed(rollout.reward or 0, 3)}": rollout.reward is not None,
        "not trained on": rollout.advantage is None,
        f"advantage {signed(rollout.advantage or 0, 2)}": rollout.advantage is not None,
        f"entropy {plain(rollout.entropy or 0)}": rollout.entropy is not None,
        f"{rollout.num_tokens or 0:,} tokens": rollout.num_tokens is not None,
        "cut at the most tokens allowed": rollout.finished is False,
    }
    return " · ".join(words for words, holds in facts.items() if holds)
