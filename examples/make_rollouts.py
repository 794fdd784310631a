"""Sample real language-model rollouts on ten short maths questions and write them as JSON lines.

    python examples/make_rollouts.py MODEL_DIR OUT.jsonl

MODEL_DIR is a Hugging Face folder of a causal chat model. One line is one completion, with the mean entropy
(nats, full vocabulary, at the sampling temperature) of the distributions its tokens were sampled from. Each question is
seeded on its own (from SEED and its id), so changing one question leaves the rollouts of the others as they were.
The demo's completions were made by it with Qwen2.5-Coder-0.5B-Instruct (Apache-2.0; dequantised Q4_K_M weights)
in bf16 on a CPU. Needs torch and transformers.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SYSTEM = "You are a helpful assistant."
SUFFIX = " Let's think step by step and output the final answer within \\boxed{}."
TEMPERATURE, SEED = 0.8, 0
QUESTIONS = [  # (question_id, question, gold answer)
    (
        "q01-pencils",
        "Nadia has 7 boxes with 12 pencils in each box. She gives away 15 pencils. "
        "How many pencils does she have left?",
        "69",
    ),
    ("q02-orders", "What is the value of 48 / 6 * 2 + 5 - 3 * 2?", "15"),
    (
        "q03-round-trip",
        "Omar cycles from the village to the lake at 10 km/h and returns along the same road at 15 km/h. "
        "What is his average speed for the whole round trip, in km/h?",
        "12",
    ),
    (
        "q04-fence-posts",
        "A straight fence is 60 metres long and has a post every 5 metres, including one post at each end. "
        "How many posts does the fence have?",
        "13",
    ),
    (
        "q05-up-then-down",
        "A coat costs $80. The price is raised by 25%, and then the new price is lowered by 25%. "
        "What does the coat cost now?",
        "75",
    ),
    (
        "q06-pizza",
        "Lena eats 1/4 of a pizza and Tom eats 1/3 of the same pizza. What fraction of the pizza is left?",
        "\\frac{5}{12}",
    ),
    ("q07-quadratic", "Find all solutions of the equation x^2 - 3x - 10 = 0.", "-2, 5"),
    (
        "q08-stadium",
        "A stadium has 24 sections with 150 seats each. On Friday 5/6 of all the seats were taken. "
        "How many seats were taken?",
        "3000",
    ),
    (
        "q09-juice",
        "A jug holds 2 litres of juice. Four children each drink 0.35 litres. "
        "How many litres of juice are left in the jug?",
        "0.6",
    ),
    (
        "q10-change",
        "Mia buys 3 notebooks at $2.35 each and pays with a $10 bill. How much change does she get?",
        "2.95",
    ),
]


@torch.inference_mode()
def sample(
    model: Any, tokenizer: Any, question: str, samples: int, max_new_tokens: int, generator: Any
) -> list[tuple[list[int], float, bool]]:
    """Return (token ids, mean entropy, finished) for each of `samples` completions, drawn as one batch."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question + SUFFIX}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids.repeat(samples, 1)
    ends = model.generation_config.eos_token_id or tokenizer.eos_token_id
    ends = {ends} if isinstance(ends, int) else set(ends)
    rows = list(range(samples))  # the completions still running, by their row in the batch
    tokens: list[list[int]] = [[] for _ in rows]
    entropies: list[list[float]] = [[] for _ in rows]
    finished = [False] * samples
    cache = None
    for _ in range(max_new_tokens):
        out = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        logp = torch.log_softmax(out.logits[:, -1].float() / TEMPERATURE, dim=-1)
        p = logp.exp()
        entropy = -(p * logp).sum(-1)
        ids = torch.multinomial(p, 1, generator=generator)
        for row, token, h in zip(rows, ids[:, 0].tolist(), entropy.tolist(), strict=True):
            tokens[row].append(token)
            entropies[row].append(h)
            finished[row] = token in ends
        keep = [i for i, row in enumerate(rows) if not finished[row]]
        if not keep:
            break
        if len(keep) < len(rows):  # drop what has ended, so that no time goes into padding
            index = torch.tensor(keep)
            cache.batch_select_indices(index)
            ids, rows = ids[index], [rows[i] for i in keep]
    return [(t, sum(h) / len(h), f) for t, h, f in zip(tokens, entropies, finished, strict=True)]


def main() -> None:
    """Sample every question and write its completions."""
    parser = argparse.ArgumentParser(description="Sample rollouts of ten questions.")
    parser.add_argument("model_dir")
    parser.add_argument("out")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--max-new-tokens", type=int, default=320)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--only", nargs="*", help="sample these question ids only")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.model_dir)
    model = AutoModelForCausalLM.from_pretrained(args.model_dir, dtype=getattr(torch, args.dtype)).eval()
    with Path(args.out).open("w", encoding="utf-8") as file:
        for question_id, question, gold in QUESTIONS:
            if args.only and question_id not in args.only:
                continue
            start = time.time()
            generator = torch.Generator().manual_seed(SEED + zlib.crc32(question_id.encode()))
            rollouts = sample(model, tokenizer, question, args.samples, args.max_new_tokens, generator)
            for number, (tokens, entropy, finished) in enumerate(rollouts):
                line = {
                    "question_id": question_id,
                    "step": 0,
                    "sample": number,
                    "completion": tokenizer.decode(tokens, skip_special_tokens=True),
                    "entropy": round(entropy, 6),
                    "num_tokens": len(tokens),
                    "finished": finished,
                    "question": question,
                    "gold": gold,
                }
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()
            print(
                f"{question_id}: {sum(len(r[0]) for r in rollouts)} tokens in {time.time() - start:.0f} s", flush=True
            )


if __name__ == "__main__":
    main()
