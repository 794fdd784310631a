"""`scrl evaluate`: a model on some benchmarks, every completion kept, resumable.

    OUT/evaluation.yaml              the settings
    OUT/rollouts/aime24.jsonl        every completion, as `scrl label` reads it
    OUT/evaluations.jsonl            a line a benchmark
    OUT/results.json                 the same in the shape of lm-evaluation-harness

Completions are drawn and written some questions at a time, and every figure is computed from what was written: an
evaluation that was interrupted and gone on with ends with the same files as one that was not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
import yaml
from pydantic import Field, ValidationError, model_validator

from scrl.answers.judge import Judge, MathVerifyJudge
from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.prompts import PromptSettings, checked_prompts, no_room, prompt_tokens
from scrl.data.rollouts import rollout_fields
from scrl.data.sources import benchmark_of, is_generated, load_source, reader_of
from scrl.data.tables import SUFFIXES
from scrl.data.whole_files import write_whole
from scrl.errors import ConfigError, DataError, InputError
from scrl.evaluation.evaluate import Answered, Conditions, evaluate
from scrl.evaluation.gold_check import BOX_READERS, check_gold, gold_problem
from scrl.evaluation.lm_eval import results_json
from scrl.policy.model import LanguageModel, load_model
from scrl.policy.settings import ComputeSettings
from scrl.records import Completion, Group, Question, Sample
from scrl.sampling.draw import SamplingSettings
from scrl.sampling.sampler import Prompt, Sampler, check_sampler, open_sampler
from scrl.settings import Settings


class MeasurementSettings(Settings):
    """What is measured, and how; the defaults are the paper's."""

    model: str
    benchmarks: tuple[str, ...] = Field(min_length=1)
    samples: int = Field(16, ge=1)
    sampling: SamplingSettings = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=3072)
    ks: tuple[int, ...] = ()
    seed: int = Field(0, ge=0)
    limit: int | None = Field(None, ge=1)
    data_dir: str | None = None
    question_column: str | None = None
    gold_column: str | None = None
    id_column: str | None = None
    reader: str | None = None
    significant_digits: int | None = Field(None, ge=1, le=15)
    prompt: PromptSettings = PromptSettings()
    compute: ComputeSettings = ComputeSettings()
    trust_remote_code: bool = False

    @model_validator(mode="after")
    def _check_ks(self) -> MeasurementSettings:
        for k in self.ks:
            if not 1 <= k <= self.samples:
                raise ConfigError(
                    f"k: must be between 1 and the number of samples a question, {self.samples}; got {k}. Choose "
                    "another, or draw more (samples)."
                )
        names = [file_name(benchmark) for benchmark in self.benchmarks]
        twice = [each for each, name in zip(self.benchmarks, names, strict=True) if names.count(name) > 1]
        if twice:
            raise ConfigError(f"benchmarks: {', '.join(twice)}: give each once, and no two files of the same name")
        return self


def build_settings(values: Mapping[str, Any]) -> MeasurementSettings:
    """Settings from plain values; what is wrong is said with the setting's name and the reason."""
    try:
        return MeasurementSettings.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        own = problem.get("ctx", {}).get("error")
        if isinstance(own, ConfigError):
            raise own from error
        name = ".".join(str(part) for part in problem["loc"])
        raise ConfigError(f"{name}: {problem['msg']}; got {problem['input']!r}") from error


class Listener(Protocol):
    """Hears how far an evaluation has come."""

    def note(self, text: str) -> None:
        """Something a user should know."""

    def drawn(self, benchmark: str, questions: int, total: int) -> None:
        """So many questions of a benchmark have their completions."""

    def measured(self, record: dict[str, Any]) -> None:
        """A benchmark is done."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One set of questions, ready to be asked."""

    name: str
    questions: tuple[Question, ...]
    rule: CreditRule
    prompt: PromptSettings

    @property
    def file(self) -> str:
        """Where its completions are kept."""
        return f"rollouts/{file_name(self.name)}.jsonl"


def file_name(benchmark: str) -> str:
    """A benchmark's name, or a file's, as part of a path."""
    name = Path(benchmark).stem if Path(benchmark).suffix.lower() in SUFFIXES else benchmark
    return name.replace(":", "-").replace("/", "-")


