"""What other questions answered, and the rule that looks at it: golden numbers, properties, and a real run's pushes."""

import collections
import gzip
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scrl
from scrl.answers.classes import Classes
from scrl.config import GuardSettings
from scrl.credit.elsewhere import MIN_OTHERS, LastVotes, few_others, require_others
from scrl.credit.group_metrics import gives, push, same_answer_share, stock_values
from scrl.credit.labels import count_votes
from scrl.credit.rule import credit_rule
from scrl.errors import InputError
from scrl.records import Completion, Elsewhere, Group, Labels, Tally
from scrl.training.guard import alarms


def tally(votes, missing=0):
    """Votes by answer → Tally."""
    keys = tuple(sorted(votes))
    class_of_G = tuple(place for place, key in enumerate(keys) for _ in range(votes[key])) + (-1,) * missing
    return Tally(keys, tuple(votes[key] for key in keys), class_of_G, None, None, None)


def others(number, votes):
    """This many other questions, each with these votes."""
    return [(f"other-{place}", tally(votes)) for place in range(number)]


def elsewhere_of(visits, question="q", keys=("1", "2", "3")):
    return LastVotes().after(visits).elsewhere(question, keys)


# p̄: what the other questions answered


def test_elsewhere_is_the_mean_share_over_the_other_questions():
    visits = [*others(6, {"1": 2, "2": 2}), ("x", tally({"1": 1}, missing=3)), ("y", tally({"3": 4}))]
    found = elsewhere_of([*visits, ("q", tally({"1": 4}))])
    assert found.num_questions == 8  # q itself never counts
    # 1: (6 · 2/4 + 1/4 + 0) / 8; 2: 6 · 2/4 / 8; 3: 1/8
    assert found.shares == {"1": 3.25 / 8, "2": 3 / 8, "3": 1 / 8}
    assert found.stock == ("1", "2", "3")


def test_a_question_counts_with_its_last_visit():
    votes = LastVotes().after(others(8, {"1": 4})).after([("other-0", tally({"2": 4})), ("other-1", tally({}, 4))])
    assert votes.elsewhere("q", ("1", "2")).shares == {"1": 6 / 8, "2": 1 / 8}
    assert votes.elsewhere("other-0", ("1", "2")) == Elsewhere(7)  # seven others are too few


def test_stock_answers_are_the_three_most_popular_and_of_equal_ones_the_smallest_key():
    visits = [*others(8, {"9": 4}), ("a", tally({"5": 2, "7": 2})), ("b", tally({"4": 2, "7": 2}))]
    assert elsewhere_of(visits).stock == ("9", "7", "4")  # 8, 1, then 5 and 4 with ½ each
    assert elsewhere_of(visits, question="b").stock == ("9", "5", "7")  # its own 4 and 7 do not count


VOTES = st.dictionaries(st.sampled_from("1234567"), st.integers(1, 9), min_size=1)
VISITS = st.lists(st.tuples(st.sampled_from("abcdefghijkl"), VOTES), min_size=9, max_size=30)


@settings(max_examples=50)
@given(VISITS, st.randoms())
def test_order_and_earlier_visits_change_no_bit(visits, random):
    last = {question: tally(votes) for question, votes in visits}
    shuffled = random.sample(sorted(last.items()), len(last))
    at_once, one_by_one = LastVotes().after(shuffled), LastVotes()
    for question, votes in visits:
        one_by_one = one_by_one.after([(question, tally(votes))])
    for question in (*last, "new"):
        assert at_once.elsewhere(question, "1234567") == one_by_one.elsewhere(question, "1234567")
    saved = LastVotes.from_json(json.loads(json.dumps(one_by_one.to_json())))
    assert saved.elsewhere("new", "1234567") == one_by_one.elsewhere("new", "1234567")
    assert saved.totals == {answer: total for answer, total in one_by_one.totals.items() if total != Fraction()}


# The rule


def credit(votes, elsewhere, missing=0, **choices):
    answers = [key for key, count in votes.items() for _ in range(count)] + [None] * missing
    rule = credit_rule("contrast", **choices)
    return rule.credit(Group.from_answers(answers, question_id="q"), elsewhere=elsewhere)


