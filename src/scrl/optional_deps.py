"""Supported versions of optional packages: those of the extras in pyproject.toml."""

from __future__ import annotations

import importlib.metadata

from packaging.requirements import Requirement
from packaging.version import Version

from scrl.errors import ConfigError


def require_extra(name: str, setting: str) -> None:
    """Refuse a package that is missing or of an unsupported version; `setting` is the setting that needs it."""
    try:
        requirement = supported(name)
    except importlib.metadata.PackageNotFoundError:
        reason = f"which {name} is supported is known only where scrl is installed, not merely in the path"
        raise ConfigError(f"{setting}: {reason}: pip install --no-deps .") from None
    fix, version = f"pip install 'scrl[{name}]'", installed_version(name)
    if version is None:
        raise ConfigError(f"{setting}: {name} is not installed. Install it: {fix}")
    if not requirement.specifier.contains(Version(version), prereleases=True):
        raise ConfigError(f"{setting}: {name} {version} is not supported, only {requirement.specifier} is: {fix}")


def installed_version(name: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def supported(name: str) -> Requirement:
    """The requirement of the extra of this name."""
    lines = map(Requirement, importlib.metadata.requires("scrl") or ())
    return next(line for line in lines if line.name == name and str(line.marker).endswith(f'"{name}"'))
