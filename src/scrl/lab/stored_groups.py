"""Completions of a file → groups in memory: votes, the right class, and what the other questions answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scrl.answers.classes import Classes
from scrl.answers.readers import SoundReader, read_answer
from scrl.credit.elsewhere import LastVotes
from scrl.credit.label_votes import LabelVotes, Votes
from scrl.credit.method import NEEDS, Evidence
from scrl.credit.rule import CreditRule
from scrl.data.completion_files import CompletionFile, open_completions
from scrl.data.rollouts import FIELDS, GroupKey, Rollout
from scrl.errors import DataError
from scrl.evaluation.gold import right_class
from scrl.records import Completion, Credit, Elsewhere, Group, Tally, Truth, Unread


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The completions of one question at one step, without their texts unless these are kept."""

    group: Group
    classes: Classes
    tally: Tally
    samples_G: tuple[int, ...]
    places_G: tuple[int, ...]
    """Their indices among all completions of the file."""
    gold: str | None
    truth: Truth | None
    """The right class; None without gold."""
    has_several_golds: bool
    """Whether there is no gold because the file has several right answers."""
    num_cut: int | None
    """Completions that were cut; None if the file does not say."""
    num_estimates: int
    """Entropies that were estimated from log-probabilities."""
    num_given: int
    """Completions that came with an answer, which was taken instead of reading their text."""
    elsewhere: Elsewhere
    question: str
    """The question's text, if the file has it and texts are kept."""
    votes: Votes | None = None
    """The votes that decide, if they are those of another file."""

    @property
    def question_id(self) -> str:
        return self.group.question_id


def stored_groups(source: CompletionFile, rule: CreditRule, *, keep_texts: bool) -> list[StoredGroup]:
    """The groups of a file, by step and then as they end in the file; `rule` says how answers are read and compared."""
    rollouts: dict[GroupKey, dict[int, Rollout]] = {}
    golds: dict[GroupKey, str] = {}
    num_given = Counter[GroupKey]()
    reads_groups = isinstance(rule.reader, SoundReader)
    for place, rollout in enumerate(source.rollouts()):
        key, line = rollout.group, rollout.line
        group = rollouts.setdefault(key, {})
        sample = len(group) if rollout.sample is None else rollout.sample
        if sample in group:
            question = f"question {rollout.question_id!r} at step {rollout.step}"
            raise DataError(source.path, f"sample {sample} of {question} appears twice", line)
        if rollout.gold is not None and golds.setdefault(key, rollout.gold) != rollout.gold:
            earlier = f"an earlier line of question {rollout.question_id!r} has {golds[key]!r}"
            raise DataError(source.path, f"field 'gold' is {rollout.gold!r}, but {earlier}", line)
        light = rollout._replace(line=place)
        if not isinstance(rollout.answer, Unread):
            num_given[key] += bool(rollout.text)
        elif not reads_groups:
            answer = read_answer(rule.reader, rollout.text, is_cut=rollout.is_finished is False)
            light = light._replace(answer=answer)
        group[sample] = light if keep_texts or reads_groups else light._replace(text="", question="")
    if not rollouts:
        raise DataError(source.path, "there are no rollouts in this file")
    by_step: dict[int, list[StoredGroup]] = {}
    for key in sorted(rollouts, key=lambda key: (key[0], max(rollout.line for rollout in rollouts[key].values()))):
        stored = _stored(key, rollouts.pop(key), golds.get(key), num_given[key], rule)
        by_step.setdefault(stored.group.step, []).append(stored)
    if source.label_votes is not None:
        others = stored_groups(source.label_votes, rule, keep_texts=False)
        return voted_by([stored for groups in by_step.values() for stored in groups], others, source)
    votes, groups = LastVotes(), list[StoredGroup]()
    for step_groups in by_step.values():
        votes = votes.after([(stored.question_id, stored.tally) for stored in step_groups])
        groups += [replace(s, elsewhere=votes.elsewhere(s.question_id, s.tally.keys_K)) for s in step_groups]
    return groups


def first_visits(path: Path, rule: CreditRule, questions: Collection[str] | None = None) -> list[Evidence]:
    """The votes of these questions, or of all, in a file of completions, each at its first visit; refused without."""
    groups = stored_groups(open_completions(path), rule, keep_texts="text" in rule.needs)
    firsts = {stored.question_id: stored for stored in reversed(groups)}
    names = list(firsts) if questions is None else questions
    for missing in (name for name in names if name not in firsts):
        raise DataError(path, f"label_votes: has no completion of question {missing!r}; give votes on every question")
    return [rule.evidence(firsts[name].group, firsts[name].classes, truth=firsts[name].truth) for name in names]


