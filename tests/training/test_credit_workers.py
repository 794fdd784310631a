"""Answers classified while sampling goes on: the same classes, earlier."""

import threading
import time
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from runs import Listener, differences, small

from scrl.answers import judge as judge_module
from scrl.answers.judge import MathVerifyJudge
from scrl.credit.rule import credit_rule
from scrl.errors import ReaderError
from scrl.records import Question, Sample, Sampled
from scrl.sampling.gpu import reference_ops
from scrl.sampling.gpu.graph_engine import GraphEngine
from scrl.sampling.local import LocalSampler
from scrl.training.credit_workers import BackgroundClasses, CreditWorkers, number_of_workers
from scrl.training.loop import train

TEXTS = [
    ("so \\boxed{1/2}", "\\boxed{0.5}", "none"),
    ("\\boxed{3}", "\\boxed{4}", "\\boxed{4}"),
    ("", "", "\\boxed{x}"),
]


def sampled(name, texts):
    samples = tuple(Sample(text, np.zeros(1, int), np.zeros(1), np.zeros(1), True) for text in texts)
    return Sampled(Question(name, name), np.zeros(1, int), samples)


GROUPS = [sampled(f"q{place}", texts) for place, texts in enumerate(TEXTS)]


@pytest.fixture
def workers():
    made = []

    def make(rule, number=2):
        made.append(CreditWorkers(rule, number))
        return made[-1]

    yield make
    for each in made:
        each.close()


def counting(rule):
    """How often, and in which thread, it classified."""
    calls = []

    def read(text):
        calls.append((text, threading.current_thread().name))
        return rule.reader(text)

    return SimpleNamespace(calls=calls, read=read)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), ()])
def test_classes_are_those_of_the_serial_path_whatever_was_handed_over(workers, order):
    rule = credit_rule("ttrl")
    background = workers(rule).begin()
    for place in order:
        background.take(place, TEXTS[place])
    assert background.classes(GROUPS) == [rule.classify(group.group) for group in GROUPS]


def test_a_group_is_read_once_and_elsewhere(workers):
    watched = counting(credit_rule("ttrl"))
    background = workers(credit_rule("ttrl", reader=watched.read)).begin()
    for place, texts in enumerate(TEXTS):
        background.take(place, texts)
    background.classes(GROUPS)
    assert sorted(text for text, _ in watched.calls) == sorted(text for texts in TEXTS for text in texts)
    assert all(name.startswith("credit") for _, name in watched.calls)


def test_what_was_drawn_anew_is_classified_anew(workers):
    rule = credit_rule("ttrl")
    background = workers(rule).begin()
    background.take(0, ("\\boxed{9}",) * 3)
    background.take(1, TEXTS[1])
    assert background.classes(GROUPS) == [rule.classify(group.group) for group in GROUPS]


def test_a_question_in_other_words_is_classified_with_it(workers):
    rule = credit_rule("self-harmony")
    groups = [sampled(f"q{place}", texts) for place, texts in enumerate((*TEXTS, TEXTS[0]))]
    background = workers(rule).begin()
    for place in (3, 0, 2, 1):
        background.take(place, [sample.text for sample in groups[place].samples_G])
    pairs = [rule.classify_together([groups[place].group, groups[place + 1].group]) for place in (0, 2)]
    assert background.classes(groups) == [classes for pair in pairs for classes in pair]


def test_a_reader_that_fails_fails_the_run(workers):
    def broken(text):
        raise ReaderError("no")

    background = workers(credit_rule("ttrl", reader=broken)).begin()
    background.take(0, TEXTS[0])
    with pytest.raises(ReaderError, match="no"):
        background.classes(GROUPS[:1])


# Groups that grow


OPEN = [f"\\boxed{{\\sum_{{i=1}}^n i^{power}}}" for power in range(8)]
"""Of each two the judge alone can tell whether they are equal."""


class Asked:
    """A judge's process that is played, and what it was asked."""

    def __init__(self):
        self.pairs = Counter()
        self.is_asked, self.may_answer = threading.Event(), threading.Event()
        self.may_answer.set()

    def ask(self, request, seconds):
        self.is_asked.set()
        assert self.may_answer.wait(10)
        self.pairs[tuple(sorted(request))] += len(request) == 2
        return len(request) == 1 or request[0] == request[1]

    def is_alive(self):
        return True

    def retire(self):
        pass


@pytest.fixture
def asked(monkeypatch):
    played = Asked()
    monkeypatch.setattr(judge_module, "_Worker", lambda: played)
    return played


def judged(**more):
    return credit_rule("ttrl", judge=MathVerifyJudge(workers=2), **more)


