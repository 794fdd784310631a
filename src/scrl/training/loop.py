"""The loop of the local engine, and its run. One step: sample → credit → update → log → evaluate."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scrl.config import RunConfig
from scrl.credit.group_metrics import group_metrics, most_frequent, positive_labels
from scrl.credit.method import Tree
from scrl.credit.rule import CreditedGroup
from scrl.data.prompts import with_prompts
from scrl.errors import TrainingError
from scrl.evaluation.gold import step_label_quality
from scrl.files.run_state import STATE
from scrl.listener import Listener
from scrl.policy.checkpoint import checkpoints_bytes, restore, write_optimizer, write_weights
from scrl.policy.memory import set_up_allocator
from scrl.policy.policy import Policy, UpdateReport
from scrl.records import Question, Sampled
from scrl.sampling.groups import sample_groups
from scrl.sampling.local import LocalSampler, check_sampler, open_sampler
from scrl.sampling.sampler import Sampler
from scrl.sampling.settings import SamplingSettings
from scrl.seeds import generator_for
from scrl.training.base_run import BaseRun, outcome_notes, prepare
from scrl.training.crediting import Crediting
from scrl.training.guard import WATCHED, alarms
from scrl.training.interrupts import finish_first, stop_once
from scrl.training.model_card import model_card
from scrl.training.probe import cost_note, probe_notes, score_probe, shift, shift_note
from scrl.training.run_folder import FILES, RunFolder, check_room
from scrl.training.state import check_unchanged, saved_state
from scrl.training.trackers import TRACKERS, Log, check_trackers


def train(config: RunConfig, out: Path, listener: Listener) -> Run:
    """Start a run in the new folder `out`."""
    assert config.engine == "local"
    run = open_run(config, out, listener)
    with run.folder.held():
        return _take_all_steps(run)


def resume(out: Path, listener: Listener) -> Run:
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
            run.listener.note(f"stopped after step {run.state.step}; resume with: {run.folder.resume_command}")
            raise
    return run


@contextmanager
def _reported(run: Run) -> Iterator[None]:
    """Write the report however the block ends; after a third Ctrl-C say what is lost instead."""
    try:
        yield
    except SystemExit:
        lost = f"steps after {run.saved_step} are lost" if run.saved_step < run.state.step else "nothing is lost"
        run.listener.note(f"stopped at once, {lost}; resume with: {run.folder.resume_command}")
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
        if run.stop_reasons or state.step >= config.steps:
            break
        # A sampler may draw from torch's own generator: seeded per step, so that a resumed run repeats it.
        torch.manual_seed(int(generator_for(config.seed, "torch", state.step).integers(2**31)))
        votes = run.draw_label_votes()  # may give labels, on which `teaching` depends
        stream, seconds = run.teaching, dict[str, float]()
        done, planned = (stream.updates(steps, config.questions_per_update) for steps in (state.step, config.steps))
        run.policy.optimizer.updates = run.policy.optimizer.update + planned - done
        with timed(seconds, "seconds_rollout"):
            sampled_B = run.sample_step(stream.batch(state.step))
        with timed(seconds, "seconds_credit"):
            groups_B = run.crediting.credit(sampled_B)
        with finish_first(run.listener.note):
            with timed(seconds, "seconds_update"):
                update = run.update(groups_B)
            metrics = step_metrics(groups_B, update, state.labels, state.first_answers) | step_label_quality(groups_B)
            if stream is not run.stream:  # what the questions that teach nothing would have taken
                unasked = len(run.stream.questions) - len(stream.questions)
                metrics["tokens_saved"] = metrics["tokens"] * unasked / len(stream.questions)
            line = {"step": state.step} | metrics | votes | seconds
            run.remember(metrics, groups_B)
            state.step += 1
            run.log_step(line, groups_B, update.notes)
            numbers = {key: value for key, value in line.items() if isinstance(value, int | float) and key != "step"}
            for log in run.trackers:
                log(line["step"], numbers)
            if state.step % config.checkpoint_every == 0 or state.step == config.steps:
                save_if_best(run)
            if state.step % config.checkpoint_every == 0 and state.step < config.steps:
                run.save_last()
    run.evaluate()
    if state.probe:
        had_signal = any(line["signal_share"] for line in state.history)
        run.listener.note(shift_note(shift(state.probe, run.language_model), config, had_signal=had_signal))
    with finish_first(run.listener.note):
        run.save_last()
    for note in outcome_notes(run.folder, run.listener.note):
        run.listener.note(note)


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Note the time inside as spent on `name`."""
    start = time.perf_counter()
    yield
    seconds[name] = time.perf_counter() - start


