"""All methods by name: one small file each, one line here."""

from __future__ import annotations

import sys
from types import ModuleType

from scrl.credit.method import Method
from scrl.credit.methods import compass, contrast, controls, etmr, restrain, scrl, ttrl
from scrl.errors import ConfigError, did_you_mean
from scrl.user_code import import_user_module

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        scrl.SCRL,
        ttrl.TTRL,
        contrast.CONTRAST,
        contrast.CONTRAST_LABEL,
        compass.COMPASS,
        etmr.ETMR,
        restrain.RESTRAIN,
        scrl.WITHOUT_SELECTIVE,
        scrl.WITHOUT_NEGATIVE,
        scrl.WITHOUT_GATE,
        scrl.WITHOUT_SHAPING,
        *controls.CONTROLS,
    )
}


def where_found(method: Method) -> str:
    """The name by which a run finds a method again: in METHODS, or `module:NAME` of a loaded module."""
    if METHODS.get(method.name) is method:
        return method.name
    for module in [*sys.modules.values()]:
        for name, value in [*vars(module).items()] if isinstance(module, ModuleType) else ():
            if value is method and module.__name__ != "__main__":
                return f"{module.__name__}:{name}"
    raise ConfigError(
        f"method: a run must find {method.name!r} again when it is resumed. Write it into a file of its own, for "
        "instance my_methods.py, as MINE = Method(...), and import it from there, or give method='my_methods:MINE'."
    )


def find_method(name: str | Method) -> Method:
    """A method by its name in METHODS or by its import path, `module:NAME`; a method itself is returned unchanged."""
    if isinstance(name, Method):
        return name
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise ConfigError(
            f"method: unknown method {name!r}.{did_you_mean(name, METHODS)} One of your own is written module:NAME."
        )
    module, attribute = import_user_module(name, "method")
    value = getattr(module, attribute, None)
    if isinstance(value, Method):
        return value
    if value is not None:
        raise ConfigError(
            f"method: {name!r} is of type {type(value).__name__}, not a Method. Make one with Method(...) of "
            "scrl.credit.method."
        )
    methods = [each for each, other in vars(module).items() if isinstance(other, Method)]
    hint = did_you_mean(attribute, methods) if methods else " There is no Method in it."
    raise ConfigError(f"method: {module.__name__!r} has no {attribute!r}.{hint}")