@pytest.mark.parametrize("is_under_way", [False, True], ids=["done", "under way"])
def test_pairs_judged_while_a_group_grew_are_not_judged_again(workers, asked, is_under_way):
    group = sampled("q", OPEN)
    expected = [judged().classify(group.group)]
    asked.pairs.clear()
    asked.is_asked.clear()
    if is_under_way:
        asked.may_answer.clear()
    background = workers(judged()).begin()
    background.take(0, OPEN[2:6])
    assert asked.is_asked.wait(10)
    if not is_under_way:
        background._begun[0].classes.result()
        assert asked.pairs.total() == 6  # 4 · 3 / 2
    background.take(0, OPEN[:7])
    background.take(0, OPEN)
    time.sleep(0.1 * is_under_way)  # enough for the other thread to ask too
    asked.may_answer.set()
    assert background.classes([group]) == expected
    assert asked.pairs.total() == 28  # 8 · 7 / 2


def test_a_group_that_has_grown_before_its_turn_is_read_once(workers, asked):
    asked.may_answer.clear()
    watched = counting(judged())
    background = workers(judged(reader=watched.read), 1).begin()
    background.take(0, OPEN[:2])
    assert asked.is_asked.wait(10)  # the one thread is busy
    for size in (4, 6, 8):
        background.take(1, OPEN[:size])
    asked.may_answer.set()
    background.classes([sampled("q", OPEN[:2]), sampled("p", OPEN)])
    assert [text for text, _ in watched.calls] == OPEN[:2] + OPEN


def test_questions_in_other_words_may_grow_too(workers):
    rule = credit_rule("self-harmony")
    background = workers(rule).begin()
    for place, size in ((0, 1), (1, 2), (0, 2), (0, 3), (1, 3)):
        background.take(place, TEXTS[place][:size])
    assert background.classes(GROUPS[:2]) == rule.classify_together([GROUPS[0].group, GROUPS[1].group])


def test_an_error_in_a_group_that_grew_is_met_at_last_and_once(workers):
    def broken(text):
        if text == TEXTS[0][0]:
            raise ReaderError("no")

    background = workers(credit_rule("ttrl", reader=broken)).begin()
    background.take(0, TEXTS[0][:1])
    background.take(0, TEXTS[0][:2])
    background.take(1, TEXTS[1])
    with pytest.raises(ReaderError, match="no"):
        background.classes(GROUPS[:2])


# How many


@pytest.mark.parametrize(
    ("settings", "on_cpu", "on_gpu"),
    [
        ((), 0, 2),
        (("compute.credit_workers=0",), 0, 0),
        (("compute.credit_workers=3",), 3, 3),
    ],
    ids=["unsaid", "none", "three"],
)
def test_two_workers_on_a_gpu_unless_it_is_said_how_many(settings, on_cpu, on_gpu):
    found = [number_of_workers(small(*settings), torch.device(name)) for name in ("cpu", "cuda")]
    assert found == [on_cpu, on_gpu]


# Runs


@pytest.mark.parametrize(
    "settings",
    [
        ("method=scrl", "compute.sampler_rows=6"),  # groups in parts
        ("method=co-rewarding",),
    ],
    ids=lambda settings: settings[0],
)
def test_a_run_is_the_same_with_workers_and_without(settings, tmp_path):
    train(small("steps=1", "evaluation.completions=1", *settings), tmp_path / "serial", Listener())
    train(
        small("steps=1", "evaluation.completions=1", *settings, "compute.credit_workers=2"),
        tmp_path / "workers",
        Listener(),
    )
    assert differences(tmp_path / "serial", tmp_path / "workers") in (["config"], ["config", "card"])


def test_a_run_with_captured_steps_is_the_same_with_workers_and_without(tmp_path, monkeypatch):
    init, take, sizes = LocalSampler.__init__, BackgroundClasses.take, []

    def with_engine(self, model, *given, **named):
        init(self, model, *given, **named)
        self._engine = GraphEngine(model, self._end_tokens, reference_ops, page_size=32)

    monkeypatch.setattr(LocalSampler, "__init__", with_engine)
    monkeypatch.setattr(
        BackgroundClasses, "take", lambda self, place, texts: sizes.append(len(texts)) or take(self, place, texts)
    )
    for name, workers in (("serial", 0), ("workers", 2)):
        settings = ("steps=1", "evaluation.completions=1", f"compute.credit_workers={workers}")
        train(small(*settings), tmp_path / name, Listener())
    assert differences(tmp_path / "serial", tmp_path / "workers") in (["config"], ["config", "card"])
    assert sizes.count(8) == 2  # two questions, told of as whole once each
    assert 4 in sizes


def test_groups_are_handed_over_while_others_are_still_sampled(tmp_path, monkeypatch):
    events = []
    write, take = LocalSampler._decode_batch, BackgroundClasses.take
    monkeypatch.setattr(LocalSampler, "_decode_batch", lambda *given: events.append("write") or write(*given))
    monkeypatch.setattr(
        BackgroundClasses, "take", lambda self, place, texts: events.append(place) or take(self, place, texts)
    )
    train(small("steps=1", "compute.sampler_rows=8", "compute.credit_workers=1"), tmp_path / "run", Listener())
    assert "-".join(map(str, events)).count("write-0-write-1") == 1  # two questions, 8 completions each
