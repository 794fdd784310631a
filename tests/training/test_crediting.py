"""What a run gives a method besides votes."""

import pytest
import torch
from line_files import read_lines
from runs import do

from scrl.credit.rule import credit_rule
from scrl.policy.model_paths import model_folder
from scrl.records import Group
from scrl.sampling.embedding import load_embedder

TINY = ("questions=arithmetic:easy:train:4", "steps=2", "sampling.max_tokens=40", "evaluation.is_off=true")


def test_completions_are_compared_by_a_model_that_a_run_loads(tmp_path, no_report):
    """The embedded model itself, read as a model that embeds."""
    name = str(model_folder("embedded"))
    do(tmp_path / "run", *TINY, "steps=1", "completions=12", "method=evol-rl", f"credit.embedding={name}")
    rule = credit_rule("evol-rl", embedding=name)
    embed = load_embedder(rule.settings, torch.device("cpu"))
    found = read_lines(tmp_path / "run" / "rollouts.jsonl")
    for group in (found[:12], found[12:]):
        texts = Group.from_texts([line["completion"] for line in group])
        assert [line["reward"] for line in group] == pytest.approx(rule.credit(texts, embed=embed).rewards)
