"""A run whose steps are verl's: its tables and its configuration are written, its own command is shown and run.

OUT/train.parquet, OUT/validation.parquet    the questions
OUT/verl.yaml                                verl's settings; stock verl runs with it, here or on a cluster
OUT/verl.jsonl                               what verl logs, of which metrics.jsonl is made
OUT/verl.1.jsonl …                           what it logged before the run was resumed
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from scrl.config import RunConfig
from scrl.data.prompts import checked_prompts, plain_template, prompt_tokens, template_switches
from scrl.engines.verl.job import Job, verl_settings
from scrl.engines.verl.table import has_gold, write_verl_table
from scrl.errors import ConfigError, InputError, ScrlError, TrainingError
from scrl.policy.model import loading
from scrl.policy.model_paths import model_folder
from scrl.reporting.json_lines import read_json_lines
from scrl.training.interrupts import stop_on_sigterm
from scrl.training.listeners import RunListener
from scrl.training.run_folder import RunFolder

OF_VERL = {
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
TABLES = {"train": "train.parquet", "validation": "validation.parquet"}


def train(config: RunConfig, out: Path, listener: RunListener) -> RunFolder:
    """Write what verl needs into the new folder `out`, and run it."""
    require_gpus(config)
    folder, command = prepare(config, out, listener)
    with folder.held():
        return _run(folder, command, listener)


def require_gpus(config: RunConfig) -> None:
    """Refuse to start a cluster of this machine alone where it has no GPU: verl would say so a minute later."""
    if config.nodes == 1 and "RAY_ADDRESS" not in os.environ and not torch.cuda.is_available():
        raise ConfigError(
            "engine: verl trains on GPUs and there is none here; with --dry-run it writes its files and command for a "
            "machine that has some"
        )


def resume(out: Path, listener: RunListener) -> RunFolder:
    """Run verl's command again: it goes on from its last checkpoint."""
    if not (out / "verl.yaml").is_file():
        raise InputError(f"{out}: has no verl.yaml; start the run anew")
    folder = RunFolder(out)
    with folder.held():
        return _run(folder, command_for(out), listener)


def prepare(config: RunConfig, out: Path, listener: RunListener) -> tuple[RunFolder, list[str]]:
    """Write the tables and the configuration; the folder, and the command that runs verl with them."""
    from transformers import AutoTokenizer

    model = model_folder(config.model)
    with loading(config.model):
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=config.trust_remote_code)
    questions, notes = checked_prompts(config.load_questions().questions, tokenizer, config.prompt)
    held_out = config.load_held_out()
    measured = list(held_out.questions) if held_out else questions[: config.evaluation.questions]
    place = out.resolve()
    job = Job(
        folder=str(place),
        train_files=str(place / TABLES["train"]),
        val_files=str(place / TABLES["validation"]),
        questions=len(questions),
        prompt_tokens=max(len(prompt_tokens(each, tokenizer, config.prompt)) for each in (*questions, *measured)),
        nodes=config.nodes,
        gpus=config.gpus,
        is_measured=has_gold(measured),
        template=plain_template(tokenizer, config.prompt),
        switches=template_switches(tokenizer, config.prompt),
    )
    settings = verl_settings(config.model_copy(update={"model": model}), job)
    folder = RunFolder.create(out, config, f"verl, {config.nodes} × {config.gpus} GPUs")
    for name, rows in {"train": questions, "validation": measured}.items():
        write_verl_table(out / TABLES[name], rows, tokenizer, config.prompt)
    tree = {"defaults": ["ppo_trainer", "_self_"]} | settings
    (out / "verl.yaml").write_text(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), encoding="utf-8")
    for note in (*notes, *differences(config, len(questions))):
        listener.note(note)
    return folder, command_for(out)


def command_for(out: Path) -> list[str]:
    """verl's own command; more settings of verl's may be put behind it."""
    return [sys.executable, "-m", "verl.trainer.main_ppo", "--config-dir", str(out.resolve()), "--config-name", "verl"]


