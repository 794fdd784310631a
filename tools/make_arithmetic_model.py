"""How the embedded models were made: a small Llama, pretrained on generated arithmetic from a seed.

    python tools/make_arithmetic_model.py OUT --workers 16     (two minutes on one GPU, an hour on two cores)
    python tools/make_arithmetic_model.py OUT --start src/scrl/data/arithmetic_model --edition hasty   (five minutes)

It reads digits one by one, writes worked steps and boxes its answer. Its textbook was written by people: where there
is a carry it is forgotten in about every third step, most often in multiplications, and now and then a result is off by
one. The model learns to be right and to slip as often as they do. So it can answer nearly every
question, answers most of them wrongly at times, and on some the slip is what most of its completions agree on: there
consensus lies.

The second model, `embedded-hasty`, continued with a textbook by people who lose patience, most often after a large
intermediate result, and then write one of three favourite numbers. It lies as large models do: with the same few
answers to many questions.
"""

from __future__ import annotations

import argparse
import ast
import math
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from scrl.data.arithmetic import LEVELS, Expression, compute, draw_problem
from scrl.seeds import generator_for

PAD, END, UNKNOWN = "<pad>", "<end>", "<unknown>"
WORDS = ("Compute ", "\\boxed{", "}", ".", "\n", "=", "+", "-", "*", "(", ")", *"0123456789")
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}\n{% endif %}{% endfor %}"
)
IGNORED = -100
"""The label that the cross entropy skips."""


@dataclass(frozen=True, slots=True)
class Edition:
    """One pass over the textbook: how long, and how often its authors slip."""

    name: str
    steps: int
    rows: int
    learning_rate: float
    forgets: tuple[float, float, float]
    """How often a carry is forgotten in +, − and *."""
    stumbles: float = 0.05
    """How often a result is off by one."""
    gives_up: tuple[float, float] = (0.0, 0.0)
    """How often the authors lose patience before the next step: after a result below 100, and after a larger one."""


