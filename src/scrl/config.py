"""The settings of a run: one tree with every default; unknown names are refused with a suggestion.

config = read_config(Path("run.yaml"), ["optimizer.learning_rate=1e-6", "credit.min_share=0.5"])
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from scrl.credit.label_votes import WHOSE
from scrl.credit.methods import METHODS, find_method
from scrl.credit.rule import CreditRule, credit_rule
from scrl.data import sources
from scrl.data.prompts import PromptSettings
from scrl.data.questions import LoadedQuestions
from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.evaluation.settings import EvaluationSettings
from scrl.files.yaml_files import line_of, parse_yaml, read_yaml
from scrl.policy.settings import (
    ADAPTER_LEARNING_RATE,
    ADVANTAGE_OF_VARIANT,
    LOSS_VARIANTS,
    ComputeSettings,
    LoraSettings,
    LossSettings,
    OptimizerSettings,
)
from scrl.sampling.settings import SamplingSettings
from scrl.setting_names import NOT_OF_A_RUN, RUN_NAMES, Names, validated
from scrl.settings import Settings, inner_model, merged, tree_of, without_equal

OFFICIAL = {"loss": {"kl_weight": 0.001, "kl": "k3-capped", "mean": "pairs", "dual_clip": 3.0}, "drop_last": True}
"""What the authors' released code does differently beyond credit."""
DECIDERS = ("method", "preset", "loss_variant", "lora")
"""Settings that decide those of DECIDED, unless these are given."""
DECIDED: dict[str, Any] = {
    "loss": True, "credit": True, "drop_last": True, "optimizer": {"learning_rate"},
    "completions": True, "label_votes": True, "sampling": {"temperature"},
}  # fmt: skip
"""What a method, a preset, a loss variant or an adapter may decide."""
DEFAULT_METHOD = "contrast-label"
_DEFAULTS = METHODS[DEFAULT_METHOD].run_settings
PASSES = 3
"""How often a run visits each question unless `steps` is given."""


class GuardSettings(Settings):
    """When a run is stopped because it collapses."""

    mode: Literal["stop", "observe", "off"] = Field("stop", description="Stop the run, only report, or do not check.")
    window: int = Field(10, ge=1, description="Steps to average over.")

    @field_validator("mode", mode="before")
    @classmethod
    def _off_is_a_word(cls, value: Any) -> Any:
        return "off" if value is False else value  # as YAML reads it


