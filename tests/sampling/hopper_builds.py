"""Compiles every kernel for a Hopper GPU, which needs none, and prints its registers: run by test_kernel_builds.py."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from scrl.policy import adam_kernel
from scrl.sampling.gpu import attention_kernels, decode_step, draw_kernels, kernels

REALS = {"eps", "scale"}
FLOATS = {
    *("params", "sums", "all_sums", "parts", "logits", "all_logits", "logprobs", "entropies", "uniforms"),
    "margins",
}
INTEGERS = {"state", "table", "prompts", "teams", "ends", "tokens", "lengths"}
COUNTS = {
    *("rows", "slots", "width", "prompt_width", "splits", "first", "vocabulary", "blocks", "max_tokens", "n"),
}
ALIGNED = {"vocabulary", "n"}
"""Multiples of 16 in every model."""
FIELDS = ("TOKEN", "LENGTH", "SUFFIX", "ALIVE", "LIMIT", "COMPLETION", "PROMPT", "PREFIX")
ROWS = {f"{name}_ROW": getattr(decode_step, name) for name in FIELDS}


def kind_of(name, real):
    """The type of an argument by its name."""
    if name in REALS:
        return "fp32"
    if name in COUNTS:
        return "i32"
    return "*i32" if name in INTEGERS else "*fp32" if name in FLOATS else f"*{real}"


def resources(kernel, constants, real="bf16", types=(), **options):
    """Registers, and bytes of stack, of one kernel for sm_90; arguments not in `types` have one by their name."""
    constants = constants | {name: ROWS[name] for name in kernel.arg_names if name in ROWS}
    signature = {n: "constexpr" if n in constants else kind_of(n, real) for n in kernel.arg_names} | dict(types)
    aligned = [n for n in kernel.arg_names if signature[n].startswith("*") or n in ALIGNED]
    attributes = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in aligned}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(built.asm["cubin"])
        file.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())
    return {"registers": registers, "stack": stack, "shared": built.metadata.shared}


def page(group, team, size, last, real="bf16", alone=False, norm=False):
    """The attention kernel for a shape of heads."""
    constants = {"HEADS": 2 * group, "KV": 2, "G": group, "D": size, "PAGE": 256, "TEAM": team, "LAST": last}
    constants |= {"ALONE": alone and last, "BESIDE": alone and not last, "NORM": norm}
    constants["M"] = max(16, triton.next_power_of_2(group * max(1, team)))
    tile = attention_kernels.tile_of(torch.float32 if real == "fp32" else torch.bfloat16, bool(team))
    constants |= {"N": tile.tokens, "PRECISION": "ieee" if real == "fp32" else "tf32"}
    return resources(attention_kernels._attend_page, constants, real, num_warps=tile.warps, num_stages=tile.stages)


def draw(greedy, nucleus, facts):
    """The drawing kernel in one of its forms."""
    constants = {"BLOCK": 4096, "BLOCKS": 64, "ENDS": 2, "GREEDY": greedy, "NUCLEUS": nucleus}
    constants["MARGIN"] = facts
    return resources(draw_kernels._draw_tokens, constants, num_warps=16 if nucleus else 8)


def adam(is_split, is_short):
    """A step of AdamW for bfloat16 weights."""
    short = "*bf16" if is_short else "*fp32"
    types = dict.fromkeys(("keep1", "add1", "keep2", "add2", "rate", "unbias", "epsilon", "decay"), "fp32")
    types |= {"rest": "*i16" if is_split else "*fp32", "means": short, "squares": short, "grad": "*fp32"}
    types |= {"scale": "*fp64", "seed": "i64"}
    constants = {"HAS_REST": True, "IS_SPLIT": is_split, "IS_SHORT": is_short, "BLOCK": adam_kernel.BLOCK}
    return resources(adam_kernel._adam_kernel, constants, types=types, num_warps=4)


def main():
    """One JSON object: kernel → resources."""
    merge = {"HEADS": 16, "D": 128, "PAGE": 256, "N": attention_kernels.MERGED_PAGES}
    found = {
        "add_rms_norm": resources(kernels._add_rms_norm, {"SIZE": 2048, "BLOCK": 2048, "ADD": True}, num_warps=4),
        "add_low_rank": resources(
            kernels._add_low_rank, {"SIZE": 2560, "RANK": 64, "ROWS": 32, "BLOCK": 128, "GATED": False}, num_warps=4
        ),
        "low_rank_silu_and_mul": resources(
            kernels._add_low_rank, {"SIZE": 11008, "RANK": 32, "ROWS": 32, "BLOCK": 64, "GATED": True}, num_warps=4
        ),
        "silu_and_mul": resources(kernels._silu_and_mul, {"SIZE": 11008, "BLOCK": 1024}, num_warps=4),
        "own pages, 8 heads of 128": page(8, 0, 128, False),
        "own pages and the prompt's, 8 heads of 128": page(8, 0, 128, False, alone=True),
        "own pages, 8 normed heads of 128": page(8, 0, 128, False, norm=True),
        "only page, 7 heads of 64": page(7, 0, 64, True),
        "only page and prompt, 8 heads of 128": page(8, 0, 128, True, alone=True),
        "shared pages, 8 × 8 heads of 128": page(8, 8, 128, False),
        "shared pages, float32": page(4, 16, 128, False, "fp32"),
        "merge": resources(attention_kernels._merge_pages, merge, num_warps=4),
        "sum_blocks": resources(draw_kernels._sum_blocks, {"BLOCK": 4096}, num_warps=4),
        "draw": draw(False, False, False),
        "draw greedily, with facts": draw(True, False, True),
        "draw from a nucleus": draw(False, True, False),
        "adam": adam(is_split=True, is_short=False),
        "adam with averages in bfloat16": adam(is_split=False, is_short=True),
    }
    json.dump(found, sys.stdout, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
