"""The settings of evaluations: those of a run, and those of `scrl evaluate` and `scrl answers`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from scrl.data.prompts import PromptSettings
from scrl.data.sources import DataDir, GoldColumn, IdColumn, Limit, ModelName, QuestionColumn
from scrl.data.tables import SUFFIXES
from scrl.errors import ConfigError, DataError, InputError
from scrl.files.jsonl import read_object
from scrl.files.yaml_files import read_yaml
from scrl.policy.settings import ComputeSettings
from scrl.sampling.settings import SamplingSettings
from scrl.setting_names import EVALUATION_NAMES, Names, validated
from scrl.settings import Settings, changed_settings, merged

STARTED_WITH = "started_with.json"
"""A copy of the settings, beside the completions that were drawn with them."""
SAMPLING = SamplingSettings(temperature=0.6, top_p=0.95, max_tokens=3072)
"""How completions are drawn by default, as in the paper."""


class EvaluationSettings(Settings):
    """When and on what a run is measured."""

    every: int = Field(0, ge=0, description="Steps between evaluations; 0: before the first step and after the last.")
    completions: int = Field(
        16, ge=0, description="Completions per question, and k of pass@k and maj@k; 0: no evaluation."
    )
    questions: int | None = Field(None, ge=1, description="Measure on this many training questions; none: all.")
    held_out: str | None = Field(None, description="A second set of questions, never trained on.")
    temperature: float | None = Field(None, ge=0, description="None: as in training.")
    top_p: float | None = Field(None, gt=0, le=1, description="None: as in training.")

    @property
    def is_off(self) -> bool:
        return self.completions == 0


class MeasurementSettings(Settings):
    """What is measured, and how; the defaults are the paper's."""

    model: ModelName = Field(description="A model folder (also RUN/checkpoints/last), a hub id, or `embedded`.")
    benchmarks: tuple[str, ...] = Field(
        min_length=1, description="Benchmarks, or files of questions; accuracy needs gold answers in them."
    )
    samples: int = Field(16, ge=1, description="Completions per question.")
    sampling: SamplingSettings = SAMPLING
    ks: tuple[int, ...] = Field((), description="The k of pass@k and maj@k; none: the number of completions.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of the sampling.")
    limit: Limit = None
    data_dir: DataDir = None
    question_column: QuestionColumn = None
    gold_column: GoldColumn = None
    id_column: IdColumn = None
    reader: str | None = Field(
        None, description="Reads answers: boxed, last-box, number, last-number, choice, regex:…, sound:boxed"
    )
    significant_digits: int | None = Field(None, ge=1, le=15, description="Numbers are rounded to this many digits.")
    prompt: PromptSettings = PromptSettings()
    compute: ComputeSettings = ComputeSettings()
    trust_remote_code: bool = Field(False, description="Run code that comes with a hub model.")

    @model_validator(mode="after")
    def _check_ks(self) -> MeasurementSettings:
        for k in self.ks:
            if not 1 <= k <= self.samples:
                reason = f"must be between 1 and the number of completions per question, {self.samples}; got {k}"
                raise ConfigError(f"k: {reason}. Choose another, or draw more (completions).")
        names = [file_name(benchmark) for benchmark in self.benchmarks]
        twice = [benchmark for benchmark in self.benchmarks if names.count(file_name(benchmark)) > 1]
        if twice:
            raise ConfigError(f"questions: {', '.join(twice)}: give each once, and no two files of the same name")
        return self


NOT_TRAINED = "nothing is trained here; it is a setting of scrl train"
NO_METHOD = "a method says what is rewarded, and nothing is rewarded here; scrl label tries one on completions"
NOT_HERE = {"method": NO_METHOD, **dict.fromkeys(("steps", "trained", "learning_rate"), NOT_TRAINED)}
NAMES = Names(MeasurementSettings, EVALUATION_NAMES, not_here=NOT_HERE)


def build_settings(values: Mapping[str, Any]) -> MeasurementSettings:
    """Settings from plain values; what `sampling` leaves out has the defaults for measuring, not those for training."""
    NAMES.refuse_unknown(values)
    values = merged({"sampling": SAMPLING.model_dump()}, NAMES.long(values))
    return validated(MeasurementSettings, values, EVALUATION_NAMES)


def read_settings(out: Path) -> MeasurementSettings:
    """The settings an evaluation was started with; refused if they were edited since."""
    path, started_with = out / "evaluation.yaml", out / STARTED_WITH
    if not path.is_file():
        raise InputError(f"{out}: there is no evaluation to resume here (no evaluation.yaml)")
    settings = _written_by_an_evaluation(read_yaml(path), path)
    if started_with.is_file():  # else nothing has been drawn yet
        before = _written_by_an_evaluation(read_object(started_with), started_with)
        changed = changed_settings(before.model_dump(mode="json"), settings.model_dump(mode="json"))
        if changes := "; ".join(words for _, words in changed):
            raise DataError(path, f"is not what the evaluation was started with: {changes}; put it back")
    return settings


def _written_by_an_evaluation(values: Mapping[str, Any], path: Path) -> MeasurementSettings:
    try:
        return build_settings(values)
    except ConfigError as error:
        raise DataError(path, f"is not what an evaluation wrote: {str(error).splitlines()[0]}") from error


def file_name(benchmark: str) -> str:
    """A benchmark's name, or those of files, as part of a path."""
    parts = [Path(each) for each in benchmark.split(",")]
    name = "+".join(each.stem if each.suffix.lower() in SUFFIXES else str(each) for each in parts)
    return name.replace(":", "-").replace("/", "-")[:200]
