"""`scrl train`: adapt a model to questions without answers."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from scrl.cli.progress import PlainWatcher, watching
from scrl.cli.user_imports import import_from_here
from scrl.credit.methods import METHODS
from scrl.errors import ConfigError, InputError
from scrl.reporting.json_lines import read_json_lines
from scrl.reporting.results import best_step_of
from scrl.training.run_folder import new_run_folder, refuse_existing

if TYPE_CHECKING:
    from scrl.config import RunConfig
    from scrl.planning.plan import Plan
    from scrl.training.run_folder import RunFolder

Settings = Annotated[str, Parameter(allow_leading_hyphen=True)]


def train(
    *settings: Settings,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    list_settings: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Adapt a model to questions without answers.

    Example: scrl train --model ./SmolLM2-135M --questions mine.txt --steps 50 --sampling.max-tokens 512

    Parameters
    ----------
    settings
        A YAML file of settings (optional), then single settings as --name value, nested ones with dots.
    out
        New folder for the run; by default a new numbered one under runs/.
    resume
        Go on with the run in --out, exactly where its last checkpoint was made. Also: scrl train --resume FOLDER
    dry_run
        Print the plan and stop. With --engine verl and --out also write what verl needs, and print its command.
    list_settings
        Print every setting with its default and stop; those of methods other than scrl: scrl methods NAME.
    """
    console = Console(highlight=False, markup=False, quiet=not _is_first_process())
    if list_settings:
        console.print("\n".join(_settings_lines()), soft_wrap=True)
        return
    import_from_here()
    if resume and dry_run:
        raise ConfigError("--dry-run: a run that is resumed goes on with the plan it was started with; leave out one")
    if resume:
        _resume(*_what_to_resume(settings, out))
        return
    if out is not None and _is_first_process():
        refuse_existing(out)
    config = run_config(settings)
    _check_engine(config)
    show_plan(_plan(config), console)
    if dry_run and config.engine == "verl" and out is None:
        console.print("verl's own files and command are written where --out names a folder", soft_wrap=True)
    if dry_run and (out is None or config.engine != "verl"):
        return
    folder = _new_folder(out)
    console.print(f"writing to {folder}", soft_wrap=True)
    with _without_leftovers(folder):
        if dry_run:
            _write_job(config, folder, console)
        else:
            _run(config, folder)


def _write_job(config: RunConfig, folder: Path, console: Console) -> None:
    """What verl would be started with, and how."""
    from scrl.engines.verl.run import prepare

    _, command = prepare(config, folder, PlainWatcher(console, config.steps))
    console.print(Text(shlex.join(command)), soft_wrap=True)


def _plan(config: RunConfig) -> Plan:
    from scrl.planning.plan import make_plan

    return make_plan(config)


def _check_engine(config: RunConfig) -> None:
    from scrl.engines.choice import check_engine

    check_engine(config)


def _is_first_process() -> bool:
    """Of those that torchrun or accelerate started; the only one there is, elsewhere."""
    return os.environ.get("RANK", "0") == "0"


def _new_folder(out: Path | None) -> Path:
    """Made by the first process; the others must be told the same."""
    if out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("--out: several processes write to one folder: name it")
    return new_run_folder(out) if out is None or _is_first_process() else out


def _run(config: RunConfig, folder: Path) -> None:
    from scrl.engines.choice import engine_of

    with _watching(config.steps) as listener:
        _conclude(engine_of(config).train(config, folder, listener), listener.note)


@contextmanager
def _without_leftovers(folder: Path) -> Iterator[None]:
    """A folder in which nothing was written does not outlive what went wrong."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            folder.rmdir()
        raise


def _watching(steps: int) -> AbstractContextManager[PlainWatcher]:
    return watching(steps) if _is_first_process() else nullcontext(PlainWatcher(Console(quiet=True), steps))


def _what_to_resume(settings: Sequence[str], out: Path | None) -> tuple[Path, Sequence[str]]:
    if out is not None:
        return out, settings
    if not settings or settings[0].startswith("-"):
        raise ConfigError("--resume: say which run, with --out FOLDER or --resume FOLDER")
    return Path(settings[0]), settings[1:]


def _resume(folder: Path, settings: Sequence[str]) -> None:
    if not folder.is_dir():
        raise InputError(f"--resume: there is no folder {folder}")
    from scrl.engines.choice import check_engine, engine_of
    from scrl.training.run_folder import RunFolder

    config = RunFolder(folder).config()
    if settings and run_config(settings, config.model_dump(mode="json")) != config:
        raise ConfigError("--resume: a run goes on with the settings it was started with; these are others")
    check_engine(config)
    with _watching(config.steps) as listener:
        _conclude(engine_of(config).resume(folder, listener), listener.note)


def _conclude(folder: RunFolder, say: Callable[[str], None]) -> None:
    steps = [line.fields for line in read_json_lines(folder.path / "metrics.jsonl", say)]
    if not any(step["signal_share"] for step in steps):
        say("WARNING: no step had a signal: nothing was learned. Sample more completions, or check the reader.")
    tokens_saved = sum(step.get("tokens_saved", 0.0) for step in steps)
    if tokens_saved:
        tokens = sum(step["tokens"] for step in steps)
        say(f"early verdicts saved about {tokens_saved:,.0f} tokens; {tokens:,} were sampled")
    best_step = best_step_of(folder.path / "checkpoints")
    best = f" and best (step {best_step}, chosen without gold)" if best_step else ""
    say(f"checkpoints: {folder.last}{best}")
    if (folder.path / "report.html").is_file():  # else it was said why not
        say(f"report: {folder.path / 'report.html'}")


def run_config(settings: Sequence[str], base: Mapping[str, Any] | None = None) -> RunConfig:
    """The settings of a run from the words of a command, laid on `base`."""
    from scrl.config import read_config

    return read_config(*file_and_overrides(settings), base or {})


def file_and_overrides(words: Sequence[str]) -> tuple[Path | None, list[str]]:
    """`run.yaml --loss.clip-high 0.3 --drop-last seed=1` → run.yaml, [loss.clip_high=0.3, drop_last=true, seed=1]."""
    files: list[Path] = []
    found, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if equals:
            found.append(f"{name}={value}")
        elif not word.startswith("--"):
            files.append(_settings_file(word, is_first=not (files or found)))
        elif not rest or rest[0].startswith("--"):
            found.append(f"{name}=true")
        else:
            found.append(f"{name}={rest.pop(0)}")
    if len(files) > 1:
        raise ConfigError(f"{str(files[1])!r}: {files[0]} is the file with the settings; others are --name value")
    return (files[0] if files else None), found


def _settings_file(word: str, *, is_first: bool) -> Path:
    if not is_first and not word.endswith((".yaml", ".yml")):
        raise ConfigError(f"{word!r}: settings are given as --name value, or in a file that ends in .yaml")
    return Path(word)


def show_plan(plan: Plan, console: Console) -> None:
    """What a run will do, in lines."""
    for line in plan.lines:
        console.print(Text(line), soft_wrap=True)
    if plan.first_prompt is not None:
        console.print(Text(f"first prompt: {plan.first_prompt!r}"), soft_wrap=True)


def _settings_lines() -> Iterator[str]:
    from scrl.config import RunConfig, setting_rows

    rows = (*setting_rows(RunConfig), *setting_rows(METHODS["scrl"].settings, "credit."))
    for name, default, description in rows:
        yield f"{name} = {default}    {description}"
