"""The groups of a step → credit: what a method declared a need for is brought to it here.

Methods that ask a question twice, as it is and in other words, get two groups for it, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from scrl.answers.classes import Classes
from scrl.credit.elsewhere import LastVotes
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.evaluation.gold import truth_for
from scrl.records import Floats, Sampled


@dataclass(frozen=True, slots=True, eq=False)
class Crediting:
    """A rule, and what its needs are met from."""

    rule: CreditRule
    reference_shares: dict[str, float] = field(default_factory=dict)
    """By question: the share of the start model's most frequent answer."""
    embed: Callable[[Sequence[str]], Floats] | None = None
    last_votes: LastVotes = field(default_factory=LastVotes)
    """The votes of every question at its last visit, before this step."""

    def beside(self, groups_B: Sequence[CreditedGroup]) -> Crediting:
        """The same, with the votes of groups that this step has sampled before."""
        votes = ((group.sampled.question.id, group.credit.tally) for group in groups_B)
        return replace(self, last_votes=self.last_votes.after(votes)) if groups_B else self

    def classify(self, sampled_B: Sequence[Sampled]) -> list[Classes]:
        """The answers of every group, grouped by meaning."""
        return [self.rule.classify(sampled.group) for sampled in sampled_B]

    def credit(self, sampled_B: Sequence[Sampled], classes_B: Sequence[Classes]) -> list[CreditedGroup]:
        """What the completions of every group earn."""
        rule, has_partner = self.rule, "partner" in self.rule.needs
        evidence_B = [
            rule.evidence(
                sampled.group,
                classes,
                truth=truth_for(rule, sampled.question, classes),
                reference_share=self.reference_shares.get(sampled.question.id),
                embed=self.embed,
            )
            for sampled, classes in zip(sampled_B, classes_B, strict=True)
        ]
        votes = self.last_votes.after((each.group.question_id, each.tally) for each in evidence_B)
        groups = []
        for place, (sampled, evidence) in enumerate(zip(sampled_B, evidence_B, strict=True)):
            credit = rule.assign(
                replace(
                    evidence,
                    elsewhere=votes.elsewhere(sampled.question.id, evidence.tally.keys_K),
                    partner=evidence_B[place ^ 1].tally if has_partner else None,  # the other of the pair
                    is_rephrased=has_partner and place % 2 == 1,
                )
            )
            weights_G = rule.token_weights([sample.entropies_T for sample in sampled.samples_G])
            credit = credit if weights_G is None else replace(credit, token_weights_G=weights_G)
            groups.append(CreditedGroup(sampled, evidence.classes, credit))
        return groups
