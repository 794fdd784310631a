"""A run on verl: its tables and its configuration are written, and its own command is shown and run.

OUT/train.parquet, OUT/validation.parquet    the questions
OUT/verl.yaml                                verl's settings; stock verl runs with it, here or on a cluster
OUT/verl.jsonl                               what verl logs, from which metrics.jsonl is made
OUT/verl.1.jsonl …                           what it logged before the run was resumed
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from scrl.child_processes import child
from scrl.config import RunConfig
from scrl.credit.elsewhere import MIN_OTHERS, few_others
from scrl.credit.label_votes import LabelVotes
from scrl.data.prompts import plain_template, prompt_messages, prompt_tokens, template_switches
from scrl.engines.requirements import check_machine
from scrl.engines.verl.settings import RunFacts, verl_settings
from scrl.errors import InputError, ScrlError, TrainingError
from scrl.files.jsonl import read_json_lines
from scrl.lab.stored_groups import first_visits
from scrl.listener import Listener
from scrl.policy.model import load_tokenizer, model_shape
from scrl.policy.model_paths import model_folder
from scrl.records import Question
from scrl.training.base_run import load_sets, usable_sets
from scrl.training.crediting import label_note, with_drawn
from scrl.training.interrupts import stop_on_sigterm
from scrl.training.run_folder import RunFolder

VERL_METRICS = {
    "loss": "actor/pg_loss",
    "learning_rate": "actor/lr",
    "grad_norm": "actor/grad_norm",
    "kl": "actor/kl_loss",
    "clipped_share": "actor/pg_clipfrac",
    "seconds_rollout": "timing_s/gen",
    "seconds_update": "timing_s/update_actor",
}
"""Our metrics that verl measures, with its names for them."""
LOG = "verl.jsonl"


def train(config: RunConfig, out: Path, listener: Listener) -> RunFolder:
    """Write what verl needs into the new folder `out`, and run it."""
    check_machine(config)
    folder, command = prepare(config, out, listener)
    with folder.held():
        return _run(folder, command, listener)


def resume(out: Path, listener: Listener) -> RunFolder:
    """Run verl's command again: it continues from its last checkpoint."""
    if not (out / "verl.yaml").is_file():
        raise InputError(f"{out}: has no verl.yaml; start the run anew")
    folder = RunFolder(out)
    with folder.held():
        return _run(folder, command_for(out), listener)


def prepare(config: RunConfig, out: Path, listener: Listener) -> tuple[RunFolder, list[str]]:
    """Write the tables and the configuration; returns the folder, and the command that runs verl with them."""
    model, rule = model_folder(config.model), config.rule()
    tokenizer = load_tokenizer(model, trust_remote_code=config.trust_remote_code)
    shape = model_shape(model, config.trust_remote_code)
    (questions, held_out), notes = usable_sets(load_sets(config), config, tokenizer, shape)
    first = config.questions_per_step if config.label_votes == "present" else len(questions)  # that are voted on
    if "elsewhere" in rule.needs and min(first, len(questions)) <= MIN_OTHERS:
        notes.append(few_others(len(questions) - 1))
    validation = held_out or questions[: config.evaluation.questions]
    if config.votes_file is not None:  # what is wrong with it is said before verl starts
        drawn = first_visits(config.votes_file, rule, [question.id for question in questions])
        votes = with_drawn(LabelVotes(), drawn, rule)
        if note := label_note(votes, rule, len(questions)):
            notes.append(note)
        if rule.is_silent_without_label:
            questions = [question for question in questions if question.id in votes.labels]
    facts = RunFacts(
        folder=str(out.resolve()),
        questions=len(questions),
        prompt_tokens=max(len(prompt_tokens(each, tokenizer, config.prompt)) for each in (*questions, *validation)),
        has_gold=any(question.gold is not None for question in validation),
        template=plain_template(tokenizer, config.prompt),
        switches=template_switches(tokenizer, config.prompt),
    )
    settings = verl_settings(config.model_copy(update={"model": model}), facts)
    folder = RunFolder.create(out, config, f"verl, {config.nodes} × {config.gpus} GPUs")
    _write_table(out / "train.parquet", questions, tokenizer, config)
    _write_table(out / "validation.parquet", validation, tokenizer, config)
    tree = {"defaults": ["ppo_trainer", "_self_"]} | settings
    (out / "verl.yaml").write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), encoding="utf-8")
    for note in (*notes, *differences(config, len(questions))):
        listener.note(note)
    return folder, command_for(out)


