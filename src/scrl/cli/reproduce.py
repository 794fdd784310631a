"""`scrl reproduce`: the paper's tables, the runs and evaluations behind them, and our tables beside them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Annotated

import yaml
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from scrl.cli.progress import resumable, show_progress
from scrl.cli.settings import Words, split_words, switches_of
from scrl.cli.terminal import plain_console, say
from scrl.config import RunConfig, given_settings
from scrl.errors import ConfigError
from scrl.files.folders import folder_to_resume, new_run_folder
from scrl.files.whole_files import write_whole
from scrl.recipes import paper
from scrl.recipes.catalogue import EXPERIMENTS, OWN_TABLES, SEEDS, Experiment, Scale, find, mapping, table_at
from scrl.recipes.jobs import Control, Job, jobs, select, with_controls, with_voting
from scrl.recipes.paper import NOT_IN_PAPER, TABLES, UNSTATED_EVERYWHERE, PaperCell, PaperTable
from scrl.reporting.tables import Table, as_csv, as_latex, as_markdown, as_terminal, show_table
from scrl.reporting.text import counted

if TYPE_CHECKING:
    from scrl.recipes.reproduce import Choices

COPIED = {"COMPASS": "†", "RESTRAIN": "‡"}


def reproduce(
    *words: Words,
    run: Annotated[bool, Parameter(negative="")] = False,
    scale: Scale = "paper",
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    seeds: Annotated[tuple[int, ...], Parameter(name=("--seeds", "--seed"), consume_multiple=True)] = (),
    steps: int | None = None,
    controls: Annotated[tuple[Control, ...], Parameter(consume_multiple=True)] = (),
    voting: bool = True,
    data_dir: Path | None = None,
    as_yaml: Annotated[bool, Parameter(name="--yaml", negative="")] = False,
) -> None:
    """Show a table or figure of the paper with the runs behind it; with --run, make them and print ours beside it.

    Example: scrl reproduce
    Example: scrl reproduce table-ablation --scale demo --run --out ablation
    Example: scrl reproduce qwen2.5-3b/aime25/32-16/scrl --yaml > run.yaml

    Parameters
    ----------
    words
        Tables, figures or experiments; the beginning of several experiments' names means all of them, no name lists the
        tables.
        Also settings for every run, as --name value, e.g. --max-tokens 512, --compute.micro-batch 4.
    run
        Carry it out; without it, say what would be done.
    scale
        `paper`: the paper's models and benchmarks; `demo`: the embedded model on generated questions, for a CPU.
    out
        New folder for all runs, evaluations and tables; by default a new numbered one under runs/.
    resume
        Continue in --out: nothing is done twice, and other tables may share its runs.
    seeds
        One or more; values are averaged over them. By default the scale's own.
    steps
        Training steps, in place of the recipe's.
    controls
        For every run of SCRL, also train with oracle, random or inverted rewards.
    voting
        Also let the start model vote with as many tokens as SCRL's run sampled.
    data_dir
        Folder with NAME.jsonl of each benchmark; by default the environment variable SCRL_DATA, else the hub.
    as_yaml
        Print the settings of one experiment as a file for scrl train, and stop.
    """
    from scrl.recipes.reproduce import Choices, check

    names, given = split_words(words, switches_of(RunConfig))
    console = plain_console()
    if not names and not (run or as_yaml or given) and scale == "paper":
        show_all(console)
        return
    if not names or (as_yaml and len(names) > 1):
        raise ConfigError("scrl reproduce NAME…: name a table or an experiment; with --yaml, one experiment")
    if (out or resume) and not run:
        raise ConfigError("--out: nothing is written without --run")
    folder = folder_to_resume(out, "reproduction") if resume else None
    choices = Choices(
        scale=scale,
        seeds=tuple(dict.fromkeys(seeds)) or (SEEDS[scale],),
        steps=steps,
        overrides=given_settings(given),
        data_dir=None if data_dir is None else str(data_dir),
    )
    scale_lines = list(mapping(scale))
    if as_yaml:
        for line in _settings_lines(find(names[0]), choices):
            console.print(Text(line), soft_wrap=True)
        return
    tables = [with_controls(with_voting(table) if voting else table, controls) for table in select(names)]
    all_jobs = jobs(tables, scale)
    check(all_jobs, choices)
    for name in () if run else names:
        if name in TABLES:
            show(TABLES[name], console)
    say(console, *scale_lines, *_plan(all_jobs, choices))
    if not run:
        say(console, "", "--run carries it out")
        return
    _carry_out(tables, all_jobs, choices, folder or new_run_folder(out), console)


def _carry_out(
    tables: Sequence[PaperTable], all_jobs: Sequence[Job], choices: Choices, folder: Path, console: Console
) -> None:
    """Do what is not done yet, then write and print the tables."""
    from scrl.recipes.reproduce import carry_out

    console.print(f"writing to {folder}\n", soft_wrap=True)
    started = time.perf_counter()
    with resumable(folder, f"the same command and --resume --out {folder}", console):
        carry_out(all_jobs, choices, folder, show_progress)
    for table in tables:
        _print_table(table_at(table, choices.scale), choices, folder, console)
    console.print(f"{time.perf_counter() - started:.0f} s; tables, runs and evaluations: {folder}", soft_wrap=True)


def _settings_lines(experiment: Experiment, choices: Choices) -> Iterator[str]:
    """The settings of a run as YAML, and which of them the paper does not state."""
    from scrl.recipes.reproduce import settings_of

    config = settings_of(experiment, choices, choices.seeds[0])
    yield f"# {experiment.name}"
    if choices.scale == "paper":
        unstated = (*experiment.not_in_paper, *UNSTATED_EVERYWHERE)
        yield from (f"# not in the paper: {key}: {NOT_IN_PAPER[key]}" for key in unstated)
    else:
        yield from (f"# {line}" for line in mapping(choices.scale))
    yield yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True).rstrip()


def _plan(all_jobs: Sequence[Job], choices: Choices) -> Iterator[str]:
    runs = [job for job in all_jobs if job.is_run]
    measured = sum(len(job.measured_on) + len(job.rollouts_on) + job.has_voting for job in all_jobs)
    seeds = ", ".join(map(str, choices.seeds))
    yield f"{counted(len(runs), 'training run')} and {counted(measured, 'evaluation')}, for seed {seeds}:"
    for job in all_jobs:
        where = ", ".join(dict.fromkeys((*job.measured_on, *job.rollouts_on))) or "nothing but its own steps"
        voting = "; the start model votes with as many tokens" if job.has_voting else ""
        yield f"  {'train' if job.is_run else 'start'} {job.name}, measured on {where}{voting}"


def _print_table(table: PaperTable, choices: Choices, folder: Path, console: Console) -> None:
    from scrl.recipes.outcome_tables import caption_of, number_table, outcome_table, values_of
    from scrl.reporting.report import write_report

    values = values_of(table, choices, folder)
    outcome = outcome_table(table, values, caption_of(table, values, choices, folder))
    stem = table.name.replace("/", "-")
    write_whole(folder / f"{stem}.md", as_markdown(outcome))
    write_whole(folder / f"{stem}.tex", as_latex(outcome))
    write_whole(folder / f"{stem}.csv", as_csv(number_table(table, values)))
    show_table(outcome, console)
    console.print()
    if table.is_figure:
        runs = [folder / f"seed-{choices.seeds[0]}" / "runs" / name for name in table.experiments]
        console.print(f"its curves: {write_report(runs, folder / f'{stem}.html')}", soft_wrap=True)


# The paper's numbers, and the runs that measure them


def show_all(console: Console) -> None:
    """The name of every table and figure, what it shows, and what we had to choose for all of them."""
    say(console, *(f"{table.name:22}{table.title}" for table in (TABLES | OWN_TABLES).values()), "")
    say(console, *(f"not in the paper, for all: {key}: {NOT_IN_PAPER[key]}" for key in UNSTATED_EVERYWHERE), "")
    say(console, f"{len(EXPERIMENTS)} experiments are behind them; scrl reproduce NAME shows one, and what --run does")


def show(table: PaperTable, console: Console) -> None:
    """A table as the paper prints it, what measures its rows, and what a reader should know."""
    say(console, f"{table.name}: {table.title} ({table.label})", table.caption)
    wrapper = TextWrapper(console.width, break_long_words=False, break_on_hyphens=False)
    wrapper.initial_indent, wrapper.subsequent_indent = "  ", "    "
    absent = "curve" if table.is_figure else "in words"
    rows, sources = [], ["experiments:"]
    for section in dict.fromkeys(section for section, _ in table.rows):
        rows.append((section, *[""] * len(table.columns)))
        sources.append(f" {section}")
        for row in dict.fromkeys(cell.row for cell in table.cells if cell.section == section):
            cells = [cell for cell in table.cells if (cell.section, cell.row) == (section, row)]
            values = (
                " ".join(absent if cell.paper is None else number_text(cell) for cell in cells if cell.column == column)
                for column in table.columns
            )
            rows.append((f"  {row}", *values))
            names = list(dict.fromkeys(cell.experiment for cell in cells if cell.experiment is not None))
            is_computed = all(cell.derived and cell.copied_from is None for cell in cells)
            source = folded(names) if names else "computed" if is_computed else "none: copied"
            sources += wrapper.wrap(f"{row}: {source}")
    headings = (re.sub(r"[ _](?=\w\w)", "\n", column) for column in table.columns)  # one word per line
    console.print(as_terminal(Table(("", *headings), tuple(rows)), wraps=True))
    for text in sources:
        console.print(Text(text), soft_wrap=True)  # a long name stays on one line, to be copied
    say(console, *notes(table), "")


def number_text(cell: PaperCell) -> str:
    form = "+.1f" if cell.metric == paper.GAIN else ".3f" if cell.metric.startswith("entropy") else ".1f"
    return f"{cell.paper:{form}}{'*' if cell.is_peak else ''}{COPIED.get(cell.copied_from or '', '')}"


def folded(names: Sequence[str]) -> str:
    """`a/x/b`, `a/y/b` → `a/{x,y}/b`: names that differ in one part, as a shell spells them."""
    parts = [name.split("/") for name in names]
    choices = [list(dict.fromkeys(column)) for column in zip(*parts, strict=True)]
    return "/".join(choice[0] if len(choice) == 1 else f"{{{','.join(choice)}}}" for choice in choices)


def notes(table: PaperTable) -> Iterator[str]:
    """What a reader of the table should know."""
    if any(cell.is_peak for cell in table.cells):
        yield "* the best value before the run degraded, not the last"
    for work in dict.fromkeys(cell.copied_from for cell in table.cells if cell.copied_from):
        yield f"{COPIED[work]} the paper copied it from {work}; where an experiment is named, it is a run of our own"
    yield from (f"{name}: {paper.SERIES[name]}" for name in table.series)
    yield from (f"not in the paper: {key}: {NOT_IN_PAPER[key]}" for key in table.not_in_paper)
    experiments = [EXPERIMENTS[name] for name in table.experiments]
    for key in dict.fromkeys(key for experiment in experiments for key in experiment.not_in_paper):
        number = sum(key in experiment.not_in_paper for experiment in experiments)
        yield f"not in the paper: {key}: {NOT_IN_PAPER[key]} ({number} of {len(experiments)} experiments)"
    for each in paper.KNOWN_INCONSISTENCIES:
        if each.table == table.name:
            where = ", ".join(each.place[:3])
            yield f"inconsistent: {where}: {each.printed:g} is printed, {each.implied:g} implied: {each.reason}"
