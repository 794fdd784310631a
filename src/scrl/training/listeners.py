"""What follows a run: the listener, which shows it to the user, and trackers (tensorboard, wandb, trackio)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from scrl.errors import ConfigError, did_you_mean

_LOG = logging.getLogger("scrl")


class RunListener(Protocol):
    """Receives what a run does: notes, steps and evaluations."""

    def note(self, text: str) -> None:
        """Something a user should know."""

    def step(self, metrics: dict[str, Any], words: str) -> None:
        """A step is done."""

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        """This many questions of an evaluation have their completions."""

    def tokens(self, done: int, most: int) -> None:
        """The completions being drawn have this many tokens."""

    def evaluation(self, record: dict[str, Any]) -> None:
        """An evaluation is done."""


class Silent:
    """Shows nothing: notes go to the log named `scrl` as warnings, all else at level INFO."""

    def note(self, text: str) -> None:
        _LOG.warning(text)

    def step(self, metrics: dict[str, Any], words: str) -> None:
        _LOG.info("step %d: %s", metrics["step"] + 1, words)

    def evaluation(self, record: dict[str, Any]) -> None:
        _LOG.info("evaluation: %s", {key: value for key, value in record.items() if not isinstance(value, dict)})

    def progress(self, benchmark: str, questions: int, total: int) -> None:
        _LOG.info("%s: %d of %d questions", benchmark, questions, total)

    def tokens(self, done: int, most: int) -> None:
        pass

    result = evaluation
    """A benchmark of `scrl evaluate` is done."""


class _TensorBoard:
    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:  # noqa: ARG002 - a tracker's signature
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call, unused-ignore]

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandbLike:
    """wandb, and trackio, which has the same functions."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        self._module = importlib.import_module(name)
        self._module.init(project="scrl", name=folder.name, config=dict(config))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._module.log(dict(numbers), step=step)

    def close(self) -> None:
        self._module.finish()


Tracker = _TensorBoard | _WandbLike
TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": partial(_WandbLike, "wandb"),
    "trackio": partial(_WandbLike, "trackio"),
}
"""Trackers by name; each needs the package of that name."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse, before anything is written, a tracker that is unknown or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"trackers: unknown tracker {name!r}.{did_you_mean(name, TRACKERS)}")
        if find_spec(name) is None:
            raise ConfigError(f"trackers: {name} is not installed. Run: pip install 'scrl[trackers]'")
