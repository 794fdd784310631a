"""Run folders in small: every file as a trainer writes it."""

import random

CONFIG = {
    "method": "scrl", "model": "tiny/model", "questions": "questions.jsonl", "steps": 30, "seed": 7,
    "learning_rate": 5e-7, "sampling": {"completions": 8, "trained": 4, "temperature": 0.8},
    "guard": {"patience": 3, "stops": [1, 2]},
}  # fmt: skip


def metric_lines(steps=30, gold=True):
    for step in range(steps):
        line = {
            "step": step, "loss": 0.5 - 0.01 * step, "positive_share": 0.4 + 0.01 * step, "signal_share": 0.75,
            "unanimous_share": 0.1, "entropy_mean": 0.9 - 0.01 * step, "length_mean": 200 + step,
            "truncated_share": 0.05, "seconds_rollout": 3.0, "seconds_credit": 0.2, "seconds_update": 1.5,
        }  # fmt: skip
        yield line | ({"majority_accuracy": 0.5, "positive_accuracy": 0.7, "negative_accuracy": 0.9} if gold else {})


def evaluation_line(step, pass_1=None, benchmark="toy", **more):
    line = {
        "step": step, "model": "tiny/model", "benchmark": benchmark, "questions": 12, "samples": 16, "temperature": 0.6,
        "top_p": 0.95, "max_tokens": 512, "agreement": 0.55, "answered": 0.98, "truncated": 0.015,
        "entropy_mean": 0.4321,
    }  # fmt: skip
    if pass_1 is not None:
        line |= {"pass@1": pass_1, "pass@1_low": pass_1 - 0.08, "pass@1_high": pass_1 + 0.07}
        line |= {"pass@16": pass_1 + 0.2, "maj@16": pass_1 + 0.1, "entropy_correct": 0.31, "entropy_incorrect": 0.52}
    return line | more


def rollout_line(question_id="q1", step=0, sample=0, answer="4", gold="4", **more):
    line = {
        "question_id": question_id, "step": step, "sample": sample, "completion": f"I think it is {answer}.",
        "entropy": 0.27, "num_tokens": 12, "finished": True, "question": f"What is {question_id}?",
        "answer_class": answer, "label": None, "reward": 0.0, "advantage": None,
    }  # fmt: skip
    if gold is not None:
        line |= {"gold": gold, "correct": answer == gold}
    return line | more


def group_lines(question_id, step, answers, gold="4", positive=None, negatives=()):
    for sample, answer in enumerate(answers):
        label = "positive" if answer is not None and answer == positive else None
        label = "negative" if answer in negatives else label
        yield rollout_line(question_id, step, sample, answer, gold, label=label)


def rollout_lines(questions=6, steps=(0, 10, 20, 29), gold=True, seed=0):
    """Question q3 settles on a wrong answer, q4 changes its mind, the others are right from the start."""
    chance = random.Random(seed)
    right = "4" if gold else None
    for step in steps:
        for number in range(1, questions + 1):
            top = "9" if number == 3 or (number == 4 and step == 0) else "4"
            answers = [top] * 5 + [chance.choice(["5", "6", None]) for _ in range(3)]
            yield from group_lines(f"q{number}", step, answers, right, positive=top, negatives={"6"})


def read_runs(folders):
    """Run folders, read as a page reads them."""
    from scrl.reporting.sources import name_places, read_run

    return tuple(read_run(folder, name) for folder, name in zip(folders, name_places(folders), strict=True))
