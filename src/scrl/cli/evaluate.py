"""`scrl evaluate`: pass@1, pass@k and maj@k of a model on benchmarks or your own questions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from scrl.cli.progress import PlainProgress, resumable
from scrl.cli.settings import Words, settings_in
from scrl.cli.terminal import plain_console, say
from scrl.errors import ConfigError
from scrl.evaluation.settings import NAMES, MeasurementSettings, build_settings, read_settings
from scrl.files.folders import folder_to_resume, new_run_folder
from scrl.reporting.evaluations import metrics_of
from scrl.reporting.result_rows import score
from scrl.reporting.tables import Cell, Share, Table, as_terminal, is_too_wide
from scrl.settings import changed_settings, merged

REPEATABLE = {"k", "ks", "questions", "benchmarks"}
"""Settings that may be given several times."""
HARDLY_ANSWERED = 0.1
"""Below this share of completions with an answer, the numbers say more about prompt and reader than the model."""


def evaluate(
    *words: Words,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    show_prompt: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a model on benchmarks: pass@1, pass@k, maj@k with 95 % intervals over questions.

    Example: scrl evaluate --model Qwen/Qwen2.5-3B --questions math500 --data-dir benchmarks
    Example: scrl evaluate Qwen/Qwen2.5-3B aime24 amc math500 --completions 4

    Parameters
    ----------
    words
        The model and the benchmarks, also without option names: aime24 aime25 amc math500 (math500:4-5 for some levels)
        minerva gpqa gpqa_diamond gsm8k, arithmetic:LEVEL, or a file of questions with gold answers.
    out
        New folder for the results; by default a new numbered one under runs/.
    resume
        Resume an interrupted evaluation in --out.
    show_prompt
        Print the exact prompt of the first question of each benchmark, and stop.
    """
    alone, given = given_settings(words)
    if alone and "model" not in given:
        given["model"] = alone.pop(0)
    if alone and "benchmarks" in given:
        raise ConfigError(f"{alone[0]!r}: the questions are given with --questions already; repeat that for more")
    if alone:
        given["benchmarks"] = tuple(alone)
    begun = folder_to_resume(out, "evaluation") if resume else None
    if begun is not None:
        settings = read_settings(begun)
        before = settings.model_dump(mode="json")
        changed = changed_settings(before, measurement_settings(given, before).model_dump(mode="json"))
        if changes := "; ".join(words for _, words in changed):
            reason = "an evaluation resumes with the settings it was started with"
            raise ConfigError(f"--resume: {reason}; {changes}. Leave that out, or measure anew")
    else:
        settings = measurement_settings(given)
    if show_prompt:
        _show_prompts(settings, plain_console())
        return
    measure_and_show(settings, begun or new_run_folder(out), plain_console())