class RunConfig(Settings):
    """Everything that decides what a run does."""

    model: sources.ModelName = Field(description="A model folder, a hub id, `embedded` or `embedded-hasty`.")
    questions: str = Field(description="A file (.txt .md .jsonl .json .csv .tsv .parquet), a hub id, arithmetic:LEVEL.")
    question_column: sources.QuestionColumn = None
    gold_column: sources.GoldColumn = None
    id_column: sources.IdColumn = None
    limit: sources.Limit = None
    data_dir: sources.DataDir = None

    method: str = Field(
        DEFAULT_METHOD,
        description="What decides the rewards: one of `scrl methods`, or module:NAME. Each has its own `completions`, "
        "temperature, `label_votes` and learning rate.",
    )
    preset: str = Field("paper", description="`paper`, or `official`: as the authors' released code does it.")
    credit: dict[str, Any] = Field({}, description="Settings of the method: see `scrl methods NAME`.")
    reader: str = Field(
        "boxed",
        description="How answers are read: boxed, number, last-number, choice, regex:… Benchmarks have their own.",
    )
    significant_digits: int | None = Field(None, ge=1, le=15, description="Numbers are rounded to this many digits.")

    probe: int = Field(4, ge=0, description="Completions per first question to look at before training; 0: none.")
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random numbers.")
    steps: int = Field(0, ge=0, description=f"Training steps; 0: {PASSES} passes over the questions.")
    questions_per_step: int = Field(8, ge=1, description="Questions per step.")
    questions_per_update: int = Field(1, ge=1, description="Questions whose completions share an optimizer step.")
    completions: int = Field(_DEFAULTS["completions"], ge=2, description="N: completions sampled per question.")
    trained: int = Field(16, ge=2, description="M: completions trained on, of the N; all, if N is less.")
    label_votes: str = Field(
        _DEFAULTS["label_votes"],
        description="Whose votes decide labels and shares: the step's own completions (present), the start model "
        "(start), votes drawn before each pass, a label once given being kept (round), or a file of completions.",
    )
    label_completions: int | None = Field(
        None, ge=2, description="Votes per question for label_votes start and round; none: as many as `completions`."
    )
    drop_last: bool = Field(False, description="Leave out the last, smaller batch of an epoch.")

    prompt: PromptSettings = PromptSettings()
    sampling: SamplingSettings = SamplingSettings(**_DEFAULTS["sampling"])
    loss_variant: str = Field("grpo", description=f"Fills in `loss`: {', '.join(LOSS_VARIANTS)}.")
    loss: LossSettings = LossSettings()
    optimizer: OptimizerSettings = OptimizerSettings(**_DEFAULTS["optimizer"])
    lora: LoraSettings | None = Field(None, description="Train a low-rank adapter instead of all weights.")
    compute: ComputeSettings = ComputeSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    guard: GuardSettings = GuardSettings()

    engine: Literal["local", "trl", "verl"] = Field("local", description="`local`: one machine; the others: many GPUs.")
    engine_options: dict[str, Any] = Field({}, description="For trl and verl: their own settings.")
    nodes: int = Field(1, ge=1, description="For verl: machines of the cluster.")
    gpus: int = Field(1, ge=1, description="For verl: GPUs per machine.")
    checkpoint_every: int = Field(10, ge=1, description="Steps between checkpoints.")
    trackers: tuple[str, ...] = Field((), description="Also log to: tensorboard, wandb, trackio.")
    trust_remote_code: bool = Field(False, description="Run code that comes with a hub model.")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_presets(cls, values: Any) -> Any:
        """The method, the preset, the named loss, then what was given."""
        if not isinstance(values, Mapping):
            return values
        values = {
            name: value.model_dump(exclude_unset=True) if isinstance(value, Settings) else value
            for name, value in NAMES.long(values).items()
        }
        method, preset, variant = (
            str(values.get(name, cls.model_fields[name].default)) for name in ("method", "preset", "loss_variant")
        )
        if variant not in LOSS_VARIANTS:
            raise ConfigError(f"loss_variant: unknown loss {variant!r}.{did_you_mean(variant, LOSS_VARIANTS)}")
        loss: dict[str, Any] = {"loss": LOSS_VARIANTS[variant]}
        if variant in ADVANTAGE_OF_VARIANT:
            loss["credit"] = {"advantage": ADVANTAGE_OF_VARIANT[variant]}
        decided = merged(merged(find_method(method).run_settings, OFFICIAL if preset == "official" else {}), loss)
        if values.get("lora") not in (None, False):
            decided = merged(decided, {"optimizer": {"learning_rate": ADAPTER_LEARNING_RATE}})
        return _with_defaults(merged(decided, values))

    @field_validator("questions", mode="before")
    @classmethod
    def _several_files(cls, value: Any) -> Any:
        return ",".join(map(str, value)) if isinstance(value, list) else value

    @field_validator("lora", mode="before")
    @classmethod
    def _default_adapter(cls, value: Any) -> Any:
        return {True: {}, False: None}[value] if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _check_together(self) -> RunConfig:
        if self.trained > self.completions:
            default = find_method(self.method).run_settings["completions"]
            reason = f"trained ({self.trained}) is more than completions ({self.completions})"
            raise ConfigError(f"{reason}: lower it, or sample more; {self.method!r} samples {default} by default")
        if self.engine == "local" and self.engine_options:
            raise ConfigError(f"engine_options: the local engine has none; got {', '.join(self.engine_options)}")
        rule = self.rule()
        rule.check_plan(self.completions)
        if self.label_votes != "present" and rule.method.weighs_votes:
            reason = f"method {self.method!r} weighs each vote by its completion, so no others can vote"
            raise ConfigError(f"label_votes: {reason}. Use label_votes: present, or another method.")
        return self

    def rule(self) -> CreditRule:
        """The method with all its choices made."""
        return credit_rule(
            self.method,
            preset=self.preset,
            reader=self.reader,
            num_trained=self.trained,
            seed=self.seed,
            significant_digits=self.significant_digits,
            **self.credit,
        )

    def resolved(self) -> RunConfig:
        """The same, with every setting of the method, so that it means the same where defaults are others."""
        return self.model_copy(update={"credit": self.rule().settings.model_dump(mode="json")})

    @property
    def votes_file(self) -> Path | None:
        """The file whose completions decide, if label_votes names one."""
        return None if self.label_votes in WHOSE else Path(self.label_votes)

    @property
    def draws_votes(self) -> bool:
        """Whether the start model votes on every question before the first step."""
        return self.label_votes in ("start", "round") or "reference_share" in self.rule().needs

    def votes_due(self, drawn: int | None, this_pass: int) -> bool:
        """Whether votes are drawn before a step of this pass; `drawn`: the pass for which they last were."""
        return self.draws_votes if drawn is None else self.label_votes == "round" and drawn < this_pass

    def vote_rounds(self, epochs: float) -> int:
        """How often votes are drawn separately in this many passes over the questions, for those without a label."""
        return self.draws_votes * (math.ceil(epochs) if self.label_votes == "round" else 1)

    @property
    def votes_per_question(self) -> int:
        """How many completions of a question vote where votes are drawn separately."""
        return self.label_completions or self.completions

    @property
    def evaluation_sampling(self) -> SamplingSettings:
        """How evaluations draw tokens: as training does, except for what `evaluation` sets."""
        changes = {"temperature": self.evaluation.temperature, "top_p": self.evaluation.top_p}
        return self.sampling.model_copy(update={name: value for name, value in changes.items() if value is not None})

    def with_steps(self, num_questions: int | None = None) -> RunConfig:
        """The same, with the steps that PASSES over the questions take, where none are given."""
        if self.steps:
            return self
        whole, rest = divmod(num_questions or len(self.load_questions().questions), self.questions_per_step)
        return self.model_copy(update={"steps": PASSES * (whole + bool(rest and not (self.drop_last and whole)))})

    def load_questions(self) -> LoadedQuestions:
        """The questions to train on."""
        return self._load(self.questions, self.limit)

    def load_held_out(self) -> LoadedQuestions | None:
        """The held-out questions, by the same columns if their file has them."""
        source = self.evaluation.held_out
        return self._load(source, may_lack=True) if source else None

    def _load(self, source: str, limit: int | None = None, *, may_lack: bool = False) -> LoadedQuestions:
        return sources.load_source(source, seed=self.seed, limit=limit, may_lack=may_lack, **sources.whereabouts(self))


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """Fill in what is not given: a benchmark decides the reader, a reader the prompt."""
    questions, prompt = str(values.get("questions")), values.get("prompt", {})
    if values.get("reader") is None:
        values = merged(values, {"reader": sources.reader_of(questions)})
    if "trained" not in values and type(number := values.get("completions")) is int:
        values = merged(values, {"trained": _trained(number)})
    if not isinstance(prompt, Mapping):
        return values
    defaults = sources.prompt_defaults(questions, str(values["reader"])).items()
    return merged(values, {"prompt": {name: value for name, value in defaults if prompt.get(name) is None}})


