"""The demo: a small model that lies as large ones do, on generated arithmetic, with no answers given; and the outcome.

Model, level and the settings below were chosen on seeds 0–4; what the documentation reports are seeds 10–12. All
methods get all of them, `std_floor` too: without it a question on which SCRL abstains is trained on its entropy at full
strength (docs/method.md, "in practice"). Completions, temperature and whose votes decide are each method's own. What is
said about the outcome is read from the run folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scrl.config import RunConfig, build_config
from scrl.evaluation.settings import SAMPLING
from scrl.evaluation.statistics import paired_difference
from scrl.files.jsonl import OnCut, read_json_lines
from scrl.policy.model_paths import HASTY
from scrl.reporting.result_rows import score
from scrl.reporting.tables import Cell, Share, Table
from scrl.settings import merged

SEED = 10
"""The default of `scrl demo` and of everything at demo scale."""
STEPS = 24
TITLES = {"ttrl": "TTRL", "scrl": "SCRL", "contrast-label": "ours"}
METHODS = tuple(TITLES)
"""All from the same start, on the same stream, measured alike."""
MEASURED = {"evaluation": {"temperature": SAMPLING.temperature, "top_p": SAMPLING.top_p}}
"""As `scrl evaluate` measures."""
TOY_STEPS = 40
"""Steps of a run at demo scale, whose model, EMBEDDED, slips but does not guess."""


def demo_config(method: str, *, seed: int, steps: int, model: str = HASTY, more: Mapping[str, Any] = {}) -> RunConfig:
    """A run of the demo, about a minute on a laptop, with the settings `more` on top."""
    settings = {
        "model": model,
        "questions": "arithmetic:medium:train:64",
        "method": method,
        "credit": {"std_floor": 0.18},
        "probe": 0,
        "seed": seed,
        "steps": steps,
        "prompt": {"instruction": ""},
        "sampling": {"max_tokens": 72},
        "optimizer": {"learning_rate": 2e-5, "weight_decay": 0.0},
        "evaluation": {"completions": 16, "held_out": "arithmetic:medium:held-out:64"},
        "guard": {"mode": "observe"},
        "checkpoint_every": 20,
    }
    return build_config(merged(settings, more))


@dataclass(frozen=True)
class Outcome:
    """What a run of the demo measured."""

    name: str
    evaluations: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, folder: Path, on_cut: OnCut) -> Outcome:
        """The run in `folder`; `on_cut` receives a message about a last line that is incomplete."""
        return cls(folder.name, tuple(line.fields for line in read_json_lines(folder / "evaluations.jsonl", on_cut)))

    def before(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in self.evaluations if record["benchmark"] == benchmark)

    def after(self, benchmark: str) -> dict[str, Any]:
        return next(record for record in reversed(self.evaluations) if record["benchmark"] == benchmark)

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)


def results_table(outcomes: Sequence[Outcome]) -> Table:
    """The start, and each method after its last step: right completions and votes on both sets."""
    ends = [("start", outcomes[0].before), *((outcome.title, outcome.after) for outcome in outcomes)]
    rows: list[tuple[Cell, ...]] = []
    for name, evaluation in ends:
        sets = evaluation("stream"), evaluation("held-out")
        rows.append((name, *(cell for each in sets for cell in (score("pass@1", [each]), Share(each["maj@16"])))))
    return Table(("in %", "pass@1 [95 %]", "maj@16", "held-out pass@1 [95 %]", "maj@16"), tuple(rows))


def verdict(outcomes: Sequence[Outcome], seed: int) -> str:
    """Which method ends highest on the stream, by how much, and which end below the start."""

    def change(before: dict[str, Any], after: dict[str, Any]) -> tuple[float, str]:
        first, second = (record["pass@1_by_question"] for record in (before, after))
        found = paired_difference(list(first.values()), [second[name] for name in first], seed=seed)
        mean, low, high = (f"{100 * value:+.1f}" for value in (found.mean, found.low, found.high))
        return found.mean, f"{mean} [{low}, {high}]{'' if found.is_clear else ', within the noise'}"

    best, *others = sorted(outcomes, key=lambda outcome: -outcome.after("stream")["pass@1"])
    shares = ", ".join(f"{outcome.title} {outcome.after('stream')['pass@1']:.1%}" for outcome in others)
    sentences = [f"{best.title} ends highest: {best.after('stream')['pass@1']:.1%} right, {shares}."]
    for outcome in others:
        _, lead = change(outcome.after("stream"), best.after("stream"))
        sentences.append(f"{best.title} − {outcome.title}: {lead}.")
    for outcome in (best, *others):
        mean, gain = change(outcome.before("stream"), outcome.after("stream"))
        if mean < 0:
            sentences.append(f"{outcome.title} is worse than the start: {gain}.")
    return " ".join(sentences)
