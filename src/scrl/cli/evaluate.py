"""`scrl evaluate`: pass@1, pass@k and maj@k of a model on benchmarks or your own questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scrl.cli.cleanup import resumable
from scrl.cli.progress import result_line
from scrl.cli.words import Words, settings_in
from scrl.data.folders import new_run_folder
from scrl.errors import ConfigError
from scrl.metrics import PASS_OR_MAJ
from scrl.settings import merged

if TYPE_CHECKING:
    from scrl.evaluation.settings import MeasurementSettings


REPEATABLE = {"k", "ks", "questions", "benchmarks"}
"""Settings that may be given several times."""


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
        The model and the benchmarks may also stand alone: aime24 aime25 amc math500 (math500:4-5 for some levels)
        minerva gpqa gpqa_diamond gsm8k, arithmetic:LEVEL, or a file of questions with gold answers.
    out
        New folder for the results; by default a new numbered one under runs/.
    resume
        Go on with an interrupted evaluation in --out.
    show_prompt
        Print the exact prompt of the first question of each benchmark, and stop.
    """
    alone, given = given_settings(words)
    overrides = _with_places(alone, given)
    console = Console(highlight=False, markup=False)
    if resume and out is None:
        raise ConfigError("--resume: say which evaluation, with --out FOLDER")
    settings = _resume_settings(overrides, out) if resume and out is not None else _settings(overrides)
    if show_prompt:
        _show_prompts(settings, console)
        return
    _measure(settings, out if resume and out is not None else new_run_folder(out), console)


def measure_model(model: str, questions: str, given: Mapping[str, Any], out: Path | None, console: Console) -> Path:
    """A model's completions of one set of questions; the folder they are in."""
    settings = _settings({**given, "model": model, "benchmarks": (questions,)})
    folder = new_run_folder(out)
    _measure(settings, folder, console)
    return folder


def given_settings(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The words that stand alone, and the settings, under their long names."""
    from scrl.evaluation.settings import NAMES

    words = ["--prompt.overlong=drop" if word == "--drop-overlong" else word for word in words]  # as it was called
    return settings_in(words, NAMES, repeatable=REPEATABLE)


def _with_places(alone: Sequence[str], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the model and the benchmarks that stand alone."""
    names, places = list(alone), dict(given)
    if names and "model" not in places:
        places["model"] = names.pop(0)
    if names and "benchmarks" in places:
        raise ConfigError(f"{names[0]!r}: the questions are given with --questions already; repeat that for more")
    return places | ({"benchmarks": tuple(names)} if names else {})


def _settings(overrides: dict[str, Any], base: dict[str, Any] | None = None) -> MeasurementSettings:
    from scrl.evaluation.settings import MeasurementSettings, build_settings

    if base is None and not {"model", "benchmarks"} <= overrides.keys():
        raise ConfigError("scrl evaluate: name a model and at least one benchmark or file (--model, --questions)")
    defaults = {"sampling": MeasurementSettings.model_fields["sampling"].default.model_dump()}
    return build_settings(merged(base or defaults, overrides))


def _resume_settings(overrides: dict[str, Any], out: Path) -> MeasurementSettings:
    from scrl.evaluation.settings import read_settings

    settings = read_settings(out)
    if _settings(overrides, settings.model_dump(mode="json")) != settings:
        raise ConfigError("--resume: an evaluation goes on with the settings it was started with; these are others")
    return settings


def _measure(settings: MeasurementSettings, folder: Path, console: Console) -> None:
    from scrl.evaluation.benchmark_run import measure

    sampling = settings.sampling
    console.print(
        f"{settings.model} on {', '.join(settings.benchmarks)}: {settings.samples} completions a question, at most "
        f"{sampling.max_tokens} tokens, temperature {sampling.temperature}, top-p {sampling.top_p}, seed "
        f"{settings.seed} → {folder}",
        soft_wrap=not console.is_terminal,
    )
    start = time.perf_counter()
    with resumable(folder, f"scrl evaluate --resume --out {folder}", console):
        records = measure(settings, folder, _Lines(console))
    for table in results_tables(records, console):
        console.print(table)
    seconds = time.perf_counter() - start
    tokens = sum(record["tokens"] for record in records)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.name != "evaluation.yaml"))
    console.print(f"{tokens:,} tokens in {seconds:.0f} s. In {folder}: {names}", soft_wrap=True)
    for hint in hints(records):
        console.print(Text(hint), soft_wrap=not console.is_terminal)


