"""Files of completions as the page reads them: the votes of every question, and the audit's verdict."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan

from scrl.answers.classes import MISSING
from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.completion_files import CompletionFile
from scrl.data.rollouts import GroupIndex
from scrl.lab.audit import audit_groups
from scrl.lab.stored_groups import StoredGroup, stored_groups
from scrl.reporting.questions import Excerpt, Question, classes_to_read, excerpt, natural_order
from scrl.reporting.rollout_votes import QuestionVotes, Visit, Votes
from scrl.reporting.sources import EXPLORED, Source


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


def _question(groups: Sequence[StoredGroup], num_questions: int) -> Question:
    last, texts = groups[-1], [stored.question for stored in groups if stored.question]
    gold = next((stored.gold for stored in groups if stored.gold is not None), None)
    votes = QuestionVotes(last.question_id, texts[-1] if texts else "", gold)
    votes.by_step.update({stored.group.step: _visit(stored) for stored in groups})
    keys_G = _keys(last)
    chosen = [(key, keys_G.index(key)) for key in classes_to_read(votes.visits[-1])]
    found = ((key, last.group.completions[place].text) for key, place in chosen)
    return Question(votes, tuple(Excerpt(key, excerpt(text, num_questions)) for key, text in found if text))


def _visit(stored: StoredGroup) -> Visit:
    truth, entropies_G = stored.truth, stored.tally.entropies_G or (nan,) * stored.tally.size
    visit = Visit(stored.group.step, index=GroupIndex(stored.tally.size))
    for key, entropy in zip(_keys(stored), entropies_G, strict=True):
        is_right = None if truth is None else key is not None and key == truth.key
        votes = visit.votes.setdefault(key, Votes(None, is_right, 0, entropies=array("d")))
        votes.count += 1
        votes.entropies.append(entropy)
    return visit


def _keys(stored: StoredGroup) -> list[str | None]:
    """The class of each completion."""
    return [None if j == MISSING else stored.tally.keys_K[j] for j in stored.tally.class_of_G]
