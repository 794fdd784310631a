"""What verl loads in every process of a run (entry point `verl.plugins`): our trainer among verl's own.

verl's trainers take seconds to import and only one process needs them, so ours is added when verl's are imported. verl
does not report a plugin that fails to load; so the error is raised when trainer_mode=scrl is chosen.
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


class AfterImport(MetaPathFinder, Loader):
    """Imports verl's trainers as usual, then adds ours."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """verl's trainers as other finders locate them, wrapped in this loader; nothing else."""
        if name != TRAINERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        self._loader, spec.loader = spec.loader, self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        add_trainer()


def add_trainer() -> None:
    """Register our trainer; if it cannot be loaded, say why only when it is chosen."""
    try:
        importlib.import_module("scrl.engines.verl.trainer")
    except Exception as error:
        problem = error

        def refuse(config: Any) -> None:  # noqa: ARG001 - a trainer's signature
            reason = f"{type(problem).__name__}: {problem}"
            raise ConfigError(f"trainer.v1.trainer_mode: 'scrl' cannot be used here: {reason}") from problem

        importlib.import_module(f"{TRAINERS}.trainer_base").TRAINER_REGISTRY["scrl"] = refuse


if TRAINERS in sys.modules:
    add_trainer()
else:
    sys.meta_path.insert(0, AfterImport())
