"""A run on TRL: our questions, credit and run folder around a stock GRPOTrainer.

Under torchrun or accelerate every process runs this, and only the first one writes. A step of ours is a generation of
TRL's, with all of its updates. TRL saves at the end of a step, and its checkpoint then becomes checkpoints/last.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from scrl.config import RunConfig
from scrl.credit.elsewhere import LastVotes
from scrl.credit.rule import CreditedGroup
from scrl.data.prompts import prompt_tokens
from scrl.engines.trl.rollouts import QuestionPrompt, Rollouts
from scrl.engines.trl.settings import differences, grpo_settings, step_size, with_options
from scrl.errors import ConfigError, InputError
from scrl.evaluation.gold import step_label_quality
from scrl.files.folders import num_processes
from scrl.files.jsonl import read_json_lines
from scrl.files.run_state import ENGINE_STATE
from scrl.listener import Listener
from scrl.policy.losses import require_finite
from scrl.policy.model import first_line, quiet_progress
from scrl.records import Question, Sampled
from scrl.reporting.rollout_votes import read_votes
from scrl.sampling.settings import SamplingSettings
from scrl.training.base_run import BaseRun, outcome_notes, prepare
from scrl.training.guard import WATCHED
from scrl.training.interrupts import finish_first
from scrl.training.model_card import model_card
from scrl.training.run_folder import FILES, RunFolder
from scrl.training.state import check_unchanged, saved_state

from accelerate import PartialState  # isort: skip - scrl.engines.trl.rollouts says what to do where they are missing
from accelerate.utils import gather_object  # isort: skip
from datasets import Dataset  # isort: skip
from transformers import PrinterCallback, TrainerCallback  # isort: skip
from trl import GRPOConfig, GRPOTrainer  # isort: skip

TRL_METRICS = {name: name for name in ("loss", "learning_rate", "grad_norm", "kl")}
TRL_METRICS["clipped_share"] = "clip_ratio/region_mean"
"""Our metrics that TRL measures, with its names for them."""


def train(config: RunConfig, out: Path, listener: Listener) -> RunFolder:
    """Start a run in the new folder `out`."""
    run = open_run(config, RunFolder(out), listener)
    if run.is_main:
        RunFolder.create(out, config, str(run.args.device))
        for note in differences(config, questions=len(run.stream.batch(0))):
            listener.note(note)
    with run.held():
        return run.finish()


def resume(out: Path, listener: Listener) -> RunFolder:
    """Continue the run in `out` from its last checkpoint."""
    folder = RunFolder(out)
    run = open_run(folder.config(), folder, listener)
    with run.held():
        if run.is_main:
            folder.recover()
        PartialState().wait_for_everyone()
        run.restore()
        if run.is_main:
            listener.note(f"resuming after step {run.state.step}")
        return run.finish()


def open_run(config: RunConfig, folder: RunFolder, listener: Listener) -> TrlRun:
    """Load what a run needs; nothing is written before the settings, the model and the questions can be used."""
    processes = num_processes()
    is_cpu = config.compute.device == "cpu" or not torch.cuda.is_available()
    # TRL moves the model, and keeps its weights in float32 whatever it computes in.
    compute = config.compute.model_copy(update={"device": "cpu", "dtype": "float32", "gradient_checkpointing": False})
    base = prepare(config, folder, listener, compute)
    questions = step_size(config, len(base.stream.questions))
    settings = grpo_settings(config, questions=questions, processes=processes, is_cpu=is_cpu)
    fixed = {"output_dir": str(folder.path / "checkpoints"), "disable_tqdm": True, "dataloader_pin_memory": not is_cpu}
    names = {each.name for each in fields(GRPOConfig)}
    args = GRPOConfig(**with_options(settings | fixed, config.engine_options, names))
    if args.world_size != processes:
        raise ConfigError(f"engine: {processes} processes were started, and TRL sees {args.world_size}")
    base.state.processes = processes
    return TrlRun(**vars(base), args=args)


@dataclass(eq=False, kw_only=True)
class TrlRun(BaseRun, TrainerCallback):  # type: ignore[misc]
    """Follows TRL's trainer: records what it does, measures, and asks it to stop. Each process has one."""

    args: Any

    def __post_init__(self) -> None:
        tokenizer = self.language_model.tokenizer
        self.prompts = {
            question.id: QuestionPrompt(question, prompt_tokens(question, tokenizer, self.config.prompt))
            for question in (*self.stream.questions, *self.held_out)
        }
        """Questions by their ids in the trainer's dataset."""
        self.rollouts = Rollouts(
            self.rule,
            self.config.completions,
            prompt_of=lambda prompt, _trainer: self.prompts[prompt],
            sampler_rows=self.config.compute.sampler_rows,
            on_step=self.on_step,
        )
        self.signals: Sequence[int] = ()
        """Ctrl-C and SIGTERM received, which end the run after this step."""
        self._is_reading = False
        """Whether TRL reads a checkpoint: from the start of a resumed run to its first update."""
        self._groups_B: Sequence[CreditedGroup] = ()
        self._metrics: Mapping[str, float] = {}
        self._votes: dict[str, float] = {}
        """Metrics of the votes drawn before this step; empty if none were due."""
        self._update_start, self._update_seconds, self._is_evaluated = 0.0, 0.0, False

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes."""
        return bool(PartialState().is_main_process)

    def held(self) -> AbstractContextManager[None]:
        """Lock the folder, in the process that writes."""
        return self.folder.held() if self.is_main else nullcontext()

    def finish(self) -> RunFolder:
        """Take all remaining steps; however they end, the report is written."""
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # that rollout_func may change: the version is checked instead
        questions = [question for step in range(self.config.steps) for question in self.stream.batch(step)]
        self.trainer = GRPOTrainer(
            model=self.language_model.model,
            reward_funcs=self.rollouts.reward,
            rollout_func=self.rollout,
            args=self.args,
            train_dataset=Dataset.from_list([{"prompt": question.id} for question in questions]),
            processing_class=self.language_model.tokenizer,
            callbacks=[self],
        )
        self.trainer.remove_callback(PrinterCallback)
        self._is_reading = bool(self.state.step)
        try:
            with quiet_progress(), finish_first(self.listener.note) as self.signals:
                self.trainer.train(resume_from_checkpoint=str(self.folder.last) if self._is_reading else None)
        except (UnpicklingError, SafetensorError, EOFError) as error:  # a checkpoint without sums, or with forged ones
            if not self._is_reading:
                raise
            raise InputError(f"{self.folder.last}: the checkpoint cannot be read back: {first_line(error)}") from error
        except KeyboardInterrupt:
            start = f"torchrun --nproc_per_node {self.args.world_size} -m " if self.args.world_size > 1 else ""
            self.listener.note(f"stopped; resume with: {start}{self.folder.resume_command}")
            raise
        finally:
            if self.is_main:
                self.folder.report(self.listener.note)
        for note in outcome_notes(self.folder, self.listener.note) if self.is_main else ():
            self.listener.note(note)
        self.trainer.accelerator.wait_for_everyone()  # one that leaves while another writes takes the group down
        self.trainer.accelerator.end_training()
        return self.folder

    def rollout(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """The rows of a step: TRL's own, or where votes decide which questions teach anything, those of these."""
        number = self.config.votes_per_question
        at_once = max(1, self.config.compute.sampler_rows * self.args.world_size // number)
        self._votes = self.draw_votes_if_due(lambda asked, _seeds: self._sample(asked, number), at_once)
        self.rollouts.label_votes = self.deciding_votes
        self.rollouts.first_answers = self.state.first_answers | self.rollouts.first_answers
        stream = self.teaching
        if stream is not self.stream:
            size, total = self.config.trained, len(prompts) * self.args.world_size
            asked = stream.filled(self.state.step, total // size, self.stream.questions)
            rows = [question.id for question in asked for _ in range(size)]
            first = trainer.accelerator.process_index * len(prompts)
            prompts = rows[first : first + len(prompts)]
        return self.rollouts(prompts, trainer)

    def _sample(self, questions: Sequence[Question], number: int) -> list[Sampled]:
        """This many completions of each question, by TRL's own random numbers."""
        prompts = [self.prompts[question.id] for question in questions]
        pairs = zip(prompts, self.rollouts.sample(self.trainer, prompts, number), strict=True)
        return [Sampled(*prompt, tuple(each.sample for each in samples_G)) for prompt, samples_G in pairs]

    def restore(self) -> None:
        """The run's state, from its last checkpoint and from what it wrote until then."""
        folder, now = self.folder, self.state
        before = replace(now, files=dict.fromkeys(FILES, 0))
        if folder.last.is_dir():
            before = saved_state(folder.last, ENGINE_STATE)
        if before.processes != now.processes:
            again = f"torchrun --nproc_per_node {before.processes} -m scrl train --resume {folder.path}"
            raise InputError(f"{folder.path}: is resumed with as many processes, {before.processes}: {again}")
        check_unchanged(before, now, self.config, self.listener.note if self.is_main else lambda _: None)
        PartialState().wait_for_everyone()  # all must have read before one cuts
        if self.is_main:
            folder.cut(before.files, before.sums)
        PartialState().wait_for_everyone()
        now.step, now.label_votes, now.votes_pass = before.step, before.label_votes, before.votes_pass
        now.first_answers = before.first_answers
        for line in read_json_lines(folder.path / "metrics.jsonl", self.listener.note):
            now.history.append({key: line.fields[key] for key in WATCHED if key in line.fields})
        self.refuse_if_ended()
        votes = {}
        for question in read_votes(folder.path / "rollouts.jsonl", self.listener.note).values():
            last = question.visits[-1]
            positive = (key for key, answer in last.classes if answer.label == "positive")
            self.rollouts.labels[question.id] = next(positive, None)
            votes[question.id] = {key: (answer.count, last.size) for key, answer in last.classes}
        self.rollouts.last_votes = LastVotes.from_json(votes)

    def on_train_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Measure the start model."""
        if not self.state.step:
            self._evaluate()

    def on_step_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Weights, optimizer and random state have been read back."""
        self._is_reading = False

    def on_step(self, groups_B: Sequence[CreditedGroup], metrics: Mapping[str, float]) -> None:
        """TRL has its completions and is about to update."""
        self._groups_B, self._metrics, self._update_start = groups_B, metrics, time.perf_counter()
        self.state.history.append({key: metrics[key] for key in WATCHED if key in metrics})
        self.state.first_answers = self.rollouts.first_answers

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After the last update of a step: decide whether to stop, and whether to measure."""
        if state.global_step % args.logging_steps:
            return control
        self.state.step = step = state.global_step // args.logging_steps
        for note in self.guard_notes() if self.is_main else ():
            self.listener.note(note)
        is_ended, every = bool(self.stop_reasons), self.config.evaluation.every
        if is_ended or any(gather_object([bool(self.signals)])):
            control.should_training_stop = control.should_save = True
        self._is_evaluated = is_ended or step == self.config.steps or bool(every and step % every == 0)
        self._update_seconds = time.perf_counter() - self._update_start
        return control

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Mapping[str, Any], **_: Any) -> None:
        """TRL has summed up a step, and has not saved it yet."""
        if "loss" not in logs or not self._groups_B:
            return
        if self.is_main:
            require_finite(logs["loss"], logs.get("grad_norm"))
            measured = {name: logs[key] for name, key in TRL_METRICS.items() if key in logs}
            line = {"step": self._groups_B[0].sampled.step} | measured | dict(self._metrics)
            line |= step_label_quality(self._groups_B) | {"seconds_update": self._update_seconds} | self._votes
            self.log_step(line, self._groups_B)
        if self._is_evaluated:
            self._evaluate()

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """TRL's checkpoint replaces the last one, once all processes have written their part."""
        PartialState().wait_for_everyone()
        if self.is_main:
            step, checkpoint = self.state.step, Path(args.output_dir) / f"checkpoint-{state.global_step}"
            lengths = self.folder.lengths()
            # metrics.jsonl holds the whole history.
            saved = replace(
                self.state, history=[], stopped_for=self.stop_reasons, files=lengths, sums=self.folder.sums(lengths)
            )

            def write(place: Path) -> None:
                for path in list(checkpoint.iterdir()):
                    shutil.move(path, place / path.name)
                (place / ENGINE_STATE).write_text(json.dumps(saved.to_json()), encoding="utf-8")
                (place / "README.md").write_text(model_card(self.config, self.standing), encoding="utf-8")

            self.folder.save(self.folder.last, write, step, self.state.run)
            checkpoint.rmdir()
            (Path(args.output_dir) / "README.md").unlink(missing_ok=True)  # TRL's own card
        PartialState().wait_for_everyone()

    def _evaluate(self) -> None:
        if self.config.evaluation.is_off:
            return

        def sample(_name: str, questions: Sequence[Question], _sampling: SamplingSettings) -> list[Sampled]:
            return self._sample(questions, self.config.evaluation.completions)

        records = self.evaluation_records(sample)
        if self.is_main:
            self.folder.append("evaluations.jsonl", records)
            for record in records:
                self.listener.evaluation(record)
