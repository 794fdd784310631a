"""Which engine is chosen on given GPUs, and what is said where none can run."""

from dataclasses import replace

import pytest

from scrl.config import build_config
from scrl.errors import ConfigError, DataError
from scrl.planning.fit import best_option, count_questions, larger_clusters, plan_on_gpus, remedies
from scrl.planning.memory import GIB, peaks, work_of
from scrl.planning.step_time import make_cluster

ONE = make_cluster("H200", gpus=1, nodes=1, memory_gib=None)
EIGHT = make_cluster("H200", gpus=8, nodes=1, memory_gib=80)
LARGE = "meta-llama/Llama-3.1-70B-Instruct"


def config(**changes):
    base = {"model": "Qwen/Qwen2.5-3B", "questions": "minerva", "sampling": {"max_tokens": 3072}}
    return build_config(base | changes)


def h100s(gpus, nodes=1, memory=80):
    return make_cluster("H100", gpus=gpus, nodes=nodes, memory_gib=memory)


def test_a_step_is_counted_from_the_settings():
    work = work_of(config(completions=32, trained=16), None)
    assert (work.sampled_rows, work.trained_rows, work.updates, work.update_rows, work.length) == (
        256, 128, 8, 16, 1536,
    )  # fmt: skip
    assert work.tokens_trained == 128 * (200 + 1536)
    uneven = work_of(config(questions_per_update=3), None)
    assert (uneven.questions, uneven.updates, uneven.update_rows) == (8, 3, 48)
    again = work_of(config(dynamic_sampling={"rounds": 2}), None)
    assert (again.sampled_rows, again.rollouts) == (3 * 256, 3)
    assert work_of(config(questions_per_step=64), 30).questions == 30
    assert plan_on_gpus(config(questions="aime24", questions_per_step=64), ONE).work.questions == 30
    assert work_of(config(prompt={"max_tokens": 90}), None).prompt == 90
    assert work_of(config(), None, length=3072).length == 3072
    lean = work_of(config(optimizer={"masters": "split", "state": "bfloat16"}, compute={"micro_tokens": 9000}), None)
    assert (lean.masters, lean.state, lean.micro_tokens, lean.vllm_memory) == ("split", "bfloat16", 9000, None)
    assert work_of(config(compute={"sampler": "vllm", "vllm_memory": 0.3}), None).vllm_memory == 0.3
    for length in (0, -5, 3073, float("nan")):
        with pytest.raises(ConfigError, match="--length: the mean completion has more than 0 and at most 3072 tokens"):
            work_of(config(), None, length=length)


def test_questions_are_counted_without_a_network(tmp_path):
    (tmp_path / "mine.txt").write_text("1 + 1?\n2 + 2?\n")
    counts = {str(tmp_path / "mine.txt"): 2, "arithmetic:easy:train:7": 7, "math500": 500, "owner/name": None}
    assert {name: count_questions(config(questions=name)) for name in counts} == counts
    assert count_questions(config(questions="math500", limit=9)) == 9
    assert count_questions(config(questions="math500:5")) is None  # nobody counted its levels
    with pytest.raises(DataError, match="there is no such file"):
        count_questions(config(questions="nowhere.txt"))


def test_one_gpu_takes_the_embedded_engine_and_eight_take_another():
    one, many = plan_on_gpus(config(), ONE), plan_on_gpus(config(), EIGHT)
    assert str(one.best.layout) == "embedded"
    assert one.best.fit.work.micro_batch == 8  # 16 · 3,272 tokens would not fit
    assert many.best.layout.engine in ("trl", "verl")
    assert many.best.seconds < min(option.seconds for option in one.options)
    assert max(peaks(many.best.fit.parts)) <= 80 * GIB


def test_a_simpler_engine_wins_where_it_is_about_as_fast():
    _, ddp, _, verl = plan_on_gpus(config(), EIGHT).options
    assert best_option([replace(ddp, seconds=10.9), replace(verl, seconds=10)]).layout == ddp.layout
    assert best_option([replace(ddp, seconds=11.1), replace(verl, seconds=10)]).layout == verl.layout
    assert best_option([replace(ddp, fit=None, seconds=float("inf"))]) is None


def refusals(cluster=EIGHT, **changes):
    return {str(option.layout): option.refusal for option in plan_on_gpus(config(**changes), cluster).options}


