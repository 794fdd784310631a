"""Which engine runs the steps, and what only ours can do; TRL and verl are imported only when chosen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from scrl.config import RunConfig
from scrl.data.folders import num_processes
from scrl.errors import ConfigError
from scrl.optional_deps import installed_version, require_extra, supported
from scrl.policy.model_paths import adapter_folder
from scrl.sampling.sampler import check_sampler
from scrl.training.listeners import RunListener, check_trackers

if TYPE_CHECKING:
    from scrl.training.run_folder import RunFolder


class Engine(NamedTuple):
    """How a run is started and resumed; both return its folder."""

    train: Callable[[RunConfig, Path, RunListener], RunFolder]
    resume: Callable[[Path, RunListener], RunFolder]


def engine_of(config: RunConfig) -> Engine:
    if config.engine == "embedded":
        from scrl.training import loop

        return Engine(
            lambda config, out, listener: loop.train(config, out, listener).folder,
            lambda out, listener: loop.resume(out, listener).folder,
        )
    require_engine(config.engine)
    if config.engine == "trl":
        from scrl.engines.trl import run as trl_run

        return Engine(trl_run.train, trl_run.resume)
    from scrl.engines.verl import run as verl_run

    return Engine(verl_run.train, verl_run.resume)


def check_engine(config: RunConfig) -> None:
    """Refuse, before anything else, what is not installed and settings that the engine cannot honour."""
    if config.engine != "verl" and (config.nodes, config.gpus) != (1, 1):
        raise ConfigError(f"nodes, gpus: are for engine: verl; {config.engine} takes the GPUs it is started on")
    if config.engine == "embedded":
        if num_processes() > 1:
            raise ConfigError("engine: embedded is one process; start it without torchrun, or use engine: trl")
        check_sampler(config.compute)
        check_trackers(config.trackers)
        return
    if adapter_folder(config.model) is not None and (config.engine == "verl" or config.engine_options.get("use_vllm")):
        raise ConfigError(
            f"model: {config.model} is an adapter, and verl and TRL with vLLM start from whole models; use engine: "
            "embedded"
        )
    require_engine(config.engine)
    if config.engine == "trl":
        from scrl.engines.trl.settings import check_config

        check_config(config)
    if config.engine == "verl":
        from scrl.engines.verl.settings import check_options

        check_options(config.engine_options)


def check_machine(config: RunConfig) -> None:
    """Refuse what this machine cannot train, before verl says so a minute later."""
    if config.engine == "verl" and config.nodes == 1 and "RAY_ADDRESS" not in os.environ:
        import torch

        if not torch.cuda.is_available():
            raise ConfigError(
                "engine: verl trains on GPUs and there is none here; scrl train --dry-run writes its files and command "
                "for a machine that has some"
            )


def require_engine(name: str) -> None:
    """Refuse an engine that is not installed, or not in a version of our extra of its name.

    verl 0.9's workers import a class with a value head from any TRL they find; the TRL of our extra has none.
    """
    require_extra(name, "engine")
    trl = installed_version("trl")
    if name == "verl" and trl and supported("trl").specifier.contains(Version(trl), prereleases=True):
        raise ConfigError(
            f"engine: verl does not start where trl {trl} is installed: it imports what is no longer there. Give "
            "verl its own environment, or: pip uninstall trl"
        )


def shared_refusals(config: RunConfig, engine: str) -> Iterator[tuple[str, str]]:
    """(setting, reason) for every setting that neither TRL nor verl can honour; `engine` is the one to name."""
    if config.dynamic_sampling.rounds:
        yield "dynamic_sampling.rounds", f"{engine} asks the questions of a step once"
    if config.sampling.stop:
        yield "sampling.stop", f"{engine} ends completions only at end-of-text tokens"
    if config.optimizer.state != "float32":
        yield "optimizer.state", f"{engine}'s optimizer has only float32"