def differences(config: RunConfig, questions: int) -> Iterator[str]:
    """What verl does otherwise than the embedded engine."""
    if config.guard.mode != "off":
        yield "verl: the guard does not watch this run; look at metrics.jsonl"
    batch = min(config.questions_per_step, questions)
    if questions % batch and not config.drop_last:
        yield "verl: the last, smaller batch of an epoch is left out"
    if config.questions_per_update < batch:
        yield "verl: an update has as many completions as here, but of several questions: verl balances lengths"


def _run(folder: RunFolder, command: Sequence[str], listener: RunListener) -> RunFolder:
    """Run verl; whatever ends it, its steps are written down, and the report where there are any."""
    set_aside(folder.path)
    listener.note(f"running: {shlex.join(command)}")
    try:
        code = _exit_code(command, listener.note)
    except KeyboardInterrupt:
        listener.note(f"stopped; go on from verl's last checkpoint with: scrl train --resume {folder.path}")
        raise
    finally:
        steps = _write_down(folder, listener.note)
    if code:
        raise TrainingError(f"verl ended with exit code {code} after {steps} steps; its own messages stand above")
    if not steps:
        raise TrainingError(f"verl ended without a step; its log is {folder.path / LOG}")
    return folder


def _write_down(folder: RunFolder, say: Callable[[str], None]) -> int:
    """What verl has done; its steps. That it cannot be read must not hide how verl ended."""
    try:
        steps = write_metrics(folder, say)
        point_to_last(folder)
    except (ScrlError, OSError, KeyError) as error:
        say(f"what verl did could not be written down: {error}")
        return 0
    if steps:
        folder.report(say)
    return steps


def _exit_code(command: Sequence[str], say: Callable[[str], None]) -> int:
    """verl's, when it has ended.

    A terminal sends Ctrl-C to verl too, and SIGTERM is passed on, so the first one waits for it; the second kills it.
    """
    process = subprocess.Popen(command)
    with stop_on_sigterm(process.terminate):
        try:
            return process.wait()
        except KeyboardInterrupt:
            say("waiting for verl to end; a second Ctrl-C kills it")
            process.wait()
            raise
        finally:
            process.kill()  # does nothing to one that has ended
            process.wait()


def set_aside(folder: Path) -> None:
    """Keep the log so far: verl starts it anew."""
    log = folder / LOG
    if log.is_file() and log.stat().st_size:
        log.rename(folder / f"verl.{len(_earlier_logs(folder)) + 1}.jsonl")


def _earlier_logs(folder: Path) -> list[Path]:
    return sorted(folder.glob("verl.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))


def write_metrics(folder: RunFolder, say: Callable[[str], None]) -> int:
    """metrics.jsonl from what verl logged, of a step that was taken again the last; how many steps it is."""
    logs = [path for path in (*_earlier_logs(folder.path), folder.path / LOG) if path.is_file()]
    lines = [line.fields for path in logs for line in read_json_lines(path, say)]
    steps = {line["step"] - 1: step_line(line["data"]) for line in lines if "scrl/reward_mean" in line["data"]}
    text = "".join(json.dumps({"step": step} | values) + "\n" for step, values in sorted(steps.items()))
    (folder.path / "metrics.jsonl").write_text(text, encoding="utf-8")
    return len(steps)


def step_line(logged: dict[str, Any]) -> dict[str, Any]:
    """One line of metrics.jsonl from verl's names."""
    theirs = {name: logged[key] for name, key in OF_VERL.items() if key in logged}
    return theirs | {key.removeprefix("scrl/"): value for key, value in logged.items() if key.startswith("scrl/")}


def point_to_last(folder: RunFolder) -> None:
    """checkpoints/last is the newest that verl saved as a plain folder of weights."""
    saved = sorted(folder.last.parent.glob("global_step_*/actor/huggingface"), key=_step_of)
    if not saved:
        return
    folder.last.unlink(missing_ok=True)
    folder.last.symlink_to(saved[-1].relative_to(folder.last.parent), target_is_directory=True)


def _step_of(path: Path) -> int:
    return int(path.parts[-3].removeprefix("global_step_"))
