"""All methods by name: one file a method, one line here."""

from __future__ import annotations

from scrl.credit.method import Method
from scrl.credit.methods import (
    co_rewarding,
    compass,
    contrast,
    controls,
    dare,
    ddrl,
    empo,
    etmr,
    evol_rl,
    intuitor,
    rent,
    restrain,
    scrl,
    self_harmony,
    spine,
    ttrl,
)

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        scrl.SCRL,
        ttrl.TTRL,
        contrast.CONTRAST,
        compass.COMPASS,
        etmr.ETMR,
        restrain.RESTRAIN,
        scrl.WITHOUT_SELECTIVE,
        scrl.WITHOUT_NEGATIVE,
        scrl.WITHOUT_GATE,
        scrl.WITHOUT_SHAPING,
        rent.RENT,
        intuitor.INTUITOR,
        empo.EMPO,
        ddrl.DDRL,
        spine.SPINE,
        dare.DARE,
        evol_rl.EVOL_RL,
        self_harmony.SELF_HARMONY,
        co_rewarding.CO_REWARDING,
        *controls.CONTROLS,
    )
}
