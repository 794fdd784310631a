"""A run whose steps are TRL's: our questions, credit and run folder around a stock GRPOTrainer.

Under torchrun or accelerate every process runs this; the first one alone writes. A step of ours is a generation of
TRL's, with as many updates as there are. TRL saves where a step ends, and its checkpoint then becomes checkpoints/last.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from scrl.answers.judge import Judge, MathVerifyJudge
from scrl.config import RunConfig
from scrl.credit.rule import CreditedGroup, CreditRule
from scrl.data.prompts import prompt_tokens
from scrl.engines.trl.rollouts import Asked, Rollouts, Step
from scrl.engines.trl.settings import differences, grpo_settings, step_size, with_options
from scrl.errors import ConfigError, InputError, TrainingError
from scrl.evaluation.label_quality import step_label_quality
from scrl.policy.model import LanguageModel, quiet_progress
from scrl.records import Question, Sampled
from scrl.reporting.json_lines import read_json_lines
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.embedding import Embed, load_embedder
from scrl.training.crediting import Crediting
from scrl.training.guard import WATCHED, alarms
from scrl.training.interrupts import finish_first
from scrl.training.listeners import RunListener
from scrl.training.loop import evaluation_records, rollout_lines
from scrl.training.prepare import prepare
from scrl.training.run_folder import RunFolder, model_card
from scrl.training.step_metrics import describe
from scrl.training.stream import QuestionStream

from accelerate import PartialState  # isort: skip - scrl.engines.trl.rollouts says what to do where they are missing
from accelerate.utils import gather_object  # isort: skip
from datasets import Dataset  # isort: skip
from transformers import PrinterCallback, TrainerCallback  # isort: skip
from trl import GRPOConfig, GRPOTrainer  # isort: skip

STATE = "scrl_state.json"
"""What a resumed run needs beside TRL's own files."""
OF_TRL = {
    "loss": "loss",
    "learning_rate": "learning_rate",
    "grad_norm": "grad_norm",
    "kl": "kl",
    "clipped_share": "clip_ratio/region_mean",
}
"""Our metrics that TRL measures, with its names for them."""


@dataclass(eq=False)
class TrlRun:
    """What stands around the trainer."""

    config: RunConfig
    folder: RunFolder
    stream: QuestionStream
    held_out: Sequence[Question]
    rule: CreditRule
    language_model: LanguageModel
    listener: RunListener
    args: Any
    fingerprint: str
    """Of the questions."""
    gold_judge: Judge = field(default_factory=MathVerifyJudge)
    embed: Embed | None = None
    done: int = 0
    """Steps before this start."""
    history: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, str | None] = field(default_factory=dict)

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes."""
        return bool(PartialState().is_main_process)

    @cached_property
    def asked(self) -> dict[str, Asked]:
        """The tokens of every question, by the id that stands in the trainer's dataset."""
        tokenizer, prompt = self.language_model.tokenizer, self.config.prompt
        both = (*self.stream.questions, *self.held_out)
        return {question.id: Asked(question, prompt_tokens(question, tokenizer, prompt)) for question in both}

    def credit(self, sampled: Sampled) -> CreditedGroup:
        """What the completions of one group earn."""
        crediting = Crediting(self.rule, self.gold_judge, embed=self.embed)
        [group] = crediting.credit([sampled], crediting.classify([sampled]))
        return group


