"""The base of all settings: immutable, no unknown names, no true or false where a number is meant, lists of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Settings, validated when created."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _as_meant(cls, value: Any, info: ValidationInfo) -> Any:
        """`--steps` without its number arrives as `steps: true`, which Python takes for 1; `--model 7` is a folder.

        One value where there may be several is a list of one.
        """
        annotation = cls.model_fields[str(info.field_name)].annotation
        types = set(get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,))
        if isinstance(value, bool):
            if {int, float} & types and bool not in types:
                raise PydanticCustomError("number_type", "Input should be a number")
            return value
        if get_origin(annotation) is tuple and isinstance(value, str | int):
            return (value,)
        return str(value) if isinstance(value, int | float) and str in types else value


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` updated with `over`, recursively."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def without_equal(values: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """`values` less the settings that have the same value in `tree`."""
    result: dict[str, Any] = {}
    for name, value in values.items():
        if name not in tree or value != tree[name]:
            is_tree = isinstance(value, Mapping) and isinstance(tree.get(name), Mapping)
            result[name] = without_equal(value, tree[name]) if is_tree else value
    return result


def tree_of(name: str, value: Any) -> dict[str, Any]:
    """`sampling.max_tokens`, 512 → {"sampling": {"max_tokens": 512}}."""
    outer, dot, rest = name.partition(".")
    return {outer: tree_of(rest, value) if dot else value}


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree, with its dotted name."""
    if isinstance(tree, Mapping) and tree:
        for key, inner in tree.items():
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, tree


def value_at(tree: Any, name: str) -> Any:
    """The value at a dotted name; None if there is none."""
    for part in name.split("."):
        inner = tree if isinstance(tree, Mapping) else dict(tree) if isinstance(tree, BaseModel) else {}
        tree = inner.get(part)
    return tree


def setting_rows(model: type[BaseModel], prefix: str = "", defaults: Any = None) -> Iterator[tuple[str, str, str]]:
    """Every setting of the tree: dotted name, default, description; `defaults` are the values of `model`, if given."""
    for name, field in model.model_fields.items():
        inner, default = inner_model(field.annotation), field.default if defaults is None else getattr(defaults, name)
        if inner is None or default is None:
            shown = "(required)" if field.is_required() else repr(default)
            yield f"{prefix}{name}", shown, field.description or ""
        if inner is not None:
            yield from setting_rows(inner, f"{prefix}{name}.", default)


def inner_model(annotation: Any) -> type[BaseModel] | None:
    """The nested settings class of a setting, if it is one."""
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def changed_settings(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """(setting, what it was and is) for each that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from changed_settings(before.get(key), now.get(key), f"{name}.{key}" if name else key)
    elif before != now:
        yield name, f"{name} was {before!r} and is {now!r}"
