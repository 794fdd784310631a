"""The loop. One step: sample → credit → update → log → evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scrl.config import RunConfig
from scrl.credit.elsewhere import few_others
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.data.rollouts import rollout_fields
from scrl.errors import InputError
from scrl.evaluation.evaluate import AnsweredQuestion, Conditions, evaluate
from scrl.evaluation.gold import gold_fields
from scrl.evaluation.label_quality import step_label_quality
from scrl.records import Question, Sampled
from scrl.sampling.settings import SamplingSettings
from scrl.seeds import generator_for
from scrl.training.dynamic_sampling import replace_flat
from scrl.training.guard import alarms
from scrl.training.interrupts import finish_first, stop_once
from scrl.training.listeners import RunListener
from scrl.training.probe import shift, shift_note
from scrl.training.run import Run, open_run
from scrl.training.run_folder import RunFolder
from scrl.training.step_metrics import Stopwatch, describe, step_metrics

NO_ANSWERS = (
    "hardly any completion has an answer: look at some in rollouts.jsonl. Perhaps another reader (number, last-number, "
    "choice), a longer sampling.max_tokens, a lower sampling.temperature or another prompt.instruction is needed."
)


def train(config: RunConfig, out: Path, listener: RunListener) -> Run:
    """Start a run in the new folder `out`."""
    assert config.engine == "embedded"
    run = open_run(config, out, listener)
    with run.folder.held():
        return _finish(run)


def resume(out: Path, listener: RunListener) -> Run:
    """Go on with the run in `out`, exactly as if it had never stopped."""
    folder = RunFolder(out)
    config = folder.config()
    with folder.held():
        run = open_run(config, out, listener, resume=True)
        _check_unfinished(run)
        listener.note(f"resuming after step {run.state.step}")
        return _finish(run)


def _check_unfinished(run: Run) -> None:
    out, config = run.folder.path, run.config
    is_measured = config.evaluation.is_off or run.state.evaluated_at == run.state.step
    is_complete = is_measured and (out / "report.html").is_file()
    if is_complete and run.state.step >= config.steps:
        raise InputError(
            f"{out}: has done all its {config.steps} steps; start from it with --model {out}/checkpoints/last"
        )
    if is_complete and is_ended_by_guard(run):
        raise InputError(f"{out}: the guard ended this run after step {run.state.step}; its checkpoints are in {out}")


def _finish(run: Run) -> Run:
    """Take all steps; whatever ends them, what was done is saved and the report written."""
    with run.opened(), stop_once(run.listener.note), _reported(run):
        try:
            take_steps(run)
        except KeyboardInterrupt:
            run.save_last()
            run.listener.note(f"stopped after step {run.state.step}; go on with: scrl train --resume {run.folder.path}")
            raise
    return run


@contextmanager
def _reported(run: Run) -> Iterator[None]:
    """Write the report however the block ends; after a third Ctrl-C say what is lost instead."""
    try:
        yield
    except SystemExit:
        lost = f"steps after {run.saved_step} are lost" if run.saved_step < run.state.step else "nothing is lost"
        run.listener.note(f"stopped at once, {lost}; go on with: scrl train --resume {run.folder.path}")
        raise
    except BaseException:
        run.folder.report(run.listener.note)
        raise
    run.folder.report(run.listener.note)


def take_steps(run: Run) -> None:
    """From where the run stands to its last step."""
    config, state = run.config, run.state
    run.measure_start_model()
    while True:
        if state.step == 0 or (config.evaluation.every and state.step % config.evaluation.every == 0):
            evaluate_all(run)
        if guard_ends(run) or state.step >= config.steps:
            break
        # An adapter's dropout draws from torch's own generator: seeded per step, so that a resumed run repeats it.
        torch.manual_seed(int(generator_for(config.seed, "torch", state.step).integers(2**31)))
        clock, resampling, tokens_left_out = Stopwatch(), dict[str, float](), 0
        groups_B = sample_and_credit(run, clock, run.stream.batch(state.step))
        if config.dynamic_sampling.rounds:
            groups_B, resampling, tokens_left_out = replace_flat(
                groups_B, partial(sample_and_credit, run, clock), run.stream, state.step, config.dynamic_sampling
            )
        with finish_first(run.listener.note):
            with clock.measure("seconds_update"):
                update = run.update(groups_B)
            metrics = step_metrics(groups_B, update, state.labels) | step_label_quality(groups_B)
            metrics |= {} if run.sampler.drift is None else {"sampler_drift": run.sampler.drift}
            metrics |= resampling | {"tokens": metrics["tokens"] + tokens_left_out}
            step = state.step
            run.remember(metrics, groups_B)
            log_step(run, step, groups_B, metrics, clock.seconds, update.notes)
            if state.step % config.checkpoint_every == 0 or state.step == config.steps:
                save_if_best(run)
            if state.step % config.checkpoint_every == 0 and state.step < config.steps:
                run.save_last()
    evaluate_all(run)
    if state.probe:
        run.listener.note(shift_note(shift(state.probe, run.language_model), config))
    with finish_first(run.listener.note):
        run.save_last()


def sample_and_credit(
    run: Run, clock: Stopwatch, questions: Sequence[Question], beside: Sequence[CreditedGroup] = ()
) -> list[CreditedGroup]:
    """The completions of some questions, and what they earn; `beside` are groups this step has sampled before."""
    with clock.measure("seconds_rollout"):
        sampled_B = run.sample_step(questions)
    with clock.measure("seconds_credit"):
        return run.crediting.beside(beside).credit(sampled_B, run.crediting.classify(sampled_B))


def log_step(
    run: Run,
    step: int,
    groups_B: Sequence[CreditedGroup],
    metrics: dict[str, Any],
    seconds: Mapping[str, float],
    notes: Sequence[str],
) -> None:
    """Write a step down: numbers, completions, and a line for the terminal."""
    line = {"step": step} | metrics | dict(seconds)
    run.folder.append("rollouts.jsonl", [each for group in groups_B for each in rollout_lines(group)])
    run.folder.append("metrics.jsonl", [line])
    for tracker in run.trackers:
        tracker.log(step, {key: value for key, value in line.items() if isinstance(value, int | float)})
    if metrics["no_answer_share"] > 0.9 and step == 0:
        notes = (*notes, NO_ANSWERS)
    if "elsewhere" in run.rule.needs and step == 0 and "stock_share" not in metrics:
        notes = (*notes, few_others(len(run.stream.questions) - 1))
    for note in notes:
        run.listener.note(note)
    run.listener.step(line, describe(groups_B, run.rule.method))


def rollout_lines(group: CreditedGroup) -> list[Mapping[str, Any]]:
    """The completions of one question, with what they earned."""
    sampled, credit = group.sampled, group.credit
    keys = (*credit.tally.keys_K, None)  # the last for the class index -1 of a missing answer
    golds_G = gold_fields(sampled.question, group.classes)
    return [
        rollout_fields(sampled.question, sampled.step, number, sample)
        | {
            "answer_class": keys[j],
            "label": credit.labels.of(keys[j]),
            "reward": float(credit.rewards[number]),
            "advantage": float(credit.advantages[number]) if number in credit.trained else None,
        }
        | golds_G[number]
        for number, (sample, j) in enumerate(zip(sampled.samples_G, credit.tally.class_of_G, strict=True))
    ]


def save_if_best(run: Run) -> None:
    """Keep as `best` where the completions agree most over the last epoch and the guard sees nothing wrong.

    A part of the first epoch covers only some of the questions, so the first whole one always takes its place.
    """
    state, length = run.state, run.stream.steps_per_epoch
    epoch = state.history[-length:]
    score = sum(line["agreement"] for line in epoch) / len(epoch)
    if state.best_step is None or state.best_score is None:
        is_better = True
    else:
        is_better = state.best_step < length <= state.step or score > state.best_score
    if is_better and not alarms(run.state.history, run.config.guard):
        run.save_best(score)


def guard_ends(run: Run) -> bool:
    """Say what the guard sees; True when the run must not go on."""
    found = alarms(run.state.history, run.config.guard)
    if not found:
        return False
    run.listener.note(f"guard: {'; '.join(found)}")
    if not is_ended_by_guard(run):
        return False
    best = f"the best checkpoint is that of step {run.state.best_step}" if run.state.best_step else "no best checkpoint"
    run.listener.note(f"the guard ends the run after step {run.state.step}; {best}")
    return True


def is_ended_by_guard(run: Run) -> bool:
    """Whether the run must not go on from where it stands."""
    return run.config.guard.mode == "stop" and bool(alarms(run.state.history, run.config.guard))


def evaluate_all(run: Run) -> None:
    """Measure on the questions themselves and on those held out, where there are some."""
    settings = run.config.evaluation
    if settings.is_off or run.state.evaluated_at == run.state.step:
        return
    records = evaluation_records(
        run.config,
        run.rule,
        {"stream": run.stream.questions[: settings.questions], "held-out": run.held_out},
        partial(sample_evaluation, run),
        step=run.state.step,
    )
    with finish_first(run.listener.note):
        run.folder.append("evaluations.jsonl", records)
        run.state.evaluated_at = run.state.step
    for record in records:
        run.listener.evaluation(record)


def sample_evaluation(run: Run, name: str, questions: Sequence[Question], sampling: SamplingSettings) -> list[Sampled]:
    """The completions of a set of questions, as many at a time as the sampler writes side by side."""
    completions, sampled_Q = run.config.evaluation.completions, list[Sampled]()
    size = max(1, run.sampler.rows_per_call // completions)
    for first in range(0, len(questions), size):
        sampled_Q += run.sample(questions[first : first + size], sampling, completions, f"evaluation-{name}")
        run.listener.progress(name, len(sampled_Q), len(questions))
    return sampled_Q


def evaluation_records(
    config: RunConfig,
    rule: CreditRule,
    sets: Mapping[str, Sequence[Question]],
    sample: Callable[[str, Sequence[Question], SamplingSettings], list[Sampled]],
    *,
    step: int,
) -> list[dict[str, Any]]:
    """One record per set of questions that is not empty."""
    settings = config.evaluation
    changes = {"temperature": settings.temperature, "top_p": settings.top_p}
    sampling = config.sampling.model_copy(update={k: v for k, v in changes.items() if v is not None})
    records = []
    for name, questions in sets.items():
        if not questions:
            continue
        answered_Q = [AnsweredQuestion.of(sampled) for sampled in sample(name, questions, sampling)]
        ks = (settings.k or settings.completions,)
        conditions = Conditions(name, config.model, sampling, ks, config.seed, step)
        records.append(evaluate(answered_Q, rule, conditions))
    return records
