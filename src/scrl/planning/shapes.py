"""The shape of a language model: how many weights it has, and how many bytes of KV cache a token takes.

Shapes are known by name or config.json for Llama-, Mistral-, Qwen2- and Qwen3-shaped models, which the group sampler
knows too; of any other model that transformers can open, weights are counted and only the cache follows from the shape.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scrl.errors import ConfigError, DataError, did_you_mean
from scrl.files.jsonl import read_object
from scrl.policy.model_paths import PACKAGED, adapter_folder, base_of, model_folder


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The numbers of a config.json that decide sizes. In formulas: E hidden, H heads, H_kv kv_heads, D head_size, V."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp: int
    """Hidden size within a layer's MLP."""
    vocabulary: int
    is_tied: bool
    """Whether the embedding is the head too."""
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    counted_weights: int | None = None
    """The weights of a model of another type, for which the formulas below do not hold."""

    @property
    def layer_weights(self) -> int:
        """Q, K, V and O, three matrices of the MLP, two norms; biases of Q, K and V, norms of Q and K.

        E (H + 2 H_kv) D + H D E + 3 E mlp + 2 E (+ (H + 2 H_kv) D) (+ 2 D)
        """
        projected = (self.heads + 2 * self.kv_heads) * self.head_size
        matrices = self.hidden * (projected + self.heads * self.head_size + 3 * self.mlp)
        return matrices + 2 * self.hidden + self.has_qkv_bias * projected + self.has_qk_norm * 2 * self.head_size

    @property
    def outer_weights(self) -> int:
        """The embedding, the head if it is a separate matrix, and the last norm: (1 or 2) V E + E."""
        return (2 - self.is_tied) * self.vocabulary * self.hidden + self.hidden

    @property
    def num_weights(self) -> int:
        """The number of all weights: W."""
        return self.counted_weights or self.layers * self.layer_weights + self.outer_weights

    def adapter_weights(self, rank: int) -> int:
        """A low-rank adapter on all matrices of all layers: rank · (in + out) each."""
        heads, kv_heads = self.heads * self.head_size, self.kv_heads * self.head_size
        sides = 2 * (self.hidden + heads) + 2 * (self.hidden + kv_heads) + 3 * (self.hidden + self.mlp)
        return self.layers * rank * sides

    def cache_bytes(self, size: int) -> int:
        """A token's keys and values in all layers, in numbers of `size` bytes: 2 · layers · H_kv · D · size."""
        return 2 * self.layers * self.kv_heads * self.head_size * size


