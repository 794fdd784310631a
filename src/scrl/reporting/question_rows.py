"""The page's table of questions: votes over time as bars, and completions to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from scrl.reporting.questions import Question, Sample
from scrl.reporting.rollout_votes import Visit
from scrl.reporting.run_files import RunFiles
from scrl.reporting.text import plain, shorten, signed

MAX_BARS = 48
MAX_COLOURS = 5
BAR_STEP = 10
"""The distance between two bars, in units of the drawing, which is 100 high."""
LABEL_WORDS = {"positive": "positive label", "negative": "ruled out", None: "no label"}


def question_rows(runs: Sequence[RunFiles]) -> list[dict[str, Any]]:
    """The chosen questions of all runs, with their votes in each run (None where the run does not have it)."""
    by_run = [{question.key: question for question in run.questions} for run in runs]
    rows = []
    for key in dict.fromkeys(key for questions in by_run for key in questions):
        questions = [questions.get(key) for questions in by_run]
        present = [question.votes for question in questions if question is not None]
        gold = next((votes.gold for votes in present if votes.gold is not None), None)
        colours = _colours([votes.visits for votes in present])
        rows.append({
            "id": present[0].id,
            "text": shorten(present[0].text, 4000),
            "gold": gold and shorten(gold, 200),
            "votes": [None if question is None else _votes(question, colours) for question in questions],
        })  # fmt: skip
    return rows


def _colours(runs: Sequence[Sequence[Visit]]) -> dict[str, str]:
    """The answers worth a colour, in all runs the same: right ones, winners at the ends, then those with most votes."""
    counts: Counter[str] = Counter()
    right: set[str] = set()
    for visit in (visit for visits in runs for visit in visits):
        counts.update({key: votes.count for key, votes in visit.classes})
        right.update(key for key, votes in visit.classes if votes.is_right)
    ends = [visit.majority for visits in runs for visit in (visits[-1], visits[0])]
    winners = [key for key in ends if key is not None]
    others = sorted(counts, key=lambda key: (-counts[key], key))
    named = list(dict.fromkeys([*sorted(right), *winners, *others]))[:MAX_COLOURS]
    wrong = (f"w{place}" for place in range(MAX_COLOURS))
    return {key: "right" if key in right else next(wrong) for key in named}


def _votes(question: Question, colours: dict[str, str]) -> dict[str, Any]:
    """One question in one run."""
    visits = question.votes.visits
    keys = {key for visit in visits for key in visit.votes if key is not None}
    verdicts = {votes.is_right for visit in visits for votes in visit.votes.values()}
    badges = {"majority wrong": question.votes.is_majority_wrong, "majority changed": question.votes.has_changed}
    return {
        "badges": [words for words, holds in badges.items() if holds],
        "bars": [
            {"x": place * BAR_STEP, "parts": list(_parts(visit, colours)), "words": _bar_words(visit)}
            for place, visit in enumerate(_thin_out(visits))
        ],
        "num_visits": len(visits),
        "first": visits[0],
        "last": visits[-1],
        "answers": [_answer(key, colour, visits) for key, colour in colours.items() if key in keys],
        "num_unnamed": len(keys - colours.keys()),
        "is_truth_unseen": False in verdicts and True not in verdicts,
        "samples": [_sample(sample) for sample in question.samples],
    }


def _thin_out(visits: Sequence[Visit]) -> list[Visit]:
    """At most MAX_BARS visits, evenly spread, the first and the last among them."""
    if len(visits) <= MAX_BARS:
        return list(visits)
    return [visits[round(place * (len(visits) - 1) / (MAX_BARS - 1))] for place in range(MAX_BARS)]


def _parts(visit: Visit, colours: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The answers' shares of a bar, from the bottom up."""
    counts = {colour: visit.count(key) for key, colour in colours.items() if colour != "right"}
    right = sum(visit.count(key) for key, colour in colours.items() if colour == "right")
    missing = visit.count(None)
    rest = visit.size - right - missing - sum(counts.values())
    bottom = 100.0
    for colour, count in {"right": right, **counts, "rest": rest, "none": missing}.items():
        height = 100 * count / visit.size
        bottom -= height
        if count:
            yield {"top": round(bottom, 2), "height": round(height, 2), "colour": colour}


def _bar_words(visit: Visit) -> str:
    most = [f"{votes.count} × {shorten(key, 40)}" for key, votes in visit.classes[:4]]
    others = sum(votes.count for _, votes in visit.classes[4:])
    ends = [f"{others} others"] * bool(others) + [f"{visit.count(None)} without an answer"] * bool(visit.count(None))
    return f"step {visit.step}: {', '.join([*most, *ends])}"


def _answer(key: str, colour: str, visits: Sequence[Visit]) -> dict[str, Any]:
    """One answer in the legend of the bars; its label is that of the last visit."""
    last = visits[-1].votes.get(key)
    return {
        "colour": colour,
        "answer": shorten(key, 60),
        "first": visits[0].count(key),
        "last": visits[-1].count(key),
        "is_right": next(visit.votes[key].is_right for visit in reversed(visits) if key in visit.votes),
        "label": LABEL_WORDS[last.label] if last is not None and last.label else "",
    }


def _sample(sample: Sample) -> dict[str, Any]:
    """One completion, with what is known about it."""
    rollout = sample.rollout
    answer = "no answer" if rollout.answer_class is None else f"answer {shorten(rollout.answer_class, 60)}"
    rank = ", the most frequent" if sample.is_majority else ""
    facts = {
        "right" if rollout.correct else "wrong": rollout.correct is not None,
        LABEL_WORDS[rollout.label]: True,
        f"reward {signed(rollout.reward or 0, 3)}": rollout.reward is not None,
        "not trained on": rollout.advantage is None,
        f"advantage {signed(rollout.advantage or 0, 2)}": rollout.advantage is not None,
        f"entropy {plain(rollout.entropy or 0)}": rollout.entropy is not None,
        f"{rollout.num_tokens or 0:,} tokens": rollout.num_tokens is not None,
        "cut at the most tokens allowed": rollout.finished is False,
    }
    return {
        "title": f"Step {rollout.step}: {answer}{rank}",
        "facts": [words for words, holds in facts.items() if holds],
        "text": shorten(rollout.completion, 2000, 3000),
    }
