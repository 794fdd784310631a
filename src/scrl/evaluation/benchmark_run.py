"""`scrl evaluate`: a model on benchmarks, every completion kept, resumable.

    OUT/evaluation.yaml              the settings
    OUT/rollouts/aime24.jsonl        every completion, as `scrl label` reads it
    OUT/evaluations.jsonl            one line per benchmark

Completions are written a few questions at a time, and every figure is computed from the files: an evaluation that was
interrupted and resumed ends with the same files as one that was not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from scrl.answers.readers import SOUND
from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.prompts import PromptSettings, usable_questions, with_prompts
from scrl.data.rollouts import rollout_fields
from scrl.data.sources import benchmark_of, load_source, prompt_for, reader_of, whereabouts
from scrl.errors import DataError
from scrl.evaluation.evaluate import Conditions, evaluate
from scrl.evaluation.gold import BOX_READERS, gold_problem
from scrl.evaluation.settings import STARTED_WITH, MeasurementSettings, file_name
from scrl.files.checkpoint_file import own_sum
from scrl.files.jsonl import parse_object
from scrl.files.whole_files import only_writer, write_whole
from scrl.listener import Listener
from scrl.policy.model import LanguageModel, load_model
from scrl.records import Completion, Group, Question
from scrl.sampling.groups import sample_groups
from scrl.sampling.local import check_sampler, open_sampler
from scrl.sampling.sampler import Sampler

_FIELD_TYPES = {"completion": str, "entropy": float, "num_tokens": int, "finished": bool}
"""The fields of a rollout that are read back."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A set of questions, and how they are asked and graded."""

    name: str
    questions: tuple[Question, ...]
    reader: str
    rule: CreditRule
    prompt: PromptSettings

    @property
    def file(self) -> str:
        return f"rollouts/{file_name(self.name)}.jsonl"