class _Lines:
    """Progress as plain lines, at most one in ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=not self._console.is_terminal)

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        if time.monotonic() - self._last >= 10 or questions == total:
            self._last = time.monotonic()
            self.note(f"{benchmark}: {questions} of {total} questions")

    def result(self, record: dict[str, Any]) -> None:
        self.note(result_line(record))


def results_tables(records: list[dict[str, Any]], console: Console) -> Iterator[Table]:
    """At most three benchmarks side by side, and no more than the console has columns for."""
    rest = records
    while rest:
        number = next((n for n in (3, 2) if _fits(results_table(rest[:n]), console)), 1)
        yield results_table(rest[:number])
        rest = rest[number:]


def _fits(table: Table, console: Console) -> bool:
    return console.measure(table, options=console.options.update_width(10_000)).maximum <= console.width


def results_table(records: list[dict[str, Any]]) -> Table:
    """Some benchmarks side by side, in %."""

    def row(name: str, show: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(name, *map(show, records))

    metrics = dict.fromkeys(name for record in records for name in record if PASS_OR_MAJ.fullmatch(name))
    title = "in %, with 95 % intervals over questions" if metrics else "in %"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in ("", *(record["benchmark"] for record in records)):
        table.add_column(column, no_wrap=True)
    row("questions × samples", lambda record: f"{record['questions']} × {record['samples']}")
    if any(record["questions"] != record.get("gold_questions") for record in records):
        row("questions with gold", lambda record: str(record.get("gold_questions", 0)))
    for metric in metrics:
        row(metric, partial(_with_interval, metric=metric))
    row("answered", lambda record: _percent(record["answered"]))
    row("agreement", lambda record: _percent(record["agreement"]))
    row("right, if answered", lambda record: _percent(record.get("accuracy_given_answer")))
    row("truncated", lambda record: _percent(record["truncated"]))
    row("tokens a completion", lambda record: f"{record['length_mean']:.0f}")
    row("entropy, right", partial(_nats, key="entropy_correct"))
    row("entropy, wrong", partial(_nats, key="entropy_incorrect"))
    row("entropy, all", partial(_nats, key="entropy_mean"))
    return table


def _nats(record: dict[str, Any], key: str) -> str:
    return "–" if record.get(key) is None else f"{record[key]:.3f}"


def _with_interval(record: dict[str, Any], metric: str) -> str:
    low, value, high = (_percent(record.get(key)) for key in (f"{metric}_low", metric, f"{metric}_high"))
    return f"{value} [{low}, {high}]" if metric in record else "–"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


FEW_ANSWERED = 0.1
"""A smaller share of completions with an answer says more about prompt and reader than about the model."""


def hints(records: list[dict[str, Any]]) -> Iterator[str]:
    """What to try if hardly anything was answered."""
    few = [record for record in records if record["answered"] < FEW_ANSWERED]
    if few:
        shares = ", ".join(f"{record['benchmark']} ({record['truncated']:.0%} cut at --max-tokens)" for record in few)
        yield (
            f"hardly any answer was found in {shares}: try another --reader, another --instruction (--show-prompt "
            "shows what is asked) or a larger --max-tokens; see docs/your-questions.md, 'Signs of trouble'"
        )


def _show_prompts(settings: MeasurementSettings, console: Console) -> None:
    from scrl.data.prompts import filter_overlong, prompt_text, prompt_tokens, style_of
    from scrl.evaluation.benchmark_run import load_benchmarks
    from scrl.policy.model import load_tokenizer

    tokenizer = load_tokenizer(settings.model, trust_remote_code=settings.trust_remote_code)
    lines = _Lines(console)
    for benchmark in load_benchmarks(settings, lines):
        kept, notes = filter_overlong(benchmark.questions, tokenizer, benchmark.prompt)
        for note in notes:
            lines.note(f"{benchmark.name}: {note}")
        lengths = [len(prompt_tokens(question, tokenizer, benchmark.prompt)) for question in kept]
        style = style_of(tokenizer, benchmark.prompt)
        lines.note(f"{benchmark.name}: style {style}, {min(lengths)} to {max(lengths)} tokens; question {kept[0].id}:")
        console.print(Text(prompt_text(kept[0], tokenizer, benchmark.prompt)), soft_wrap=True, end="")
        console.print("⏎ (end of the prompt)")
