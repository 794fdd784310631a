"""Settings of a command: as --name value among its words, and in its help."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from cyclopts import Parameter
from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console, ConsoleOptions
from rich.text import Text

from scrl import config
from scrl.data.tables import SUFFIXES
from scrl.evaluation import settings as evaluation_settings
from scrl.lab import endpoint_settings
from scrl.setting_names import Names, as_option
from scrl.settings import inner_model, merged

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""The words not taken by a command's own options."""
_SWITCH_VALUES = ("true", "false", "yes", "no", "on", "off", "1", "0", "null")


def split_words(
    words: Sequence[str], switches: Collection[str] = (), *, has_bare_settings: bool = False
) -> tuple[list[str], list[str]]:
    """`mine.txt --loss.clip-high 0.3 --drop-last` → [mine.txt], [loss.clip_high=0.3, drop_last=true].

    `switches` may omit their value, even before a bare word. With `has_bare_settings` seed=1 is a setting too. Files
    that follow `--questions FILE` are more questions. Cyclopts has no bare settings, no switch that
    may also be given as `--drop-last false`, and no option that takes words for as long as they look like files.
    """
    alone: list[str] = []
    settings: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") and not (equals and has_bare_settings):
            alone.append(word)
        elif equals:
            settings.append(f"{name}={value}")
        elif not rest or rest[0].startswith("--") or (name in switches and rest[0].lower() not in _SWITCH_VALUES):
            settings.append(f"{name}=true")
        else:
            values = [rest.pop(0)]
            while name == "questions" and rest and rest[0].lower().endswith(SUFFIXES):
                values.append(rest.pop(0))
            settings.append(f"{name}={','.join(values)}")
    return alone, settings


def settings_in(
    words: Sequence[str], names: Names, *, repeatable: Collection[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """The bare words, and the settings under their long names; repeatable ones in lists."""
    alone, texts = split_words(words, switches_of(names.model))
    values: dict[str, Any] = {}
    for text in texts:
        each = config.override(text)
        for name in set(repeatable) & each.keys():
            each[name] = [*values.get(name, ()), each[name]]
        values = merged(values, each)
    names.refuse_unknown(values, is_option=True)
    return alone, names.long(values)


def switches_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The settings that are on or off, by their dotted names."""
    switches: list[str] = []
    for name, field in model.model_fields.items():
        inner: Any = inner_model(field.annotation)
        if field.annotation is bool or (inner is not None and field.default is None):
            switches.append(f"{prefix}{name}")
        if inner is not None:
            switches += switches_of(inner, f"{prefix}{name}.")
    return switches


# Help

RUN_GROUPS = {
    "Settings, those that matter most first": "model questions method steps completions trained max_tokens temperature "
    "learning_rate seed",
    "Questions and answers": "limit question_column gold_column data_dir reader prompt_style instruction system top_p",
    "Learning": "questions_per_step questions_per_update lora loss_variant loss.kl_weight optimizer.warmup",
    "Measuring and keeping": "evaluation.every evaluation.completions evaluation.held_out checkpoint_every trackers",
    "Machine": "device dtype sampler compute.micro_batch engine gpus",
}
MEASUREMENT_GROUPS = {
    "Settings, those that matter most first": "model questions completions max_tokens temperature top_p seed k",
    "Questions and answers": "limit question_column gold_column id_column data_dir reader significant_digits",
    "Prompt": "prompt_style instruction system max_prompt_tokens prompt.overlong",
    "Machine": "device dtype sampler sampler_rows trust_remote_code",
}
ENDPOINT_GROUPS = {
    "Settings, those that matter most first": "endpoint model questions completions max_tokens temperature top_p seed "
    "concurrency logprobs",
    "Questions and prompt": "limit question_column gold_column id_column data_dir reader prompt_style instruction "
    "system",
    "Requests": "timeout retries",
}
"""Title → the names shown under it, in one text."""
RUN_REST = """\
All settings, with their long names: scrl train --list-settings. Those of a method: scrl methods NAME.
The names are the same in a YAML file and in Python, with _ for -."""
MEASUREMENT_REST = "Long names hold too, as in scrl train --list-settings: --sampling.stop, --prompt.overlong, …"
ENDPOINT_REST = """\
Style plain asks for completions without a chat, all others for chat completions; auto is chat.
A key goes into the environment variable SCRL_API_KEY and nowhere else."""
_METAVARS = {int: "INT", float: "FLOAT", str: "TEXT"}


class SettingHelp(DefaultFormatter):
    """The help of a command that takes settings: they come before its own options.

    Cyclopts' help of a model lists all its settings by their long names; this, those that matter by their short ones.
    """

    def __init__(self, names: Names, groups: Mapping[str, str], rest: str) -> None:
        """`rest` says where the other settings are."""
        super().__init__()
        self._names, self._groups, self._rest = names, groups, rest

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        super().render_description(console, options, description)
        for title, listed in self._groups.items():
            entries = [_entry(self._names, name) for name in listed.split()]
            self(console, options, HelpPanel("parameter", title, entries=entries))
        console.print(f"{self._rest}\n")


def _entry(names: Names, name: str) -> HelpEntry:
    field, default = find_setting(names, name)
    words = Text(field.description or "")
    if not field.is_required():
        shown = "off" if default is False else "none" if default in (None, ()) else default
        words.append(f" [{shown}]", "cyclopts.default")
    return HelpEntry(positive_names=(as_option(name),), metavar=_metavar(field.annotation), description=words)


def find_setting(names: Names, name: str) -> tuple[FieldInfo, Any]:
    """A setting by its short or dotted name, and its default for that command."""
    *outer, last = names.short.get(name, name).split(".")
    model, values = names.model, None
    for part in outer:
        field = model.model_fields[part]
        values = field.default if values is None else getattr(values, part)
        inner = inner_model(field.annotation)
        assert inner is not None
        model = inner
    field = model.model_fields[last]
    default = getattr(values, last) if isinstance(values, BaseModel) else field.default
    return field, None if field.is_required() else default


def _metavar(annotation: Any) -> str | None:
    """What a value looks like; nothing for a switch."""
    types = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    first = types[0]
    if first is bool or inner_model(first) is not None:
        return None
    if get_origin(first) is Literal:
        return "|".join(map(str, get_args(first)))
    return _METAVARS.get(get_args(first)[0] if get_origin(first) is tuple else first, "TEXT")


HELP = {
    "train": SettingHelp(config.NAMES, RUN_GROUPS, RUN_REST),
    "plan": SettingHelp(config.NAMES, dict(islice(RUN_GROUPS.items(), 1)), RUN_REST),
    "evaluate": SettingHelp(evaluation_settings.NAMES, MEASUREMENT_GROUPS, MEASUREMENT_REST),
    "rollouts": SettingHelp(endpoint_settings.NAMES, ENDPOINT_GROUPS, ENDPOINT_REST),
    "answers": SettingHelp(evaluation_settings.NAMES, dict(islice(MEASUREMENT_GROUPS.items(), 1)), MEASUREMENT_REST),
}
"""The part of a command's help that lists its settings."""
