"""Trackers, which receive the numbers of each step: tensorboard, wandb, trackio."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scrl.errors import ConfigError, did_you_mean

Log = Callable[[int, Mapping[str, float]], object]
"""Takes the number of a step, and its numbers."""


@contextmanager
def _tensorboard(folder: Path, _config: Mapping[str, Any]) -> Iterator[Log]:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call, unused-ignore]
    with writer:
        yield lambda step, numbers: [writer.add_scalar(name, value, step) for name, value in numbers.items()]


@contextmanager
def _wandb(name: str, folder: Path, config: Mapping[str, Any]) -> Iterator[Log]:
    """By wandb, or by trackio, which has the same functions."""
    module = importlib.import_module(name)
    module.init(project="scrl", name=folder.name, config=dict(config))
    try:
        yield lambda step, numbers: module.log(dict(numbers), step=step)
    finally:
        module.finish()


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], AbstractContextManager[Log]]] = {
    "tensorboard": _tensorboard,
    "wandb": partial(_wandb, "wandb"),
    "trackio": partial(_wandb, "trackio"),
}
"""Trackers by name; each needs the package of that name."""


def check_trackers(names: Iterable[str]) -> None:
    """Refuse, before anything is written, a tracker that is unknown or not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"trackers: unknown tracker {name!r}.{did_you_mean(name, TRACKERS)}")
        if find_spec(name) is None:
            raise ConfigError(f"trackers: {name} is not installed. Run: pip install 'scrl[trackers]'")