def load_benchmarks(settings: MeasurementSettings, gold_judge: Judge, listener: Listener) -> list[Benchmark]:
    """All questions, their gold answers checked, before a model is loaded."""
    return [_load_benchmark(name, settings, gold_judge, listener) for name in settings.benchmarks]


def _load_benchmark(name: str, settings: MeasurementSettings, gold_judge: Judge, listener: Listener) -> Benchmark:
    known = benchmark_of(name)
    data_dir = Path(settings.data_dir) if settings.data_dir is not None else None
    columns = {column: getattr(settings, column) for column in ("question_column", "gold_column", "id_column")}
    loaded = load_source(name, seed=settings.seed, limit=settings.limit, data_dir=data_dir, **columns)
    for note in loaded.notes:
        listener.note(f"{name}: {note}")
    reader = settings.reader if settings.reader is not None else reader_of(name)
    rule = credit_rule("ttrl", reader=reader, significant_digits=settings.significant_digits)
    if known is not None:
        check_gold(loaded.questions, reader, gold_judge)
    elif reader in BOX_READERS and (problem := gold_problem(loaded.questions, reader, gold_judge)) is not None:
        listener.note(f"{name}: gold answers: {problem}")
    has_none = is_generated(name) and settings.prompt.instruction is None  # generated questions speak for themselves
    prompt = settings.prompt.model_copy(update={"instruction": ""}) if has_none else settings.prompt
    return Benchmark(name, loaded.questions, rule, prompt)


