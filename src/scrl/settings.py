"""What all settings have in common: they do not change, know all their names, and take no yes or no for a number."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Settings, checked as they are made."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        """`--steps` with its number forgotten is `steps: true`, which Python takes for 1."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and _is_number(field.annotation):
            raise PydanticCustomError("number_type", "Input should be a number")
        return value


def _is_number(annotation: Any) -> bool:
    """Whether numbers are meant and truth values are not."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return bool({int, float} & set(options)) and bool not in options