def step_metrics(groups_B: Sequence[CreditedGroup], update: UpdateReport, *before: Mapping[str, Any]) -> dict[str, Any]:
    """One line of `metrics.jsonl` without the seconds; `before`: the labels before this step, and the first answers."""
    names = ("loss", "learning_rate", "grad_norm", "kl", "clipped_share")
    metrics = {name: value for name in names if (value := getattr(update, name)) is not None}
    return metrics | group_metrics(groups_B, *before)


def save_if_best(run: Run) -> None:
    """Keep as `best` where the completions agree most over the last epoch and the guard sees nothing wrong.

    It needs no gold, and is written in the type the start model was published in. A part of the first epoch covers only
    some of the questions, so the first whole epoch always replaces it.
    """
    state, length = run.state, run.stream.steps_per_epoch
    epoch = state.history[-length:]
    score = sum(line["agreement"] for line in epoch) / len(epoch)
    is_first_whole = (state.best_step or 0) < length <= state.step
    is_better = state.best_score is None or is_first_whole or score > state.best_score
    if is_better and not alarms(state.history, run.config.guard):
        state.best_score, state.best_step = score, state.step
        card, dtype = model_card(run.config, run.standing), run.language_model.published_dtype
        write = partial(write_weights, run.language_model, card=card, dtype=dtype)
        run.folder.save(run.folder.best, write, state.step, state.run)


