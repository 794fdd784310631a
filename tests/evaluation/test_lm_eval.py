"""The shape of lm-evaluation-harness's results.json."""

import json
import math

import pytest

from scrl.evaluation.lm_eval import results_json


def record(benchmark="amc", values=(1.0, 0.5, 0.0, 1.0), **more):
    by_question = {f"q{place}": value for place, value in enumerate(values)}
    mean = sum(values) / len(values)
    return {
        "step": 0, "model": "tiny", "benchmark": benchmark, "questions": 9, "gold_questions": len(values), "samples": 16, "seed": 3,
        "temperature": 0.6, "top_p": 0.95, "max_tokens": 3072, "pass@1": mean, "pass@1_low": 0.0, "pass@1_high": 1.0,
        "maj@16": mean, "maj@16_low": 0.0, "maj@16_high": 1.0, "pass@1_by_question": by_question,
        "maj@16_by_question": by_question,
    } | more  # fmt: skip


def test_the_keys_are_those_that_lm_eval_writes():
    found = results_json([record(), record("math500", (0.0, 1.0))])
    assert found.keys() == {
        "results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "config",
        "model_name",
    }  # fmt: skip
    for name in ("results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples"):
        assert found[name].keys() == {"amc", "math500"}
    scores = {"pass@1,none", "pass@1_stderr,none", "maj@16,none", "maj@16_stderr,none"}
    assert found["results"]["amc"].keys() == {"alias", *scores}
    assert found["n-samples"]["math500"] == {"original": 9, "effective": 2}
    assert found["higher_is_better"]["amc"] == {"pass@1": True, "maj@16": True}
    sampling = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "max_gen_toks": 3072}
    assert found["configs"]["amc"]["generation_kwargs"] == sampling
    assert (found["configs"]["amc"]["repeats"], found["config"]["random_seed"]) == (16, 3)
    assert found["config"]["model_args"] == "pretrained=tiny"
    assert json.loads(json.dumps(found)) == found
    assert not results_json([record(temperature=0.0)])["configs"]["amc"]["generation_kwargs"]["do_sample"]


def test_standard_errors_by_hand():
    found = results_json([record()])["results"]["amc"]
    # mean 0.625; squares 0.375² + 0.125² + 0.625² + 0.375² = 0.6875; s² = 0.6875 / 3; s / √4 = √(0.6875 / 12)
    assert found["pass@1,none"] == 0.625
    assert found["pass@1_stderr,none"] == pytest.approx(math.sqrt(0.6875 / 12)) == pytest.approx(0.23936, abs=1e-5)
    assert found["maj@16_stderr,none"] == found["pass@1_stderr,none"]
    assert results_json([record(values=(1.0,))])["results"]["amc"]["pass@1_stderr,none"] == 0.0
