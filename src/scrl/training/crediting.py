"""The groups of a step → credit: whatever a method declared a need for is brought to it here.

Methods that ask a question twice, as it is and in other words, get two groups for it, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from scrl.answers.classes import Classes
from scrl.answers.judge import Judge
from scrl.credit.assign import CreditRule
from scrl.credit.elsewhere import LastVotes
from scrl.credit.tally import count_votes
from scrl.errors import InputError
from scrl.evaluation.oracle import truth_for
from scrl.records import REPHRASED, Credit, Floats, Question, Sampled, Tally


@dataclass(frozen=True, slots=True, eq=False)
class Crediting:
    """A rule, and what its needs are met from."""

    rule: CreditRule
    gold_judge: Judge
    reference_shares: dict[str, float]
    """By question: how far the start model agreed with itself."""
    embed: Callable[[Sequence[str]], Floats] | None = None
    last_votes: LastVotes = field(default_factory=LastVotes)
    """What every question answered at its last visit, before this step."""

    def classify(self, sampled_B: Sequence[Sampled]) -> list[Classes]:
        """The answers of every group; a question's two groups are classified together."""
        groups = [sampled.group for sampled in sampled_B]
        if "partner" not in self.rule.needs:
            return [self.rule.classify(group) for group in groups]
        pairs = zip(groups[::2], groups[1::2], strict=True)
        return [classes for pair in pairs for classes in self.rule.classify_together(pair)]

    def assign(self, sampled_B: Sequence[Sampled], classes_B: Sequence[Classes]) -> list[Credit]:
        """What the completions of every group earn."""
        tallies_B = [_tally(sampled, classes) for sampled, classes in zip(sampled_B, classes_B, strict=True)]
        votes = self.last_votes.after(
            (sampled.question.id, tally) for sampled, tally in zip(sampled_B, tallies_B, strict=True)
        )
        return [
            self._assign(sampled, classes, self._partner(tallies_B, place), place, votes)
            for place, (sampled, classes) in enumerate(zip(sampled_B, classes_B, strict=True))
        ]

    def _assign(
        self, sampled: Sampled, classes: Classes, partner: Tally | None, place: int, votes: LastVotes
    ) -> Credit:
        credit = self.rule.assign(
            sampled.group,
            classes,
            truth_for(self.rule, sampled.question, classes, self.gold_judge),
            reference_share=self.reference_shares.get(sampled.question.id),
            partner=partner,
            is_rephrased=partner is not None and place % 2 == 1,
            embed=self.embed,
            elsewhere=votes.elsewhere(sampled.question.id, classes.keys_K),
        )
        weights_G = self.rule.token_weights([sample.entropies_T for sample in sampled.samples_G])
        return credit if weights_G is None else replace(credit, token_weights_G=weights_G)

    def _partner(self, tallies_B: Sequence[Tally], place: int) -> Tally | None:
        """The votes of the other of a question's two groups."""
        return tallies_B[place ^ 1] if "partner" in self.rule.needs else None


def _tally(sampled: Sampled, classes: Classes) -> Tally:
    return count_votes(classes, [sample.entropy for sample in sampled.samples_G])


def asked(rule: CreditRule, questions: Sequence[Question]) -> list[Question]:
    """What a step asks: each question, and in other words too where the method needs that."""
    if "partner" not in rule.needs:
        return list(questions)
    return [form for question in questions for form in (question, in_other_words(question))]


def in_other_words(question: Question) -> Question:
    """The same question, rephrased."""
    if question.rephrased is None:
        raise InputError(
            f"question {question.id!r} has no rephrasing, and the method asks every question in other words too. Add a "
            "column `rephrased`, or use a method that needs none."
        )
    return replace(question, id=question.id + REPHRASED, text=question.rephrased, rephrased=None)


def recorded(rule: CreditRule) -> tuple[str, ...]:
    """What the sampler must record of every token for the rule's needs."""
    names = {"margin_std": "margin", "decisiveness": "margin", "certainty": "certainty"}
    return tuple(sorted({names[need] for need in rule.needs if need in names}))
