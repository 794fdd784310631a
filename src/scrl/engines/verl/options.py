"""Which settings verl has: `engine_options` are held against its own files before it is started.

verl merges a name that it does not know into its configuration, and then stops a minute later, or passes it over.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scrl.errors import ConfigError, did_you_mean

FREE = ("ray_kwargs.ray_init",)
"""Where settings of others stand (Ray's), which verl's files do not list; and wherever they list none at all."""


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse settings that verl does not have."""
    for name, known in unknown_options(options, verl_defaults() if options else {}):
        hint = did_you_mean(name.rpartition(".")[2], known)
        raise ConfigError(f"engine_options.{name}: verl has no such setting.{hint}")


def verl_defaults() -> dict[str, Any]:
    """verl's configuration as its files have it; verl itself is not imported."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    found = importlib.util.find_spec("verl")
    assert found is not None
    assert found.origin is not None
    with initialize_config_dir(str(Path(found.origin).parent / "trainer" / "config"), version_base=None):
        defaults: dict[str, Any] = OmegaConf.to_container(compose("ppo_trainer"))
    return defaults


def unknown_options(
    options: Mapping[str, Any], known: Mapping[str, Any], place: str = ""
) -> Iterator[tuple[str, list[str]]]:
    """Dotted names that are not among the known ones, each with those that are known in its place."""
    for key, value in options.items():
        name = f"{place}{key}"
        if key not in known:
            here = [*known, *_fields(known.get("_target_"))]
            yield from [(name, [each for each in here if not each.startswith("_")])] if key not in here else []
        elif isinstance(value, Mapping) and isinstance(known[key], Mapping) and known[key] and name not in FREE:
            yield from unknown_options(value, known[key], f"{name}.")


def _fields(target: str | None) -> Iterator[str]:
    """The settings of the class that verl makes of a part of its configuration; its files do not list all of them."""
    if target is not None:
        from hydra.utils import get_class

        yield from getattr(get_class(target), "__dataclass_fields__", ())
