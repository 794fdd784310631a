"""The completions of a step → what they earn, on every engine: each group with what its method needs.

`with_drawn`: votes that were drawn separately (`label_votes`) → labels, of which `label_note` tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import MIN_OTHERS, NUM_STOCK, REPEATED, LastVotes
from scrl.credit.label_votes import NOBODY, LabelVotes
from scrl.credit.labels import majority_positive, with_votes
from scrl.credit.method import Evidence
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.errors import TrainingError
from scrl.evaluation.gold import truth_for
from scrl.records import Sampled
from scrl.reporting.text import counted


@dataclass(frozen=True, slots=True, eq=False)
class Crediting:
    """A rule, with what its method needs to see."""

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
            group, question_id = sampled.group, sampled.question.id
            classes = rule.classify(group) if classes_B is None else classes_B[place]
            votes, kept_label = self.label_votes.of(question_id) if self.label_votes else (None, None)
            evidence = rule.evidence(
                group,
                classes,
                votes,
                kept_label=kept_label,
                truth=truth_for(rule, sampled.question, classes),
                reference_share=self.reference_shares.get(question_id),
            )
            evidence_B.append(evidence)
        present = self.last_votes.after((each.group.question_id, each.present) for each in evidence_B)
        deciding = self.label_votes.last_votes if self.label_votes else present
        groups = []
        for sampled, evidence in zip(sampled_B, evidence_B, strict=True):
            elsewhere = deciding.elsewhere(sampled.question.id, evidence.tally.keys_K)
            credit = rule.assign(replace(evidence, elsewhere=elsewhere))
            stock = present.elsewhere(sampled.question.id, ()).stock  # whoever decides
            groups.append(CreditedGroup(sampled, evidence.classes, replace(credit, stock=stock)))
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


def label_note(votes: LabelVotes, rule: CreditRule, questions: int) -> str | None:
    """How many questions have a label, if the method has any; refused if none has one and nothing else teaches."""
    if not rule.method.has_labels:
        return None
    if rule.is_silent_without_label and not votes.labels:
        fix = (
            f"Lower the threshold for a label (scrl methods {rule.method.name}), or take another method (scrl methods)."
        )
        if getattr(rule.settings, "elsewhere_weight", None):
            fix += f" If {REPEATED}."
        raise TrainingError(f"label_votes: no question has a label, so there is nothing to train on. {fix}")
    is_rest = rule.is_silent_without_label and len(votes.labels) < questions
    others = "; the others teach nothing and are not sampled" * is_rest
    note = f"{len(votes.labels)} of {counted(questions, 'question')} have a label{others}"
    wins = Counter(majority_positive(with_votes(NOBODY, each), first_seen_wins=False) for each in votes.votes.values())
    wins.pop(None, None)
    most = sum(number for _, number in wins.most_common(NUM_STOCK))
    if getattr(rule.settings, "elsewhere_weight", None) and questions > MIN_OTHERS and 2 * most >= questions:
        note += f". WARNING: {NUM_STOCK} answers win {most} of the questions; if {REPEATED}"
    return note
