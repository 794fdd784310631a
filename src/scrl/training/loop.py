"""The loop. One step: sample → credit → update → log → evaluate."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scrl.config import RunConfig
from scrl.credit.group_metrics import group_metrics, tokens_drawn
from scrl.credit.rule import CreditedGroup
from scrl.evaluation.label_quality import step_label_quality
from scrl.policy.update_report import UpdateReport
from scrl.records import Question
from scrl.seeds import generator_for
from scrl.training.guard import alarms
from scrl.training.interrupts import finish_first, stop_once
from scrl.training.listeners import RunListener
from scrl.training.outcome import outcome_notes
from scrl.training.probe import shift, shift_note
from scrl.training.run import Run, open_run
from scrl.training.run_folder import RunFolder
from scrl.training.stream import replace_flat


def train(config: RunConfig, out: Path, listener: RunListener) -> Run:
    """Start a run in the new folder `out`."""
    assert config.engine == "local"
    run = open_run(config, out, listener)
    with run.folder.held():
        return _take_all_steps(run)


def resume(out: Path, listener: RunListener) -> Run:
    """Resume the run in `out`, exactly as if it had never stopped."""
    folder = RunFolder(out)
    config = folder.config()
    with folder.held():
        run = open_run(config, out, listener, resume=True)
        step = run.state.step
        is_measured = config.evaluation.is_off or run.state.evaluated_at == step
        if is_measured and (out / "report.html").is_file():
            run.refuse_if_ended()
        listener.note(f"resuming after step {step}")
        return _take_all_steps(run)


def _take_all_steps(run: Run) -> Run:
    """Take all steps. Ctrl-C and SIGTERM save first; the report is written however they end, but for a third Ctrl-C."""
    with run.open_trackers(), stop_once(run.listener.note), _reported(run):
        try:
            take_steps(run)
        except KeyboardInterrupt:
            state = run.state
            if state.step or state.evaluated_at is not None or state.votes_pass is not None:  # else nothing is lost
                run.save_last()
            run.listener.note(
                f"stopped after step {run.state.step}; resume with: scrl train --resume {run.folder.path}"
            )
            raise
    return run


@contextmanager
def _reported(run: Run) -> Iterator[None]:
    """Write the report however the block ends; after a third Ctrl-C say what is lost instead."""
    try:
        yield
    except SystemExit:
        lost = f"steps after {run.saved_step} are lost" if run.saved_step < run.state.step else "nothing is lost"
        run.listener.note(f"stopped at once, {lost}; resume with: scrl train --resume {run.folder.path}")
        raise
    except BaseException:
        run.folder.report(run.listener.note)
        raise
    run.folder.report(run.listener.note)


def take_steps(run: Run) -> None:
    """From the run's current step to its last."""
    config, state = run.config, run.state
    while True:
        if state.step == 0 or (config.evaluation.every and state.step % config.evaluation.every == 0):
            run.evaluate()
        for note in run.guard_notes():
            run.listener.note(note)
        if run.is_ended_by_guard or state.step >= config.steps:
            break
        # A sampler may draw from torch's own generator: seeded per step, so that a resumed run repeats it.
        torch.manual_seed(int(generator_for(config.seed, "torch", state.step).integers(2**31)))
        clock, resampling, left_out = Stopwatch(), dict[str, float](), list[CreditedGroup]()
        votes = run.draw_label_votes()
        stream = run.teaching
        groups_B = sample_and_credit(run, clock, stream.batch(state.step))
        if config.dynamic_sampling.rounds:
            groups_B, resampling, left_out = replace_flat(
                groups_B, partial(sample_and_credit, run, clock), stream, state.step, config.dynamic_sampling
            )
        with finish_first(run.listener.note):
            with clock.measure("seconds_update"):
                update = run.update(groups_B)
            metrics = step_metrics(groups_B, update, state.labels, state.first_answers) | step_label_quality(groups_B)
            metrics |= {} if run.sampler.drift is None else {"sampler_drift": run.sampler.drift}
            metrics |= resampling | {"tokens": metrics["tokens"] + tokens_drawn(left_out)}
            if stream is not run.stream:
                unasked = len(run.stream.questions) - len(stream.questions)
                metrics["tokens_saved"] = metrics["tokens"] * unasked / len(stream.questions)
            line = {"step": state.step} | metrics | votes | clock.seconds
            run.remember(metrics, [*groups_B, *left_out])
            state.step += 1
            run.log_step(line, groups_B, update.notes)
            for tracker in run.trackers:
                tracker.log(line["step"], {key: value for key, value in line.items() if isinstance(value, int | float)})
            if state.step % config.checkpoint_every == 0 or state.step == config.steps:
                save_if_best(run)
            if state.step % config.checkpoint_every == 0 and state.step < config.steps:
                run.save_last()
    run.evaluate()
    if state.probe:
        had_signal = any(line["signal_share"] for line in state.history)
        run.listener.note(shift_note(shift(state.probe, run.language_model), config, had_signal=had_signal))
    for note in outcome_notes(run.folder, run.listener.note):
        run.listener.note(note)
    with finish_first(run.listener.note):
        run.save_last()


class Stopwatch:
    """Adds up seconds under the names of what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Count the time inside as spent on `name`."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def sample_and_credit(
    run: Run, clock: Stopwatch, questions: Sequence[Question], beside: Sequence[CreditedGroup] = ()
) -> list[CreditedGroup]:
    """The completions of some questions, and what they earn; `beside` are groups already sampled in this step."""
    with clock.measure("seconds_rollout"):
        sampled_B = run.sample_step(questions)
    with clock.measure("seconds_credit"):
        return run.crediting.beside(beside).credit(sampled_B)


def step_metrics(groups_B: Sequence[CreditedGroup], update: UpdateReport, *before: Mapping[str, Any]) -> dict[str, Any]:
    """One line of `metrics.jsonl` without the seconds; `before` is what `group_metrics` compares with."""
    names = ("loss", "learning_rate", "grad_norm", "kl", "clipped_share")
    metrics = {name: value for name in names if (value := getattr(update, name)) is not None}
    return metrics | group_metrics(groups_B, *before)


def save_if_best(run: Run) -> None:
    """Keep as `best` where the completions agree most over the last epoch and the guard sees nothing wrong.

    A part of the first epoch covers only some of the questions, so the first whole epoch always replaces it.
    """
    state, length = run.state, run.stream.steps_per_epoch
    epoch = state.history[-length:]
    score = sum(line["agreement"] for line in epoch) / len(epoch)
    if state.best_step is None or state.best_score is None:
        is_better = True
    else:
        is_better = state.best_step < length <= state.step or score > state.best_score
    if is_better and not alarms(state.history, run.config.guard):
        run.save_best(score)
