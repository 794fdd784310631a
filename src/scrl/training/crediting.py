"""The completions of a step → what they earn, on every engine: each group with what its method needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import LastVotes
from scrl.credit.rule import CreditedGroup, CreditRule
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

    def beside(self, groups_B: Sequence[CreditedGroup]) -> Crediting:
        """The same, with the votes of groups already sampled in this step."""
        votes = ((group.sampled.question.id, group.credit.tally) for group in groups_B)
        return replace(self, last_votes=self.last_votes.after(votes)) if groups_B else self

    def credit(self, sampled_B: Sequence[Sampled], classes_B: Sequence[Classes] | None = None) -> list[CreditedGroup]:
        """What the completions of every group earn; their answers may have been classified already."""
        rule, evidence_B = self.rule, []
        for place, sampled in enumerate(sampled_B):
            classes = rule.classify(sampled.group) if classes_B is None else classes_B[place]
            evidence = rule.evidence(
                sampled.group,
                classes,
                truth=truth_for(rule, sampled.question, classes),
                reference_share=self.reference_shares.get(sampled.question.id),
            )
            evidence_B.append(evidence)
        votes = self.last_votes.after((each.group.question_id, each.tally) for each in evidence_B)
        groups = []
        for sampled, evidence in zip(sampled_B, evidence_B, strict=True):
            elsewhere = votes.elsewhere(sampled.question.id, evidence.tally.keys_K)
            credit = rule.assign(replace(evidence, elsewhere=elsewhere))
            weights_G = rule.token_weights([sample.entropies_T for sample in sampled.samples_G])
            groups.append(CreditedGroup(sampled, evidence.classes, replace(credit, token_weights_G=weights_G)))
        return groups
