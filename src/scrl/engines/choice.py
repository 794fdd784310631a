"""Which engine runs the steps; TRL and verl are imported only when chosen."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from scrl.config import RunConfig
from scrl.engines.requirements import require_engine
from scrl.errors import ConfigError
from scrl.files.folders import num_processes
from scrl.policy.model_paths import adapter_folder
from scrl.sampling.local import check_sampler
from scrl.training.trackers import check_trackers


def engine_of(config: RunConfig) -> Any:
    """The module with `train(config, out, listener)`, which starts a run, and `resume(out, listener)`."""
    if config.engine == "local":
        return import_module("scrl.training.loop")
    require_engine(config.engine)
    return import_module(f"scrl.engines.{config.engine}.run")


def check_engine(config: RunConfig) -> None:
    """Refuse, before anything else, what is not installed and settings that the engine cannot honour."""
    if config.engine != "verl" and (config.nodes, config.gpus) != (1, 1):
        raise ConfigError(f"nodes, gpus: are for engine: verl; {config.engine} takes the GPUs it is started on")
    if config.engine == "local":
        if num_processes() > 1:
            raise ConfigError("engine: local is one process; start it without torchrun, or use engine: trl")
        check_sampler(config.compute)
        check_trackers(config.trackers)
        return
    if adapter_folder(config.model) is not None and (config.engine == "verl" or config.engine_options.get("use_vllm")):
        raise ConfigError(f"model: {config.model} is an adapter; verl and vLLM need whole models: use engine: local")
    require_engine(config.engine)
    if config.engine == "trl":
        from scrl.engines.trl.settings import check_config

        check_config(config)
    if config.engine == "verl":
        from scrl.engines.verl.settings import check_options

        check_options(config.engine_options)
