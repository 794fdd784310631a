"""`scrl evaluate`: pass@1, pass@k and maj@k of a model on benchmarks or your own questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
from scrl.data.folders import new_run_folder
from scrl.errors import ConfigError
from scrl.metrics import PASS_OR_MAJ

if TYPE_CHECKING:
    from scrl.evaluation.benchmark_run import MeasurementSettings


@dataclass(frozen=True, kw_only=True)
class Options:
    """Single settings; the defaults are the paper's, or the benchmark's."""

    samples: Annotated[int | None, Parameter(help="Completions per question. [16]")] = None
    temperature: Annotated[float | None, Parameter(help="0 takes the likeliest token. [0.6]")] = None
    top_p: Annotated[float | None, Parameter(help="Draw from the likeliest tokens of this mass. [0.95]")] = None
    max_tokens: Annotated[int | None, Parameter(help="Tokens per completion at most. [3072]")] = None
    k: Annotated[
        tuple[int, ...], Parameter(help="The k of pass@k and maj@k; again for another. [the number of samples]")
    ] = ()
    seed: Annotated[int | None, Parameter(help="Seed of the sampling. [0]")] = None
    limit: Annotated[int | None, Parameter(help="Only the first questions of each benchmark, this many.")] = None
    data_dir: Annotated[
        Path | None, Parameter(help="Folder with NAME.jsonl; else the variable SCRL_DATA, else the hub.")
    ] = None
    question_column: Annotated[str | None, Parameter(help="Of a file: the column with the question.")] = None
    gold_column: Annotated[str | None, Parameter(help="Of a file: the column with the right answer.")] = None
    id_column: Annotated[str | None, Parameter(help="Of a file: the column with the question's id.")] = None
    reader: Annotated[
        str | None, Parameter(help="How answers are read: boxed, last-box, number, last-number, choice, regex:…")
    ] = None
    significant_digits: Annotated[int | None, Parameter(help="Numbers are rounded to this many digits.")] = None
    prompt_style: Annotated[
        str | None, Parameter(help="auto, qwen, qwen-math, llama, qwen3, qwen3-thinking, chat or plain. [auto]")
    ] = None
    instruction: Annotated[str | None, Parameter(help="In place of the style's text after the question.")] = None
    system: Annotated[str | None, Parameter(help="In place of the style's system message.")] = None
    max_prompt_tokens: Annotated[int | None, Parameter(help="Longer prompts are reported and refused. [4096]")] = None
    drop_overlong: Annotated[bool, Parameter(negative="", help="Leave longer prompts out instead.")] = False
    device: Annotated[str | None, Parameter(help="auto, cpu, cuda, … [auto]")] = None
    dtype: Annotated[str | None, Parameter(help="auto, float32 or bfloat16. [auto]")] = None
    sampler_rows: Annotated[int | None, Parameter(help="Completions written side by side. [512]")] = None
    sampler: Annotated[str | None, Parameter(help="local, or vllm on a GPU. [local]")] = None
    vllm_memory: Annotated[float | None, Parameter(help="Its cache, as a share of the GPU's memory. [0.4]")] = None
    trust_remote_code: Annotated[bool, Parameter(negative="", help="Run code that comes with a hub model.")] = False

    def as_settings(self) -> dict[str, Any]:
        """Those that were given, by the names of `MeasurementSettings`."""
        return _without_none(
            samples=self.samples,
            sampling=_without_none(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens),
            ks=self.k or None,
            seed=self.seed,
            limit=self.limit,
            data_dir=None if self.data_dir is None else str(self.data_dir),
            question_column=self.question_column,
            gold_column=self.gold_column,
            id_column=self.id_column,
            reader=self.reader,
            significant_digits=self.significant_digits,
            prompt=_without_none(
                style=self.prompt_style,
                instruction=self.instruction,
                system=self.system,
                max_tokens=self.max_prompt_tokens,
                overlong="drop" if self.drop_overlong else None,
            ),
            compute=_without_none(
                device=self.device,
                dtype=self.dtype,
                sampler_rows=self.sampler_rows,
                sampler=self.sampler,
                vllm_memory=self.vllm_memory,
            ),
            trust_remote_code=self.trust_remote_code or None,
        )


def evaluate(
    model: str | None = None,
    /,
    *benchmarks: str,
    options: Annotated[Options, Parameter(name="*")] = Options(),  # noqa: B008 - frozen
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    show_prompt: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Measure a model on benchmarks: pass@1, pass@k, maj@k with 95 % intervals over questions.

    Example: scrl evaluate Qwen/Qwen2.5-3B aime24 amc math500 --data-dir benchmarks

    Parameters
    ----------
    model
        A model folder (also RUN/checkpoints/last), a hub id, or `embedded`.
    benchmarks
        aime24 aime25 amc math500 (math500:4-5 for some levels) minerva gpqa gpqa_diamond gsm8k, arithmetic:LEVEL, or a
        file of questions with gold answers.
    out
        New folder for the results; by default a new numbered one under runs/.
    resume
        Go on with an interrupted evaluation in --out.
    show_prompt
        Print the exact prompt of the first question of each benchmark, and stop.
    """
    overrides = options.as_settings() | _without_none(model=model, benchmarks=benchmarks or None)
    console = Console(highlight=False, markup=False)
    if resume and out is None:
        raise ConfigError("--resume: say which evaluation, with --out FOLDER")
    settings = _resume_settings(overrides, out) if resume and out is not None else _settings(overrides)
    if show_prompt:
        _show_prompts(settings, console)
        return
    _measure(settings, out if resume and out is not None else new_run_folder(out), console)


