"""`scrl simulate`: the figures of docs/theory.md."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from cyclopts import Parameter
from cyclopts.validators import Number

from scrl.cli.terminal import plain_console
from scrl.credit.methods.scrl import ScrlSettings
from scrl.lab.population import RULES, SPEEDS, World, dynamics, label_chances, swap_bound
from scrl.reporting.tables import Cell, Table, as_terminal

AT_LEAST_ONE = Parameter(validator=Number(gte=1))
EXAMPLES = ((0.5, 0.3, 0.2), (0.4, 0.3, 0.3), (0.7, 0.2, 0.1))
VOTES = (16, 32, 64)


def simulate(*, steps: Annotated[int, AT_LEAST_ONE] = 400, seeds: Annotated[int, AT_LEAST_ONE] = 4) -> None:
    """What the rules do in a model of the votes that can be computed: the figures of docs/theory.md.

    Example: scrl simulate --steps 100

    First, exactly: how often a label is not the likeliest answer. Then, by simulation: where training with each
    rule ends when some answers are popular with all questions. No language model is involved.

    Parameters
    ----------
    steps
        Training steps of the second table.
    seeds
        Seeds to average it over.
    """
    console = plain_console()
    console.print(as_terminal(labels_table()))
    console.print(as_terminal(dynamics_table(steps, seeds)))


def labels_table() -> Table:
    """Chances of three answers → how often each rule labels the likeliest one, or another."""
    settings = ScrlSettings()
    rows: list[tuple[Cell, ...]] = []
    for chances in EXAMPLES:
        for votes in VOTES:
            chances_K = np.array(chances)
            majority_K = label_chances(chances_K, votes)
            selective_K = label_chances(chances_K, votes, min_share=settings.min_share, min_margin=settings.min_margin)
            bound = swap_bound(chances_K, votes, min_margin=settings.min_margin)
            figures = (majority_K[1:].sum(), selective_K[1:].sum(), bound, selective_K[0])
            words = " ".join(f"{100 * chance:.0f}" for chance in chances)
            rows.append((words, votes, *(f"{100 * x:.1f}" for x in figures)))
    header = ("chances", "N", "majority: not", "selective: not", "at most", "selective: it is")
    return Table(header, tuple(rows), "How often, in %, a label is not the likeliest answer, and how often it is")


def dynamics_table(steps: int, seeds: int) -> Table:
    """Where each rule ends, for three speeds of the part that all questions share."""
    begin, _ = dynamics(RULES["ttrl"], 0.0, steps=0, seeds=seeds)
    rows = [("start", *[f"{100 * begin.right:.0f} / {100 * begin.stock:.0f}"] * len(SPEEDS))]
    for name, rule in RULES.items():
        ends = [dynamics(rule, speed, steps=steps, seeds=seeds)[1] for speed in SPEEDS.values()]
        rows.append((name, *(f"{100 * end.right:.0f} / {100 * end.stock:.0f}" for end in ends)))
    world = World()
    title = f"pass@1 / stock answers in % after {steps} steps, {world.questions} questions, mean of {seeds} seeds"
    return Table(("rule", *(f"shared part {name}" for name in SPEEDS)), tuple(rows), title)