_QWEN2, _QWEN3 = {"has_qkv_bias": True}, {"has_qk_norm": True}
SHAPES: dict[str, ModelShape] = {
    "Qwen/Qwen2.5-0.5B": ModelShape(24, 896, 14, 2, 64, 4864, 151936, True, **_QWEN2),
    "Qwen/Qwen2.5-1.5B": ModelShape(28, 1536, 12, 2, 128, 8960, 151936, True, **_QWEN2),
    "Qwen/Qwen2.5-3B": ModelShape(36, 2048, 16, 2, 128, 11008, 151936, True, **_QWEN2),
    "Qwen/Qwen2.5-7B": ModelShape(28, 3584, 28, 4, 128, 18944, 152064, False, **_QWEN2),
    "Qwen/Qwen2.5-14B": ModelShape(48, 5120, 40, 8, 128, 13824, 152064, False, **_QWEN2),
    "Qwen/Qwen2.5-32B": ModelShape(64, 5120, 40, 8, 128, 27648, 152064, False, **_QWEN2),
    "Qwen/Qwen2.5-Math-7B": ModelShape(28, 3584, 28, 4, 128, 18944, 152064, False, **_QWEN2),
    "Qwen/Qwen2.5-72B": ModelShape(80, 8192, 64, 8, 128, 29568, 152064, False, **_QWEN2),
    "Qwen/Qwen3-0.6B": ModelShape(28, 1024, 16, 8, 128, 3072, 151936, True, **_QWEN3),
    "Qwen/Qwen3-1.7B": ModelShape(28, 2048, 16, 8, 128, 6144, 151936, True, **_QWEN3),
    "Qwen/Qwen3-4B": ModelShape(36, 2560, 32, 8, 128, 9728, 151936, True, **_QWEN3),
    "Qwen/Qwen3-8B": ModelShape(36, 4096, 32, 8, 128, 12288, 151936, False, **_QWEN3),
    "Qwen/Qwen3-14B": ModelShape(40, 5120, 40, 8, 128, 17408, 151936, False, **_QWEN3),
    "Qwen/Qwen3-32B": ModelShape(64, 5120, 64, 8, 128, 25600, 151936, False, **_QWEN3),
    "HuggingFaceTB/SmolLM2-135M-Instruct": ModelShape(30, 576, 9, 3, 64, 1536, 49152, True),
    "meta-llama/Llama-3.2-1B-Instruct": ModelShape(16, 2048, 32, 8, 64, 8192, 128256, True),
    "meta-llama/Llama-3.2-3B-Instruct": ModelShape(28, 3072, 24, 8, 128, 8192, 128256, True),
    "meta-llama/Llama-3.1-8B-Instruct": ModelShape(32, 4096, 32, 8, 128, 14336, 128256, False),
    "meta-llama/Llama-3.1-70B-Instruct": ModelShape(80, 8192, 64, 8, 128, 28672, 128256, False),
}
"""By hub id, from the published config.json of each."""
TYPES: dict[str, dict[str, bool]] = {"llama": {}, "mistral": {}, "qwen2": _QWEN2, "qwen3": _QWEN3}
"""By `model_type`: what it adds to a layer."""


def shape_of(model: str) -> ModelShape:
    """The shape of a model: for a folder from its config.json, for a hub id from SHAPES. No weights are needed.

    A model and its -Instruct have one shape.
    """
    plain = model.removesuffix("-Instruct")
    for name in (plain, f"{plain}-Instruct"):
        if name in SHAPES:
            return SHAPES[name]
    folder = Path(model_folder(model) if model in PACKAGED else model).expanduser()
    if adapter_folder(model) is not None:
        return shape_of(base_of(folder))
    if folder.is_dir():
        return read_shape(folder / "config.json")
    near = did_you_mean(model, SHAPES)
    raise ConfigError(f"model: no shape of {model} is known.{near} Or give a folder that holds its config.json.")


def read_shape(path: Path) -> ModelShape:
    values = read_object(path)
    kind = str(values.get("model_type"))
    if kind not in TYPES:
        raise DataError(path, f"is of the type {kind!r:.50}; sizes are known for {', '.join(TYPES)}")
    if values.get("attention_bias") or values.get("mlp_bias"):
        raise DataError(path, "has biases that such models do not have; its sizes are not known")
    try:
        return replace(_shape(values), **TYPES[kind])
    except KeyError as error:
        raise DataError(path, f"does not say {error.args[0]!r}") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise DataError(path, f"has a size that is not a number: {error}") from error


def counted_shape(config: Any, num_weights: int) -> ModelShape:
    """The shape of a model of any type by its configuration in transformers, with the weights it was found to have."""
    text = config.get_text_config()
    names = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    values = {name: getattr(text, name, None) for name in names}
    return replace(_shape(values | {"intermediate_size": 0}), counted_weights=num_weights)


def _shape(values: dict[str, Any]) -> ModelShape:
    heads, hidden = int(values["num_attention_heads"]), int(values["hidden_size"])
    return ModelShape(
        layers=int(values["num_hidden_layers"]),
        hidden=hidden,
        heads=heads,
        kv_heads=int(values.get("num_key_value_heads") or heads),
        head_size=int(values.get("head_dim") or hidden // heads),
        mlp=int(values["intermediate_size"]),
        vocabulary=int(values["vocab_size"]),
        is_tied=bool(values.get("tie_word_embeddings", False)),
    )
