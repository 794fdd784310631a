"""What the commands train, evaluate, label, audit and sweep do, from Python: values in, values out.

    result = scrl.train({"model": "my-model", "steps": 50}, questions=["What is 2 + 2?", "What is 3 · 4?"])
    result.checkpoint, result.metrics[-1]["agreement"]

torch is imported when one of these is called, not before.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scrl.credit.method import Method
from scrl.credit.methods import where_found
from scrl.credit.rule import CreditRule, credit_rule
from scrl.data.completion_files import open_completions
from scrl.errors import ConfigError, DataError, InputError
from scrl.files.jsonl import read_json_lines
from scrl.files.run_state import guard_stop_of
from scrl.listener import Listener
from scrl.records import Question, Sampled
from scrl.setting_names import Names, validated

if TYPE_CHECKING:
    from scrl.config import RunConfig

Questions = Sequence[str | Question]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """A run that has ended; everything is read from its folder."""

    folder: Path

    @property
    def checkpoint(self) -> Path:
        """The model after the last step, as `from_pretrained` loads it."""
        return self.folder / "checkpoints" / "last"

    @property
    def best(self) -> Path:
        """The model whose completions agreed most, chosen without gold; absent if the guard rejected all of them."""
        return self.folder / "checkpoints" / "best"

    @property
    def guard_stop(self) -> str | None:
        """Why the guard stopped the run, in a sentence; None if it did not."""
        return guard_stop_of(self.folder)

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.folder / "report.html"

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per step (names: scrl.metrics)."""
        return [line.fields for line in read_json_lines(self.folder / "metrics.jsonl")]

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """One mapping per evaluation: before, during and after training."""
        return [line.fields for line in read_json_lines(self.folder / "evaluations.jsonl")]


def train(
    config: RunConfig | Mapping[str, Any] | str | Path | None = None,
    questions: Questions | str | None = None,
    *,
    out: str | Path | None = None,
    listener: Listener | None = None,
    **settings: Any,
) -> TrainingResult:
    """Adapt a model to questions without answers, with the settings of `scrl train`, in a new folder (under runs/).

    Settings are given by name (`steps=50, max_tokens=512`), as a mapping, as the YAML file that holds them, or as a
    RunConfig; those by name come on top. Questions from memory take the place of the setting `questions`; they are
    written into the run folder, so that the run can be resumed. Any engine; under torchrun give `out`, and questions in
    a file. `listener` receives notes, steps and evaluations; without one, notes go to the log named `scrl`.
    """
    from scrl.config import read_file, with_settings
    from scrl.engines.choice import check_engine, engine_of
    from scrl.files.folders import is_first_process, num_processes, shared_run_folder

    if isinstance(questions, str):  # a file or a benchmark, by name like all other settings
        settings["questions"], questions = questions, None
    rows = None if questions is None else [_row(question) for question in _as_questions(questions)]
    if rows is not None:
        settings["questions"] = "questions.jsonl"  # checked before a folder is made; the path follows
    values = read_file(Path(config)) if isinstance(config, str | Path) else config or {}
    method = settings.get("method", values.get("method") if isinstance(values, Mapping) else None)
    if isinstance(method, Method):
        settings["method"] = where_found(method)
    chosen = with_settings(values, settings)
    check_engine(chosen)
    if rows is not None and num_processes() > 1:
        raise InputError("questions: several processes need them in a file that all can read: give the name of one")
    folder = shared_run_folder(None if out is None else Path(out))
    if rows is not None:
        file = folder / "questions.jsonl"
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        chosen = chosen.model_copy(update={"questions": str(file.resolve())})
    try:
        engine_of(chosen).train(chosen.with_steps(), folder, listener or Listener())
    except DataError as error:
        if rows is None or error.path != (folder / "questions.jsonl").resolve():
            raise
        place = "questions" if error.line is None else f"questions[{error.line - 1}]"
        raise InputError(f"{place}: {error.reason}") from error
    finally:
        if is_first_process() and not (folder / "config.yaml").is_file():  # refused before it began
            shutil.rmtree(folder)
    return TrainingResult(folder)


def resume(folder: str | Path, *, listener: Listener | None = None) -> TrainingResult:
    """Resume the run in `folder`, exactly as if it had never stopped."""
    from scrl.engines.choice import check_engine, engine_of
    from scrl.training.run_folder import RunFolder

    config = RunFolder(Path(folder)).config()
    check_engine(config)
    engine_of(config).resume(Path(folder), listener or Listener())
    return TrainingResult(Path(folder))


