"""Rollout file → labels file: what a method would make of completions that were sampled elsewhere."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from scrl.answers.classes import MISSING
from scrl.credit.group_metrics import stock_values
from scrl.credit.rule import CreditRule
from scrl.data.completion_files import CompletionFile, open_completions
from scrl.errors import DataError
from scrl.evaluation.gold import label_quality
from scrl.files.whole_files import whole_file
from scrl.lab.stored_groups import StoredGroup, credit_of, groups_for, lacking, several_golds
from scrl.records import Credit

SCHEMA_VERSION = 2


def label_file(
    rollouts: CompletionFile | Path | str,
    rule: CreditRule,
    *,
    out: Path | str | None = None,
    audit: Path | str | None = None,
) -> dict[str, Any]:
    """Label every completion of a file, in its order; returns the summary. Files appear whole or not at all."""
    path = rollouts.path if isinstance(rollouts, CompletionFile) else Path(rollouts)
    source = rollouts if isinstance(rollouts, CompletionFile) else open_completions(path)
    groups = groups_for(source, [rule])
    if reason := lacking(rule, groups):
        fix = "Use --method ttrl, which needs votes alone, or contrast, which needs those of other questions too."
        raise DataError(path, f"method {rule.method.name!r} needs {reason}. {fix}")
    for stored in groups:
        if rule.num_trained is not None and stored.tally.size < rule.num_trained:
            where = f"question {stored.question_id!r} at step {stored.group.step} has {stored.tally.size} completions"
            raise DataError(path, f"{where}, fewer than the {rule.num_trained} to train on (--trained)")
    credits = [credit_of(rule, stored) for stored in groups]
    encode = json.JSONEncoder(allow_nan=False).encode
    with _whole_file(out) as labels, _whole_file(audit) as audits:
        if labels is not None:
            labels.writelines(encode(line) + "\n" for line in label_lines(groups, credits))
        if audits is not None:
            audits.writelines(encode(line) + "\n" for stored in groups for line in audit_lines(stored))
    labels_of = {"labels": list(question_labels(groups, credits))} if rule.method.has_labels else {}
    return label_summary(rule, groups, credits) | labels_of


def _whole_file(path: Path | str | None) -> Any:
    return nullcontext() if path is None else whole_file(Path(path))


def label_lines(groups: Sequence[StoredGroup], credits: Sequence[Credit]) -> Iterator[dict[str, Any]]:
    """The lines of the labels file, one per completion, in the order of the rollouts."""
    in_file_order = sorted((place, i, g) for i, stored in enumerate(groups) for g, place in enumerate(stored.places_G))
    shares = [_shares(stored) for stored in groups]
    for _, i, g in in_file_order:
        stored, credit = groups[i], credits[i]
        j, advantage = credit.tally.class_of_G[g], float(credit.advantages[g])
        answer_class = None if j == MISSING else credit.tally.keys_K[j]
        yield {
            "question_id": stored.question_id,
            "step": stored.group.step,
            "sample": stored.samples_G[g],
            "answer": credit.answers[g],
            "answer_class": answer_class,
            "share": None if answer_class is None else shares[i].get(answer_class, 0.0),
            "label": credit.labels.label_of(answer_class),
            "reward": float(credit.rewards[g]),
            "advantage": None if math.isnan(advantage) else advantage,
        }


def question_labels(groups: Sequence[StoredGroup], credits: Sequence[Credit]) -> Iterator[dict[str, Any]]:
    """The label of each question as a completion spells it, and its share; where there is none, the largest share."""
    in_order = sorted(zip(groups, credits, strict=True), key=lambda pair: (pair[0].group.step, pair[0].places_G[0]))
    for stored, credit in in_order:
        key, tally, shares = credit.labels.positive, credit.tally, _shares(stored)
        answers = dict(zip(tally.completion_keys[::-1], credit.answers[::-1], strict=True))  # of each class the first
        share = max(shares.values(), default=0.0) if key is None else shares.get(key, 0.0)
        yield {
            "question_id": stored.question_id,
            "step": stored.group.step,
            "label": None if key is None else answers.get(key, key),
            "share": share,
        }


def _shares(stored: StoredGroup) -> dict[str, float]:
    """The shares of the votes that decide."""
    keys = stored.tally.completion_keys if stored.votes is None else stored.votes
    return {key: count / len(keys) for key, count in Counter(keys).items() if key is not None}


def audit_lines(stored: StoredGroup) -> Iterator[dict[str, Any]]:
    """One line per class: its key, its votes, and each spelling with its votes and what merged it."""
    for key, spellings in stored.classes.audit().items():
        yield {
            "question_id": stored.question_id,
            "step": stored.group.step,
            "answer_class": key,
            "votes": sum(spelling.count for spelling in spellings),
            "spellings": [{"text": s.text, "votes": s.count, "merged_by": s.merged_by} for s in spellings],
        }


def label_summary(rule: CreditRule, groups: Sequence[StoredGroup], credits: Sequence[Credit]) -> dict[str, Any]:
    """What a rule labels, in numbers; a question counts once per step. Without gold, what needs it is absent."""
    pairs = list(zip(groups, credits, strict=True))
    sizes = Counter(stored.tally.size for stored in groups)
    num_completions = sum(stored.tally.size for stored in groups)
    num_positive = sum(credit.labels.positive is not None for credit in credits)
    num_estimates = sum(stored.num_estimates for stored in groups)
    summary: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "method": rule.method.name,
        "preset": rule.preset,
        "has_labels": rule.method.has_labels,
        "steps": len({stored.group.step for stored in groups}),
        "questions": len(groups),
        "completions": num_completions,
        "no_answer_share": sum(credit.answers.count(None) for credit in credits) / num_completions,
        "positive_questions": num_positive,
        "abstained_questions": len(groups) - num_positive,
        "negative_answers": sum(len(credit.labels.negatives) for credit in credits),
        "entropy_only_questions": sum(credit.is_entropy_only for credit in credits),
        "merged_spellings": sum(len(set(c.answers) - {None}) - len(stored.classes.keys_K) for stored, c in pairs),
        "given_answers": sum(stored.num_given for stored in groups),
        "group_sizes": {str(size): count for size, count in sorted(sizes.items())},
        "gold_questions": sum(stored.truth is not None for stored in groups),
    }
    if num_estimates:
        summary["estimated_entropies"] = num_estimates
    if number := several_golds(groups):
        summary["several_golds"] = number
    summary |= {name: math.fsum(values) / len(values) for name, values in stock_values(credits).items()}
    if any(stored.gold is not None for stored in groups):
        truths = ((credit, stored.truth) for stored, credit in pairs)
        summary |= label_quality((credit, truth) for credit, truth in truths if truth is not None)
    return summary