def measure(settings: MeasurementSettings, out: Path, listener: Listener) -> list[dict[str, Any]]:
    """Sample, write and grade, starting from what an earlier call left in `out`. One record per benchmark."""
    check_sampler(settings.compute)
    benchmarks = load_benchmarks(settings, listener)
    language_model = load_model(settings.model, settings.compute, trust_remote_code=settings.trust_remote_code)
    benchmarks = [_check_prompts(benchmark, language_model, settings, listener) for benchmark in benchmarks]
    sampler = open_sampler(language_model, settings.compute, on_note=listener.note, on_token=listener.tokens)
    if sampler.note:
        listener.note(sampler.note)
    (out / "rollouts").mkdir(parents=True, exist_ok=True)
    with only_writer(out / ".lock", f"{out}: another process is writing to this evaluation"):
        (out / STARTED_WITH).unlink(missing_ok=True)  # a kill between the two files must not look like an edit
        values = settings.model_dump(mode="json")
        write_whole(out / "evaluation.yaml", yaml.safe_dump(values, sort_keys=False))
        write_whole(out / STARTED_WITH, json.dumps(values) + "\n")
        records = []
        ks = settings.ks or (settings.samples,)
        for benchmark in benchmarks:
            _sample_missing(benchmark, language_model.tokenizer, sampler, settings, out / benchmark.file, listener)
            answered_Q = list(_read_rollouts(benchmark.questions, settings.samples, out / benchmark.file))
            how = (settings.sampling, ks, settings.seed, benchmark.reader, benchmark.prompt)
            conditions = Conditions(benchmark.name, settings.model, *how)
            records.append(evaluate(answered_Q, benchmark.rule, conditions))
            listener.evaluation(records[-1])
        # Last, so that if it exists, everything does.
        write_whole(out / "evaluations.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    return records


def load_benchmarks(settings: MeasurementSettings, listener: Listener) -> list[Benchmark]:
    """All questions, their gold answers checked, before a model is loaded."""
    benchmarks = []
    for name in settings.benchmarks:
        loaded = load_source(name, seed=settings.seed, limit=settings.limit, **whereabouts(settings))
        for note in loaded.notes:
            listener.note(f"{name}: {note}" if len(settings.benchmarks) > 1 else note)
        reader = settings.reader if settings.reader is not None else reader_of(name)
        rule = credit_rule("ttrl", reader=reader, significant_digits=settings.significant_digits)
        is_known = benchmark_of(name) is not None
        if (is_known or reader.removeprefix(SOUND) in BOX_READERS) and (
            problem := gold_problem(loaded.questions, reader)
        ):
            if is_known:
                raise DataError("gold answers", problem)
            listener.note(f"{name}: gold answers: {problem}")
        benchmarks.append(Benchmark(name, loaded.questions, reader, rule, prompt_for(name, reader, settings.prompt)))
    return benchmarks


def _check_prompts(
    benchmark: Benchmark, language_model: LanguageModel, settings: MeasurementSettings, listener: Listener
) -> Benchmark:
    """The benchmark without overlong prompts; the model must know their tokens, and have room for a completion."""
    asking = (language_model.tokenizer, benchmark.prompt, language_model.model.config, settings.sampling.max_tokens)
    kept, notes = usable_questions(benchmark.questions, *asking)
    for note in notes:
        listener.note(f"{benchmark.name}: {note}")
    return replace(benchmark, questions=tuple(kept))


def _sample_missing(
    benchmark: Benchmark,
    tokenizer: Any,
    sampler: Sampler,
    settings: MeasurementSettings,
    path: Path,
    listener: Listener,
) -> None:
    """Append the completions that `path` does not have yet."""
    samples, total = settings.samples, len(benchmark.questions)
    done, end = _resume_point(path, max(1, sampler.max_rows // samples), samples, total)
    if done:
        for _ in _read_rollouts(benchmark.questions[:done], samples, path):
            pass  # completions of other questions are refused before anything is dropped or sampled
        listener.progress(benchmark.name, done, total)
    if path.is_file():
        os.truncate(path, end)
    batch_size = max(1, sampler.rows_per_call // samples)
    for first in range(done, total, batch_size):
        questions = benchmark.questions[first : first + batch_size]
        asked_B = with_prompts(questions, tokenizer, benchmark.prompt)
        sampled_B = sample_groups(sampler, asked_B, settings.sampling, samples, seed=settings.seed, draw="evaluation")
        lines = [
            rollout_fields(sampled.question, 0, number, sample)
            | ({} if sampled.question.gold is None else {"gold": sampled.question.gold})
            for sampled in sampled_B
            for number, sample in enumerate(sampled.samples_G)
        ]
        with path.open("a", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps(line | {"sum": own_sum(line)}, ensure_ascii=False, allow_nan=False) + "\n")
        listener.progress(benchmark.name, first + len(questions), total)


def _resume_point(path: Path, batch_size: int, samples: int, total: int) -> tuple[int, int]:
    """How many questions an interrupted evaluation has finished, and where in the file the last of them ends.

    Questions decoded together are sampled again together, so that their numbers are rounded as before.
    """
    if not path.is_file():
        return 0, 0
    ends = [0]
    with path.open("rb") as file:
        ends += [file.tell() for raw in iter(file.readline, b"") if raw.endswith(b"\n")]
    questions = min((len(ends) - 1) // samples, total)
    done = questions if questions == total else questions // batch_size * batch_size
    return done, ends[done * samples]


def _read_rollouts(questions: tuple[Question, ...], samples: int, path: Path) -> Iterator[tuple[Question, Group]]:
    """The completions of every question as they were written: `samples` lines each, in the order of the questions."""
    with path.open("rb") as file:
        lines = enumerate(file, start=1)
        for question in questions:
            lines_G = enumerate(islice(lines, samples))
            completions = [_completion(path, number, raw, question, sample) for sample, (number, raw) in lines_G]
            yield question, Group(tuple(completions), question.id)


def _completion(path: Path, number: int, raw: bytes, question: Question, sample: int) -> Completion:
    """One line, which must be as it was written, and belong to this question."""
    try:
        rollout = parse_object(raw, path, number)
        id_, text = rollout["question_id"], rollout["question"]
        if not all(type(rollout[name]) is kind for name, kind in _FIELD_TYPES.items()):
            raise TypeError
        if rollout.pop("sum") != own_sum(rollout) or rollout["sample"] != sample:
            raise TypeError
    except (DataError, KeyError, TypeError, RecursionError) as error:
        raise DataError(path, "is not what an evaluation wrote; delete the file to draw it anew", number) from error
    if (id_, text) != (question.id, question.text):
        reason = f"has a completion of {id_!r}, {text!r}; asked now is {question.id!r}, {question.text!r}"
        raise DataError(path, reason, number)
    facts = {"length": rollout["num_tokens"]}
    return Completion(rollout["completion"], rollout["entropy"], facts=facts, is_cut=not rollout["finished"])
