"""YAML files of settings, which may come from elsewhere: limited in size and in depth, and without aliases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scrl.errors import DataError
from scrl.files.jsonl import MAX_DEPTH

MAX_BYTES = 2**20
MAX_DIGITS = 100


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Plain values only, each name once; anything else is an error with its line."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if (first := lines.setdefault(str(key.value), key.start_mark.line + 1)) != key.start_mark.line + 1:
                raise _error(f"{key.value!r} is on line {first} already; keep one of the two", key)
        return super().construct_mapping(node, deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
        if is_number and len(node.value) > MAX_DIGITS:
            raise _error(f"a number of {len(node.value)} characters", node)
        try:
            return super().construct_object(node, deep)
        except (ValueError, ArithmeticError, TypeError, LookupError, AttributeError) as error:  # 2024-13-45, !!float _
            raise _error(str(error), node) from error


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises yaml.YAMLError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:  # a word of a command may be any bytes
        raise yaml.YAMLError("it is not UTF-8 text") from error
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _error(f"more than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.AliasEvent):  # a few lines of them expand to any size
            raise _error(f"an alias, *{event.anchor}: write the value out", event)
    return yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader


def _error(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds settings by name."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(path, f"has more than {MAX_BYTES:,} bytes; settings are small")
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(path, "is not UTF-8 text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise DataError(path, f"is not YAML: {problem}", mark and mark.line + 1) from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise DataError(path, "must hold settings by name, such as `model: embedded`", 1)
    return values


def line_of(path: Path, name: str) -> int | None:
    """The line of a setting, by its dotted name, in a file that `read_yaml` has read."""
    node = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
    return dict(_lines(node)).get(name)


def _lines(node: Any, prefix: str = "") -> Iterator[tuple[str, int]]:
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        yield f"{prefix}{key.value}", key.start_mark.line + 1
        yield from _lines(value, f"{prefix}{key.value}.")
