"""Evaluations in the shape of lm-evaluation-harness's `results.json`, for the tools that read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scrl.metrics import PASS_OR_MAJ


def results_json(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every pass@k and maj@k as `NAME,none`, its standard error over questions as `NAME_stderr,none`."""
    named = {str(record["benchmark"]): record for record in records}
    return {
        "results": {name: {"alias": name, **_values(record)} for name, record in named.items()},
        "group_subtasks": {name: [] for name in named},
        "configs": {name: _config(record) for name, record in named.items()},
        "versions": dict.fromkeys(named, 1),
        "n-shot": dict.fromkeys(named, 0),
        "higher_is_better": {name: dict.fromkeys(_metrics(record), True) for name, record in named.items()},
        "n-samples": {
            name: {"original": record["questions"], "effective": record["gold_questions"]}
            for name, record in named.items()
        },
        "config": {
            "model": "scrl",
            "model_args": f"pretrained={records[0]['model']}",
            "random_seed": records[0]["seed"],
        },
        "model_name": records[0]["model"],
    }


def _metrics(record: Mapping[str, Any]) -> list[str]:
    return [name for name in record if PASS_OR_MAJ.fullmatch(name)]


def _values(record: Mapping[str, Any]) -> dict[str, float]:
    values = {}
    for name in _metrics(record):
        values[f"{name},none"] = record[name]
        values[f"{name}_stderr,none"] = standard_error(list(record[f"{name}_by_question"].values()))
    return values


def standard_error(values_Q: Sequence[float]) -> float:
    """s / √Q, s the sample standard deviation over questions; 0 for one question alone."""
    return float(np.std(values_Q, ddof=1)) / math.sqrt(len(values_Q)) if len(values_Q) > 1 else 0.0


def _config(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "task": record["benchmark"],
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