def measure_model(model: str, questions: str, options: Options, out: Path | None, console: Console) -> Path:
    """A model's completions of one set of questions; the folder they are in."""
    folder = new_run_folder(out)
    _measure(_settings(options.as_settings() | {"model": model, "benchmarks": (questions,)}), folder, console)
    return folder


def _without_none(**values: Any) -> dict[str, Any]:
    """The options that were used."""
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _settings(overrides: dict[str, Any], base: dict[str, Any] | None = None) -> MeasurementSettings:
    from scrl.config import merged
    from scrl.evaluation.benchmark_run import MeasurementSettings, build_settings

    if base is None and not {"model", "benchmarks"} <= overrides.keys():
        raise ConfigError("scrl evaluate MODEL BENCHMARK…: name a model and at least one benchmark or file")
    defaults = {"sampling": MeasurementSettings.model_fields["sampling"].default.model_dump()}
    return build_settings(merged(base or defaults, overrides))


def _resume_settings(overrides: dict[str, Any], out: Path) -> MeasurementSettings:
    from scrl.evaluation.benchmark_run import read_settings

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
        soft_wrap=True,
    )
    start = time.perf_counter()
    with resumable(folder, f"scrl evaluate --resume --out {folder}", console):
        records = measure(settings, folder, _Lines(console))
    for first in range(0, len(records), 3):
        console.print(results_table(records[first : first + 3]))
    seconds = time.perf_counter() - start
    tokens = sum(record["tokens"] for record in records)
    names = ", ".join(sorted(path.name for path in folder.iterdir() if path.name != "evaluation.yaml"))
    console.print(f"{tokens:,} tokens in {seconds:.0f} s. In {folder}: {names}", soft_wrap=True)
    for hint in hints(records):
        console.print(Text(hint), soft_wrap=True)


class _Lines:
    """Progress as plain lines, at most one in ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console, self._last = console, time.monotonic()

    def note(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        if time.monotonic() - self._last >= 10 or questions == total:
            self._last = time.monotonic()
            self.note(f"{benchmark}: {questions} of {total} questions")

    def result(self, record: dict[str, Any]) -> None:
        self.note(result_line(record))


def results_table(records: list[dict[str, Any]]) -> Table:
    """Some benchmarks side by side, in %."""

    def row(name: str, show: Callable[[dict[str, Any]], str]) -> None:
        table.add_row(name, *map(show, records))

    metrics = dict.fromkeys(name for record in records for name in record if PASS_OR_MAJ.fullmatch(name))
    title = "in %, with 95 % intervals over questions" if metrics else "in %"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in ("", *(record["benchmark"] for record in records)):
        table.add_column(column, no_wrap=bool(column))
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
