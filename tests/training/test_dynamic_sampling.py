"""Questions without signal are replaced by others, and a run that was stopped goes on exactly."""

from dataclasses import replace

import numpy as np
import pytest
from line_files import read_lines
from listeners import Listener
from runs import do, go_on, metrics, small, state_of, stop_after_a_step, weights

from scrl.config import DynamicSamplingSettings
from scrl.credit.elsewhere import LastVotes
from scrl.credit.group_metrics import tokens_drawn
from scrl.credit.rule import CreditedGroup, credit_rule
from scrl.errors import ConfigError
from scrl.metrics import STEP_METRICS
from scrl.planning.plan import make_plan
from scrl.records import Question, Sample, Sampled
from scrl.training.loop import Run, train
from scrl.training.stream import QuestionStream, is_flat, replace_flat

pytestmark = pytest.mark.usefixtures("no_report")
TINY = ("method=ttrl", "steps=2", "completions=4", "trained=2", "evaluation.completions=0")
EIGHT = [Question(f"q{number}", "?") for number in range(8)]
STREAM = QuestionStream(EIGHT, 3, seed=0)


def sample(answer, tokens=2):
    zeros_T = np.zeros(tokens)
    return Sample(f"\\boxed{{{answer}}}", zeros_T.astype(np.int64), zeros_T, zeros_T, is_finished=True)


def credited(question, *answers, method="ttrl", **settings):
    sampled = Sampled(question, np.zeros(1, dtype=np.int64), tuple(map(sample, answers)))
    rule = credit_rule(method, **settings)
    classes = rule.classify(sampled.group)
    return CreditedGroup(sampled, classes, rule.credit(sampled.group, classes))


class Asker:
    """Answers every question; those in `lively` with two different answers."""

    def __init__(self, *lively):
        self.lively, self.heard = lively, []

    def __call__(self, questions, beside=()):
        self.heard.append([question.id for question in questions])
        return [credited(question, "1", "1", "2" if question.id in self.lively else "1") for question in questions]


def draw(asker, step=0, **settings):
    first_B = asker(STREAM.batch(step))
    return replace_flat(first_B, asker, STREAM, step, DynamicSamplingSettings(**settings))


def ids(groups_B):
    return [group.sampled.question.id for group in groups_B]


OWN = [question.id for question in STREAM.batch(0)]
OTHERS = [question.id for question in STREAM.others(0, 0, 8, OWN)]


def test_flat_questions_are_replaced_in_their_places_and_the_others_stay():
    asker = Asker(OWN[1], OTHERS[1])
    drawn, metrics, left_out = draw(asker, rounds=1)
    assert asker.heard == [OWN, OTHERS[:2]]  # two are flat, so two others are asked; the second of them has signal
    assert ids(drawn) == [OTHERS[1], OWN[1], OWN[2]]
    # the questions asked first agree by 1, 2/3 and 1, whatever took their places
    assert metrics == pytest.approx({"agreement": 8 / 9, "resampled_share": 1 / 3, "resampling_rounds": 1.0})
    assert ids(left_out) == [OTHERS[0], OWN[0]]  # the flat one that was drawn, and the flat one that was replaced
    assert tokens_drawn(left_out) == 12  # 2 × 3 × 2


def test_rounds_end_when_all_have_signal_or_no_question_is_left():
    full = Asker(*OWN)
    drawn, found, _ = draw(full, rounds=9)
    assert len(drawn) == 3
    assert found == {"agreement": pytest.approx(2 / 3), "resampled_share": 0.0, "resampling_rounds": 0.0}
    assert full.heard == [OWN]
    hopeless = Asker()
    drawn, metrics, _ = draw(hopeless, rounds=9)
    assert [len(asked) for asked in hopeless.heard] == [3, 3, 2]  # eight questions, none asked twice
    assert sorted(name for asked in hopeless.heard for name in asked) == [question.id for question in EIGHT]
    assert ids(drawn) == OWN  # what stays flat is trained on as it is
    assert (metrics["agreement"], metrics["resampled_share"], metrics["resampling_rounds"]) == (1.0, 0.0, 2.0)
    assert draw(Asker(), rounds=1)[1]["resampling_rounds"] == 1.0


