"""`scrl demo`: a small model adapts to questions without answers, with TTRL and with SCRL, and says what came of it.

Nothing is scripted: every number and every sentence about the outcome is computed from the files the two runs wrote.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrl.cli.progress import watching
from scrl.errors import ConfigError
from scrl.recipes.demo import SEED, STEPS
from scrl.training.run_folder import folder_to_resume, new_run_folder

if TYPE_CHECKING:
    from scrl.config import RunConfig
    from scrl.evaluation.statistics import Difference
    from scrl.recipes.comparison import Outcome

INTRO = """\
A language model of 0.8 million weights, which ships with scrl, meets {questions}
questions such as "{example}" and is often wrong.
Nobody tells it the answers: it samples {completions} completions a question and learns
from their votes.

  TTRL  rewards the most frequent answer, always.
  SCRL  rewards it only with {min_share:.1%} of the votes and a lead above {min_margin:.1%}, and
        rules out answers that are rare (below {max_negative_share:.1%}) and uncertain.

Both start from the same weights, see the same questions in the same order, and
take {steps} steps with the same learning rate: some minutes on two cores.
"""


def demo(
    *,
    out: Path | None = None,
    seed: int = SEED,
    steps: int = STEPS,
    resume: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Adapt the embedded model to generated questions without answers, with TTRL and with SCRL, and compare.

    Example: scrl demo --out my-demo

    Parameters
    ----------
    out
        New folder for both runs and the report; by default a new numbered one under runs/.
    seed
        Draws other questions and other completions.
    steps
        Training steps of each method.
    resume
        Go on with an interrupted demo in --out, with the settings it was started with.
    """
    from scrl.recipes.comparison import Outcome, lies
    from scrl.recipes.demo import METHODS, demo_config
    from scrl.reporting.report import write_report

    console = Console(highlight=False, markup=False)
    folder = folder_to_resume(out, "demo") if resume else new_run_folder(out)
    seed, steps = _begun_with(folder, seed, steps)
    configs = {method: demo_config(method, seed=seed, steps=steps) for method in METHODS}
    console.print(_intro(configs["scrl"]))
    started = time.perf_counter()
    for method, config in configs.items():
        train_or_go_on(method, config, folder / method)
    runs = [folder / method for method in METHODS]
    report = write_report(runs, folder / "report.html")
    ttrl, scrl = (Outcome.read(run, console.print) for run in runs)
    console.print(results_table(ttrl, scrl, seed))
    console.print(labels_table(ttrl, scrl))
    console.print("Where consensus lied at the first visit:\n")
    for story in lies(runs, console.print):
        console.print(Text(f"* {story}\n"))
    for sentence in verdicts(ttrl, scrl, seed):
        console.print(Text(sentence))
    console.print(f"\nBoth runs took {time.perf_counter() - started:.0f} s. The whole story: {report}", soft_wrap=True)
    console.print("With a model and questions of your own: scrl train --model MODEL --questions FILE.txt")


def _begun_with(folder: Path, seed: int, steps: int) -> tuple[int, int]:
    """The seed and the steps of a demo that has begun in this folder, else those given."""
    from scrl.recipes.demo import METHODS
    from scrl.training.run_folder import RunFolder

    for run in (folder / method for method in METHODS):
        if (run / "config.yaml").is_file():
            begun = RunFolder(run).config()
            if seed not in (SEED, begun.seed) or steps not in (STEPS, begun.steps):
                raise ConfigError("--resume: a demo goes on with the settings it was started with; these are others")
            return begun.seed, begun.steps
    return seed, steps


def _intro(config: RunConfig) -> str:
    questions = config.load_questions().questions
    rule = config.rule().settings.model_dump()
    return INTRO.format(
        questions=len(questions),
        example=questions[0].text,
        completions=config.completions,
        steps=config.steps,
        **{name: rule[name] for name in ("min_share", "min_margin", "max_negative_share")},
    )


