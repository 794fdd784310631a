"""What fits which card: whole SCRL steps with random weights on a GPU of which only a part may be used.

    python benchmarks/gpu_memory.py                         # all of them
    python benchmarks/gpu_memory.py 24:7b:lora 48:3b:bf16   # a card of 24 GB, an adapter; of 48 GB, AdamW in bfloat16
    python benchmarks/gpu_memory.py 141:7b -- steps=1 sampling.max_tokens=3072      # more settings of scrl train

A case takes two steps of `scrl train` in its own process: 4 questions, 64 completions of 1,024 tokens, 16 of them
trained on, in the shape of a Qwen2.5 model. No completion ends early: this is the most that such steps need. The run
sees a card of that size: no more memory is free, and none can be allocated. Loading and checkpoints are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from scrl.config import read_config
from scrl.errors import ScrlError
from scrl.listener import Listener
from scrl.planning.memory import work_of
from scrl.planning.plan import memory_bytes
from scrl.planning.shapes import SHAPES, ModelShape, counted_shape
from scrl.policy.model import LanguageModel, add_adapter, pick_dtype, recompute_activations
from scrl.policy.settings import ComputeSettings, LoraSettings
from scrl.training.loop import train

TINY = ModelShape(2, 64, 4, 2, 16, 128, 512, is_tied=True)
"""To try the code."""
USABLE_GIB = {24: 23.0, 48: 44.0, 80: 78.5, 141: 139.0}
"""By a card's GB: what CUDA's own context leaves of an RTX 4090, L40S, H100 and H200."""
CASES = (
    "24:0.5b", "24:1.5b:bf16", "24:7b:lora", "48:1.5b", "48:3b:bf16", "48:14b:lora", "80:3b", "80:32b:lora", "141:7b",
)  # fmt: skip
STEPS = 2
WAYS = {"lora": "lora.rank=16", "bf16": "optimizer.state=bfloat16"}
ANSWERS = [r"\boxed{1}"] * 5 + [r"\boxed{2}"] * 2 + [r"\boxed{3}"]
"""Shares of 5/8, 2/8 and 1/8: a label for every question, and something to learn."""


class Case(NamedTuple):
    """A card, a model, and how it is trained."""

    card: int
    shape: str
    ways: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> Case:
        """A case as written on the command line: 24:7b, 24:7b:lora, 48:3b:bf16."""
        card, shape, *ways = text.split(":")
        if (shape != "tiny" and hub_id(shape) not in SHAPES) or not card.isdigit() or not set(ways) <= set(WAYS):
            raise argparse.ArgumentTypeError(f"{text!r} is not GB:SHAPE, GB:SHAPE:lora or GB:SHAPE:bf16")
        return cls(int(card), shape, tuple(ways))

    def __str__(self) -> str:
        """As on the command line."""
        return ":".join((str(self.card), self.shape, *self.ways))


def hub_id(shape: str) -> str:
    return f"Qwen/Qwen2.5-{shape.upper()}"


class StandIn:
    """As much of a tokenizer as a run uses: prompts of 64 tokens, and answers that have nothing to do with them."""

    eos_token_id = bos_token_id = unk_token_id = pad_token_id = None
    chat_template = bos_token = None

    def encode(self, text: str, **_: Any) -> list[int]:
        """64 tokens."""
        return [ord(letter) % 500 for letter in text.ljust(64)[:64]]

    def batch_decode(self, rows: Sequence[Sequence[int]], **_: Any) -> list[str]:
        """Answers in the shares of ANSWERS."""
        return [ANSWERS[number % len(ANSWERS)] for number in range(len(rows))]

    def __len__(self) -> int:
        """The size of its vocabulary."""
        return 500


def random_model(name: str, compute: ComputeSettings, lora: LoraSettings | None, device: torch.device) -> LanguageModel:
    """Random weights on `device`."""
    shape = TINY if name == "tiny" else SHAPES[hub_id(name)]
    config = Qwen2Config(
        num_hidden_layers=shape.layers, hidden_size=shape.hidden, intermediate_size=shape.mlp,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.is_tied, max_position_embeddings=32_768,
    )  # fmt: skip
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        model.generation_config.eos_token_id = None
        if lora is not None:
            model = add_adapter(model, lora)
    if compute.gradient_checkpointing:
        recompute_activations(model)
    return LanguageModel(name, model, StandIn(), device, lora is not None, torch.bfloat16)


class Done(Exception):  # noqa: N818 - it is no error
    """The last step is taken: nothing needs to be saved."""


class Watch(Listener):
    """Keeps what the run reports about its steps."""

    def __init__(self) -> None:
        """For a run that has not begun."""
        self.steps = STEPS
        self.notes: list[str] = []
        self.seconds: list[float] = []

    def note(self, text: str) -> None:
        """Something the user should know."""
        self.notes.append(text)

    def step(self, metrics: dict[str, Any], words: str) -> None:  # noqa: ARG002 - as every listener
        """A step is done."""
        self.seconds.append(metrics["seconds_rollout"] + metrics["seconds_update"])
        if metrics["step"] == self.steps - 1:
            raise Done


@contextmanager
def card_of(gib: float) -> Iterator[None]:
    """The GPU, limited to this much memory."""
    if not torch.cuda.is_available():
        yield
        return
    whole = torch.cuda.mem_get_info
    limit = int(gib * 2**30)

    def of_the_card(device: Any = None) -> tuple[int, int]:
        free, _ = whole(device)
        return max(0, min(free, limit - torch.cuda.memory_reserved(device))), limit

    torch.cuda.set_per_process_memory_fraction(min(1.0, limit / whole()[1]))
    with patch("torch.cuda.mem_get_info", of_the_card):
        yield


def take_steps(case: Case, settings: Sequence[str]) -> dict[str, Any]:
    """What the steps needed, or why they could not be taken."""
    watch = Watch()
    with (
        tempfile.TemporaryDirectory() as folder,
        card_of(USABLE_GIB.get(case.card, 0.96 * case.card)),
        ExitStack() as stack,
    ):
        questions = Path(folder) / "questions.txt"
        questions.write_text("".join(f"What is {n} + {n}?\n" for n in range(4)), encoding="utf-8")
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        config = read_config(None, [
            "model=embedded", f"questions={questions}", f"steps={STEPS}", "questions_per_step=4", "completions=64",
            "trained=16", "sampling.max_tokens=1024", "reader=boxed", "prompt.style=plain", "evaluation.completions=0",
            "probe=0",
            *(WAYS[way] for way in case.ways), *settings,
        ])  # fmt: skip
        watch.steps = config.steps
        found: dict[str, Any] = {"notes": watch.notes}
        try:
            model = random_model(case.shape, config.compute, config.lora, device)
            weights = model.model.num_parameters()
            shape = counted_shape(model.model.config, weights)
            size = pick_dtype(config.compute.dtype, device).itemsize
            plan = memory_bytes(shape, replace(work_of(config, 4), size=size))
            found |= {"weights": weights, "planned": sum(plan.values()) / 2**30}
            for name, value in {
                "scrl.training.base_run.load_model": lambda *_, **__: model,
                "scrl.training.loop.check_room": lambda *_: None,
            }.items():
                stack.enter_context(patch(name, value))
            train(config, Path(folder) / "run", watch)
        except Done:
            found |= {"seconds": watch.seconds}
        except (ScrlError, torch.OutOfMemoryError) as error:
            found |= {"refused": str(error).splitlines()[0]}
    if torch.cuda.is_available():
        found["peak"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def main() -> int:
    """One row per case."""
    words, settings = sys.argv[1:], list[str]()
    if "--" in words:
        words, settings = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", type=Case.of, help="GB:SHAPE[:lora][:bf16]")
    parser.add_argument("--here", action="store_true", help="one case in this process, as a line of JSON")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu tries the code")
    options = parser.parse_args(words)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("gpu memory: skipped, because there is no GPU; 24:tiny --device cpu tries the code")
        return 0
    cases = options.cases or [Case.of(text) for text in CASES]
    if options.here:
        print(json.dumps(take_steps(cases[0], settings)))
        return 0
    print("| card | model | GiB planned, without activations | GiB allocated at most | seconds per step | notes |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        command = [sys.executable, __file__, str(case), "--here", "--device", options.device, "--", *settings]
        done = subprocess.run(command, capture_output=True, text=True)
        line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(row(case, json.loads(line) if line else {"refused": last, "notes": []}), flush=True)
    return 0


def row(case: Case, found: dict[str, Any]) -> str:
    """A row of the table."""
    seconds = " ".join(f"{each:.1f}" for each in found.get("seconds", ())) or f"refused: {found.get('refused')}"
    planned, peak = (f"{found[name]:.1f}" if name in found else "" for name in ("planned", "peak"))
    name = " ".join((case.shape, *case.ways))
    return f"| {case.card} GB | {name} | {planned} | {peak} | {seconds} | {'; '.join(found['notes'])} |"


if __name__ == "__main__":
    sys.exit(main())