def _as_questions(questions: Questions) -> list[Question]:
    """Plain texts are numbered."""
    if isinstance(questions, str | Path):
        hint = "; a new folder is given as out=…" if isinstance(questions, Path) else ""
        raise InputError(f"questions: give a list of texts or scrl.Question, for one question a list of one{hint}")
    numbered = []
    for number, question in enumerate(questions):
        if not isinstance(question, str | Question):
            kind = type(question).__name__
            raise InputError(f"questions: number {number} must be text or scrl.Question(id, text, gold), found {kind}")
        numbered.append(Question(str(number), question) if isinstance(question, str) else question)
        try:
            json.dumps(_row(numbered[-1]), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InputError(f"questions[{number}]: has half a surrogate pair in it: remove it") from None
    return numbered


def _row(question: Question) -> dict[str, Any]:
    """A question as a line of a file; with a system message it is a chat."""
    chat = [{"role": "system", "content": question.system}, {"role": "user", "content": question.text}]
    row = {"id": question.id, "question": question.text if question.system is None else chat}
    optional = {"answer": question.gold, "level": question.level}
    return row | {name: value for name, value in optional.items() if value is not None}


def evaluate(
    model: str, benchmarks: str | Sequence[str], *, out: str | Path | None = None, **settings: Any
) -> list[dict[str, Any]]:
    """Measure a model on benchmarks or files with gold answers, as `scrl evaluate` does; one record per benchmark.

    `settings` have the names and defaults they have there, e.g. completions=4, max_tokens=512, data_dir="benchmarks".
    """
    from scrl.evaluation.benchmark_run import measure
    from scrl.evaluation.settings import build_settings
    from scrl.files.folders import new_run_folder

    names = [benchmarks] if isinstance(benchmarks, str) else list(benchmarks)
    chosen = build_settings({"model": model, "benchmarks": names, **settings})
    folder = new_run_folder(None if out is None else Path(out))
    try:
        return measure(chosen, folder, Listener())
    finally:
        with suppress(OSError):
            folder.rmdir()  # empty: refused before it began


def sample(model: str, questions: Questions, num_samples: int = 16, *, seed: int = 0, **settings: Any) -> list[Sampled]:
    """Completions of a model with log-probabilities and entropies of every token, one group per question.

    `settings` are those of `sampling`, e.g. temperature=0.6, max_tokens=512; `prompt` and `compute` take mappings.
    `scrl.assign_credit(sampled.group)` says what they would earn.
    """
    from scrl.data.prompts import PromptSettings, check_known, instruction_notes, with_prompts
    from scrl.policy.model import load_model
    from scrl.policy.settings import ComputeSettings
    from scrl.sampling.groups import sample_groups
    from scrl.sampling.local import check_sampler, open_sampler
    from scrl.sampling.settings import SamplingSettings

    prompt = validated(PromptSettings, settings.pop("prompt", {}))
    compute = validated(ComputeSettings, settings.pop("compute", {}))
    Names(SamplingSettings, {}).refuse_unknown(settings)
    sampling = validated(SamplingSettings, settings)
    questions_B = _as_questions(questions)
    if num_samples < 1:
        raise ConfigError(f"num_samples: must be at least 1; got {num_samples}")
    check_sampler(compute)
    language_model = load_model(model, compute)
    tokenizer = language_model.tokenizer
    asked_B = with_prompts(questions_B, tokenizer, prompt)
    check_known(questions_B, [tokens_P for _, tokens_P in asked_B], tokenizer, prompt)
    for note in instruction_notes(prompt, tokenizer):
        Listener().note(note)
    sampler = open_sampler(language_model, compute)
    return sample_groups(sampler, asked_B, sampling, num_samples, seed=seed, draw=0)


def label(
    rollouts: str | Path, method: str | Method = "scrl", *, out: str | Path | None = None, **choices: Any
) -> dict[str, Any]:
    """Label a file of completions, as `scrl label` does; its summary. `choices` are those of `credit_rule`."""
    from scrl.lab.label import label_file

    return label_file(rollouts, credit_rule(method, **choices), out=out)


def audit(
    rollouts: str | Path, method: str | Method | Sequence[str | Method] | None = None, *, seed: int = 0, **choices: Any
) -> dict[str, Any]:
    """Would consensus lie on these questions? All figures of `scrl audit`, by default of the methods it looks at.

    `choices` are those of `credit_rule`.
    """
    from scrl.lab.audit import AUDITED, audit_file

    rules: dict[str, CreditRule] = {}
    for each in [method] if isinstance(method, str | Method) else method or AUDITED:
        name, rule = each if isinstance(each, str) else each.name, credit_rule(each, seed=seed, **choices)
        if name in rules and rules[name].method is not rule.method:
            raise ConfigError(f"method: two methods are named {name!r}; give each a name of its own")
        rules[name] = rule
    return audit_file(open_completions(Path(rollouts)), rules, seed=seed)


def sweep(
    rollouts: str | Path,
    method: str | Method = "scrl",
    *,
    preset: str = "paper",
    reader: str = "boxed",
    significant_digits: int | None = None,
    seed: int = 0,
    **values: Any,
) -> list[dict[str, Any]]:
    """One row per setting that `scrl sweep` tries of a method; `values` replace its own: min_share=[0.25, 0.5]."""
    from scrl.lab.stored_groups import groups_for, lacking
    from scrl.lab.sweep import sweep_settings

    rule = credit_rule(method, preset=preset, reader=reader, significant_digits=significant_digits)
    groups = groups_for(open_completions(Path(rollouts)), [rule])
    reason = lacking(rule, groups)
    if reason is not None:
        raise InputError(f"{rollouts}: method {rule.method.name!r} needs {reason}")
    lists = {name: [value] if isinstance(value, str | int | float) else list(value) for name, value in values.items()}
    return list(sweep_settings(groups, method, lists, preset=preset, seed=seed))