def _write_table(path: Path, questions: Sequence[Question], tokenizer: Any, config: RunConfig) -> None:
    """A parquet file with one row per question: its prompt as chat messages, and gold, which only validates."""
    import pyarrow as pa  # comes with verl
    import pyarrow.parquet as pq

    rows = [
        {
            "data_source": "scrl",  # in the names of verl's validation metrics
            "prompt": prompt_messages(question, tokenizer, config.prompt),
            "reward_model": {"style": "rule", "ground_truth": question.gold or ""},
            "extra_info": {"index": place, "question_id": question.id},
        }
        for place, question in enumerate(questions)
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def command_for(out: Path) -> list[str]:
    """verl's own command; more settings of verl's may follow it."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(out.resolve()), "--config-name", "verl"]


def differences(config: RunConfig, questions: int) -> Iterator[str]:
    """How verl differs from the local engine with these settings."""
    if config.guard.mode != "off":
        yield "verl: the guard does not watch this run; watch metrics.jsonl"
    batch = min(config.questions_per_step, questions)
    is_ours = config.label_votes != "present" and config.rule().is_silent_without_label  # the order of questions
    if questions % batch and not config.drop_last and not is_ours:
        yield "verl: the last, smaller batch of an epoch is left out"
    if config.questions_per_update < batch:
        yield "verl: an update has as many completions as here, but of several questions: verl balances lengths"
    if config.loss.kl_weight and config.loss.kl == "k3":
        yield "verl: k3 is at most 10 (loss.kl: k3-capped)"


def _run(folder: RunFolder, command: Sequence[str], listener: Listener) -> RunFolder:
    """Run verl; however it ends, its steps are recorded, and the report is written if there are any."""
    move_log(folder.path)
    listener.note(f"running: {shlex.join(command)}")
    try:
        code = _exit_code(command, listener.note)
    except KeyboardInterrupt:
        listener.note(f"stopped; resume from verl's last checkpoint with: {folder.resume_command}")
        raise
    finally:
        try:
            steps = write_metrics(folder, listener.note)
            link_last(folder)
            if steps:
                folder.report(listener.note)
        except (ScrlError, OSError, KeyError) as error:  # this must not hide how verl ended
            listener.note(f"what verl did could not be written down: {error}")
            steps = 0
    if code:
        raise TrainingError(f"verl ended with exit code {code} after {steps} steps; its own messages are above")
    if not steps:
        raise TrainingError(f"verl ended without a step; its log is {folder.path / LOG}")
    return folder


def _exit_code(command: Sequence[str], say: Callable[[str], None]) -> int:
    """verl's exit code, once it has ended.

    A terminal sends Ctrl-C to verl too, and SIGTERM is passed on, so the first one waits for it; the second kills it.
    """
    with child(command) as process, stop_on_sigterm(process.terminate):
        try:
            return process.wait()
        except KeyboardInterrupt:
            say("waiting for verl to end; a second Ctrl-C kills it")
            process.wait()
            raise


def _earlier_logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("verl.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))


def move_log(folder: Path) -> None:
    """Keep the log so far: verl overwrites it."""
    log = folder / LOG
    if log.is_file() and log.stat().st_size:
        log.rename(folder / f"verl.{len(_earlier_logs(folder)) + 1}.jsonl")


def write_metrics(folder: RunFolder, say: Callable[[str], None]) -> int:
    """Write metrics.jsonl from verl's logs, where the last line about a step counts; returns the number of steps."""
    logs = [path for path in (*_earlier_logs(folder.path), folder.path / LOG) if path.is_file()]
    steps = {}
    for line in (line.fields for path in logs for line in read_json_lines(path, say)):
        if "scrl/reward_mean" in (logged := line["data"]):
            measured = {name: logged[key] for name, key in VERL_METRICS.items() if key in logged}
            own = {key.removeprefix("scrl/"): logged[key] for key in logged if key.startswith("scrl/")}
            steps[line["step"] - 1] = measured | own
    text = "".join(json.dumps({"step": step} | values) + "\n" for step, values in sorted(steps.items()))
    (folder.path / "metrics.jsonl").write_text(text, encoding="utf-8")
    return len(steps)


def link_last(folder: RunFolder) -> None:
    """Point checkpoints/last to the newest one that verl saved as a plain folder of weights."""
    paths = folder.last.parent.glob("global_step_*/actor/huggingface")
    newest = max(paths, key=lambda path: int(path.parts[-3].removeprefix("global_step_")), default=None)
    if newest is not None:
        folder.last.unlink(missing_ok=True)
        folder.last.symlink_to(newest.relative_to(folder.last.parent), target_is_directory=True)
