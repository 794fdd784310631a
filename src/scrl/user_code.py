"""The user's own code, by its import path. Nothing else in the current folder is ever imported."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from scrl.errors import ConfigError


def import_user_module(path: str, setting: str) -> tuple[ModuleType, str]:
    """The module of `module:NAME`, and NAME; `setting` is the one that named it."""
    module_name, _, name = path.partition(":")
    refuse_pythons_own(module_name, path, setting)
    try:
        with importable_from_here():
            return importlib.import_module(module_name), name
    except Exception as error:  # importing runs the user's file, which may raise anything
        reason = f"importing {module_name!r} raised {type(error).__name__}: {error}"
        fix = "Give module:NAME of a module in this folder, in PYTHONPATH or installed."
        raise ConfigError(f"{setting}: {path!r}: {reason}. {fix}") from error


def source_digest(paths: Iterable[str]) -> str:
    """The same for the same source files of the modules among these settings; empty where none names a module."""
    digest, files = hashlib.blake2b(digest_size=16), set[Path]()
    for path in paths:
        module = sys.modules.get(path.partition(":")[0]) if ":" in path else None
        if module is not None and module.__file__:
            files.add(Path(module.__file__))
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest() if files else ""


@contextmanager
def importable_from_here() -> Iterator[None]:
    """Let modules be imported from the current folder, only within the block; installed ones take precedence.

    Otherwise a file named like an optional package that is not installed would run unasked.
    """
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def refuse_pythons_own(module_name: str, path: str, setting: str) -> None:
    """Refuse what comes with Python: `os.system` would run what a model wrote."""
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise ConfigError(f"{setting}: {path!r} is a part of Python; write your own function that calls it")