class Recorder(TrainerCallback):  # type: ignore[misc]
    """Writes down what TRL does, measures, and asks it to stop; on every process, but only one writes."""

    def __init__(self, run: TrlRun) -> None:
        """For one start of a run."""
        self._run, self._since, self._seconds, self._is_measured = run, 0.0, 0.0, False
        self._step: Step | None = None
        self.stops: Sequence[int] = ()
        """Signals that came."""
        self.rollouts: Rollouts
        self.trainer: Any

    def on_step(self, step: Step) -> None:
        """TRL has its completions and is about to update."""
        self._step, self._since = step, time.perf_counter()
        watched = {key: step.metrics[key] for key in WATCHED if key in step.metrics}
        self._run.history.append(watched)

    def on_train_begin(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
        """Before the first step of all."""
        if not self._run.done:
            self._evaluate(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After an update: where it is the last of a step, look whether the run should go on, and measure."""
        if state.global_step % args.logging_steps:
            return control
        run, step = self._run, state.global_step // args.logging_steps
        found = alarms(run.history, run.config.guard)
        if found and run.is_main:
            run.listener.note(f"guard: {'; '.join(found)}")
        is_ended = bool(found) and run.config.guard.mode == "stop"
        if is_ended and run.is_main:
            run.listener.note(f"the guard ends the run after step {step}")
        if is_ended or any(gather_object([bool(self.stops)])):
            control.should_training_stop = control.should_save = True
        every = run.config.evaluation.every
        self._is_measured = is_ended or step == run.config.steps or bool(every and step % every == 0)
        self._seconds = time.perf_counter() - self._since
        return control

    def on_log(self, args: Any, state: Any, _control: Any, logs: Mapping[str, Any], **_: Any) -> None:
        """TRL has summed up a step, and has not saved it yet."""
        if "loss" not in logs or self._step is None:
            return
        if self._run.is_main:
            self._record(self._step, logs)
        if self._is_measured:
            self._evaluate(state.global_step // args.logging_steps)

    def _record(self, step: Step, logs: Mapping[str, Any]) -> None:
        run = self._run
        line = {"step": step.number} | {ours: logs[name] for ours, name in OF_TRL.items() if name in logs}
        if not (math.isfinite(logs["loss"]) and math.isfinite(logs.get("grad_norm", 0.0))):
            raise TrainingError(
                f"the loss is {logs['loss']} and the gradient's norm {logs.get('grad_norm')}: training cannot go on. "
                "Lower optimizer.learning_rate, or compute in float32 (compute.dtype)."
            )
        line |= step.metrics | step_label_quality(step.groups_B, run.gold_judge)
        line |= {"seconds_update": self._seconds}
        lines = [each for group in step.groups_B for each in rollout_lines(group, run.gold_judge)]
        run.folder.append("rollouts.jsonl", lines)
        run.folder.append("metrics.jsonl", [line])
        run.listener.step(line, describe(step.groups_B, run.rule.method))

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """TRL's checkpoint takes the place of the last one, once all processes have written their part."""
        PartialState().wait_for_everyone()
        run, step = self._run, state.global_step // args.logging_steps
        if run.is_main:
            written = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            known = {"step": step, "questions": run.fingerprint, "files": run.folder.lengths()}
            known["processes"] = run.args.world_size

            def write(place: Path) -> None:
                for path in list(written.iterdir()):
                    shutil.move(path, place / path.name)
                (place / STATE).write_text(json.dumps(known), encoding="utf-8")
                (place / "README.md").write_text(model_card(run.config, step), encoding="utf-8")

            run.folder.save(run.folder.last, write)
            written.rmdir()
            (Path(args.output_dir) / "README.md").unlink(missing_ok=True)  # TRL's own card
        PartialState().wait_for_everyone()

    def _evaluate(self, step: int) -> None:
        run, settings = self._run, self._run.config.evaluation
        if settings.is_off:
            return
        sets = {"stream": run.stream.questions[: settings.questions], "held-out": run.held_out}
        records = evaluation_records(run.config, run.rule, sets, self._draw, gold_judge=run.gold_judge, step=step)
        if run.is_main:
            run.folder.append("evaluations.jsonl", records)
            for record in records:
                run.listener.evaluation(record)

    def _draw(self, _name: str, questions: Sequence[Question], _sampling: SamplingSettings) -> list[Sampled]:
        number = self._run.config.evaluation.completions
        asked_B = [self._run.asked[question.id] for question in questions]
        samples = [drawn.sample for drawn in self.rollouts.draw(self.trainer, asked_B, number)]
        return [
            Sampled(*asked, tuple(samples[place * number : (place + 1) * number]))
            for place, asked in enumerate(asked_B)
        ]


def train(config: RunConfig, out: Path, listener: RunListener) -> RunFolder:
    """Start a run in the new folder `out`."""
    run = open_run(config, RunFolder(out), listener)
    if run.is_main:
        RunFolder.create(out, config, str(run.args.device))
        for note in differences(config, questions=len(run.stream.batch(0))):
            listener.note(note)
    with _held(run):
        return _finish(run)


def resume(out: Path, listener: RunListener) -> RunFolder:
    """Go on with the run in `out` from its last checkpoint."""
    folder = RunFolder(out)
    run = open_run(folder.config(), folder, listener)
    with _held(run):
        if run.is_main:
            folder.recover()
        PartialState().wait_for_everyone()
        restore(run)
        if run.is_main:
            listener.note(f"resuming after step {run.done}")
        return _finish(run)


def _held(run: TrlRun) -> AbstractContextManager[None]:
    """By the process that writes."""
    return run.folder.held() if run.is_main else nullcontext()


def restore(run: TrlRun) -> None:
    """Where the run stands, from its last checkpoint and from what it wrote until then."""
    folder = run.folder
    known: dict[str, Any] = {"step": 0, "questions": run.fingerprint, "files": dict.fromkeys(folder.lengths(), 0)}
    if folder.last.is_dir():
        known = json.loads((folder.last / STATE).read_text(encoding="utf-8"))
    started = known.get("processes", run.args.world_size)
    if started != run.args.world_size:
        raise InputError(
            f"{folder.path}: was trained by {started} process(es), and these are {run.args.world_size}. Resume it with "
            f"as many: torchrun --nproc_per_node {started} -m scrl train --resume {folder.path}"
        )
    if known["questions"] != run.fingerprint:
        raise InputError(f"{run.config.questions}: is not what the run was started with; put it back to resume")
    if known["step"] >= run.config.steps:
        raise InputError(
            f"{folder.path}: has done all its {run.config.steps} steps; start from it with --model {folder.last}"
        )
    PartialState().wait_for_everyone()  # all have read before one cuts
    if run.is_main:
        folder.cut(known["files"])
    PartialState().wait_for_everyone()
    run.done = known["step"]
    run.history += [{key: line[key] for key in WATCHED if key in line} for line in _lines(run, "metrics.jsonl")]
    run.labels |= _last_labels(_lines(run, "rollouts.jsonl"))
    if alarms(run.history, run.config.guard) and run.config.guard.mode == "stop":
        raise InputError(f"{folder.path}: the guard ended this run after step {run.done}")


def _last_labels(lines: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """The positive label of each question at its last visit."""
    visits: dict[tuple[str, int], str | None] = {}
    for line in lines:
        visit = (line["question_id"], line["step"])
        visits[visit] = line["answer_class"] if line["label"] == "positive" else visits.get(visit)
    return {question: label for (question, _), label in visits.items()}


def _lines(run: TrlRun, name: str) -> list[dict[str, Any]]:
    return [line.fields for line in read_json_lines(run.folder.path / name, run.listener.note)]


def open_run(config: RunConfig, folder: RunFolder, listener: RunListener) -> TrlRun:
    """Load what a run needs; nothing is written before the settings, the model and the questions can be used."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    is_cpu = config.compute.device == "cpu" or not torch.cuda.is_available()
    # TRL moves the model, and keeps its weights in float32 whatever it computes in.
    here = config.compute.model_copy(update={"device": "cpu", "dtype": "float32", "gradient_checkpointing": False})
    prepared = prepare(config, config.rule(), here)
    rule, stream = prepared.rule, prepared.stream
    for note in prepared.notes:
        listener.note(note)
    questions = step_size(config, len(stream.questions))
    settings = grpo_settings(config, questions=questions, processes=processes, is_cpu=is_cpu)
    own = {"output_dir": str(folder.path / "checkpoints"), "disable_tqdm": True, "dataloader_pin_memory": not is_cpu}
    known = {each.name for each in fields(GRPOConfig)}
    args = GRPOConfig(**with_options(settings | own, config.engine_options, known))
    if args.world_size != processes:
        raise ConfigError(f"engine: {processes} processes were started, and TRL sees {args.world_size}")
    return TrlRun(
        config=config,
        folder=folder,
        stream=stream,
        held_out=prepared.held_out,
        rule=rule,
        language_model=prepared.language_model,
        listener=listener,
        args=args,
        fingerprint=prepared.fingerprint,
        embed=load_embedder(rule.settings, args.device) if "embedding" in rule.needs else None,
    )


def _finish(run: TrlRun) -> RunFolder:
    """Run all steps; whatever ends them, the report is written."""
    recorder = Recorder(run)
    recorder.rollouts = Rollouts(
        run.rule,
        run.config.completions,
        credit=run.credit,
        asked=lambda prompt, _trainer: run.asked[prompt],
        sampler_rows=run.config.compute.sampler_rows,
        on_step=recorder.on_step,
    )
    recorder.rollouts.labels |= run.labels
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"  # that rollout_func may change: the version is checked instead
    recorder.trainer = trainer = GRPOTrainer(
        model=run.language_model.model,
        reward_funcs=recorder.rollouts.reward,
        rollout_func=recorder.rollouts,
        args=run.args,
        train_dataset=Dataset.from_list(
            [{"prompt": question.id} for step in range(run.config.steps) for question in run.stream.batch(step)]
        ),
        processing_class=run.language_model.tokenizer,
        callbacks=[recorder],
    )
    trainer.remove_callback(PrinterCallback)
    try:
        with quiet_progress(), finish_first(run.listener.note) as recorder.stops:
            trainer.train(resume_from_checkpoint=str(run.folder.last) if run.done else None)
    except KeyboardInterrupt:
        start = f"torchrun --nproc_per_node {run.args.world_size} -m " if run.args.world_size > 1 else ""
        run.listener.note(f"stopped; go on with: {start}scrl train --resume {run.folder.path}")
        raise
    finally:
        if run.is_main:
            run.folder.report(run.listener.note)
    trainer.accelerator.wait_for_everyone()  # who leaves while another is writing takes the group down with it
    trainer.accelerator.end_training()
    return run.folder
