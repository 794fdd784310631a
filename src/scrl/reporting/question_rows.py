"""The table of questions: votes over time as bars, and completions to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scrl.reporting.questions import Question, Sample
from scrl.reporting.rollout_votes import Visit
from scrl.reporting.run_folder import Run
from scrl.reporting.text import plain, shorten, signed

MAX_BARS = 48
MAX_NAMED = 5
BAR_STEP = 10
"""The distance between two bars, in units of the drawing, which is 100 high."""
LABEL_WORDS = {"positive": "positive label", "negative": "ruled out", None: "no label"}


@dataclass(frozen=True, slots=True)
class Part:
    """One answer's share of a bar."""

    top: float
    height: float
    colour: str


@dataclass(frozen=True, slots=True)
class Bar:
    """The votes of one visit."""

    x: int
    parts: tuple[Part, ...]
    words: str


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One answer in the legend of the bars."""

    colour: str
    answer: str
    first: int
    last: int
    is_right: bool | None
    label: str
    """Empty when it has none at the last visit."""


@dataclass(frozen=True, slots=True)
class SampleView:
    """One completion, with what is known about it."""

    title: str
    facts: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class VotesView:
    """One question in one run."""

    badges: tuple[str, ...]
    bars: tuple[Bar, ...]
    num_visits: int
    first: Visit
    last: Visit
    answers: tuple[AnswerRow, ...]
    num_unnamed: int
    """Answers without a colour of their own."""
    is_truth_unseen: bool
    """There is gold, and no completion of any visit was right."""
    samples: tuple[SampleView, ...]


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """One question, with its votes in each run (None where the run does not have it)."""

    id: str
    text: str
    gold: str | None
    votes_R: tuple[VotesView | None, ...]


def question_rows(runs: Sequence[Run]) -> list[QuestionRow]:
    """The chosen questions of all runs, side by side."""
    found_R = [{question.key: question for question in run.questions} for run in runs]
    keys = dict.fromkeys(key for found in found_R for key in found)
    return [_row([found.get(key) for found in found_R]) for key in keys]


def _row(questions_R: Sequence[Question | None]) -> QuestionRow:
    present = [question for question in questions_R if question is not None]
    gold = next((question.gold for question in present if question.gold is not None), None)
    colours = _colours([question.visits_V for question in present])
    views_R = tuple(None if question is None else _view(question, colours) for question in questions_R)
    return QuestionRow(present[0].id, shorten(present[0].text, 4000), gold and shorten(gold, 200), views_R)


def _view(question: Question, colours: dict[str, str]) -> VotesView:
    visits_V = question.visits_V
    keys = {key for visit in visits_V for key in visit.votes if key is not None}
    badges = {"majority wrong": question.is_majority_wrong, "majority changed": question.has_changed}
    return VotesView(
        badges=tuple(words for words, holds in badges.items() if holds),
        bars=tuple(_bar(place, visit, colours) for place, visit in enumerate(thin_out(visits_V))),
        num_visits=len(visits_V),
        first=visits_V[0],
        last=visits_V[-1],
        answers=tuple(_answer_row(key, colour, visits_V) for key, colour in colours.items() if key in keys),
        num_unnamed=len(keys - colours.keys()),
        is_truth_unseen=_is_truth_unseen(visits_V),
        samples=tuple(map(_sample_view, question.samples)),
    )


def thin_out(visits_V: Sequence[Visit], most: int = MAX_BARS) -> list[Visit]:
    """At most so many visits, evenly spread, the first and the last among them."""
    if len(visits_V) <= most:
        return list(visits_V)
    return [visits_V[round(place * (len(visits_V) - 1) / (most - 1))] for place in range(most)]


def _colours(visits_RV: Sequence[Sequence[Visit]]) -> dict[str, str]:
    """The answers worth a colour, in all runs the same: right ones, winners at the ends, then those with most votes."""
    counts: Counter[str] = Counter()
    right: set[str] = set()
    for visit in (visit for visits_V in visits_RV for visit in visits_V):
        counts.update({key: votes.count for key, votes in visit.classes})
        right.update(key for key, votes in visit.classes if votes.is_right)
    ends = [visit.majority for visits_V in visits_RV for visit in (visits_V[-1], visits_V[0])]
    winners = [key for key in ends if key is not None]
    others = sorted(counts, key=lambda key: (-counts[key], key))
    named = list(dict.fromkeys([*sorted(right), *winners, *others]))[:MAX_NAMED]
    wrong = (f"w{place}" for place in range(MAX_NAMED))
    return {key: "right" if key in right else next(wrong) for key in named}


def _is_right(key: str, visits_V: Sequence[Visit]) -> bool | None:
    """By the last visit at which somebody gave this answer."""
    return next((visit.votes[key].is_right for visit in reversed(visits_V) if key in visit.votes), None)


def _is_truth_unseen(visits_V: Sequence[Visit]) -> bool:
    verdicts = {votes.is_right for visit in visits_V for votes in visit.votes.values()}
    return False in verdicts and True not in verdicts


def _answer_row(key: str, colour: str, visits_V: Sequence[Visit]) -> AnswerRow:
    first, last = visits_V[0], visits_V[-1]
    label = LABEL_WORDS[last.votes[key].label] if key in last.votes and last.votes[key].label else ""
    return AnswerRow(colour, shorten(key, 60), first.count(key), last.count(key), _is_right(key, visits_V), label)


def _bar(place: int, visit: Visit, colours: dict[str, str]) -> Bar:
    return Bar(place * BAR_STEP, tuple(_parts(visit, colours)), _bar_words(visit))


def _parts(visit: Visit, colours: dict[str, str]) -> Iterator[Part]:
    counts = {colour: visit.count(key) for key, colour in colours.items() if colour != "right"}
    right = sum(visit.count(key) for key, colour in colours.items() if colour == "right")
    missing = visit.count(None)
    rest = visit.size - right - missing - sum(counts.values())
    bottom = 100.0
    for colour, count in {"right": right, **counts, "rest": rest, "none": missing}.items():
        height = 100 * count / visit.size
        bottom -= height
        if count:
            yield Part(round(bottom, 2), round(height, 2), colour)


def _bar_words(visit: Visit) -> str:
    most = [f"{votes.count} × {shorten(key, 40)}" for key, votes in visit.classes[:4]]
    others = sum(votes.count for _, votes in visit.classes[4:])
    ends = [f"{others} others"] * bool(others) + [f"{visit.count(None)} without an answer"] * bool(visit.count(None))
    return f"step {visit.step}: {', '.join([*most, *ends])}"


def _sample_view(sample: Sample) -> SampleView:
    rollout = sample.rollout
    answer = "no answer" if rollout.answer_class is None else f"answer {shorten(rollout.answer_class, 60)}"
    rank = ", the most frequent" if sample.is_majority else ""
    return SampleView(
        title=f"Step {rollout.step}: {answer}{rank}",
        facts=tuple(_facts(sample)),
        text=shorten(rollout.completion, 2000, 3000),
    )


def _facts(sample: Sample) -> Iterator[str]:
    rollout = sample.rollout
    if rollout.correct is not None:
        yield "right" if rollout.correct else "wrong"
    yield LABEL_WORDS[rollout.label]
    if rollout.reward is not None:
        yield f"reward {signed(rollout.reward, 3)}"
    yield "not trained on" if rollout.advantage is None else f"advantage {signed(rollout.advantage, 2)}"
    if rollout.entropy is not None:
        yield f"entropy {plain(rollout.entropy)}"
    if rollout.num_tokens is not None:
        yield f"{rollout.num_tokens:,} tokens"
    if rollout.finished is False:
        yield "cut at the most tokens allowed"
