"""What verl loads in every process of a run (entry point `verl.plugins`): our trainer among verl's own.

verl's trainers take seconds to import and only one process needs them, so nothing is imported here: the trainer is
added when somebody imports verl's. verl says nothing about a plugin that fails to load; so what fails here is
said by whoever asks for trainer_mode=scrl.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from scrl.errors import ConfigError

TRAINERS = "verl.trainer.ppo.v1"
MODE = "scrl"


class AfterImport(MetaPathFinder, Loader):
    """Imports TRAINERS as ever, then adds ours."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """TRAINERS as others find it, with this loader around theirs; nothing else."""
        if name != TRAINERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        add_trainer()


def add_trainer() -> None:
    """Our trainer under its name; one that cannot be had says why when it is asked for."""
    try:
        importlib.import_module("scrl.engines.verl.trainer")
    except Exception as error:  # whatever it is, users of verl's other trainers need not know
        registry = importlib.import_module(f"{TRAINERS}.trainer_base").TRAINER_REGISTRY
        registry[MODE] = Unavailable(error)


class Unavailable:
    """Stands where the trainer would: asked for, it raises what went wrong."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, config: Any) -> None:  # noqa: ARG002 - a trainer's signature
        """Refuse to be a trainer."""
        reason = f"{type(self._error).__name__}: {self._error}"
        raise ConfigError(f"trainer.v1.trainer_mode: {MODE!r} cannot be used here: {reason}") from self._error


if TRAINERS in sys.modules:
    add_trainer()
else:
    sys.meta_path.insert(0, AfterImport())
