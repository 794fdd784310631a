"""The completions of a step → what they earn, on every engine: each group with what its method needs.

And the votes that decide, where these are drawn apart from the completions that are paid → labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import LastVotes
from scrl.credit.label_votes import LabelVotes
from scrl.credit.method import Evidence
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.errors import InputError
from scrl.evaluation.gold import truth_for
from scrl.records import Sampled


@dataclass(frozen=True, slots=True, eq=False)
class Crediting:
    """A rule, and what serves a method's needs."""

    rule: CreditRule
    reference_shares: dict[str, float] = field(default_factory=dict)
    """By question: the share of the start model's most frequent answer."""
    last_votes: LastVotes = field(default_factory=LastVotes)
    """The votes of every question at its last visit, before this step."""
    label_votes: LabelVotes | None = None
    """The votes that decide; None: those of the completions themselves."""

    def credit(self, sampled_B: Sequence[Sampled], classes_B: Sequence[Classes] | None = None) -> list[CreditedGroup]:
        """What the completions of every group earn; their answers may have been classified already."""
        rule, evidence_B = self.rule, []
        for place, sampled in enumerate(sampled_B):
            classes = rule.classify(sampled.group) if classes_B is None else classes_B[place]
            question_id, others = sampled.question.id, self.label_votes
            if others is not None and question_id not in others.votes:
                raise InputError(f"label_votes: there are no votes on question {question_id!r}")
            evidence = rule.evidence(
                sampled.group,
                classes,
                None if others is None else others.votes[question_id],
                kept_label=None if others is None else others.labels.get(question_id),
                truth=truth_for(rule, sampled.question, classes),
                reference_share=self.reference_shares.get(question_id),
            )
            evidence_B.append(evidence)
        present = self.last_votes.after((each.group.question_id, each.present) for each in evidence_B)
        votes = present if self.label_votes is None else self.label_votes.last_votes
        groups = []
        for sampled, evidence in zip(sampled_B, evidence_B, strict=True):
            elsewhere = votes.elsewhere(sampled.question.id, evidence.tally.keys_K)
            credit = rule.assign(replace(evidence, elsewhere=elsewhere))
            if votes is not present:
                credit = replace(credit, stock=present.elsewhere(sampled.question.id, ()).stock)
            groups.append(CreditedGroup(sampled, evidence.classes, credit))
        return groups


def with_drawn(before: LabelVotes, drawn: Sequence[Evidence], rule: CreditRule) -> LabelVotes:
    """These groups as the votes of their questions, and the labels that follow; one that a question has stays."""
    votes = {each.group.question_id: each.tally.vote_keys for each in drawn}
    after = LabelVotes({**before.votes, **votes}, before.labels)
    labels = dict(before.labels)
    for each in drawn:
        question_id, keys_K = each.group.question_id, each.tally.keys_K
        elsewhere = after.last_votes.elsewhere(question_id, keys_K)
        positive = rule.labels(replace(each, elsewhere=elsewhere, kept_label=labels.get(question_id))).positive
        if positive is not None:
            labels[question_id] = positive
    return LabelVotes(after.votes, labels)
