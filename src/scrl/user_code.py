"""Code of a user's own, by its import path: `module:NAME`."""

from __future__ import annotations

import importlib
from types import ModuleType

from scrl.errors import ConfigError


def import_user_module(path: str, setting: str) -> tuple[ModuleType, str]:
    """The module of `module:NAME`, and NAME; `setting` is the one that named it."""
    module_name, _, name = path.partition(":")
    try:
        return importlib.import_module(module_name), name
    except Exception as error:  # importing runs the user's file, which may raise anything
        reason = f"importing {module_name!r} raised {type(error).__name__}: {error}"
        raise ConfigError(
            f"{setting}: {path!r}: {reason}. Give module:NAME of a module that lies in this folder or in PYTHONPATH, "
            "or is installed."
        ) from error
