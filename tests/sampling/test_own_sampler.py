"""A user's own sampler, `compute.sampler: module:NAME`: a run draws from it, and bad paths are refused."""

import sys

import pytest
from line_files import read_lines
from listeners import Listener

from scrl.config import read_config
from scrl.errors import ConfigError, TrainingError
from scrl.training.loop import train

SMALL = (
    "model=embedded", "questions=arithmetic:easy:train:4", "method=scrl", "prompt.instruction=", "steps=2", "questions_per_step=2",
    "completions=4", "trained=2", "sampling.max_tokens=6", "probe=0", "optimizer.learning_rate=1e-3", "evaluation.completions=2",
    "compute.sampler_rows=64",
)  # fmt: skip
MODULE = '''
"""Draws without a cache: one forward pass over everything for every token."""

import zlib

import torch

from scrl.records import Sample
from scrl.sampling.sampler import Detokenizer

opened = []


class Plain(Detokenizer):
    note = "sampling by Plain"

    def __init__(self, model, tokenizer, *, max_rows, record, on_note):
        super().__init__(tokenizer)
        self.model, self.end, self.record, self.on_note = model, tokenizer.eos_token_id, record, on_note
        self.max_rows = self.rows_per_call = max_rows
        self.drawn = {}
        opened.append(self)

    def sample(self, prompts_B, settings, *, num_samples, seed, step):
        groups = []
        for prompt in prompts_B:
            name = f"{seed} {step} {prompt.question_id}".encode()
            generator = torch.Generator().manual_seed(zlib.crc32(name))
            group = tuple(self.one(prompt, settings, generator) for _ in range(num_samples))
            self.drawn.setdefault(step, []).append([sample.text for sample in group])
            groups.append(group)
        return groups

    @torch.no_grad()
    def one(self, prompt, settings, generator):
        tokens, logprobs, entropies = prompt.tokens_P.tolist(), [], []
        for _ in range(prompt.max_tokens or settings.max_tokens):
            logits_V = self.model(torch.tensor([tokens])).logits[0, -1].float()
            logprobs_V = torch.log_softmax(logits_V / (settings.temperature or 1.0), dim=-1)
            token = int(torch.multinomial(logprobs_V.exp(), 1, generator=generator))
            tokens.append(token)
            logprobs.append(float(logprobs_V[token]))
            entropies.append(float(torch.special.entr(logprobs_V.exp()).sum()))
            if token == self.end:
                break
        tokens_T, *numbers = (torch.tensor(each).numpy() for each in (tokens[len(prompt.tokens_P) :], logprobs, entropies))
        [text] = self.texts([tokens_T], self.stop_texts(settings.stop))
        return Sample(text, tokens_T, *numbers, is_finished=token == self.end)

    def release(self):
        pass


no_sampler = 3
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules that can be imported."""
    (tmp_path / "plain_sampler.py").write_text(MODULE)
    (tmp_path / "broken_sampler.py").write_text("raise OSError('no such accelerator')")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_run_draws_all_its_completions_from_it(folder):
    listener = Listener()
    train(read_config(None, [*SMALL, "compute.sampler=plain_sampler:Plain"]), folder / "run", listener)
    [sampler] = sys.modules["plain_sampler"].opened
    assert (sampler.max_rows, tuple(sampler.record), sampler.on_note) == (64, (), listener.note)
    assert "sampling by Plain" in listener.notes
    lines = read_lines(folder / "run" / "rollouts.jsonl")
    drawn = [text for step in (0, 1) for group in sampler.drawn[step] for text in group]
    assert sorted(line["completion"] for line in lines) == sorted(drawn)
    assert len(listener.steps) == 2
    assert len(sampler.drawn) > 2  # the evaluation draws from it too


@pytest.mark.parametrize("method", [(), ("method=etmr", "completions=10", "trained=10", "evaluation.completions=0")])
@pytest.mark.parametrize(("name", "change"), [("short", "group[:-1]"), ("text", "[sample.text for sample in group]")])
def test_what_it_draws_is_checked(name, change, method, folder):
    text = MODULE.replace("groups.append(group)", f"groups.append({change})")
    (folder / f"{name}_sampler.py").write_text(text)
    config = read_config(None, [*SMALL, f"compute.sampler={name}_sampler:Plain", *method])
    with pytest.raises(TrainingError, match=r"^compute\.sampler"):
        train(config, folder / "run", Listener())


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module:Plain", "ModuleNotFoundError"),
        ("broken_sampler:Plain", "no such accelerator"),
        ("plain_sampler:Fancy", "'Fancy'"),
        ("plain_sampler:no_sampler", "'no_sampler'"),
        ("plain_sampler", "sampler"),  # refused with the other settings
    ],
)
def test_a_path_that_leads_to_no_sampler_is_refused_before_a_model_is_loaded(path, words, folder, monkeypatch):
    monkeypatch.setattr("scrl.training.loop.prepare", lambda *given: pytest.fail("loaded"))
    with pytest.raises(ConfigError, match=rf"compute\.sampler.*{words}"):
        train(read_config(None, [*SMALL, f"compute.sampler={path}"]), folder / "run", Listener())
    assert not (folder / "run").exists()
