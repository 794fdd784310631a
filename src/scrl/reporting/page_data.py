"""What the page's script computes with: the votes of all questions, exactly as the rules of `credit/` see them.

For every question: the first and the last visit in full, all visits (thinned out) as bars, and two completions.
The share of an answer elsewhere, p̄, is over the other questions at the same end: so the page shows what `scrl label`
makes of a file with one visit of each question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scrl.answers.classes import MISSING
from scrl.credit.elsewhere import LastVotes
from scrl.credit.labels import mean_at
from scrl.credit.methods import find_method
from scrl.credit.rule import credit_rule
from scrl.errors import ConfigError, InputError
from scrl.files.printable import printable
from scrl.reporting.rollout_votes import Visit
from scrl.reporting.sources import EXPLORED, ShownQuestion, Source
from scrl.reporting.text import shorten

MAX_BARS = 48
NUM_NAMED = 5
"""The number of answers with their own part in a bar."""
_LABELS = {"positive": 1, "negative": -1, None: 0}


def page_data(sources: Sequence[Source]) -> dict[str, Any]:
    """The data of the page; text is printable, and a class is given by its index in `keys`."""
    gold: dict[tuple[str, str], str | None] = {}  # for every question, in the order shown
    for question in (question for source in sources for question in source.questions):
        gold[question.key] = gold.get(question.key) if question.votes.gold is None else question.votes.gold
    questions = [
        {"id": _text(name, 200), "text": _text(text, 1500), "gold": None if right is None else _text(right, 200)}
        for (name, text), right in gold.items()
    ]
    return {"questions": questions, "sources": [_source(source, list(gold)) for source in sources]}


def _source(source: Source, keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    first, last = (_groups([(q.votes.id, q.votes.visits[end]) for q in source.questions]) for end in (0, -1))
    has_first = any(len(question.votes.by_step) > 1 for question in source.questions)
    shown = {
        question.key: _question(question) | {"first": before if has_first else None, "last": after}
        for question, before, after in zip(source.questions, first, last, strict=True)
    }
    try:
        settings = start_settings(source.config)
    except ConfigError as error:
        raise InputError(f"{source.name}: config.yaml: {error}") from error
    return {
        "name": printable(source.name),
        "method": source.method if source.method in EXPLORED else None,
        "settings": settings,
        "is_estimate": source.has_estimates,
        "groups": [shown.get(key) for key in keys],
    }


def _question(question: ShownQuestion) -> dict[str, Any]:
    """All visits as bars, and the excerpts; a bar has its step, the votes of named answers, of all others, of none."""
    visits = question.votes.visits
    named = _named(visits)
    bars = []
    places = sorted({round(bar * (len(visits) - 1) / (MAX_BARS - 1)) for bar in range(MAX_BARS)})  # evenly spread
    for visit in (visits[place] for place in places):
        counts, missing = [visit.count(key) for key in named], visit.count(None)
        bars.append([visit.step, *counts, visit.size - sum(counts) - missing, missing])
    return {
        "named": [_text(key, 60) for key in named],
        "right": [any(visit.right == key for visit in visits) for key in named],
        "bars": bars,
        "visits": len(visits),
        "excerpts": [
            {"answer": each.answer and _text(each.answer, 60), "facts": each.facts, "text": printable(each.text)}
            for each in question.excerpts
        ],
    }


def start_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the explorer starts with: those of the run, or else the defaults."""
    method, credit = config.get("method"), config.get("credit")
    settings: dict[str, Any] = {}
    for name in sorted(EXPLORED, key=lambda name: name == method):  # shared settings are those of the run's own method
        fields = find_method(name).settings.model_fields
        own = credit if name == method and isinstance(credit, dict) else {}
        named = {key: own[key] for key in own if key in fields}
        settings |= credit_rule(name, preset=config.get("preset", "paper"), **named).settings.model_dump()
    return settings


def _groups(visits: Sequence[tuple[str, Visit]]) -> Iterator[dict[str, Any]]:
    """One visit of every question, by its id, in full."""
    tallies = [(name, visit.tally) for name, visit in visits]
    last_votes = LastVotes().after(tallies)
    for (_, visit), (name, tally) in zip(visits, tallies, strict=True):
        elsewhere = last_votes.elsewhere(name, tally.keys_K)
        absent = [place for place, j in enumerate(tally.class_of_G) if j == MISSING]
        right = MISSING if visit.right is None else tally.keys_K.index(visit.right)
        stock = [j for j, key in enumerate(tally.keys_K) if key in elsewhere.stock]
        has_shares = any(elsewhere.shares.values())
        is_tied = sum(count == max(tally.counts_K) for count in tally.counts_K) > 1
        yield {
            "step": visit.step,
            "size": tally.size,
            "keys": [_text(key, 60) for key in tally.keys_K],
            "counts": tally.counts_K,
            "seen": [tally.class_of_G.index(j) for j in range(len(tally.keys_K))] if is_tied else None,
            "missing": len(absent),
            "entropies": tally.class_entropies_K,
            "entropy": tally.group_entropy,
            "missing_entropy": mean_at(tally.entropies_G, absent) if absent and tally.entropies_G else None,
            "elsewhere": [elsewhere.shares.get(key, 0) for key in tally.keys_K] if has_shares else None,
            "stock": stock if elsewhere.stock else None,
            "right": right if visit.is_graded else None,
            "labels": [_LABELS[visit.votes[key].label] for key in tally.keys_K],
        }


def _named(visits: Sequence[Visit]) -> list[str]:
    """The answers with their own part: right ones, winners at the ends, then the most frequent."""
    counts: Counter[str] = Counter()
    for visit in visits:
        counts.update({key: votes.count for key, votes in visit.classes})
    right = sorted({visit.right for visit in visits if visit.right is not None})
    winners = [key for key in (visits[-1].majority, visits[0].majority) if key is not None]
    others = sorted(counts, key=lambda key: (-counts[key], key))
    return list(dict.fromkeys([*right, *winners, *others]))[:NUM_NAMED]


def _text(text: str, most: int) -> str:
    return str(printable(shorten(text, most)))
