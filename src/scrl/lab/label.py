"""Rollout file → labels file: what a method would make of completions that were sampled elsewhere.

Two passes. The first checks every line, so that a bad file leaves nothing behind; the second labels each group as
soon as its last line has been read, and keeps no texts, except of open groups where the method needs them. A method
that looks at the votes of other questions labels the groups of a step together, once the last of them has been read.
Where a rule pushes is measured when a step is complete, from votes and advantages that are kept until then.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import LastVotes, require_others
from scrl.credit.method import NEEDS
from scrl.credit.pushes import push_to_stock, stock_share
from scrl.credit.rule import CreditRule
from scrl.credit.tally import count_votes
from scrl.data.completion_files import CompletionFile, open_completions
from scrl.data.layouts import ANY, Columns
from scrl.data.rollouts import GroupIndex, GroupKey, Rollout, index_groups
from scrl.data.whole_files import whole_file
from scrl.errors import DataError
from scrl.evaluation.label_quality import LabelQuality
from scrl.evaluation.oracle import require_gold, truth_for
from scrl.records import FACTS, Completion, Credit, Elsewhere, Group, Question, Tally, Truth, Unread

SCHEMA_VERSION = 2
"""Of the summary; 1 had `undecided_pairs` too."""
_CHANGED = "the file changed while it was read; label a copy, or wait until it is complete"


@dataclass(slots=True)
class _OpenGroup:
    """A group whose lines are still being read, and its credit once they all are."""

    completions: list[Completion] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    credit: Credit | None = None


class _ReadGroup(NamedTuple):
    """A group of a step whose other groups may still be to come."""

    open_group: _OpenGroup
    group: Group
    classes: Classes
    gold: str | None


@dataclass(slots=True)
class _StepVotes:
    """What is kept of a step until its last group has been read."""

    to_come: int
    visits: list[tuple[str, Tally]] = field(default_factory=list)
    uncredited: list[_ReadGroup] = field(default_factory=list)
    """Groups of a method that needs the votes of the whole step."""
    credited: list[tuple[str, Credit, Truth | None]] = field(default_factory=list)
    """(question, credit, right class), for the pushes."""


@dataclass(slots=True)
class LabelSummary:
    """Counts over the groups of a file; a question counts once a step."""

    missing: int = 0
    positive_questions: int = 0
    negative_answers: int = 0
    entropy_only_questions: int = 0
    merged_spellings: int = 0
    given_answers: int = 0
    """Completions that came with an answer of their own, which was taken instead of reading their text."""
    gold_questions: int = 0
    group_sizes: Counter[int] = field(default_factory=Counter)
    steps: int = 0
    estimated_entropies: int = 0
    """Completions whose entropy is an estimate from log-probabilities."""
    pushes: dict[str, list[float]] = field(default_factory=dict)
    """Of every group whose stock answers are known, by metric."""

    def add(self, credit: Credit, classes: Classes, *, is_graded: bool) -> None:
        """Count one group."""
        self.gold_questions += is_graded
        self.group_sizes[len(credit.answers)] += 1
        self.missing += credit.answers.count(None)
        self.positive_questions += credit.labels.positive is not None
        self.negative_answers += len(credit.labels.negatives)
        self.entropy_only_questions += credit.is_entropy_only
        self.merged_spellings += len(set(credit.answers) - {None}) - len(classes.keys_K)

    def as_dict(self, rule: CreditRule, quality: LabelQuality | None) -> dict[str, Any]:
        """The summary file's content."""
        questions = self.group_sizes.total()
        completions = sum(size * count for size, count in self.group_sizes.items())
        return {
            "schema_version": SCHEMA_VERSION,
            "method": rule.method.name,
            "preset": rule.preset,
            "steps": self.steps,
            "questions": questions,
            "completions": completions,
            "no_answer_share": self.missing / completions,
            "positive_questions": self.positive_questions,
            "abstained_questions": questions - self.positive_questions,
            "negative_answers": self.negative_answers,
            "entropy_only_questions": self.entropy_only_questions,
            "merged_spellings": self.merged_spellings,
            "given_answers": self.given_answers,
            "group_sizes": {str(size): count for size, count in sorted(self.group_sizes.items())},
            "gold_questions": self.gold_questions,
            **({"estimated_entropies": self.estimated_entropies} if self.estimated_entropies else {}),
            **{name: sum(values) / len(values) for name, values in self.pushes.items()},
        } | (quality.summary() if quality else {})

    def add_pushes(self, credit: Credit) -> None:
        """Where the advantages of one group push, without gold."""
        stock_label = None if credit.labels.positive is None else float(credit.labels.positive in credit.stock)
        found = {
            "stock_share": stock_share(credit),
            "stock_label_share": stock_label,
            "push_stock": push_to_stock(credit),
        }
        for name, value in found.items():
            if credit.stock and value is not None:
                self.pushes.setdefault(name, []).append(value)