def test_an_answer_earns_its_share_less_what_it_has_elsewhere():
    found = credit({"1": 4, "17": 3}, Elsewhere(20, {"1": 0.3, "0": 0.4}, ("0", "1", "2")), missing=1)
    # 1: 4/8 − 1.5 · 0.3 = 0.05; 17: 3/8 − 0 = 0.375; missing: 0.05 − 0.125 = −0.075
    assert found.rewards == pytest.approx([0.05] * 4 + [0.375] * 3 + [-0.075])
    assert found.labels == Labels()
    assert found.stock == ("0", "1", "2")
    # mean (0.2 + 1.125 − 0.075)/8 = 0.15625; variance (4·0.05² + 3·0.375² + 0.075²)/8 − 0.15625² = 0.0302734375
    sigma = 0.0302734375**0.5
    wanted = [(0.05 - 0.15625) / sigma] * 4 + [(0.375 - 0.15625) / sigma] * 3 + [(-0.075 - 0.15625) / sigma]
    assert found.advantages == pytest.approx(wanted, abs=1e-4)


def test_settings_and_groups_without_answers():
    popular = Elsewhere(20, {"1": 0.5})
    assert credit({"1": 2, "2": 2}, popular, elsewhere_weight=2.0).rewards == pytest.approx([-0.5] * 2 + [0.5] * 2)
    assert credit({"1": 2, "2": 2}, popular, elsewhere_weight=0.0).rewards == pytest.approx([0.5] * 4)
    assert credit({"1": 3}, popular, missing=1, missing_gap=0.5).rewards == pytest.approx([0.0] * 3 + [-0.5])
    silent = credit({}, popular, missing=4)
    assert silent.rewards == pytest.approx([-0.125] * 4)
    assert silent.advantages == pytest.approx([0.0] * 4)


VOTES = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 8), min_size=1)
MEANS = st.dictionaries(st.sampled_from("abcdefg"), st.floats(0, 1), min_size=0)


def rewards_by_answer(votes, means, **more):
    found = credit(votes, Elsewhere(20, means), **more)
    return {key: found.rewards[found.tally.class_of_G.index(j)] for j, key in enumerate(found.tally.keys_K)}


@given(VOTES, MEANS)
def test_an_answer_unique_to_the_question_keeps_its_share(votes, means):
    size = sum(votes.values())
    for key, reward in rewards_by_answer(votes, means).items():
        if key not in means:
            assert reward == votes[key] / size


@given(VOTES, MEANS, st.permutations("abcdefg"))
def test_a_consistent_renaming_changes_nothing(votes, means, letters):
    names = dict(zip("abcdefg", letters, strict=True))
    renamed = rewards_by_answer(
        {names[key]: count for key, count in votes.items()}, {names[key]: share for key, share in means.items()}
    )
    assert {names[key]: reward for key, reward in rewards_by_answer(votes, means).items()} == renamed


@settings(max_examples=50)
@given(VOTES, VISITS)
def test_giving_an_answer_in_another_question_can_only_lower_it(votes, visits):
    own = {str("abcde".index(key) + 1): count for key, count in votes.items()}
    before = LastVotes().after([*others(8, {"7": 1}), *((question, tally(found)) for question, found in visits)])
    for key in own:
        after = before.after([("other-0", tally({key: 1}))])
        one, other = (credit(own, each.elsewhere("q", own)).rewards for each in (before, after))
        place = sum(list(own.values())[: list(own).index(key)])
        assert other[place] <= one[place]


def test_in_a_closed_set_of_answers_a_position_bias_is_taken_away():
    # Four options, everybody prefers A: 5/8 A, 1/8 each of B, C, D elsewhere. Here C has 3 of 8 votes and A 5 of 8.
    biased = elsewhere_of(others(20, {"A": 5, "B": 1, "C": 1, "D": 1}), keys=("A", "C"))
    found = credit({"A": 5, "C": 3}, biased)
    # A: 5/8 − 1.5 · 5/8 = −0.3125; C: 3/8 − 1.5/8 = 0.1875
    assert found.rewards == pytest.approx([-0.3125] * 5 + [0.1875] * 3)
    # where nothing is preferred elsewhere, p̄ is 1/4 for all and the order of the votes stands
    even = elsewhere_of(others(20, {"A": 2, "B": 2, "C": 2, "D": 2}), keys=("A", "C"))
    assert credit({"A": 5, "C": 3}, even).rewards == pytest.approx([0.25] * 5 + [0.0] * 3)


