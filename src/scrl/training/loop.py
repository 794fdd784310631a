"""The loop. One step: sample → credit → update → log → evaluate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scrl.answers.judge import Judge
from scrl.credit.assign import CreditRule
from scrl.credit.elsewhere import few_others
from scrl.data.rollouts import rollout_fields
from scrl.errors import ConfigError, InputError
from scrl.evaluation.evaluate import Answered, Conditions, evaluate
from scrl.evaluation.label_quality import Triple, gold_fields, step_label_quality
from scrl.records import Question, Sampled
from scrl.rollout.sampling import SamplingSettings
from scrl.seeds import generator_for
from scrl.training.config import RunConfig
from scrl.training.dynamic_sampling import draw_step
from scrl.training.early_verdicts import saved
from scrl.training.guard import alarms
from scrl.training.interrupts import finish_first, stop_on_sigterm
from scrl.training.run import Run, open_run
from scrl.training.run_folder import RunFolder
from scrl.training.step_metrics import describe, step_metrics
from scrl.training.stopwatch import Stopwatch
from scrl.training.watchers import Watcher

NO_ANSWERS = (
    "hardly any completion has an answer: look at some in rollouts.jsonl. Perhaps another reader (number, last-number, "
    "choice), a longer sampling.max_tokens, a lower sampling.temperature or another prompt.instruction is needed."
)


def train(config: RunConfig, out: Path, watcher: Watcher) -> Run:
    """Start a run in the new folder `out`."""
    if config.engine != "embedded":
        raise ConfigError(f"engine: {config.engine} is started with the command scrl train alone; leave it out here")
    run = open_run(config, out, watcher)
    with run.folder.held():
        return _finish(run)


def resume(out: Path, watcher: Watcher) -> Run:
    """Go on with the run in `out`, exactly as if it had never stopped."""
    folder = RunFolder(out)
    config = folder.config()
    with folder.held():
        run = open_run(config, out, watcher, resume=True)
        _check_unfinished(run)
        watcher.note(f"resuming after step {run.state.step}")
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
    """Run all steps; whatever ends them, what was done is saved and the report written."""
    with run.opened():
        try:
            with stop_on_sigterm():
                take_steps(run)
        except KeyboardInterrupt:
            run.save_last()
            run.watcher.note(f"stopped after step {run.state.step}; go on with: scrl train --resume {run.folder.path}")
            raise
        finally:
            run.folder.report(run.watcher.note)
    return run


def take_steps(run: Run) -> None:
    """From where the run stands to its last step."""
    config, state = run.config, run.state
    run.look_at_the_start_model()
    while True:
        if state.step == 0 or (config.evaluation.every and state.step % config.evaluation.every == 0):
            evaluate_all(run)
        if stop_for_good(run) or state.step >= config.steps:
            break
        torch.manual_seed(int(generator_for(config.seed, "torch", state.step).integers(2**31)))
        clock = Stopwatch()
        drawn = draw_step(partial(credited, run, clock), run.stream, state.step, config.dynamic_sampling)
        triples_B = drawn.triples_B
        with finish_first(run.watcher.note):
            with clock.measure("seconds_update"):
                sampled_B, _, credit_B = zip(*triples_B, strict=True)
                update = run.update(sampled_B, credit_B)
            metrics = step_metrics(triples_B, update, state.labels) | step_label_quality(triples_B, run.gold_judge)
            metrics |= {} if run.sampler.drift is None else {"sampler_drift": run.sampler.drift}
            metrics |= saved(sampled_B, config.completions) if config.early_verdicts else {}
            metrics |= drawn.metrics | {"tokens": metrics["tokens"] + drawn.tokens_left_out}
            step = run.remember(metrics, triples_B)
            log_step(run, step, triples_B, metrics, clock.seconds, update.notes)
            if state.step % config.checkpoint_every == 0 or state.step == config.steps:
                save_if_best(run)
            if state.step % config.checkpoint_every == 0 and state.step < config.steps:
                run.save_last()
    evaluate_all(run)
    with finish_first(run.watcher.note):
        run.save_last()


def credited(run: Run, clock: Stopwatch, questions: Sequence[Question]) -> list[Triple]:
    """The completions of some questions, and what they earn."""
    background = run.credit_workers.begin() if run.credit_workers else None
    with clock.measure("seconds_rollout"):
        sampled_B = run.rollouts(questions, background.take if background else None)
    with clock.measure("seconds_credit"):
        classes_B = background.classes(sampled_B) if background else run.crediting.classify(sampled_B)
        credit_B = run.crediting.assign(sampled_B, classes_B)
    return list(zip(sampled_B, classes_B, credit_B, strict=True))


def log_step(
    run: Run,
    step: int,
    triples_B: Sequence[Triple],
    metrics: dict[str, Any],
    seconds: Mapping[str, float],
    notes: Sequence[str],
) -> None:
    """Write a step down: numbers, completions, and a line for whoever watches."""
    line = {"step": step} | metrics | dict(seconds)
    run.folder.append(
        "rollouts.jsonl", [each for triple in triples_B for each in rollout_lines(triple, run.gold_judge)]
    )
    run.folder.append("metrics.jsonl", [line])
    for tracker in run.trackers:
        tracker.log(step, {key: value for key, value in line.items() if isinstance(value, int | float)})
    if metrics["no_answer_share"] > 0.9 and step == 0:
        notes = (*notes, NO_ANSWERS)
    if "elsewhere" in run.rule.needs and step == 0 and "stock_share" not in metrics:
        notes = (*notes, few_others(len(run.stream.questions) - 1))
    for note in notes:
        run.watcher.note(note)
    run.watcher.step(line, describe(triples_B, run.rule.method))


def rollout_lines(triple: Triple, gold_judge: Judge) -> list[Mapping[str, Any]]:
    """The completions of one question, with what they earned."""
    sampled, classes, credit = triple
    keys = credit.tally.keys_K
    golds_G = gold_fields(sampled.question, classes, gold_judge)
    return [
        rollout_fields(sampled.question, sampled.step, number, sample)
        | {
            "answer_class": None if j < 0 else keys[j],
            "label": _label(None if j < 0 else keys[j], credit.labels.positive, credit.labels.negatives),
            "reward": float(credit.rewards[number]),
            "advantage": float(credit.advantages[number]) if number in credit.trained else None,
        }
        | golds_G[number]
        for number, (sample, j) in enumerate(zip(sampled.samples_G, credit.tally.class_of_G, strict=True))
    ]


def _label(key: str | None, positive: str | None, negatives: frozenset[str]) -> str | None:
    if key is None:
        return None
    return "positive" if key == positive else "negative" if key in negatives else None


def save_if_best(run: Run) -> None:
    """Keep as `best` where the completions agree most over the last epoch and the guard sees nothing wrong.

    A part of the first epoch is about some of the questions only, so the first whole one always takes its place.
    """
    state, length = run.state, run.stream.steps_per_epoch
    epoch = state.history[-length:]
    score = sum(line["agreement"] for line in epoch) / len(epoch)
    is_first_whole = state.best_step is None or state.best_step < length <= state.step
    is_better = is_first_whole or state.best_score is None or score > state.best_score
    if is_better and not alarms(run.state.history, run.config.guard):
        run.save_best(score)


def stop_for_good(run: Run) -> bool:
    """Ask the guard; True when the run should end here."""
    guard = run.config.guard
    found = alarms(run.state.history, guard)
    if not found:
        return False
    run.watcher.note(f"guard: {'; '.join(found)}")
    if not is_ended_by_guard(run):
        return False
    best = f"the best checkpoint is that of step {run.state.best_step}" if run.state.best_step else "no best checkpoint"
    run.watcher.note(f"the guard ends the run after step {run.state.step}; {best}")
    return True


def is_ended_by_guard(run: Run) -> bool:
    """Whether the run must not go on from where it stands."""
    return run.config.guard.mode == "stop" and bool(alarms(run.state.history, run.config.guard))


def evaluate_all(run: Run) -> None:
    """Measure on the questions themselves and, where there are some, on questions held out."""
    settings = run.config.evaluation
    if settings.is_off or run.state.evaluated_at == run.state.step:
        return
    records = evaluation_records(
        run.config,
        run.rule,
        {"stream": run.stream.questions[: settings.questions], "held-out": run.held_out},
        lambda name, questions, sampling: run.draw(questions, sampling, settings.completions, f"evaluation-{name}"),
        gold_judge=run.gold_judge,
        step=run.state.step,
    )
    with finish_first(run.watcher.note):
        run.folder.append("evaluations.jsonl", records)
        run.state.evaluated_at = run.state.step
    for record in records:
        run.watcher.evaluation(record)


def evaluation_records(
    config: RunConfig,
    rule: CreditRule,
    sets: Mapping[str, Sequence[Question]],
    draw: Callable[[str, Sequence[Question], SamplingSettings], list[Sampled]],
    *,
    gold_judge: Judge,
    step: int,
) -> list[dict[str, Any]]:
    """One record for each set of questions that is not empty."""
    settings = config.evaluation
    changes = {"temperature": settings.temperature, "top_p": settings.top_p}
    sampling = config.sampling.model_copy(update={k: v for k, v in changes.items() if v is not None})
    records = []
    for name, questions in sets.items():
        if not questions:
            continue
        answered_Q = [Answered.of(sampled) for sampled in draw(name, questions, sampling)]
        ks = (settings.k or settings.completions,)
        conditions = Conditions(name, config.model, sampling, ks, config.seed, step)
        records.append(evaluate(answered_Q, rule, conditions, gold_judge=gold_judge))
    return records
