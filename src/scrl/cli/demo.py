"""`scrl demo`: a small model adapts to questions without answers, with three methods; then the results in words.

Nothing is scripted: every number and every sentence about the outcome is computed from the files the runs wrote.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scrl.cli.progress import show_progress
from scrl.cli.terminal import plain_console
from scrl.errors import ConfigError
from scrl.files.folders import folder_to_resume, new_run_folder
from scrl.recipes import demo as recipe
from scrl.recipes.demo import METHODS, SEED, STEPS, Outcome
from scrl.reporting.tables import as_terminal

INTRO = """\
A language model of 0.8 million weights, which ships with scrl, meets {questions}
questions such as "{example}". When a task gets long it is apt to
lose patience and to write a favourite number: a stock answer. Nobody tells it
what is right; it answers each question many times and learns from the votes.

  TTRL  rewards the most frequent answer, always.
  SCRL  rewards it only with {min_share:.1%} of the votes and a lead above {min_margin:.1%},
        and rules out answers that are rare (below {max_negative_share:.1%}) and uncertain.
  ours  rewards an answer whose share of the votes, less {elsewhere_weight:g} times its share
        over the other questions, is {min_contrast:.0%} or more. Votes are drawn before each
        pass over the questions, and a label stays. This is the default, contrast-label.

Same start, same questions, {steps} steps each: a few minutes on two cores.
"""
NEXT = """\
With a model and questions of your own:
  scrl train --model MODEL --questions FILE.txt
Would consensus lie on completions you have?
  scrl audit COMPLETIONS.jsonl
What a trained model answers, and how sure it is:
  scrl answers {run}"""


def demo(
    *,
    out: Path | None = None,
    seed: int = SEED,
    steps: int = STEPS,
    resume: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Adapt a small model to generated questions without answers, with TTRL, SCRL and our own method, and compare.

    Example: scrl demo --out my-demo

    Parameters
    ----------
    out
        New folder for the runs and the report; by default a new numbered one under runs/.
    seed
        Draws other questions and other completions.
    steps
        Training steps of each method.
    resume
        Resume an interrupted demo in --out, with the seed and the steps it was started with.
    """
    from scrl.recipes.reproduce import train_or_resume
    from scrl.reporting.report import write_report

    console = plain_console()
    if steps < 1:
        raise ConfigError(f"--steps: must be 1 or more; got {steps}")
    configs = {method: recipe.demo_config(method, seed=seed, steps=steps, more=recipe.MEASURED) for method in METHODS}
    folder = folder_to_resume(out, "demo") if resume else new_run_folder(out)
    questions = configs["scrl"].load_questions().questions
    sizes = {"questions": len(questions), "steps": steps}
    rules = {name: value for each in configs.values() for name, value in each.rule().settings.model_dump().items()}
    console.print(INTRO.format(example=questions[0].text, **sizes, **rules))
    started = time.perf_counter()
    try:
        for method, config in configs.items():
            with show_progress(steps, recipe.TITLES.get(method, method)) as listener:
                train_or_resume(config, folder / method, listener)
    except KeyboardInterrupt:
        console.print(f"the whole demo goes on with: scrl demo --resume --out {folder}", soft_wrap=True)
        raise
    runs = [folder / method for method in METHODS]
    report = write_report(runs, folder / "report.html")
    outcomes = [Outcome.read(run, console.print) for run in runs]
    console.print(as_terminal(recipe.results_table(outcomes)))
    console.print(f"\n{recipe.verdict(outcomes, seed)}\n")
    console.print(f"{time.perf_counter() - started:.0f} s. The whole story: {report}", soft_wrap=True)
    console.print(NEXT.format(run=runs[-1]), soft_wrap=True)