def test_others_depend_on_seed_step_and_round_alone():
    asked = [question.id for question in STREAM.others(0, 0, 2, OWN)]
    assert asked == OTHERS[:2]
    assert not set(OTHERS) & set(OWN)
    orders = {tuple(q.id for q in STREAM.others(step, again, 8, ())) for step in range(2) for again in range(2)}
    assert len(orders) == 4


def test_rewards_are_flat_if_they_differ_by_no_more_than_a_hundredth():
    credit = credited(EIGHT[0], "1", "1", "2").credit
    for least, flat in ((0.0, False), (0.985, False), (0.99, True), (1.0, True)):
        assert is_flat(replace(credit, rewards=np.array([1.0, 1.0, least]))) is flat


def test_a_group_that_its_method_pushes_one_way_is_not_flat_though_all_earn_the_same():
    # nobody agrees: RESTRAIN pushes all of them down; all agree: DDRL pushes all of them up
    restrain = {"method": "restrain", "weigh_questions": False, "min_share": 0.5}
    assert not is_flat(credited(EIGHT[0], "1", "2", "3", **restrain).credit)
    assert is_flat(credited(EIGHT[0], "1", "1", "1", **restrain).credit)
    assert not is_flat(credited(EIGHT[0], "1", "1", method="ddrl").credit)
    assert is_flat(credited(EIGHT[0], "1", "1", method="ddrl", signed=False).credit)


# In a run


def test_a_run_draws_again_and_goes_on_exactly_after_a_stop(tmp_path):
    settings = (*TINY, "dynamic_sampling.rounds=2")
    do(tmp_path / "whole", *settings)
    found = metrics(tmp_path / "whole")
    assert sum(line["resampling_rounds"] for line in found) > 0
    assert sum(line["resampled_share"] for line in found) > 0
    assert all(line.keys() <= STEP_METRICS.keys() for line in read_lines(tmp_path / "whole" / "metrics.jsonl"))
    rollouts = read_lines(tmp_path / "whole" / "rollouts.jsonl")
    for line in found:  # the tokens of what was left out are counted, its completions are not written down
        written = [each for each in rollouts if each["step"] == line["step"]]
        assert len(written) == 2 * 4
        is_equal = line["tokens"] == sum(each["num_tokens"] for each in written)
        assert is_equal == (line["resampling_rounds"] == 0)
    stop_after_a_step(tmp_path / "run", *settings)
    go_on(tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "whole")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")
    assert (tmp_path / "run" / "rollouts.jsonl").read_bytes() == (tmp_path / "whole" / "rollouts.jsonl").read_bytes()


def test_questions_that_were_left_out_are_remembered_too(tmp_path, monkeypatch):
    """The votes and labels of every question's last visit, whether it was trained on or not."""
    asked, visits, sample_step = [], {}, Run.sample_step

    def recorded(run, questions):
        sampled_B = sample_step(run, questions)
        asked.extend((run.state.step, sampled.question.id) for sampled in sampled_B)
        visits.update({sampled.question.id: sampled for sampled in sampled_B})
        return sampled_B

    monkeypatch.setattr(Run, "sample_step", recorded)
    run, _ = do(tmp_path / "run", *TINY, "dynamic_sampling.rounds=2")
    written = {(row["step"], row["question_id"]) for row in read_lines(tmp_path / "run" / "rollouts.jsonl")}
    assert len(written) == 2 * 2 < len(asked)  # some were left out
    expected = {name: run.rule.credit(sampled.group) for name, sampled in visits.items()}
    assert run.state.labels == {name: credit.labels.positive for name, credit in expected.items()}
    votes = LastVotes().after((name, credit.tally) for name, credit in expected.items())
    assert run.state.last_votes.to_json() == votes.to_json()
    assert state_of(tmp_path / "run")["last_votes"].keys() == visits.keys()


def test_what_cannot_be_is_refused(tmp_path):
    all_at_once = small(*TINY, "questions_per_step=6", "dynamic_sampling.rounds=1")
    for start in (lambda: train(all_at_once, tmp_path / "run", Listener()), lambda: make_plan(all_at_once)):
        with pytest.raises(ConfigError, match=r"dynamic_sampling\.rounds"):
            start()
    assert not (tmp_path / "run").exists()
    for bad in ("rounds=-1", "round=3"):
        with pytest.raises(ConfigError, match=r"dynamic.sampling\."):
            small(f"dynamic_sampling.{bad}")
