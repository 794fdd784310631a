"""The words of a command: settings as --name value, and words that stand alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel

from scrl.setting_names import Names
from scrl.settings import inner_model, merged

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""What a command's own options leave over."""
_SWITCH_VALUES = ("true", "false", "yes", "no", "on", "off", "1", "0", "null")


def split_words(
    words: Sequence[str], switches: Collection[str] = (), *, has_bare_settings: bool = False
) -> tuple[list[str], list[str]]:
    """`mine.txt --loss.clip-high 0.3 --drop-last` → [mine.txt], [loss.clip_high=0.3, drop_last=true].

    Of `switches` the value may be left out before a word that stands alone. With `has_bare_settings` seed=1 is one too.
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
            settings.append(f"{name}={rest.pop(0)}")
    return alone, settings


def settings_in(
    words: Sequence[str], names: Names, *, repeatable: Collection[str] = ()
) -> tuple[list[str], dict[str, Any]]:
    """The words that stand alone, and the settings, under their long names; those that are repeatable in lists."""
    from scrl.config import override

    alone, texts = split_words(words, switches_of(names.model))
    values: dict[str, Any] = {}
    for text in texts:
        each = override(text)
        for name in set(repeatable) & each.keys():
            each[name] = [*values.get(name, ()), each[name]]
        values = merged(values, each)
    names.refuse_unknown(values, is_option=True)
    return alone, names.long(values)


def switches_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The settings that are on or off, by their dotted names."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner: Any = inner_model(field.annotation)
        if field.annotation is bool or (inner is not None and field.default is None):
            found.append(f"{prefix}{name}")
        if inner is not None:
            found += switches_of(inner, f"{prefix}{name}.")
    return found