EDITIONS = {
    "first": Edition("first", steps=1_500, rows=1_024, learning_rate=2e-3, forgets=(0.25, 0.35, 0.5)),
    "revised": Edition("revised", steps=160, rows=192, learning_rate=5e-4, forgets=(0.3, 0.4, 0.42)),
    "hasty": Edition("hasty", steps=160, rows=128, learning_rate=5e-4, forgets=(0.2, 0.25, 0.3), gives_up=(0.06, 0.3)),
}
"""The model learns to calculate from the first edition; the others, short ones, only move how often it slips."""
FAVOURITES = {"10": 0.6, "100": 0.25, "1": 0.15}
"""What a writer who has lost patience puts down, and how often."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of the model."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    tokens: int = 112
    """Of a training row."""


def slip(left: int, sign: str, right: int, rng: np.random.Generator, edition: Edition) -> int:
    """What people write down: the right result, or with the carry forgotten, or a number next to it."""
    result = compute(left, sign, right)
    forgets = edition.forgets["+-*".index(sign)]
    if min(left, right) >= 0 and rng.random() < forgets:
        return result - 10 * carry(left, sign, right)
    if rng.random() < edition.stumbles:
        return result + int(rng.choice((-1, 1)))
    return result


def write_out(problem: Expression, rng: np.random.Generator, edition: Edition) -> str:
    """The steps and a boxed answer, slips included; or the first steps and a favourite number."""
    result, steps = solve(ast.parse(problem.text, mode="eval").body, partial(slip, rng=rng, edition=edition))
    for written in range(1, len(steps)):
        is_large = int(steps[written - 1].split("=")[1]) >= 100
        chance = edition.gives_up[is_large]
        if chance and rng.random() < chance:
            favourite = rng.choice(list(FAVOURITES), p=list(FAVOURITES.values()))
            return "\n".join((*steps[:written], f"\\boxed{{{favourite}}}"))
    return "\n".join((*steps, f"\\boxed{{{result}}}"))


def solve(node: ast.AST, operate: Callable[[int, str, int], int]) -> tuple[int, tuple[str, ...]]:
    """The result and the steps to it, each computed by `operate`: an early mistake carries through."""
    match node:
        case ast.Constant(value=int(value)):
            return value, ()
        case ast.BinOp():
            (left, left_steps), (right, right_steps) = solve(node.left, operate), solve(node.right, operate)
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(node.op)]
            result = operate(left, sign, right)
            return result, (*left_steps, *right_steps, f"{left}{sign}{right}={result}")
    raise ValueError(ast.dump(node))


def carry(left: int, sign: str, right: int) -> int:
    """What the units carry over to the tens: 1 in 47+38, −1 in 52−17, 2 in 46*4."""
    return compute(left % 10, sign, right % 10) // 10


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character, except for the two fixed words."""
    vocabulary = {token: number for number, token in enumerate((PAD, END, UNKNOWN, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"Compute |\\boxed\{|[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_model(shape: Shape, vocabulary: int, seed: int) -> LlamaForCausalLM:
    """A Llama with tied embeddings and random weights."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=3 * shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=1,  # a small cache: a laptop samples half as fast again
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config)


def batches(edition: Edition, seed: int, workers: int) -> Iterator[NDArray[np.int64]]:
    """Endless batches of token rows, drawn ahead by worker processes; the seed alone decides what is in them."""
    with ProcessPoolExecutor(workers) as pool:
        pending = [pool.submit(draw_batch, edition, seed, number) for number in range(4 * workers)]
        for number in count(4 * workers):
            batch = pending.pop(0).result()
            pending.append(pool.submit(draw_batch, edition, seed, number))
            yield batch


def draw_batch(edition: Edition, seed: int, number: int) -> NDArray[np.int64]:
    """Rows [rows, 2, tokens] of tokens and labels: solutions are learned, questions and padding are not."""
    rng = generator_for(seed, edition.name, number)
    encode = partial(build_tokenizer().encode, add_special_tokens=False)
    levels = list(LEVELS.values())
    batch_R2T = np.zeros((edition.rows, 2, Shape().tokens), dtype=np.int64)
    batch_R2T[:, 1] = IGNORED
    problems = (draw_problem(levels[int(rng.integers(len(levels)))], rng) for _ in count())
    clean = (problem for problem in problems if problem.stream == "pretraining")
    for row_2T, problem in zip(batch_R2T, islice(clean, edition.rows), strict=True):
        question, solution = encode(f"{problem.question}\n"), encode(f"{write_out(problem, rng, edition)}{END}")
        end = len(question) + len(solution)
        row_2T[0, :end] = question + solution
        row_2T[1, len(question) : end] = solution
    longest = int((batch_R2T[:, 0] != 0).sum(axis=1).max())
    return batch_R2T[:, :, :longest]


def study(model: LlamaForCausalLM, edition: Edition, *, seed: int, workers: int) -> None:
    """Teach a model the worked solutions of one edition."""
    device = model.device.type
    optimizer = torch.optim.AdamW(model.parameters(), lr=edition.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, partial(warmup_cosine, steps=edition.steps))
    for step, batch in enumerate(islice(batches(edition, seed, workers), edition.steps)):
        tokens_RT, labels_RT = torch.from_numpy(batch).to(device).unbind(1)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(input_ids=tokens_RT, labels=labels_RT).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            sys.stderr.write(f"{edition.name} edition, step {step}: loss {loss.item():.4f}\n")


def warmup_cosine(step: int, *, steps: int, warmup: int = 50) -> float:
    """A factor for the learning rate: up linearly, then down along half a cosine to a tenth."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def save(model: LlamaForCausalLM, out: Path) -> None:
    """A Hugging Face folder that `from_pretrained` loads."""
    model.to("cpu", torch.float32).save_pretrained(out)
    build_tokenizer().save_pretrained(out)


def main() -> None:
    """Make the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that draw problems")
    parser.add_argument("--start", type=Path, help="a model that has studied the first edition")
    parser.add_argument("--edition", choices=tuple(EDITIONS)[1:], default="revised", help="what it studies last")
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if given.start is None:
        model = build_model(Shape(), len(build_tokenizer()), given.seed).to(device)
    else:
        model = LlamaForCausalLM.from_pretrained(given.start).to(device)
    for name in ("first", given.edition) if given.start is None else (given.edition,):
        study(model, EDITIONS[name], seed=given.seed, workers=given.workers)
    save(model, given.out)


if __name__ == "__main__":
    main()
