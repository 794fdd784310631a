"""Other places that hear of a run's numbers, by name: tensorboard, wandb, trackio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from scrl.errors import ConfigError, did_you_mean


class Tracker(Protocol):
    """Hears one mapping of numbers at a time."""

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Take the numbers of one step."""

    def close(self) -> None:
        """Send what is left."""


class _TensorBoard:
    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:  # noqa: ARG002
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call, unused-ignore]

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandbLike:
    """wandb, and trackio, which speaks the same words."""

    def __init__(self, module: Any, folder: Path, config: Mapping[str, Any]) -> None:
        self._module = module
        module.init(project="scrl", name=folder.name, config=dict(config))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._module.log(dict(numbers), step=step)

    def close(self) -> None:
        self._module.finish()


def _wandb(folder: Path, config: Mapping[str, Any]) -> Tracker:
    import wandb  # type: ignore[import-not-found, unused-ignore]

    return _WandbLike(wandb, folder, config)


def _trackio(folder: Path, config: Mapping[str, Any]) -> Tracker:
    import trackio  # type: ignore[import-not-found, unused-ignore]

    return _WandbLike(trackio, folder, config)


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _wandb,
    "trackio": _trackio,
}


PACKAGES = frozenset(TRACKERS)
"""Each of these is a package of its own name."""


def check_tracker(name: str) -> None:
    """Refuse, before anything is written, a tracker that is unknown or not installed."""
    if name not in TRACKERS:
        raise ConfigError(f"trackers: unknown tracker {name!r}.{did_you_mean(name, TRACKERS)}")
    if name in PACKAGES and find_spec(name) is None:
        raise _not_installed(name)


def open_tracker(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker:
    """A tracker by name; one that is not installed is an error that says how to install it."""
    check_tracker(name)
    try:
        return TRACKERS[name](folder, config)
    except ImportError as error:
        raise _not_installed(name) from error


def _not_installed(name: str) -> ConfigError:
    return ConfigError(f"trackers: {name} is not installed. Run: pip install 'scrl[trackers]'")