# Who gives it


def groups(number, *answers):
    return [Group.from_answers(answers, question_id=f"other-{place}") for place in range(number)]


def test_assign_credit_takes_the_groups_of_other_questions():
    own = Group.from_answers(["1", "1", "2", "2"], question_id="q")
    found = scrl.assign_credit(own, "contrast", elsewhere=groups(8, r"\frac{2}{2}", "5"))
    assert found.rewards == pytest.approx([0.5 - 0.75] * 2 + [0.5] * 2)  # 2/2 is 1, by the equality that counts votes
    known = scrl.assign_credit(own, "contrast", elsewhere=Elsewhere(8, {"1": 0.5}))
    assert known.rewards == pytest.approx(found.rewards)
    few = scrl.assign_credit(own, "contrast", elsewhere=groups(MIN_OTHERS - 1, "1"))
    assert few.rewards == pytest.approx([0.5] * 4)


def test_what_is_not_there_is_refused_in_words():
    own = Group.from_answers(["1", "2"], question_id="q")
    with pytest.raises(InputError, match=r"'q': method 'contrast' .*elsewhere=…"):
        scrl.assign_credit(own, "contrast")
    for twice in ([*groups(2, "1"), own], [*groups(2, "1"), *groups(1, "2")]):
        with pytest.raises(InputError, match=r"elsewhere: question '(q|other-0)' appears twice"):
            scrl.assign_credit(own, "contrast", elsewhere=twice)
    with pytest.raises(InputError, match=r"contrast.*one question"):
        require_others(["q"], "contrast")
    require_others(["q", "p"], "contrast")
    assert few_others(4).startswith(few_others(30))
    assert "only 4" in few_others(4)


# Where rules push


def test_a_push_is_the_covariance_of_advantage_and_event():
    found = credit({"1": 2, "2": 2}, Elsewhere(9, {"1": 0.5}, ("1",)))
    # rewards −0.25, −0.25, 0.5, 0.5 → advantages −1, −1, 1, 1; giving 1: e = 1, 1, 0, 0, ē = ½
    assert push(found, gives(found.tally, ("1",))) == pytest.approx(-0.5, abs=1e-5)
    to_stock = push(found, gives(found.tally, ("1",)))
    assert stock_values([found]) == {"stock_share": [0.5], "push_stock": [to_stock]}  # contrast has no labels
    assert push(found, gives(found.tally, ("2",))) == pytest.approx(0.5, abs=1e-5)
    assert push(found, gives(found.tally, ())) == 0.0
    unknown = credit({"1": 2, "2": 2}, Elsewhere(3))
    assert stock_values([unknown]) == {}


def test_missing_answers_give_nothing_and_only_trained_completions_count():
    found = credit({"1": 1, "2": 1}, Elsewhere(9, {"1": 0.5}, ("1",)), missing=2, num_trained=2, which_trained="first")
    assert gives(found.tally, {"1", None}).tolist() == [1.0, 0.0, 0.0, 0.0]
    assert push(found, gives(found.tally, ("1",))) == pytest.approx(-0.5, abs=1e-4)  # over the first two alone