def given_settings(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words without an option name, and the settings under their long names."""
    return settings_in(words, NAMES, repeatable=REPEATABLE)


def measurement_settings(given: Mapping[str, Any], base: Mapping[str, Any] | None = None) -> MeasurementSettings:
    """The settings of an evaluation, on top of `base` or of the defaults."""
    if base is None and not {"model", "benchmarks"} <= given.keys():
        raise ConfigError("scrl evaluate: name a model and at least one benchmark or file (--model, --questions)")
    return build_settings(merged(base or {}, given))


def measure_and_show(settings: MeasurementSettings, folder: Path, console: Console) -> None:
    """Run an evaluation in a folder, and print its tables."""
    from scrl.evaluation.benchmark_run import measure

    sampling = settings.sampling
    say(
        console,
        f"{settings.model} on {', '.join(settings.benchmarks)}: {settings.samples} completions per question, at most "
        f"{sampling.max_tokens} tokens, temperature {sampling.temperature}, top-p {sampling.top_p}, seed "
        f"{settings.seed} → {folder}",
    )
    start = time.perf_counter()
    with resumable(folder, f"scrl evaluate --resume --out {folder}", console):
        records = measure(settings, folder, PlainProgress(console))
    for table in results_tables(records, console):
        console.print(table)
    seconds = time.perf_counter() - start
    tokens = sum(record["tokens"] for record in records)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.name != "evaluation.yaml"))
    console.print(f"{tokens:,} tokens in {seconds:.0f} s. In {folder}: {names}", soft_wrap=True)
    say(console, *hints(records))


def results_tables(records: list[dict[str, Any]], console: Console) -> Iterator[RichTable]:
    """At most three benchmarks side by side, and no more than the console has columns for."""
    rest = records
    while rest:
        tables = [(number, as_terminal(results_table(rest[:number]))) for number in (3, 2, 1)]
        number, table = next((each for each in tables if not is_too_wide(each[1], console)), tables[-1])
        yield table
        rest = rest[number:]


def results_table(records: list[dict[str, Any]]) -> Table:
    """Some benchmarks side by side, in %."""

    def shares(name: str) -> list[Cell]:
        return [None if record.get(name) is None else Share(record[name]) for record in records]

    def nats(name: str) -> list[Cell]:
        return [None if record.get(name) is None else f"{record[name]:.3f}" for record in records]

    metrics = metrics_of(records)
    rows: dict[str, list[Cell]] = {
        "questions × samples": [f"{record['questions']} × {record['samples']}" for record in records],
        "questions with gold": [record.get("gold_questions", 0) for record in records],
        **{name: [score(name, [record]) if name in record else None for record in records] for name in metrics},
        "answered": shares("answered"),
        "agreement": shares("agreement"),
        "right, if answered": shares("accuracy_given_answer"),
        "truncated": shares("truncated"),
        "tokens per completion": [f"{record['length_mean']:.0f}" for record in records],
        "entropy, right": nats("entropy_correct"),
        "entropy, wrong": nats("entropy_incorrect"),
        "entropy, all": nats("entropy_mean"),
    }
    if all(record["questions"] == record.get("gold_questions") for record in records):
        del rows["questions with gold"]
    title = "in %, with 95 % intervals over questions" if metrics else "in %"
    header = ("", *(record["benchmark"] for record in records))
    return Table(header, tuple((name, *cells) for name, cells in rows.items()), title)


def hints(records: list[dict[str, Any]]) -> Iterator[str]:
    """What to try when hardly any completion has an answer."""
    few = [record for record in records if record["answered"] < HARDLY_ANSWERED]
    if few:
        shares = ", ".join(f"{record['benchmark']} ({record['truncated']:.0%} cut at --max-tokens)" for record in few)
        yield (
            f"hardly any answer was found in {shares}: try another --reader, another --instruction (--show-prompt "
            "shows what is asked) or a larger --max-tokens; see docs/your-questions.md, 'Signs of trouble'"
        )


def _show_prompts(settings: MeasurementSettings, console: Console) -> None:
    from scrl.data.prompts import filter_overlong, instruction_notes, prompt_text, prompt_tokens, style_of
    from scrl.evaluation.benchmark_run import load_benchmarks
    from scrl.policy.model import load_tokenizer

    tokenizer = load_tokenizer(settings.model, trust_remote_code=settings.trust_remote_code)
    for benchmark in load_benchmarks(settings, PlainProgress(console)):
        kept, notes = filter_overlong(benchmark.questions, tokenizer, benchmark.prompt)
        lengths = [len(prompt_tokens(question, tokenizer, benchmark.prompt)) for question in kept]
        style = style_of(tokenizer, benchmark.prompt)
        sizes = f"style {style}, {min(lengths)} to {max(lengths)} tokens; question {kept[0].id}:"
        notes = [*instruction_notes(benchmark.prompt, tokenizer), *notes, sizes]
        say(console, *(f"{benchmark.name}: {note}" for note in notes))
        console.print(Text(prompt_text(kept[0], tokenizer, benchmark.prompt)), soft_wrap=True, end="")
        console.print("⏎ (end of the prompt)")
