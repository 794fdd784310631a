"""Evaluations in the format of lm-evaluation-harness's `results.json`, for the tools that read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scrl.metrics import PASS_OR_MAJ


def results_json(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every pass@k and maj@k as `NAME,none`, its standard error s / √Q over questions as `NAME_stderr,none`."""
    results: dict[str, dict[str, Any]] = {}
    higher_is_better, configs, num_samples = {}, {}, {}
    for record in records:
        name, metrics = str(record["benchmark"]), list(filter(PASS_OR_MAJ.fullmatch, record))
        results[name], higher_is_better[name] = {"alias": name}, dict.fromkeys(metrics, True)
        for metric in metrics:
            values_Q = list(record[f"{metric}_by_question"].values())
            error = float(np.std(values_Q, ddof=1)) / math.sqrt(len(values_Q)) if len(values_Q) > 1 else 0.0
            results[name] |= {f"{metric},none": record[metric], f"{metric}_stderr,none": error}
        configs[name] = {
            "task": name,
            "output_type": "generate_until",
            "num_fewshot": 0,
            "repeats": record["samples"],
            "generation_kwargs": {
                "do_sample": record["temperature"] > 0,
                "temperature": record["temperature"],
                "top_p": record["top_p"],
                "max_gen_toks": record["max_tokens"],
            },
        }
        num_samples[name] = {"original": record["questions"], "effective": record["gold_questions"]}
    model, seed = records[0]["model"], records[0]["seed"]
    return {
        "results": results,
        "group_subtasks": {name: [] for name in results},
        "configs": configs,
        "versions": dict.fromkeys(results, 1),
        "n-shot": dict.fromkeys(results, 0),
        "higher_is_better": higher_is_better,
        "n-samples": num_samples,
        "config": {"model": "scrl", "model_args": f"pretrained={model}", "random_seed": seed},
        "model_name": model,
    }