AMC = Path(__file__).with_name("amc_votes.jsonl.gz")
"""Answer classes, entropies and grades of two real runs of 80 steps, 1.5B weights on the 83 questions of AMC."""
PUSHES = {  # run → rule → metric → mean over the groups of steps 4–19, 20–39, 40–59, 60–79, computed by another program
    "scrl": {
        "ttrl": {
            "push_right": [0.070921532, 0.07604034, 0.063527037, 0.066305146],
            "push_stock": [0.067291248, 0.101093428, 0.057258361, 0.032166061],
            "push_stock_wrong": [0.057296023, 0.077670265, 0.041014627, 0.025544383],
        },
        "scrl": {
            "push_right": [0.068362687, 0.070480423, 0.070791231, 0.066141876],
            "push_stock": [0.029698105, 0.060358502, 0.05200447, 0.036803511],
            "push_stock_wrong": [0.02047719, 0.03826338, 0.035310771, 0.030315696],
        },
        "contrast": {
            "push_right": [0.073389682, 0.07759882, 0.075397343, 0.071638228],
            "push_stock": [-0.022486159, 0.006430517, -0.022198552, -0.054024035],
            "push_stock_wrong": [-0.032405688, -0.013122446, -0.036401434, -0.059652159],
        },
    },
    "ttrl": {
        "ttrl": {
            "push_right": [0.065278749, 0.050151234, 0.025808523, 0.041439311],
            "push_stock": [0.100851898, 0.132071678, 0.078374771, 0.039491195],
            "push_stock_wrong": [0.090350295, 0.112629509, 0.076622818, 0.034992747],
        },
        "scrl": {
            "push_right": [0.061627393, 0.056557841, 0.032430217, 0.041516521],
            "push_stock": [0.065175531, 0.094089667, 0.063187798, 0.021701453],
            "push_stock_wrong": [0.056950264, 0.072862454, 0.058450821, 0.017179763],
        },
        "contrast": {
            "push_right": [0.065819143, 0.064923187, 0.040003686, 0.049339422],
            "push_stock": [0.005285118, -0.012442556, -0.025002383, -0.040603425],
            "push_stock_wrong": [-0.003291912, -0.033721245, -0.034349662, -0.045652277],
        },
    },
}


def stored_steps(run):
    """Step → its groups, as they were stored."""
    steps = collections.defaultdict(list)
    with gzip.open(AMC, "rt") as lines:
        for line in map(json.loads, lines):
            if line["run"] == run:
                steps[line["step"]].append(line)
    return sorted(steps.items())


def credited_steps(run, rule):
    """(step, its credits with their stored groups), the votes of other questions known as in a run."""
    votes = LastVotes()
    for step, stored in stored_steps(run):
        evidence = []
        for line in stored:
            keys, class_of_G = tuple(line["keys"]), tuple(line["classes"])
            classes = Classes(keys, class_of_G, tuple((*keys, None)[j] for j in class_of_G))
            group = Group(tuple(Completion("", h, None) for h in line["entropies"]), line["question"], step)
            evidence.append((group, classes))
        votes = votes.after((group.question_id, count_votes(classes, None)) for group, classes in evidence)
        credits = [
            rule.credit(group, classes, elsewhere=votes.elsewhere(group.question_id, classes.keys_K))
            for group, classes in evidence
        ]
        yield step, list(zip(credits, stored, strict=True))


@pytest.mark.parametrize("run", PUSHES)
@pytest.mark.parametrize("method", PUSHES["scrl"])
def test_pushes_on_a_real_run_are_those_of_an_independent_program(run, method):
    found = {name: collections.defaultdict(list) for name in PUSHES[run][method]}
    for step, credits in credited_steps(run, credit_rule(method)):
        for credit_, line in credits if step >= 4 else ():
            right_G = np.isin(np.arange(credit_.tally.size), line["right"]).astype(float)
            stock_G = gives(credit_.tally, credit_.stock)
            found["push_right"][step // 20].append(push(credit_, right_G))
            found["push_stock"][step // 20].append(push(credit_, stock_G))
            found["push_stock_wrong"][step // 20].append(push(credit_, stock_G * (1 - right_G)))
    for name, windows in PUSHES[run][method].items():
        assert [np.mean(found[name][window]) for window in range(4)] == pytest.approx(windows, abs=1e-6)


def history(run):
    """What the guard would have seen of a stored run."""
    for _, credits in credited_steps(run, credit_rule(run)):
        credit_B = [credit_ for credit_, _ in credits]
        found = {"same_answer_share": same_answer_share(credit_B)}
        found |= {name: np.mean(values) for name, values in stock_values(credit_B).items()}
        yield {name: value for name, value in found.items() if value is not None}


def first_alarm(lines, without=""):
    """The step after which the guard first warns, also if a metric were not there; None: never."""
    guard, seen = GuardSettings(mode="observe"), [{k: v for k, v in line.items() if k != without} for line in lines]
    return next((step for step in range(len(seen) + 1) if alarms(seen[:step], guard)), None)


def test_the_guard_sees_stock_answers_19_steps_before_it_sees_the_collapse():
    ttrl, selective = list(history("ttrl")), list(history("scrl"))
    assert first_alarm(ttrl, "stock_label_share") == 42  # more than half of the questions get one answer
    assert first_alarm(ttrl) == 23
    assert first_alarm(selective) is None  # this run got better, on questions it never saw too