@dataclass(eq=False, kw_only=True)
class Run(BaseRun):
    """The collaborators of the loop."""

    sampler: Sampler
    policy: Policy
    trackers: list[Log] = field(default_factory=list)
    saved_step: int = 0
    """The step of the last checkpoint."""

    @contextmanager
    def open_trackers(self) -> Iterator[None]:
        """For as long as steps are taken."""
        with ExitStack() as stack:
            for name in self.config.trackers:
                try:
                    tracker = TRACKERS[name](self.folder.path, self.config.model_dump(mode="json"))
                    self.trackers.append(stack.enter_context(tracker))
                except Exception as error:  # each raises its own
                    raise TrainingError(f"trackers: {name} cannot be opened: {error}") from error
            yield

    @property
    def crediting(self) -> Crediting:
        """The rule, with what its method needs to see."""
        return Crediting(self.rule, self.state.reference_shares, self.state.last_votes, self.deciding_votes)

    def probe(self) -> None:
        """Look at a few completions of the start model; refuse to train where hardly any has an answer."""
        if not self.config.probe:
            return
        start, questions = time.perf_counter(), self.stream.batch(0)
        sampled_B = self.sample(questions, self.config.sampling, self.config.probe, "probe")
        probe = score_probe(sampled_B, time.perf_counter() - start, self.language_model)
        sizes = len(self.stream.questions), [len(questions) for questions in self.measured.values()]
        cost = cost_note(probe, self.config, self.policy, self.sampler.rows_per_call, *sizes)
        for note in (*probe_notes(probe, self.config), cost):
            self.listener.note(note)
        self.state.probe = probe.rows

    def sample_step(self, questions: Sequence[Question]) -> list[Sampled]:
        """The N completions of each question at this step."""
        plan, number = self.rule.method.plan, self.config.completions
        tree = plan(number, self.rule.settings) if plan else None
        return self.sample(questions, self.config.sampling, number, self.state.step, tree)

    def sample(
        self,
        questions: Sequence[Question],
        settings: SamplingSettings,
        number: int,
        draw: int | str,
        tree: Tree | None = None,
    ) -> list[Sampled]:
        """This many completions of each question; `draw` names them for the seed: a step, `probe`, `votes-2`, …"""
        asked_B = with_prompts(questions, self.language_model.tokenizer, self.config.prompt)
        seed, step = self.config.seed, self.state.step
        return sample_groups(self.sampler, asked_B, settings, number, seed=seed, draw=draw, step=step, tree=tree)

    def update(self, groups_B: Sequence[CreditedGroup]) -> UpdateReport:
        """The optimizer steps of one step.

        The local sampler keeps its memory and captured graphs meanwhile, unless memory ran out once. In the
        first update it always gives them back: the optimizer may allocate its state then.
        """
        is_local, is_first = isinstance(self.sampler, LocalSampler), self.policy.optimizer.update == 0
        is_kept = is_local and not is_first and not self.state.is_released
        if not is_kept:
            self.sampler.release()
        self.policy.make_room = self._make_room if is_kept else (lambda: None)
        sampled_B, credit_B = [group.sampled for group in groups_B], [group.credit for group in groups_B]
        return self.policy.update(sampled_B, credit_B, self.config.questions_per_update)

    def _make_room(self) -> str | None:
        """Memory ran out in an update: the sampler gives its own back; None where it has done so already."""
        if self.state.is_released:
            return None
        self.state.is_released = True
        self.sampler.release()
        return "the sampler's is given back before every update from now on"

    def draw_label_votes(self) -> dict[str, float]:
        """The votes that decide, if they are due, as many completions at a time as the sampler decodes in parallel."""
        number, settings = self.config.votes_per_question, self.config.sampling
        at_once = max(1, self.sampler.rows_per_call // number)
        return self.draw_votes_if_due(lambda questions, name: self.sample(questions, settings, number, name), at_once)

    def evaluate(self) -> None:
        """Measure on the questions themselves and on those held out, unless that is off or done."""
        state, completions = self.state, self.config.evaluation.completions
        if self.config.evaluation.is_off or state.evaluated_at == state.step:
            return

        def sample(name: str, questions: Sequence[Question], sampling: SamplingSettings) -> list[Sampled]:
            """As many questions at a time as the sampler decodes in parallel."""
            sampled_Q, size = list[Sampled](), max(1, self.sampler.rows_per_call // completions)
            for first in range(0, len(questions), size):
                sampled_Q += self.sample(questions[first : first + size], sampling, completions, f"evaluation-{name}")
                self.listener.progress(name, len(sampled_Q), len(questions))
            return sampled_Q

        records = self.evaluation_records(sample)
        with finish_first(self.listener.note):
            self.folder.append("evaluations.jsonl", records)
            state.evaluated_at = state.step
        for record in records:
            self.listener.evaluation(record)

    def remember(self, metrics: dict[str, Any], groups_B: Sequence[CreditedGroup]) -> None:
        """Remember what later steps will look at."""
        state = self.state
        state.history.append({key: metrics[key] for key in (*WATCHED, "agreement", "signal_share") if key in metrics})
        state.labels |= positive_labels(groups_B)
        state.first_answers = most_frequent(groups_B) | state.first_answers  # the first stays
        state.last_votes = state.last_votes.after((group.sampled.question.id, group.credit.tally) for group in groups_B)

    def save_last(self) -> None:
        """The checkpoint that a killed run resumes from."""
        state, folder, policy = self.state, self.folder, self.policy
        state.micro_batch, state.most_tokens = policy.micro_batch, policy.most_tokens
        state.sampler_rows, state.files = self.sampler.max_rows, folder.lengths()
        state.sums, state.stopped_for = folder.sums(state.files), self.stop_reasons

        def write(place: Path) -> None:
            write_weights(self.language_model, place, model_card(self.config, self.standing))
            write_optimizer(policy, place)
            (place / STATE).write_text(json.dumps(state.to_json()), encoding="utf-8")

        folder.save(folder.last, write, state.step, state.run)
        self.saved_step = state.step

    def restore(self) -> None:
        """Resume from the last checkpoint, or from the start if there is none."""
        folder, last, policy, now = self.folder, self.folder.last, self.policy, self.state
        folder.recover()
        if not last.is_dir():
            folder.cut(dict.fromkeys(FILES, 0))
            self.probe()
            return
        before = saved_state(last, STATE)
        check_unchanged(before, now, self.config, self.listener.note)
        restore(policy, last)
        policy.micro_batch = before.micro_batch or policy.micro_batch
        policy.most_tokens = before.most_tokens or policy.most_tokens
        folder.cut(before.files, before.sums)
        self.state = replace(before, held_out=now.held_out, model=now.model, settings=now.settings)
        self.sampler.max_rows, self.saved_step = before.sampler_rows, before.step


def open_run(config: RunConfig, out: Path, listener: Listener, *, resume: bool = False) -> Run:
    """Load what a run needs; nothing is written before model and questions are found to be usable."""
    set_up_allocator(config.compute)
    check_sampler(config.compute)
    check_trackers(config.trackers)
    base = prepare(config, RunFolder(out), listener, config.compute)
    rule, language_model, stream = base.rule, base.language_model, base.stream
    sampler = open_sampler(
        language_model, config.compute, record=rule.token_facts, on_note=listener.note, on_token=listener.tokens
    )
    policy = Policy(
        language_model,
        config.loss,
        config.optimizer,
        config.compute,
        updates=stream.updates(config.steps, config.questions_per_update),
        temperature=config.sampling.temperature,
        max_tokens=config.sampling.max_tokens,
    )
    if not resume:
        check_room(out, checkpoints_bytes(policy, is_renewed=config.steps > config.checkpoint_every))
    run = Run(**vars(base), sampler=sampler, policy=policy)
    for note in (sampler.note, policy.note, policy.measure_passes()):
        if note:
            listener.note(note)
    if resume:
        run.restore()
    else:
        run.probe()
        RunFolder.create(out, config, str(language_model.device))
    return run
