"""The settings of `scrl rollouts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator, model_validator

from scrl.data import sources
from scrl.data.prompts import PromptSettings
from scrl.data.questions import LoadedQuestions
from scrl.errors import ConfigError
from scrl.evaluation.settings import NAMES as MEASUREMENT
from scrl.sampling.settings import SamplingSettings
from scrl.setting_names import REQUEST_NAMES, SAMPLING_NAMES, Names, validated
from scrl.settings import Settings

NOT_FOR_SERVERS = {
    "prompt.max_tokens": "the server counts tokens, and refuses a prompt that is too long",
    "prompt.overlong": "the server counts tokens, and refuses a prompt that is too long",
    "sampling.stop": "a server leaves the text it stops at out of the completion, and that may cut an answer",
}


class EndpointSettings(Settings):
    """Which server to ask, what and how; completions are drawn as in training."""

    endpoint: str = Field(description="The server's address, as OpenAI's clients take it: http://localhost:8000/v1.")
    model: str = Field(description="The model's name at the server.")
    questions: str = Field(description="A file (.txt .jsonl .json .csv .tsv .parquet), a benchmark, or a hub id.")
    completions: int = Field(32, ge=1, le=10**6, description="Completions per question (-n); more can be added later.")
    sampling: SamplingSettings = SamplingSettings()
    prompt: PromptSettings = PromptSettings()
    seed: int | None = Field(0, ge=0, description="Every completion is asked for with a seed derived from it; or null.")
    logprobs: int = Field(20, ge=0, le=1000, description="Likeliest tokens to ask for, for entropies; 0: none.")
    concurrency: int = Field(16, ge=1, le=1024, description="Requests at a time.")
    timeout: float = Field(600, gt=0, description="Seconds until a request without an answer is retried.")
    retries: int = Field(8, ge=0, description="Times a request is retried before it is given up.")
    limit: sources.Limit = None
    data_dir: sources.DataDir = None
    question_column: sources.QuestionColumn = None
    gold_column: sources.GoldColumn = None
    id_column: sources.IdColumn = None
    reader: str | None = Field(None, description="How answers will be read, which decides what the prompt asks for.")

    @field_validator("endpoint")
    @classmethod
    def _bare_address(cls, value: str) -> str:
        """An address may hold a password or a key, and addresses are printed."""
        from httpx2 import URL, InvalidURL  # only requests need it

        try:
            url = URL(value)
            is_address = url.scheme in ("http", "https") and bool(url.host) and url.port in (None, *range(1, 2**16))
        except (InvalidURL, ValueError):
            is_address = False
        if not is_address:
            raise ConfigError(f"endpoint: must be an address such as http://localhost:8000/v1; got {value!r:.200}")
        if url.userinfo or url.query or url.fragment:
            raise ConfigError("endpoint: must have no user, ? or # in it; a key is given in the variable SCRL_API_KEY")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _refuse_what_no_server_takes(self) -> EndpointSettings:
        for name, reason in NOT_FOR_SERVERS.items():
            group, _, field = name.partition(".")
            if field in getattr(self, group).model_fields_set:
                raise ConfigError(f"{name}: {reason}; leave it out")
        return self

    def load_questions(self) -> LoadedQuestions:
        return sources.load_source(self.questions, seed=self.seed or 0, limit=self.limit, **sources.whereabouts(self))

    def drawn_with(self) -> dict[str, Any]:
        """The settings that make completions what they are; all others may change between two calls."""
        return self.model_dump(mode="json", include={"model", "sampling", "prompt", "seed", "logprobs"})


NAMES = Names(
    EndpointSettings,
    REQUEST_NAMES,
    not_here={
        **MEASUREMENT.not_here,
        **dict.fromkeys(SAMPLING_NAMES.keys() - REQUEST_NAMES, "the server has the model and decides that"),
    },
    listed_by="scrl rollouts --help",
)


def build_settings(values: Mapping[str, Any]) -> EndpointSettings:
    NAMES.refuse_unknown(values)
    settings = validated(EndpointSettings, NAMES.long(values), REQUEST_NAMES)
    reader = settings.reader or sources.reader_of(settings.questions)  # they decide about the prompt
    return settings.model_copy(update={"prompt": sources.prompt_for(settings.questions, reader, settings.prompt)})
