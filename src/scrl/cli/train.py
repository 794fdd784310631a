"""`scrl train`: adapt a model to questions without answers."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from scrl.cli.progress import PlainProgress, removed_if_empty, show_progress
from scrl.cli.settings import Words, split_words, switches_of
from scrl.cli.terminal import plain_console, say
from scrl.config import DEFAULT_METHOD, RunConfig, read_config
from scrl.credit.methods import METHODS
from scrl.errors import CollapseError, ConfigError
from scrl.files.folders import folder_to_resume, is_first_process, refuse_existing, shared_run_folder
from scrl.files.jsonl import read_json_lines
from scrl.files.run_state import guard_stop_of
from scrl.reporting.evaluations import best_step_of
from scrl.settings import changed_settings, setting_rows

if TYPE_CHECKING:
    from scrl.planning.plan import Plan


def train(
    *settings: Words,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    list_settings: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Adapt a model to questions without answers.

    Example: scrl train --model ./SmolLM2-135M --questions mine.txt --max-tokens 512

    Parameters
    ----------
    settings
        A YAML file of settings (optional), and single ones as --name value.
    out
        New folder for the run; by default a new numbered one under runs/.
    resume
        Resume the run in --out, exactly where its last checkpoint was made. Also: scrl train --resume FOLDER
    dry_run
        Print the plan and stop. With --engine verl and --out also write what verl needs, and print its command.
    list_settings
        Print every setting with its default and stop; those of methods other than contrast-label: scrl methods NAME.
    """
    console = plain_console()
    console.quiet = not is_first_process()
    if list_settings:
        rows = (*setting_rows(RunConfig), *setting_rows(METHODS[DEFAULT_METHOD].settings, "credit."))
        lines = (f"{name} = {default}    {description}" for name, default, description in rows)
        console.print("\n".join(lines), soft_wrap=True)
        return
    if resume and dry_run:
        raise ConfigError("--dry-run: a run that is resumed keeps the plan it was started with; leave out one")
    if resume:
        _resume(settings, out)
        return
    if out is not None and is_first_process():
        refuse_existing(out)
    config = run_config(settings)
    from scrl.engines.choice import check_engine, engine_of
    from scrl.planning.plan import make_plan

    check_engine(config)
    config = config.with_steps()
    show_plan(make_plan(config), console)
    if dry_run and config.engine == "verl" and out is None:
        console.print("verl's own files and command are written where --out names a folder", soft_wrap=True)
    if dry_run and (out is None or config.engine != "verl"):
        return
    folder = shared_run_folder(out)
    console.print(f"writing to {folder}", soft_wrap=True)
    with removed_if_empty(folder):
        if dry_run:
            from scrl.engines.verl.run import prepare

            _, command = prepare(config, folder, PlainProgress(console, config.steps))
            console.print(Text(shlex.join(command)), soft_wrap=True)
        else:
            with _show_progress(config.steps) as listener:
                engine_of(config).train(config, folder, listener)
                _summarize(folder, listener.note)


def _show_progress(steps: int) -> AbstractContextManager[PlainProgress]:
    return show_progress(steps) if is_first_process() else nullcontext(PlainProgress(Console(quiet=True), steps))


def _resume(settings: Sequence[str], folder: Path | None) -> None:
    if folder is None and settings and not settings[0].startswith("-"):
        folder, settings = Path(settings[0]), settings[1:]
    folder = folder_to_resume(folder, "run", "--out FOLDER or --resume FOLDER")
    from scrl.engines.choice import check_engine, engine_of
    from scrl.training.run_folder import RunFolder

    config = RunFolder(folder).config()
    saved = config.resolved().model_dump(mode="json")
    now = run_config(settings, saved).resolved().model_dump(mode="json")
    changes = list(changed_settings(saved, now)) if settings else []
    if changes:
        raise ConfigError(f"--resume: {_other_settings(changes, config.engine, folder)}")
    check_engine(config)
    with _show_progress(config.steps) as listener:
        engine_of(config).resume(folder, listener)
        _summarize(folder, listener.note)


def _other_settings(changes: Sequence[tuple[str, str]], engine: str, folder: Path) -> str:
    """Why a run cannot resume with these settings, and what to do instead."""
    from scrl.training.state import MAY_CHANGE, MAY_MOVE

    names, words = zip(*changes, strict=True)
    reason = f"a run resumes with the settings it was started with; {'; '.join(words)}"
    is_fixed = any(name.split(".")[0] not in MAY_CHANGE + MAY_MOVE for name in names)
    if engine == "verl" or is_fixed or guard_stop_of(folder):
        anew = f"start a new run from its weights, with a new optimizer and schedule: --model {folder}/checkpoints/last"
        return f"{reason}. Leave that out, or {anew}"
    fix = f"Write that into {folder}/config.yaml and resume"
    if "steps" in names:
        fix += ": the optimizer continues, and the learning rate follows the schedule of all steps"
    return f"{reason}. {fix}"


def _summarize(folder: Path, note: Callable[[str], None]) -> None:
    from scrl.training.guard import why_no_signal
    from scrl.training.run_folder import RunFolder

    steps = [line.fields for line in read_json_lines(folder / "metrics.jsonl", note)]
    if not any(step["signal_share"] for step in steps):
        note(f"WARNING: no step had a signal: {why_no_signal(steps, RunFolder(folder).config())}")
    best_step, stop = best_step_of(folder / "checkpoints"), guard_stop_of(folder)
    best = f" and best (step {best_step}, chosen without gold)" if best_step else ""
    note(f"checkpoints: {folder / 'checkpoints' / 'last'}{best}")
    if (folder / "report.html").is_file():  # if not, the reason has been given
        note(f"report: {folder / 'report.html'}")
    if (folder / "answers.csv").is_file():
        how_far = "" if stop else "; --draw-check 40, how often they are right"
        note(f"answers: {folder / 'answers.csv'}; scrl answers {folder} shows how far completions agree{how_far}")
    if stop and is_first_process():  # of several, so that none ends another before it has said its last words
        raise CollapseError(f"{stop}. Do not use its answers; lower optimizer.learning_rate or steps.")


def run_config(settings: Sequence[str], base: Mapping[str, Any] | None = None) -> RunConfig:
    """The settings of a run from the words of a command, on top of `base`."""
    return read_config(*file_and_overrides(settings), base or {})


def file_and_overrides(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """`run.yaml --loss.clip-high 0.3 --drop-last seed=1` → run.yaml, [loss.clip_high=0.3, drop_last=true, seed=1]."""
    alone, overrides = split_words(words, switches_of(RunConfig), has_bare_settings=True)
    begins_with_file = bool(alone) and words[0] == alone[0]  # which may have any name
    for word in alone[1:] if begins_with_file else alone:
        if not word.endswith((".yaml", ".yml")):
            raise ConfigError(f"{word!r}: settings are given as --name value, or in a file that ends in .yaml")
    if len(alone) > 1:
        raise ConfigError(f"{alone[1]!r}: {alone[0]} is the file with the settings; others are --name value")
    return (Path(alone[0]) if alone else None), overrides


def show_plan(plan: Plan, console: Console, hint: str = "") -> None:
    say(console, f"for this machine: {plan.machine}{hint}", *plan.lines)
    console.print(Text(f"first prompt: {plan.first_prompt!r}"), soft_wrap=True)
