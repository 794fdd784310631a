"""Answers classified while sampling goes on: the same classes, earlier."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from runs import Listener, differences, small

from scrl.credit.assign import credit_rule
from scrl.errors import ConfigError, ReaderError
from scrl.records import Question, Sample, Sampled
from scrl.training.credit_workers import CreditWorkers
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


def test_rounds_that_read_answers_themselves_have_no_use_for_workers():
    with pytest.raises(ConfigError, match=r"compute\.credit_workers: early_verdicts reads answers between rounds"):
        small("method=ttrl", "credit.which_trained=first", "early_verdicts=true", "compute.credit_workers=2")


def test_groups_are_handed_over_while_others_are_still_sampled(tmp_path, monkeypatch):
    from scrl.rollout.local import LocalSampler
    from scrl.training.credit_workers import BackgroundClasses

    events = []
    write, take = LocalSampler._write, BackgroundClasses.take
    monkeypatch.setattr(LocalSampler, "_write", lambda *given: events.append("write") or write(*given))
    monkeypatch.setattr(
        BackgroundClasses, "take", lambda self, place, texts: events.append(place) or take(self, place, texts)
    )
    train(small("steps=1", "compute.sampler_rows=8", "compute.credit_workers=1"), tmp_path / "run", Listener())
    assert "-".join(map(str, events)).count("write-0-write-1") == 1  # two questions, 8 completions each