def test_engines_refuse_what_they_would_refuse():
    assert refusals() == dict.fromkeys(("embedded", "trl, DDP", "trl, FSDP2", "verl, FSDP2"))
    assert "8 do not divide the 30 questions" in refusals(questions="aime25")["trl, DDP"]
    assert refusals(questions="aime25", drop_last=True)["trl, DDP"] is None
    assert "verl has no mean over pairs" in refusals(preset="official")["verl, FSDP2"]
    assert "cannot be divided evenly" in refusals(trained=12)["verl, FSDP2"]
    for changes in (
        {"method": "etmr", "completions": 30},  # trees, and settings of the embedded engine
        {"optimizer": {"masters": "split"}},
        {"optimizer": {"state": "bfloat16"}},
        {"compute": {"sampler": "vllm"}},
    ):
        assert [name for name, refusal in refusals(**changes).items() if refusal is None] == ["embedded"], changes
    alone = refusals(ONE, method="intuitor", compute={"sampler": "vllm"})["embedded"]
    assert "more of every token (certainty)" in alone
    # options of an engine leave no choice
    assert refusals(engine="verl", engine_options={"trainer": {"balance_batch": False}}) == {"verl, FSDP2": None}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"dtype": "float32"}, "compute.dtype: GPUs' rates"), ({"device": "cpu"}, "compute.device: this is a plan for GPUs")],
)  # fmt: skip
def test_what_is_no_plan_for_gpus_is_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        plan_on_gpus(config(compute=changes), ONE)


# What would fit where nothing does


def remedy_lines(cluster, length=None, **changes):
    plan = plan_on_gpus(config(**changes), cluster, length=length)
    assert plan.best is None
    return list(remedies(plan))


def test_what_would_fit_is_said_where_nothing_does():
    lines = remedy_lines(h100s(8), model=LARGE)
    assert "--lora true: an adapter of rank 16 would fit (verl, FSDP2)" in lines
    # 16 GPUs: (4 + 4 + 8) · 70.55e9 / 16 bytes are 65.7 GiB already, with 8.7 of gathered layers and 6 of overhead;
    # 16 completions of a question do not divide among 32
    assert "--nodes 4 --questions-per-update 2: 32 such GPUs would hold it (verl, FSDP2)" in lines
    # GiB of training: 16 · 70.55e9 / 8 bytes are 131.4; gathered 8.7, activations 5.3, logits 2.9, overhead 6
    assert lines[-1] == "GPUs with 155 GiB each (verl, FSDP2)"
    even = "--questions-per-update 4: an update's completions would divide among 64 GPUs"
    assert remedy_lines(h100s(8, nodes=8), model=LARGE, questions_per_step=32)[0] == even
    assert remedy_lines(h100s(8, nodes=32), model=LARGE)[0].startswith("more --questions-per-step")
    vllm = remedy_lines(ONE, compute={"sampler": "vllm", "vllm_memory": 0.7})
    assert "--compute.vllm-memory 0.35: half the cache would fit (embedded)" in vllm


def test_more_gpus_are_first_those_of_one_machine():
    first = h100s(1, memory=24)
    sizes = [(cluster.gpus, cluster.nodes) for cluster in larger_clusters(first)]
    assert sizes == [(2, 1), (4, 1), (8, 1), *((8, nodes) for nodes in (2, 4, 8, 16, 32, 64, 128))]
    assert next(larger_clusters(h100s(6, nodes=2))).nodes == 4
    assert [line for line in remedy_lines(first) if line.startswith("--gpus 4: 4 such GPUs would hold it")]


def test_the_engine_that_is_named_is_the_one_that_its_plan_would_choose():
    large = {"model": LARGE, "questions_per_step": 16, "questions_per_update": 8}
    lines = remedy_lines(h100s(8), **large)
    best = {
        "--nodes 4: 32 such GPUs would hold it": plan_on_gpus(config(**large), h100s(8, nodes=4)).best,
        "--lora true: an adapter of rank 16 would fit": plan_on_gpus(config(**large, lora=True), h100s(8)).best,
        "GPUs with 155 GiB each": plan_on_gpus(config(**large), h100s(8, memory=155)).best,
    }
    assert {f"{words} ({option.layout})" for words, option in best.items()} <= {*lines}


def test_shorter_completions_are_proposed_where_they_go_with_the_other_settings():
    """Half as many tokens would be fewer than the penalty for long completions begins before their end."""
    long, tight = {"sampling": {"max_tokens": 8192}}, h100s(1, memory=54)
    for length in (None, 6000):
        lines = remedy_lines(tight, length, **long)
        assert [line for line in lines if line.startswith("--max-tokens 4096: completions half as long")]
    penalised = remedy_lines(tight, 6000, **long, credit={"overlong_buffer": 5000})
    assert not [line for line in penalised if line.startswith("--max-tokens")]