def measure(settings: MeasurementSettings, out: Path, listener: Listener) -> list[dict[str, Any]]:
    """Draw, keep and grade; what an earlier call has left in `out` is gone on with. One record a benchmark."""
    if settings.compute.threads is not None:
        torch.set_num_threads(settings.compute.threads)
    check_sampler(settings.compute)
    gold_judge = MathVerifyJudge()  # for gold alone: what it remembers must not reach the votes
    benchmarks = load_benchmarks(settings, gold_judge, listener)
    language_model = load_model(settings.model, settings.compute, trust_remote_code=settings.trust_remote_code)
    ready = [_ask(benchmark, language_model, settings, listener) for benchmark in benchmarks]
    sampler = open_sampler(
        language_model,
        settings.compute,
        max_length=settings.prompt.max_tokens + settings.sampling.max_tokens,
        seed=settings.seed,
        trust_remote_code=settings.trust_remote_code,
        on_fewer=listener.note,
    )
    if sampler.note:
        listener.note(sampler.note)
    (out / "rollouts").mkdir(parents=True, exist_ok=True)
    write_whole(out / "evaluation.yaml", yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))
    records = []
    for benchmark in ready:
        _draw_what_is_missing(benchmark, language_model, sampler, settings, out, listener)
        answered_Q = list(_read_back(benchmark, settings.samples, out / benchmark.file))
        conditions = Conditions(
            benchmark.name, settings.model, settings.sampling, settings.ks or (settings.samples,), settings.seed
        )
        records.append(evaluate(answered_Q, benchmark.rule, conditions, gold_judge=gold_judge))
        listener.measured(records[-1])
    write_whole(out / "evaluations.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    graded = [record for record in records if "pass@1" in record]
    if graded:
        write_whole(out / "results.json", json.dumps(results_json(graded), indent=2) + "\n")
    return records


def _ask(
    benchmark: Benchmark, language_model: LanguageModel, settings: MeasurementSettings, listener: Listener
) -> Benchmark:
    """The benchmark with the questions whose prompts can be used."""
    tokenizer = language_model.tokenizer
    kept, notes = checked_prompts(benchmark.questions, tokenizer, benchmark.prompt)
    for note in notes:
        listener.note(f"{benchmark.name}: {note}")
    prompts_Q = [prompt_tokens(question, tokenizer, benchmark.prompt) for question in kept]
    unknown = sum(int(token == tokenizer.unk_token_id) for tokens_P in prompts_Q for token in tokens_P)
    if unknown:
        listener.note(
            f"{benchmark.name}: the tokenizer does not know {unknown} tokens of the prompts; see --show-prompt"
        )
    longest = max(map(len, prompts_Q))
    problem = no_room(longest, settings.sampling.max_tokens, language_model.model.config)
    if problem is not None:
        raise InputError(f"max_tokens: {benchmark.name} has a prompt of {longest} tokens; {problem}")
    return replace(benchmark, questions=tuple(kept))


def _draw_what_is_missing(
    benchmark: Benchmark,
    language_model: LanguageModel,
    sampler: Sampler,
    settings: MeasurementSettings,
    out: Path,
    listener: Listener,
) -> None:
    path, total = out / benchmark.file, len(benchmark.questions)
    at_once = max(1, sampler.rows_a_call // settings.samples)
    done, end = _whole_parts(path, max(1, sampler.max_rows // settings.samples), settings.samples, total)
    if done:
        asked = replace(benchmark, questions=benchmark.questions[:done])
        for _ in _read_back(asked, settings.samples, path):
            pass  # what does not belong here is refused before anything is dropped or drawn
        listener.drawn(benchmark.name, done, total)
    if path.is_file():
        os.truncate(path, end)
    for first in range(done, total, at_once):
        questions = benchmark.questions[first : first + at_once]
        prompts = [Prompt(q.id, prompt_tokens(q, language_model.tokenizer, benchmark.prompt)) for q in questions]
        samples_BG = sampler.sample(
            prompts, settings.sampling, num_samples=settings.samples, seed=settings.seed, step="evaluation"
        )
        lines = [line for q, samples_G in zip(questions, samples_BG, strict=True) for line in _lines(q, samples_G)]
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)
        listener.drawn(benchmark.name, first + len(questions), total)


def _lines(question: Question, samples_G: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    """The completions of one question as rollouts."""
    gold = {"gold": question.gold} if question.gold is not None else {}
    for number, sample in enumerate(samples_G):
        yield rollout_fields(question, 0, number, sample) | gold


def _whole_parts(path: Path, part: int, samples: int, total: int) -> tuple[int, int]:
    """How many questions an interrupted evaluation has done, and where in the file the last of them ends.

    A `part` is what is written side by side: begun anew as a whole, its numbers are rounded as they would have been.
    """
    if not path.is_file():
        return 0, 0
    ends = [0]
    with path.open("rb") as file:
        ends += [file.tell() for raw in iter(file.readline, b"") if raw.endswith(b"\n")]
    questions = min((len(ends) - 1) // samples, total)
    done = questions if questions == total else questions // part * part
    return done, ends[done * samples]


def _read_back(benchmark: Benchmark, samples: int, path: Path) -> Iterator[Answered]:
    """The completions of every question, from what was written: `samples` lines each, in the order of the questions."""
    with path.open("rb") as file:
        numbered = enumerate(file, start=1)
        for question in benchmark.questions:
            lines_G = [_parsed(path, number, raw, question) for number, raw in islice(numbered, samples)]
            yield Answered(
                question=question,
                group=Group(tuple(Completion(line["completion"], line["entropy"]) for line in lines_G), question.id),
                entropies_G=tuple(line["entropy"] for line in lines_G),
                lengths_G=tuple(line["num_tokens"] for line in lines_G),
                finished_G=tuple(line["finished"] for line in lines_G),
            )


_KINDS = {"completion": str, "entropy": float, "num_tokens": int, "finished": bool}
"""What is read back of a line."""


def _parsed(path: Path, number: int, raw: bytes, question: Question) -> dict[str, Any]:
    """One line, which must be of this question."""
    try:
        line: dict[str, Any] = json.loads(raw)
        asked = line["question_id"], line["question"]
        if not all(type(line[name]) is kind for name, kind in _KINDS.items()):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(path, "is not what an evaluation wrote; delete the file to draw it anew", number) from error
    if asked != (question.id, question.text):
        raise DataError(
            path,
            f"has a completion of {asked[0]!r}, {asked[1]!r}; asked now is {question.id!r}, {question.text!r}",
            number,
        )
    return line


def read_settings(out: Path) -> MeasurementSettings:
    """The settings an evaluation was started with."""
    path = out / "evaluation.yaml"
    if not path.is_file():
        raise InputError(f"{out}: there is no evaluation to resume here (no evaluation.yaml)")
    try:
        return build_settings(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, ConfigError) as error:
        raise DataError(path, f"is not what an evaluation wrote: {str(error).splitlines()[0]}") from error
