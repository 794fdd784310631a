"""Which versions of an engine are supported: those of our extra of its name, as pyproject.toml says it once."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement
from packaging.version import Version

from scrl.errors import ConfigError


def require_engine(name: str) -> None:
    """Refuse an engine that is not installed, or that is not of a version this package was tested with."""
    wanted = supported(name)
    fix = f"pip install 'scrl[{name}]'"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(f"engine: {name} is not installed. Install it: {fix}") from None
    if not wanted.specifier.contains(Version(found), prereleases=True):
        raise ConfigError(f"engine: {name} {found} is not supported, only {wanted.specifier} is. Install that: {fix}")


def supported(name: str) -> Requirement:
    """What our extra asks for."""
    lines = map(Requirement, importlib.metadata.requires("scrl") or ())
    return next(line for line in lines if line.name == name and str(line.marker).endswith(f'"{name}"'))
