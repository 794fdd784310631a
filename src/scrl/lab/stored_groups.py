"""Completions of a file → groups in memory: votes, the right class, and what the other questions answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import LastVotes
from scrl.credit.rule import CreditRule
from scrl.data.completion_files import CompletionFile
from scrl.data.rollouts import GroupKey, Rollout, index_groups
from scrl.evaluation.label_quality import right_class
from scrl.records import FACTS, Completion, Credit, Elsewhere, Group, Tally, Truth, Unread

BEYOND_A_FILE = {
    "partner": "completions of the question in other words",
    "reference_share": "completions of the start model beside those of the run",
    "embedding": "a model that turns texts into vectors",
}
"""What a method may need that no file of completions has."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The completions of one question at one step, without their texts unless a method needs these."""

    group: Group
    classes: Classes
    tally: Tally
    gold: str | None
    truth: Truth | None
    """The right class; None without gold."""
    num_cut: int | None
    """Completions that were cut; None where the file does not say."""
    has_estimates: bool
    """Some entropies were estimated from log-probabilities."""
    elsewhere: Elsewhere
    """What the other questions answered."""
    question: str = ""
    """The question's text, where the file has it and texts are kept."""

    @property
    def question_id(self) -> str:
        """The question's id."""
        return self.group.question_id


def stored_groups(source: CompletionFile, rule: CreditRule, *, keep_texts: bool) -> list[StoredGroup]:
    """The groups of a file, by step and then as they end in the file; `rule` says how answers are read and compared."""
    found: dict[GroupKey, list[Rollout]] = {}
    index = index_groups(source.path, _sorted_into(found, source.rollouts()))
    by_step: dict[int, list[StoredGroup]] = {}
    for key in sorted(index, key=lambda key: (key[0], found[key][-1].line)):
        stored = _stored(key, found.pop(key), index[key].gold, rule, keep_texts=keep_texts)
        by_step.setdefault(stored.group.step, []).append(stored)
    votes, known = LastVotes(), list[StoredGroup]()
    for step_groups in by_step.values():
        votes = votes.after([(stored.question_id, stored.tally) for stored in step_groups])
        known += [replace(s, elsewhere=votes.elsewhere(s.question_id, s.tally.keys_K)) for s in step_groups]
    return known


def _sorted_into(found: dict[GroupKey, list[Rollout]], rollouts: Iterable[Rollout]) -> Iterable[Rollout]:
    for rollout in rollouts:
        found.setdefault(rollout.group, []).append(rollout)
        yield rollout


def _stored(
    key: GroupKey, rollouts: Sequence[Rollout], gold: str | None, rule: CreditRule, *, keep_texts: bool
) -> StoredGroup:
    answers_G = [rule.reader(r.text) if isinstance(r.answer, Unread) else r.answer for r in rollouts]
    completions = tuple(
        Completion(r.text if keep_texts else "", r.entropy, answer, r.facts)
        for r, answer in zip(rollouts, answers_G, strict=True)
    )
    group = Group(completions, question_id=key[1], step=key[0])
    classes = rule.classify(group)
    is_known = any(r.is_finished is not None for r in rollouts)
    return StoredGroup(
        group=group,
        classes=classes,
        tally=rule.evidence(group, classes).tally,
        gold=gold,
        truth=None if gold is None else right_class(classes, gold),
        elsewhere=Elsewhere(0),
        has_estimates=any(r.is_entropy_estimate for r in rollouts),
        num_cut=sum(r.is_finished is False for r in rollouts) if is_known else None,
        question=rollouts[0].question if keep_texts else "",
    )


def lacking(rule: CreditRule, groups: Sequence[StoredGroup]) -> str | None:
    """What the method of a rule needs and these groups do not have, in words; None where they have all."""
    for need in sorted(rule.needs):
        if need in BEYOND_A_FILE:
            return BEYOND_A_FILE[need]
        if need == "truth" and any(stored.truth is None for stored in groups):
            return "a gold answer for every question"
        if need == "elsewhere" and len({stored.question_id for stored in groups}) < 2:
            return "more than one question"
        completions = (completion for stored in groups for completion in stored.group.completions)
        if need == "entropy" and any(stored.tally.entropies_G is None for stored in groups):
            return "an entropy for every completion"
        if need in FACTS and any(need not in completion.facts for completion in completions):
            return f"the field {'num_tokens' if need == 'length' else need!r} for every completion"
    return None


def credit_of(rule: CreditRule, stored: StoredGroup) -> Credit:
    """What a rule makes of a group."""
    truth = stored.truth if "truth" in rule.needs else None
    return rule.credit(stored.group, stored.classes, truth=truth, elsewhere=stored.elsewhere)
