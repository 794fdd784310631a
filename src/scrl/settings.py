"""The base of all settings: immutable, no unknown names, and no true or false where a number is meant."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

RETIRED = ("judge", "credit_workers")
"""Settings of earlier versions that are gone: files that have them stay valid, and they are ignored."""


class Settings(BaseModel):
    """Settings, validated when they are made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`--steps` without its number arrives as `steps: true`, which Python takes for 1."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        types = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        if isinstance(value, bool) and {int, float} & set(types) and bool not in types:
            raise PydanticCustomError("number_type", "Input should be a number")
        return value


def without_retired(values: Any, place: str = "") -> Any:
    """Settings without those that are gone, with a warning where one had a value."""
    if not isinstance(values, Mapping):
        return values
    for name in RETIRED:
        if values.get(name) is not None:
            warnings.warn(f"{place}{name}: scrl 0.2 has no such setting and ignores it; leave it out", stacklevel=2)
    return {name: value for name, value in values.items() if name not in RETIRED}


def changed_settings(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(setting, what it was and is) for each that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from changed_settings(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, f"{name} was {before!r} and is {now!r}"
