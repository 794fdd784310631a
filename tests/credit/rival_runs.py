"""A run of two steps on the embedded model, for one method."""

import json

from scrl.config import read_config
from scrl.training.loop import train

TINY = (
    "model=embedded", "questions=arithmetic:easy:train:4", "steps=2", "questions_per_step=2", "completions=10",
    "trained=4", "sampling.max_tokens=40", "optimizer.learning_rate=1e-4", "evaluation.is_off=true",
    "compute.threads=1", "checkpoint_every=9",
)  # fmt: skip


class Silent:
    """Hears a run and says nothing."""

    def note(self, text):
        pass

    def step(self, metrics, words):
        pass

    def progress(self, benchmark, questions, total):
        pass

    def evaluation(self, record):
        pass


def two_steps(out, monkeypatch, *changes):
    """The metrics and the rollouts that a run leaves behind."""
    monkeypatch.setattr("scrl.training.run_folder.write_report", lambda folders, page: page.touch())
    train(read_config(None, [*TINY, *changes]), out, Silent())
    return [
        [json.loads(line) for line in (out / name).read_text(encoding="utf-8").splitlines()]
        for name in ("metrics.jsonl", "rollouts.jsonl")
    ]