def voted(source: CompletionFile, rule: CreditRule) -> dict[str, Any]:
    """The votes on each question, at its last visit, as the line of an evaluation."""
    from scrl.evaluation.evaluate import most_voted

    last = {stored.question_id: stored for stored in stored_groups(source, rule, keep_texts=True)}
    return {
        "step": 0,
        "benchmark": source.path.name,
        "samples": max(stored.tally.size for stored in last.values()),
        "significant_digits": rule.significant_digits,
        "answers": {
            name: most_voted(stored.group, stored.classes, stored.tally)
            | {"question": stored.question, "completions": stored.tally.size}
            for name, stored in last.items()
        },
    }


def voted_by(groups: Sequence[StoredGroup], others: Sequence[StoredGroup], source: CompletionFile) -> list[StoredGroup]:
    """The groups with the votes of others, those of each question's first visit, and p̄ of these votes."""
    label_votes = LabelVotes({other.question_id: other.tally.vote_keys for other in reversed(others)})
    missing = [stored.question_id for stored in groups if stored.question_id not in label_votes.votes]
    if missing and source.label_votes is not None:
        reason = f"has no completion of question {missing[0]!r}, which {source.path} has"
        raise DataError(source.label_votes.path, f"--label-votes: {reason}; give votes on every question")
    voted = []
    for stored in groups:
        votes = label_votes.votes[stored.question_id]
        keys_K = {*stored.tally.keys_K, *(key for key in votes if key is not None)}
        elsewhere = label_votes.last_votes.elsewhere(stored.question_id, keys_K)
        voted.append(replace(stored, votes=votes, elsewhere=elsewhere))
    return voted


def _stored(
    key: GroupKey, numbered: Mapping[int, Rollout], gold: str | None, num_given: int, rule: CreditRule
) -> StoredGroup:
    rollouts = list(numbered.values())
    completions = tuple(Completion(r.text, r.entropy, r.answer, r.facts, r.is_finished is False) for r in rollouts)
    group = Group(completions, question_id=key[1], step=key[0])
    classes = rule.classify(group)
    says_finished = any(r.is_finished is not None for r in rollouts)
    return StoredGroup(
        group=group,
        classes=classes,
        tally=rule.evidence(group, classes).tally,
        samples_G=tuple(numbered),
        places_G=tuple(r.line for r in rollouts),
        gold=gold,
        truth=right_class(classes, gold),
        has_several_golds=gold is None and any(r.has_several_golds for r in rollouts),
        elsewhere=Elsewhere(0),
        num_estimates=sum(r.is_entropy_estimate for r in rollouts),
        num_given=num_given,
        num_cut=sum(r.is_finished is False for r in rollouts) if says_finished else None,
        question=rollouts[0].question,
    )


def groups_for(source: CompletionFile, rules: Sequence[CreditRule]) -> list[StoredGroup]:
    """The groups of a file for several rules; the first says how answers are read and compared.

    What a rule needs may be absent, which `lacking` tells.
    """
    return stored_groups(source, rules[0], keep_texts=any("text" in rule.needs for rule in rules))


def several_golds(groups: Sequence[StoredGroup]) -> int:
    """How many questions have no gold because the file has several right answers."""
    return len({stored.question_id for stored in groups if stored.has_several_golds})


def several_golds_note(number: int) -> str:
    who = "1 question has" if number == 1 else f"{number:,} questions have"
    return f"{who} several right answers in the file; they count as questions without gold."


def lacking(rule: CreditRule, groups: Sequence[StoredGroup]) -> str | None:
    """What the method of a rule needs and these groups do not have, in words; None if they have everything."""
    if rule.method.weighs_votes and any(stored.votes is not None for stored in groups):
        return "the votes of the completions themselves"
    has_others = len({stored.question_id for stored in groups}) > 1
    for stored in groups:
        elsewhere = stored.elsewhere if has_others else None
        evidence = Evidence(stored.group, stored.classes, stored.tally, truth=stored.truth, elsewhere=elsewhere)
        for need, _ in evidence.unmet(rule.needs):
            reason = f"the field {FIELDS[need]!r} for every completion" if need in FIELDS else NEEDS[need]
            return f"{reason} (question {stored.question_id!r} lacks it)"
    return None


def credit_of(rule: CreditRule, stored: StoredGroup) -> Credit:
    truth = stored.truth if "truth" in rule.needs else None
    return rule.credit(stored.group, stored.classes, votes=stored.votes, truth=truth, elsewhere=stored.elsewhere)
