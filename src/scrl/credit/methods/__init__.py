"""All methods by name: one file a method, one line here."""

from __future__ import annotations

from scrl.credit.method import Method
from scrl.credit.methods import controls, scrl, ttrl

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        scrl.SCRL,
        ttrl.TTRL,
        scrl.WITHOUT_SELECTIVE,
        scrl.WITHOUT_NEGATIVE,
        scrl.WITHOUT_GATE,
        scrl.WITHOUT_SHAPING,
        controls.ORACLE,
        controls.RANDOM,
        controls.INVERTED,
    )
}