def build_config(values: Mapping[str, Any]) -> RunConfig:
    """Settings from plain values; errors name the setting, the reason and the fix."""
    return validated(RunConfig, _checked(values))


def with_settings(config: RunConfig | Mapping[str, Any], settings: Mapping[str, Any]) -> RunConfig:
    """A configuration with some settings on top, as by `on_top`."""
    over = _checked(settings)
    if isinstance(config, RunConfig):
        return build_config(on_top(config.model_dump(mode="json"), over)) if over else config
    return build_config(on_top(_checked(config), over))


def on_top(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` updated with `over`; what is given in either wins over what a preset, a loss or an adapter decides.

    In a `base` that is written out in full, what its own preset, loss and adapter would not have decided counts as
    given; the rest follows those that `over` names.
    """
    follows_completions = _is_written_out(base) and base["trained"] == _trained(base["completions"])
    if _is_written_out(base) and any(name in over for name in DECIDERS):
        plain = build_config({"model": "", "questions": ""} | {name: base[name] for name in DECIDERS}).resolved()
        base = without_equal(base, plain.model_dump(mode="json", include=DECIDED))
    if "completions" in over and follows_completions:
        base = without_equal(base, {"trained": base["trained"]})
    return merged(base, over)


def _trained(completions: int) -> int:
    """How many are trained on where it is not said."""
    return min(completions, int(RunConfig.model_fields["trained"].default))


def _is_written_out(values: Mapping[str, Any]) -> bool:
    """Whether these are resolved settings, as `write_config` and `scrl reproduce --yaml` write them: without a gap."""
    parts = [name for name, field in RunConfig.model_fields.items() if inner_model(field.annotation) is not None]
    return all(name in values for name in (*DECIDERS, *parts))


def read_config(path: Path | None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> RunConfig:
    """`base`, with a YAML file and then `name.of.setting=value` on top."""
    values = read_file(path) if path is not None else {}
    return build_config(on_top(base or {}, on_top(values, given_settings(overrides))))


def read_file(path: Path) -> dict[str, Any]:
    """The settings of a YAML file, under their long names; an unknown one is refused with its line."""
    values = without_equal(read_yaml(path), GONE)
    for name in NAMES.unknown(values):
        raise DataError(path, NAMES.about(name, is_option=False, more=_credit_names(values)), line_of(path, name))
    try:
        return NAMES.long(values)
    except ConfigError as error:
        raise DataError(path, str(error)) from error


def given_settings(overrides: Iterable[str]) -> dict[str, Any]:
    """`name.of.setting=value`, as given to a command, as a tree with long names."""
    values: dict[str, Any] = {}
    for text in overrides:
        values = merged(values, override(text))
    return _checked(values, is_option=True)


def _checked(values: Mapping[str, Any], *, is_option: bool = False) -> dict[str, Any]:
    """The values under their long names; an unknown one is refused."""
    values = without_equal(values, GONE)
    NAMES.refuse_unknown(values, is_option=is_option, more=_credit_names(values))
    return NAMES.long(values)


def _credit_names(values: Mapping[str, Any]) -> list[str]:
    method = METHODS.get(str(values.get("method")), METHODS[DEFAULT_METHOD])
    return [f"credit.{name}" for name in method.settings.model_fields]


def write_config(config: RunConfig, path: Path) -> None:
    """The resolved settings, as YAML that `read_config` takes back."""
    text = yaml.safe_dump(config.resolved().model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    path.write_text(text, encoding="utf-8")


def override(text: str) -> dict[str, Any]:
    """`optimizer.learning_rate=1e-6` → {"optimizer": {"learning_rate": 1e-6}}."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r}: write name=value, for instance optimizer.learning_rate=1e-6")
    return tree_of(name.replace("-", "_"), _value(value))


def _value(text: str) -> Any:
    """Numbers, true, null, and lists and mappings in brackets are YAML; all other text is taken literally."""
    if not text:
        return ""
    try:
        parsed = parse_yaml(text)
    except yaml.YAMLError:
        return text
    is_number = isinstance(parsed, int | float) and not isinstance(parsed, bool)
    is_yaml = is_number or text.lstrip()[:1] in "[{'\"" or text in ("true", "false", "null", "~")
    return parsed if is_yaml else text  # YAML reads `off` as false


GONE: dict[str, Any] = {
    "chains": 0, "engine": "embedded", "force": False, "passes": 4, "rephrased_column": None, "variants": 0,
    "credit": {"overlong_buffer": 0, "reshape": "none"}, "optimizer": {"betas": [0.9, 0.999], "masters": "auto"},
    "dynamic_sampling": {"rounds": 0, "tolerance": 0.01}, "evaluation": {"k": None, "is_off": False},
    "compute": {"micro_tokens": None, "packing": "auto", "vllm_memory": 0.4, "fused_layers": True, "attention": "sdpa",
                "threads": None},
    "guard": {"max_same_answer_share": 0.5, "max_stock_label_share": 0.6, "min_entropy_ratio": 0.02,
              "min_length_ratio": 0.33, "max_length_ratio": 3.0, "max_truncated_rise": 0.3, "max_no_answer_rise": 0.3,
              "max_label_flip_share": 0.5},
}  # fmt: skip
"""Settings that runs of earlier versions have, with the value that is still what happens; any other is refused.

Four passes are no longer the default, but stand beside the steps that they took.
"""
NAMES = Names(RunConfig, RUN_NAMES, not_here=NOT_OF_A_RUN)
