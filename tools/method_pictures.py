"""The pictures of docs/method.md, with the package's own numbers: python tools/method_pictures.py docs

votes.svg: the votes of one question, the labels SCRL gives them, and what each completion earns. stock-answers.svg:
answers that are popular over many questions, and what contrast takes off.
"""

from __future__ import annotations

import sys
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import scrl
from scrl.credit.methods.contrast import ContrastSettings
from scrl.credit.methods.scrl import ScrlSettings

BLUE, RED, GREY, GOLD, PINK, BLACK = "#0072b2", "#d55e00", "#b0b0b0", "#e69f00", "#cc79a7", "#333333"
QUESTIONS = {
    "a sharp consensus": {"42": (9, 0.2), "36": (3, 0.35), "24": (2, 0.3), "7": (1, 0.7), "6": (1, 0.1)},
    "no consensus": {"15": (5, 0.3), "12": (5, 0.35), "30": (4, 0.3), "9": (1, 0.6), "60": (1, 0.7)},
}
"""Answers of a question: votes, and their mean entropy."""
STREAM = [("1", 10, 4), ("0", 7, 6), ("1", 9, 5), ("1", 6, 7), ("0", 8, 6), ("1", 10, 3), ("0", 5, 9), ("1", 8, 6)]
"""Eight other questions: a stock answer, its votes, and those of an answer of the question's own; of 16."""
HERE = {"1": 7, "84": 6, "0": 3}
"""The votes of one more question."""


def bare(axes: Axes, title: str) -> None:
    """A title, and no frame."""
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8.5)


def draw_votes() -> Figure:
    """One row per question: shares with their labels, then the rewards of two methods."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    settings = ScrlSettings()
    for row, (name, votes) in zip(figure.subplots(2, 2, sharey="row"), QUESTIONS.items(), strict=True):
        answers = [answer for answer, (count, _) in votes.items() for _ in range(count)]
        entropies = [votes[answer][1] for answer in answers]
        group = scrl.Group.from_answers(answers, entropies)
        credits = {method: scrl.assign_credit(group, method) for method in ("scrl", "ttrl")}
        labels = credits["scrl"].labels
        colours = [{"positive": BLUE, "negative": RED, None: GREY}[labels.label_of(answer)] for answer in votes]
        words = [
            {"positive": "trusted", "negative": "ruled out", None: ""}[labels.label_of(answer)] for answer in votes
        ]
        places = range(len(votes))
        bars = row[0].barh(places, [count / len(answers) for count, _ in votes.values()], color=colours)
        row[0].bar_label(bars, words, padding=4, fontsize=8.5)
        for threshold, symbol in (
            (settings.min_share, r"$\tau_{pos}$"),
            (settings.max_negative_share, r"$\tau_{neg}$"),
        ):
            row[0].axvline(threshold, color="black", linewidth=0.8, linestyle=":")
            row[0].text(threshold + 0.005, 4.75, symbol, fontsize=8)
        row[0].set(xlim=(0, 0.75), ylim=(4.9, -0.6), xlabel="share of the votes")
        row[0].set_yticks(places, [f"{answer}   entropy {entropy:.2f}" for answer, (_, entropy) in votes.items()])
        bare(row[0], f"{name}: 16 completions vote")
        for method, height, colour in (("ttrl", -0.2, GOLD), ("scrl", 0.2, BLUE)):
            rewards = [credits[method].rewards[answers.index(answer)] for answer in votes]
            row[1].barh([place + height for place in places], rewards, 0.38, color=colour, label=method.upper())
        row[1].axvline(0, color="black", linewidth=0.8)
        row[1].set(xlim=(-0.2, 1.05), xlabel="reward of a completion with this answer")
        row[1].legend(frameon=False, fontsize=8.5, loc="lower right")
        bare(row[1], "what they earn")
    return figure


def draw_stock_answers() -> Figure:
    """Nine questions side by side; then the last of them, answer by answer."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    others = [{stock: popular, "own": own, "other": 16 - popular - own} for stock, popular, own in STREAM]
    colours = {"1": RED, "0": GOLD, "own": BLUE, "other": GREY}
    for place, votes in enumerate([*others, {"1": HERE["1"], "0": HERE["0"], "own": HERE["84"]}]):
        start = 0
        for answer in ("1", "0", "own", "other"):
            left.barh(place, votes.get(answer, 0) / 16, left=start / 16, color=colours[answer])
            start += votes.get(answer, 0)
    left.set_yticks(range(9), [*(f"question {number}" for number in range(1, 9)), "this question"])
    left.set(ylim=(8.6, -0.6), xlabel="share of the votes")
    handles = [left.barh(0, 0, color=colour) for colour in colours.values()]
    names = ['says "1"', 'says "0"', "an answer of its own", "others"]
    figure.legend(handles, names, loc="outside lower left", ncols=4, frameon=False, fontsize=8.5)
    bare(left, "stock answers: the same words for many questions")

    elsewhere = {answer: sum(votes.get(answer, 0) for votes in others) / 16 / len(others) for answer in HERE}
    group = scrl.Group.from_answers([answer for answer, count in HERE.items() for _ in range(count)])
    known = scrl.Elsewhere(len(others), elsewhere)
    credit = scrl.credit_rule("contrast").credit(group, elsewhere=known)
    answers = [completion.answer for completion in group.completions]
    beta = ContrastSettings().elsewhere_weight
    rows = {
        "p, share here": ([count / 16 for count in HERE.values()], GREY),
        "− 1.5 p̄, share elsewhere": ([-beta * elsewhere[answer] for answer in HERE], PINK),
        "= reward": ([credit.rewards[answers.index(answer)] for answer in HERE], BLACK),
    }
    for shift, (name, (values, colour)) in zip((-0.27, 0, 0.27), rows.items(), strict=True):
        bars = right.barh([place + shift for place in range(3)], values, 0.25, color=colour, label=name)
        right.bar_label(bars, fmt="%+.2f", padding=3, fontsize=8)
    right.axvline(0, color="black", linewidth=0.8)
    right.set_yticks(range(3), [f'"{answer}"' for answer in HERE])
    right.set(ylim=(4.0, -0.5), xlim=(-0.75, 0.75))
    right.legend(frameon=False, fontsize=8, loc="lower center")
    bare(right, "this question, with contrast")
    return figure


PICTURES = {"votes.svg": draw_votes, "stock-answers.svg": draw_stock_answers}


def write(folder: Path) -> None:
    """Draw all of them; the same bytes each time."""
    with rc_context({"svg.hashsalt": "scrl"}):
        for name, draw in PICTURES.items():
            draw().savefig(folder / name, metadata={"Date": None})


if __name__ == "__main__":
    write(Path(sys.argv[1]))
