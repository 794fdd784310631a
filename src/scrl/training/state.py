"""The state of a run: what checkpoints hold besides weights and optimizer, and what may change before it resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainValidator

from scrl.config import RunConfig, build_config
from scrl.credit.elsewhere import LastVotes
from scrl.credit.label_votes import LabelVotes
from scrl.errors import ConfigError, InputError
from scrl.files.checkpoint_file import check_sums, own_sum, refuse_foreign
from scrl.files.run_state import VERSION, read_state
from scrl.settings import changed_settings
from scrl.training.run_folder import FILES

MAY_CHANGE = ("steps", "evaluation", "trackers")
"""Settings that may differ when a run is resumed, which is then reported; all others decide what a run ends with."""
MAY_MOVE = ("model", "questions", "data_dir")
"""Places that may, where the contents are compared with what the run was started with."""


def _votes(record: type[LastVotes] | type[LabelVotes]) -> PlainValidator:
    def read(saved: Any) -> LastVotes | LabelVotes:
        try:
            return record.from_json(saved)
        except (TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
            raise ValueError(f"no votes: {error}") from error

    return PlainValidator(read)


Count = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(gt=0)]


@dataclass
class State:
    """The state of a run; all of it is saved with a checkpoint."""

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    step: Count = 0
    labels: dict[str, str | None] = field(default_factory=dict)
    """The positive label of each question at its last visit; None where the rule abstained."""
    first_answers: dict[str, str | None] = field(default_factory=dict)
    """The most frequent answer of each question at its first visit, or among the start model's votes."""
    history: list[dict[str, float]] = field(default_factory=list)
    """Per step, what the guard, the choice of the best checkpoint and the closing notes look at."""
    stopped_for: list[str] = field(default_factory=list)
    """Why the guard ended the run after this step; empty if it may continue."""
    best_score: float | None = None
    best_step: Count | None = None
    # As in the settings, or less where memory ran out:
    sampler_rows: Count = 0
    """Completions decoded in parallel."""
    micro_batch: Size | None = None
    """Completions per pass of an update."""
    most_tokens: Size | None = None
    """Tokens per pass of an update."""
    evaluated_at: Count | None = None
    """The step after which the run was last measured."""
    reference_shares: dict[str, float] = field(default_factory=dict)
    """Per question, the share of the start model's most frequent answer, where a method needs it."""
    is_released: bool = False
    """Whether the sampler gives its memory back before every update, because memory ran out in one."""
    last_votes: Annotated[LastVotes, _votes(LastVotes)] = field(default_factory=LastVotes)
    label_votes: Annotated[LabelVotes, _votes(LabelVotes)] = field(default_factory=LabelVotes)
    """The votes that decide, where they are drawn separately, and the labels given by them."""
    votes_pass: Count | None = None
    """The pass over the questions before which they were last drawn."""
    probe: list[tuple[list[Count], list[Count], list[float]]] = field(default_factory=list)
    """Prompts, completions and log-probabilities of the start model, to see how far training moves it."""
    questions: str = ""
    """A fingerprint of what is trained on, so that a run cannot resume with something else."""
    held_out: str = ""
    """The same of the questions held out; empty where there are none."""
    model: str = ""
    user_code: str = ""
    """The same of the modules with a method, a reader or a sampler of the user's own; empty where there are none."""
    settings: dict[str, Any] = field(default_factory=dict)
    processes: Count = 0
    """The number of processes of a run on TRL, which resumes with as many."""
    files: dict[str, Count] = field(default_factory=dict)
    """The length of each file of lines."""
    sums: dict[str, str] = field(default_factory=dict)
    """The checksum of that much of each."""
    version: Count = VERSION

    run: str = ""
    """The same at all steps of a run, and at no step of another."""

    def __post_init__(self) -> None:
        fixed = {name: value for name, value in self.settings.items() if name not in MAY_CHANGE + MAY_MOVE}
        self.run = self.run or own_sum({"settings": fixed, "questions": self.questions, "model": self.model})

    def to_json(self) -> dict[str, Any]:
        votes = {"last_votes": self.last_votes.to_json(), "label_votes": self.label_votes.to_json()}
        return vars(self) | votes


@dataclass
class SavedSettings:
    """The settings in a state, whatever else an earlier version wrote beside them."""

    settings: dict[str, Any]


def saved_state(checkpoint: Path, name: str) -> State:
    """The state in a checkpoint's file `name`; refused unless the checkpoint's files are as they were written."""
    step = check_sums(checkpoint)
    refuse_foreign(checkpoint.with_name("best"))
    state = read_state(checkpoint / name, State)
    if not (state.questions and state.settings and set(state.files) == set(state.sums) == set(FILES)):
        needed = f"questions, settings, and files and sums of {', '.join(FILES)}"
        raise InputError(f"{checkpoint / name}: is damaged: it must have {needed}; restore it, or start anew")
    if step != state.step:
        raise InputError(f"{checkpoint}: is damaged: checkpoint.json is from another step; restore it")
    return state


def permitted_changes(settings: Mapping[str, Any], config: RunConfig, permitted: Sequence[str]) -> list[str]:
    """How the settings differ from those of a checkpoint; refused where they would make it another run."""
    try:
        saved = build_config(settings)
    except ConfigError as error:
        raise InputError(f"the checkpoint's settings cannot be read: {error}") from error
    before, now = (each.resolved().model_dump(mode="json") for each in (saved, config))
    changes = list(changed_settings(before, now))
    fixed = [words for name, words in changes if name.split(".")[0] not in permitted]
    if fixed:
        fix = f"Put them back; only {', '.join(permitted)} may change."
        raise InputError(f"the settings are not those of the last checkpoint: {'; '.join(fixed)}. {fix}")
    return [words for _, words in changes]


def check_unchanged(before: State, now: State, config: RunConfig, say: Callable[[str], None]) -> None:
    """Refuse to resume with other questions, another model or other settings; report permitted changes."""
    if changes := permitted_changes(before.settings, config, MAY_CHANGE + MAY_MOVE):
        say(f"changed since the last checkpoint: {'; '.join(changes)}")
    if before.questions != now.questions:
        raise InputError(f"{config.questions}: is not what the run was started with; put it back to resume")
    if before.model != now.model:
        which = "has other weights, another config or tokenizer than at the start"
        raise InputError(f"model: {config.model} {which}; put it back to resume")
    if before.user_code != now.user_code:
        say("the code of a method, a reader or a sampler of your own has changed since the run was started")
    if before.held_out and now.held_out and before.held_out != now.held_out:
        which = f"{config.evaluation.held_out} holds other questions than before"
        raise InputError(f"evaluation.held_out: {which}; put it back to resume, or leave it out")