def label_file(
    rollouts: Path | str,
    rule: CreditRule,
    *,
    out: Path | str | None = None,
    audit: Path | str | None = None,
    columns: Columns = ANY,
    on_bytes: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Label every completion of a file, in its order; returns the summary. Files appear whole or not at all."""
    path = Path(rollouts)
    _refuse_what_no_file_has(path, rule)
    needs = sorted(rule.needs & {"entropy", *FACTS})
    source = open_completions(path, columns)
    index = index_groups(path, source.rollouts(on_bytes), needs=needs, method=rule.method.name)
    _check_trained(path, index, rule.num_trained)
    require_gold(rule, [Question(name, "", group.gold) for (_, name), group in index.items()], str(path))
    if "elsewhere" in rule.needs:
        require_others([name for _, name in index], rule.method.name)
    has_gold = any(group.gold is not None for group in index.values())
    summary, quality = LabelSummary(), LabelQuality() if has_gold else None
    with _whole_file(out) as labels, _whole_file(audit) as audits:
        steps = {step: _StepVotes(count) for step, count in sorted(Counter(step for step, _ in index).items())}
        labeller = _Labeller(rule, summary, quality, audits, steps)
        for key, place, group in _in_order(source, index, labeller, on_bytes):
            if labels is not None:
                labels.write(_json_line(label_line(group.credit, key, place, group.samples[place])))
    return summary.as_dict(rule, quality)


@dataclass(slots=True)
class _Labeller:
    """Labels whole groups, and keeps the accounts."""

    rule: CreditRule
    summary: LabelSummary
    quality: LabelQuality | None
    audits: IO[str] | None
    steps: dict[int, _StepVotes]
    """Steps that are not finished, in order."""
    last_votes: LastVotes = field(default_factory=LastVotes)

    def take(self, open_group: _OpenGroup, group: Group, gold: str | None) -> None:
        """A group has been read: label it, or keep it until its step has been read."""
        read = _ReadGroup(open_group, group, self.rule.classify(group), gold)
        step = self.steps[group.step]
        step.visits.append((group.question_id, count_votes(read.classes, None)))
        step.to_come -= 1
        if "elsewhere" in self.rule.needs:
            step.uncredited.append(read)
        else:
            self._credit(step, read, None)
        while self.steps and not next(iter(self.steps.values())).to_come:
            self._finish(self.steps.pop(next(iter(self.steps))))

    def _finish(self, step: _StepVotes) -> None:
        """All groups of a step and of the steps before it have been read."""
        self.summary.steps += 1
        self.last_votes = self.last_votes.after(step.visits)
        for read in step.uncredited:
            self._credit(step, read, self.last_votes.elsewhere(read.group.question_id, read.classes.keys_K))
        for question_id, credit, truth in step.credited:
            known = replace(credit, stock=self.last_votes.elsewhere(question_id, ()).stock)
            self.summary.add_pushes(known)
            if self.quality is not None and truth is not None:
                self.quality.add_pushes(known, truth)

    def _credit(self, step: _StepVotes, read: _ReadGroup, elsewhere: Elsewhere | None) -> None:
        group, classes, gold = read.group, read.classes, read.gold
        told = truth_for(self.rule, Question(group.question_id, "", gold), classes)
        credit = read.open_group.credit = self.rule.credit(group, classes, truth=told, elsewhere=elsewhere)
        truth = None if self.quality is None or gold is None else self.quality.add(classes, credit, gold)
        self.summary.add(credit, classes, is_graded=truth is not None)
        light = replace(credit, answers=(), tally=replace(credit.tally, entropies_G=None, class_entropies_K=None))
        step.credited.append((group.question_id, light, truth))
        if self.audits is not None:
            self.audits.writelines(_json_line(line) for line in audit_lines(group, classes))


def label_line(credit: Credit | None, key: GroupKey, place: int, sample: int) -> dict[str, Any]:
    """One line of the labels file."""
    assert credit is not None
    j = credit.tally.class_of_G[place]
    answer_class = credit.tally.keys_K[j] if j >= 0 else None
    advantage = float(credit.advantages[place])
    return {
        "question_id": key[1],
        "step": key[0],
        "sample": sample,
        "answer": credit.answers[place],
        "answer_class": answer_class,
        "share": credit.tally.counts_K[j] / credit.tally.size if j >= 0 else None,
        "label": credit.labels.of(answer_class),
        "reward": float(credit.rewards[place]),
        "advantage": None if math.isnan(advantage) else advantage,
    }


def audit_lines(group: Group, classes: Classes) -> Iterator[dict[str, Any]]:
    """One line per class: its key, its votes, and each spelling with its votes and what merged it."""
    for key, spellings in classes.audit().items():
        yield {
            "question_id": group.question_id,
            "step": group.step,
            "answer_class": key,
            "votes": sum(spelling.count for spelling in spellings),
            "spellings": [{"text": s.text, "votes": s.count, "merged_by": s.merged_by} for s in spellings],
        }


def _in_order(
    source: CompletionFile,
    index: dict[GroupKey, GroupIndex],
    labeller: _Labeller,
    on_bytes: Callable[[int], None] | None,
) -> Iterator[tuple[GroupKey, int, _OpenGroup]]:
    """(group, place in it) for every line, in the order of the file, each as soon as its group has its credit."""
    open_groups: dict[GroupKey, _OpenGroup] = {}
    waiting: deque[tuple[GroupKey, int, _OpenGroup]] = deque()
    for rollout in source.rollouts(on_bytes):
        key = rollout.group
        if key not in index:
            raise DataError(source.path, _CHANGED, rollout.line)
        group = open_groups.setdefault(key, _OpenGroup())
        waiting.append((key, len(group.completions), group))
        _take(group, rollout, labeller.rule)
        labeller.summary.estimated_entropies += rollout.is_entropy_estimate
        labeller.summary.given_answers += bool(rollout.text) and not isinstance(rollout.answer, Unread)
        if len(group.completions) == index[key].size:
            del open_groups[key]
            labeller.take(group, Group(tuple(group.completions), question_id=key[1], step=key[0]), index[key].gold)
        while waiting and waiting[0][2].credit is not None:
            yield waiting.popleft()
    if waiting:
        raise DataError(source.path, _CHANGED)


def _take(group: _OpenGroup, rollout: Rollout, rule: CreditRule) -> None:
    """Read the answer now, so that the text need not be kept."""
    answer = rule.reader(rollout.text) if isinstance(rollout.answer, Unread) else rollout.answer
    group.samples.append(len(group.samples) if rollout.sample is None else rollout.sample)
    text = rollout.text if "text" in rule.needs else ""
    group.completions.append(Completion(text, rollout.entropy, answer, rollout.facts))


def _refuse_what_no_file_has(path: Path, rule: CreditRule) -> None:
    """A method that needs more than a rollout can say works in training alone."""
    beyond = sorted(rule.needs & {"partner", "reference_share", "embedding"})
    if beyond:
        raise DataError(
            path,
            f"method {rule.method.name!r} needs {NEEDS[beyond[0]]}, which a rollout file does not have; "
            "it works in training (scrl train --method)",
        )


def _check_trained(path: Path, index: dict[GroupKey, GroupIndex], num_trained: int | None) -> None:
    for (step, question_id), group in index.items():
        if num_trained is not None and group.size < num_trained:
            raise DataError(
                path,
                f"question {question_id!r} at step {step} has {group.size} completions, "
                f"fewer than the {num_trained} to train on (--trained)",
            )


_encode = json.JSONEncoder(allow_nan=False).encode


def _json_line(record: dict[str, Any]) -> str:
    return _encode(record) + "\n"


def _whole_file(path: Path | str | None) -> Any:
    return nullcontext() if path is None else whole_file(Path(path))
