"""What a run takes on given GPUs with each engine, and what is said where none can run it."""

import pytest

from scrl.config import build_config
from scrl.errors import ConfigError, DataError
from scrl.planning.memory import GIB, peaks, work_of
from scrl.planning.on_gpus import count_questions, gpu_lines, plan_on_gpus

LARGE = "meta-llama/Llama-3.1-70B-Instruct"
FEW_UPDATES = {"questions_per_step": 16, "questions_per_update": 8}


def config(**changes):
    base = {"model": "Qwen/Qwen2.5-3B", "questions": "minerva", "method": "scrl", "sampling": {"max_tokens": 3072}}
    return build_config(base | changes)


def planned(gib=80, **changes):
    return plan_on_gpus(config(**changes), gib * GIB)


def options(gib=80, **changes):
    return {str(option.layout): option for option in planned(gib, **changes).options}


def test_a_step_is_counted_from_the_settings():
    work = work_of(config(completions=32, trained=16), None)
    assert (work.sampled_rows, work.trained_rows, work.updates, work.update_rows) == (256, 128, 8, 16)
    assert (work.max_tokens, work.longest) == (3072, 200 + 3072)
    few = work_of(config(questions_per_update=3), None)  # ⌈8 / 3⌉
    assert (few.updates, few.update_rows) == (3, 48)
    assert work_of(config(questions_per_step=64), 30).questions == 30
    assert planned(questions="aime24", questions_per_step=64).work.questions == 30
    assert work_of(config(prompt={"max_tokens": 90}), None).prompt == 90
    lean = work_of(config(optimizer={"state": "bfloat16"}, compute={"micro_batch": 3}), None)
    assert (lean.state, lean.micro_batch) == ("bfloat16", 3)


def test_questions_are_counted_without_a_network(tmp_path):
    (tmp_path / "mine.txt").write_text("1 + 1?\n2 + 2?\n")
    counts = {str(tmp_path / "mine.txt"): 2, "arithmetic:easy:train:7": 7, "math500": 500, "owner/name": None}
    assert {name: count_questions(config(questions=name)) for name in counts} == counts
    assert count_questions(config(questions="math500", limit=9)) == 9
    assert count_questions(config(questions="math500:5")) is None  # nobody counted its levels
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        count_questions(config(questions="nowhere.txt"))


@pytest.mark.parametrize("gib", [24, 80])
def test_what_fits_is_within_the_memory_and_what_does_not_needs_more(gib):
    for option in options(gib, gpus=8).values():
        if option.fit is None:
            assert option.least > gib * GIB
        else:
            assert option.least <= max(peaks(option.fit.parts)) <= gib * GIB


def test_micro_batches_are_halved_only_as_far_as_needed():
    batches = {gib: options(gib)["local"].fit.work.micro_batch for gib in (80, 139, 400)}
    # 16 W and overhead are 48.0 GiB, logits at most 4.2; the activations of a completion of 3,272 tokens 10.5
    assert batches == {80: 2, 139: 8, 400: 16}
    assert [options(gib)["local"].fit.work.is_checkpointed for gib in (62, 63)] == [True, False]


def test_as_many_gpus_share_a_sampler_as_its_completions_need():
    # 141 GB of weights are 32.9 GiB on each of 4 GPUs, beside 24.6 of masters and averages: room for all 64 completions
    found = options(model=LARGE, gpus=8, nodes=4, **FEW_UPDATES)["verl, FSDP2"].fit
    assert (found.layout.tensor, found.rows) == (4, 64)
    small = options(gpus=8)["verl, FSDP2"].fit
    assert (small.layout.tensor, small.rows) == (1, 32)


def refusals(**changes):
    return {name: option.refusal for name, option in options(139, **changes).items()}


def test_engines_refuse_what_they_would_refuse():
    assert refusals(gpus=8) == dict.fromkeys(("local", "trl, DDP", "trl, FSDP2", "verl, FSDP2"))
    assert "30 questions" in refusals(gpus=8, questions="aime25")["trl, DDP"]
    assert refusals(gpus=8, questions="aime25", drop_last=True)["trl, DDP"] is None
    assert refusals(preset="official")["verl, FSDP2"]
    assert refusals(gpus=8, trained=12)["verl, FSDP2"]
    for changes in (
        {"method": "etmr", "completions": 30},  # trees, and settings of the local engine
        {"optimizer": {"state": "bfloat16"}},
    ):
        assert [name for name, why in refusals(gpus=8, **changes).items() if why is None] == ["local"], changes
    # options of an engine leave no choice
    assert refusals(engine="verl", engine_options={"trainer": {"balance_batch": False}}) == {"verl, FSDP2": None}


@pytest.mark.parametrize(
    ("changes", "gib", "reason"),
    [
        ({"dtype": "float32"}, 80, "compute.dtype"), ({"device": "cpu"}, 80, "compute.device"),
        ({}, 0, "--gpu-memory"), ({}, -1, "--gpu-memory"), ({}, float("nan"), "--gpu-memory"),
    ],
)  # fmt: skip
def test_what_is_no_plan_for_gpus_is_refused(changes, gib, reason):
    with pytest.raises(ConfigError, match=reason):
        planned(gib, compute=changes)


def test_where_nothing_fits_the_plan_says_what_each_engine_needs():
    plan = planned(model=LARGE, gpus=8)
    assert not plan.fits
    # GiB of training: 16 · 70.55e9 / 8 bytes are 131.4; gathered 8.7, activations 5.3, logits 2.9, overhead 6
    assert any(line.startswith("verl") and "154.3" in line for line in gpu_lines(plan))
    assert planned(155, model=LARGE, gpus=8).fits
    assert planned(model=LARGE, gpus=8, lora=True).fits
