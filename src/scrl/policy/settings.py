"""The settings of an update: loss, optimizer, adapter, and what the machine can hold."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from scrl.errors import ConfigError
from scrl.settings import Settings

Mean = Literal["completion", "token", "constant", "pairs"]
KLEstimate = Literal["k1", "k2", "k3", "k3-capped"]


class LossSettings(Settings):
    """How advantages become a loss."""

    ratio: Literal["token", "completion"] = Field("token", description="ρ per token (GRPO) or per completion (GSPO).")
    clip_low: float = Field(0.2, ge=0, description="ε_low: the ratio is clipped below 1 − ε_low.")
    clip_high: float = Field(0.2, ge=0, description="ε_high: the ratio is clipped above 1 + ε_high.")
    dual_clip: float | None = Field(None, gt=1, description="c: with a negative advantage the loss is at most −c·Â.")
    mean: Mean = Field("completion", description="What a token's loss is divided by.")
    kl_weight: float = Field(0.0, ge=0, description="Weight of the KL estimate to the start model.")
    kl: KLEstimate = Field("k3", description="Which estimate of that KL; k3-capped: k3, at most 10, as in verl.")
    entropy_bonus: float = Field(0.0, description="Weight of the mean entropy in the objective.")


LOSS_VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "dapo": {"clip_high": 0.28, "mean": "token"},
    "dr-grpo": {"mean": "constant"},
    "gspo": {"ratio": "completion", "clip_low": 3e-4, "clip_high": 4e-4},
    "rloo": {},
}
"""What each named loss changes in LossSettings."""

ADVANTAGE_OF_VARIANT: dict[str, str] = {"dr-grpo": "centred", "rloo": "leave-one-out"}
"""The advantage that belongs to a named loss, if it is not the normalised one."""


ADAPTER_LEARNING_RATE = 5e-5
"""The default with an adapter; measured: docs/results.md#learning-rates."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""AdamW's β₁, β₂ and ε."""


class OptimizerSettings(Settings):
    """AdamW with a warm-up and a cosine."""

    learning_rate: float = Field(
        5e-7,
        gt=0,
        description=f"The highest learning rate; the method's own, with an adapter {ADAPTER_LEARNING_RATE:g}.",
    )
    warmup: float = Field(0.03, ge=0, le=1, description="Share of all updates over which it rises linearly.")
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="After the warm-up: half a cosine down to 0, or constant."
    )
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients with a larger norm are scaled down to it.")
    state: Literal["float32", "bfloat16"] = Field(
        "float32", description="AdamW's two averages: 8 bytes per weight, or 4, rounded stochastically."
    )


class LoraSettings(Settings):
    """A low-rank adapter instead of all weights."""

    rank: int = Field(16, ge=1, description="Rank r of the adapter on every linear layer (α = 2 r).")


class ComputeSettings(Settings):
    """What runs where, and how much at a time.

    None of this changes what is computed, except for rounding; but a different sampler draws different random numbers.
    """

    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps.")
    dtype: Literal["auto", "float32", "bfloat16"] = Field("auto", description="Of weights; auto: bfloat16 on a GPU.")
    micro_batch: int = Field(16, ge=1, description="Completions per pass of an update; fewer where memory runs out.")
    sampler_rows: int = Field(512, ge=1, description="Completions decoded side by side; halved when memory runs out.")
    sampler: str = Field("local", description="What draws completions: local, or one of your own, module:NAME.")
    gradient_checkpointing: bool = Field(
        False,
        description="Recompute activations instead of keeping them; turned on automatically where one completion would "
        "not fit.",
    )

    @field_validator("sampler")
    @classmethod
    def _known_or_own(cls, value: str) -> str:
        module, colon, name = value.partition(":")
        if value != "local" and not (module and colon and name):
            hint = "vLLM samples with engine: trl or verl"
            raise ConfigError(f"compute.sampler: {value!r} is neither local nor one of your own, module:NAME; {hint}")
        return value
