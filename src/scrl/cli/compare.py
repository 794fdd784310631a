"""`scrl compare`: two evaluations, question by question."""

from __future__ import annotations

from string import ascii_uppercase

from scrl.cli.terminal import plain_console, print_text, say
from scrl.errors import InputError
from scrl.reporting.comparison import compare_all, comparison_table, legend, pair_places, remarks
from scrl.reporting.evaluations import read_place
from scrl.reporting.tables import show_table


def compare(*places: str, metric: str = "pass@1") -> None:
    """Compare evaluations question by question: the difference, its interval, its p-value.

    Example: scrl compare runs/001/ttrl runs/001/scrl

    One place: its last evaluation against its first. Several: each against the first, which is the baseline; for a run
    the last evaluation counts. Both sides must have been asked the same questions.

    Parameters
    ----------
    places
        Folders of runs or of scrl evaluate, or evaluations.jsonl files; runs/001@40 is the evaluation after step 40.
    metric
        pass@1, or any pass@k or maj@k that was measured.
    """
    if not places:
        raise InputError("give one run, or two or more places: scrl compare runs/001/ttrl runs/001/scrl")
    if len(places) > len(ascii_uppercase):
        raise InputError(f"at most {len(ascii_uppercase)} places can be compared at once, found {len(places)}")
    read = [read_place(place) for place in places]
    pairings = pair_places(read)
    comparisons = compare_all(pairings, metric)
    for line in legend(pairings):
        print_text(line)
    print_text()
    console = plain_console()
    show_table(comparison_table(comparisons, metric), console)
    for line in (*(note for place in read for note in place.notes), *remarks(pairings, comparisons)):
        say(console, f"\n{line}")
