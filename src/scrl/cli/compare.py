"""`scrl compare`: two evaluations, question by question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING

from scrl.errors import InputError

if TYPE_CHECKING:
    from scrl.reporting.result_tables import Sheet
    from scrl.reporting.results import Comparison, Evaluation, Place


@dataclass(frozen=True, slots=True)
class Pairing:
    """Two places, or one at two steps, with what both were measured on."""

    letters: tuple[str, str]
    names: tuple[str, str]
    evaluations: Mapping[str, tuple[Evaluation, Evaluation]]
    """By benchmark."""
    has_steps: tuple[bool, bool]
    """Which of them are training runs."""
    left_out: tuple[str, ...] = ()
    """Benchmarks that only one of them has."""


def compare(*places: str, metric: str = "pass@1") -> None:
    """Compare evaluations question by question: the difference, its interval, its p-value.

    Example: scrl compare runs/001/ttrl runs/001/scrl

    One place: its last evaluation against its first. Several: each against the first, which is the baseline; of a run
    its last evaluation counts. Both sides must have been asked the same questions.

    Parameters
    ----------
    places
        Folders of runs or of scrl evaluate, or evaluations.jsonl files; runs/001@40 is the evaluation after step 40.
    metric
        pass@1, or any pass@k or maj@k that was measured.
    """
    from scrl.reporting.result_tables import as_markdown
    from scrl.reporting.results import read_place

    if not places:
        raise InputError("give one run, or two or more places: scrl compare runs/001/ttrl runs/001/scrl")
    if len(places) > len(ascii_uppercase):
        raise InputError(f"at most {len(ascii_uppercase)} places can be compared at once, found {len(places)}")
    read = [read_place(place) for place in places]
    pairings = _pairings(read)
    compared = _compare_all(pairings, metric)
    for line in _legend(pairings):
        print(line)
    print()
    print(as_markdown(comparison_sheet(compared, metric)), end="")
    for line in (*(note for place in read for note in place.notes), *_remarks(pairings, compared)):
        print(f"\n{line}")


def _pairings(places: Sequence[Place]) -> list[Pairing]:
    from scrl.reporting.results import first_and_last, in_both

    first, *others = places
    if not others:
        name = first.name.rpartition("@")[0] if first.step is not None else first.name
        ends = first_and_last(first)
        steps = [sorted({pair[side]["step"] for pair in ends.values()}) for side in (0, 1)]
        names = [f"{name}@{', '.join(map(str, found))}" for found in steps]
        return [Pairing(("A", "B"), (names[0], names[1]), ends, (True, True))]
    return [
        Pairing(
            letters=("A", letter),
            names=(first.name, other.name),
            evaluations=in_both(first, other),
            has_steps=(first.has_steps, other.has_steps),
            left_out=tuple(sorted(set(first.benchmarks) ^ set(other.benchmarks))),
        )
        for letter, other in zip(ascii_uppercase[1:], others, strict=False)
    ]


def _compare_all(pairings: Sequence[Pairing], metric: str) -> list[tuple[Pairing, Comparison]]:
    from scrl.reporting.results import check_metric, compare_evaluations, is_graded, metrics_of

    pairs = [(pairing, pair) for pairing in pairings for pair in pairing.evaluations.values()]
    known = metrics_of(evaluation for _, pair in pairs for evaluation in pair)
    if not known:
        raise InputError("no evaluation has a value that needs gold: none of the questions came with an answer")
    compared = []
    for pairing, (before, after) in pairs:
        if is_graded(before) or is_graded(after):
            for name, evaluation in zip(pairing.names, (before, after), strict=True):
                check_metric(metric, name, evaluation, known)
            compared.append((pairing, compare_evaluations(before, after, metric, pairing.names)))
    return compared


def _legend(pairings: Sequence[Pairing]) -> Iterator[str]:
    sides = {letter: (pairing, side) for pairing in pairings for side, letter in enumerate(pairing.letters)}
    for letter, (pairing, side) in sides.items():
        evaluations = [pair[side] for pair in pairing.evaluations.values()]
        models = ", ".join(dict.fromkeys(str(evaluation.get("model", "unknown")) for evaluation in evaluations))
        steps = ", ".join(dict.fromkeys(str(evaluation["step"]) for evaluation in evaluations))
        step = f", step {steps}" if pairing.has_steps[side] else ""
        yield f"{letter} = {pairing.names[side]} ({models}{step})"


def comparison_sheet(compared: Sequence[tuple[Pairing, Comparison]], metric: str) -> Sheet:
    """One line a comparison."""
    from scrl.reporting.result_tables import Share, Sheet

    rows = tuple(
        (
            found.benchmark,
            found.questions,
            Share(found.before),
            Share(found.after),
            found.difference,
            p_words(found.p_value),
            verdict(pairing.letters, found),
        )
        for pairing, found in compared
    )
    others = {pairing.letters[1] for pairing, _ in compared}
    other = others.pop() if len(others) == 1 else "other"
    return Sheet(
        ("benchmark", "n", "A", other, f"{other} − A", "p", "verdict"),
        rows,
        f"{metric} in %, paired by question: 95 % interval over questions, p-value of a sign-flip test.",
    )


def verdict(letters: tuple[str, str], found: Comparison) -> str:
    """Who is ahead, where it can be told."""
    if not found.is_clear:
        return f"{letters[0]} and {letters[1]} are not told apart"
    return f"{letters[1]} is clearly {'ahead' if found.difference.mean > 0 else 'behind'}"


def p_words(p_value: float) -> str:
    """0.0123 → 0.012; very small ones as a bound."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


def _remarks(pairings: Sequence[Pairing], compared: Sequence[tuple[Pairing, Comparison]]) -> Iterator[str]:
    """What keeps these numbers from meaning what they seem to."""
    from scrl.reporting.results import is_graded, unlike

    for pairing in pairings:
        first, second = pairing.letters
        for name in pairing.left_out:
            yield f"not compared: {name}, which only one of {first} and {second} was measured on"
        for name, (before, after) in pairing.evaluations.items():
            if not is_graded(before) and not is_graded(after):
                yield f"not compared: {name}, whose questions have no gold"
                continue
            for what, one, two in unlike(before, after):
                yield f"warning: {name}: {what} differs: {one} for {first}, {two} for {second}"
    if len(compared) > 1:
        yield f"{len(compared)} comparisons, each p-value for itself: one in twenty falls below 0.05 by chance alone."