def train_or_go_on(method: str, config: RunConfig, folder: Path) -> None:
    """Run one method; an interrupted run is gone on with, a finished one is left alone."""
    from scrl.recipes.comparison import Outcome
    from scrl.training.loop import resume, train

    with watching(config.steps, method.upper()) as listener:
        if not (folder / "config.yaml").is_file():
            train(config, folder, listener)
            return
        is_finished = Outcome.read(folder, listener.note).is_finished(config.steps)
        if not is_finished or not (folder / "report.html").is_file():
            resume(folder, listener)


def results_table(ttrl: Outcome, scrl: Outcome, seed: int) -> Table:
    """pass@1 with its interval, pass@k and maj@k, before and after, on the stream and held out."""
    from scrl.recipes.comparison import BENCHMARKS

    table = Table(title="Before and after, in %", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("", "pass@1 [95 %]", "pass@16", "maj@16", "gain in pass@1 [95 %]"):
        table.add_column(column, no_wrap=True)
    for benchmark in BENCHMARKS:
        rows = {"start": ttrl.before(benchmark), "TTRL": ttrl.after(benchmark), "SCRL": scrl.after(benchmark)}
        gains = {"TTRL": ttrl.gain(benchmark, seed=seed), "SCRL": scrl.gain(benchmark, seed=seed)}
        for name, record in rows.items():
            low, mean, high, best, vote = (
                f"{100 * record[key]:.1f}" for key in ("pass@1_low", "pass@1", "pass@1_high", "pass@16", "maj@16")
            )
            gain = _signed(gains[name]) if name in gains else ""
            table.add_row(f"{benchmark}, {name}", f"{mean} [{low}, {high}]", best, vote, gain)
    return table


def labels_table(ttrl: Outcome, scrl: Outcome) -> Table:
    """How right the labels were, and how many questions had one."""
    table = Table(title="Labels, mean over all steps", title_justify="left", box=SIMPLE_HEAD)
    for column in ("", "TTRL", "SCRL"):
        table.add_column(column, no_wrap=True)
    rows = {
        "positive_share": "questions with a positive label",
        "positive_accuracy": "that label is right",
        "negative_accuracy": "an answer that was ruled out is wrong",
        "truth_flagged": "the right answer was ruled out",
    }
    for key, words in rows.items():
        shown = [outcome.mean(key) for outcome in (ttrl, scrl)]
        table.add_row(words, *("–" if value is None else f"{value:.1%}" for value in shown))
    return table


def verdicts(ttrl: Outcome, scrl: Outcome, seed: int) -> Iterator[str]:
    """What may be said, and where SCRL is not ahead."""
    from scrl.recipes.comparison import BENCHMARKS, lead

    for outcome in (ttrl, scrl):
        gain = outcome.gain("stream", seed=seed)
        where = "above" if gain.mean > 0 else "below" if gain.mean < 0 else "level with"
        sure = f"clearly {where}" if gain.is_clear else f"{where}, but not clearly," if gain.mean else where
        yield f"{outcome.name.upper()} is {sure} its start in pass@1 on the stream: {_signed(gain)}."
    for benchmark in BENCHMARKS:
        difference = lead(ttrl, scrl, benchmark, seed=seed)
        who = "SCRL is ahead of TTRL" if difference.mean > 0 else "SCRL is NOT ahead of TTRL"
        sure = "" if difference.is_clear else " (within the noise)"
        yield f"{who} in pass@1 on {benchmark}: {_signed(difference)}{sure}."
        for key in ("pass@16", "maj@16"):
            ours, theirs = scrl.after(benchmark)[key], ttrl.after(benchmark)[key]
            if ours <= theirs:
                yield f"SCRL is NOT ahead of TTRL in {key} on {benchmark}: {ours:.1%} against {theirs:.1%}."


def _signed(difference: Difference) -> str:
    return f"{100 * difference.mean:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
