"""Classes of answers: an equivalence relation that does not look at the order of the completions."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from scrl.answers.classes import MISSING, classify, find_class, same_answer, split_classes
from scrl.answers.judge import NoJudge, Verdicts

# Open forms that canonical forms cannot tell apart by value: every verdict is the judge's.
OPEN = [rf"\foo_{{{n}}}(3)" for n in range(6)]


class ScriptedJudge:
    """Says that these pairs are equal and those are undecided; counts what it is asked."""

    def __init__(self, equal=(), undecided=()):
        self.equal = {frozenset(pair) for pair in equal}
        self.undecided = {frozenset(pair) for pair in undecided}
        self.asked = []

    def compare(self, pairs):
        pairs = list(pairs)
        self.asked += pairs
        return Verdicts(
            frozenset(p for p in pairs if frozenset(p) in self.equal),
            frozenset(p for p in pairs if frozenset(p) in self.undecided),
        )


def partition(classes):
    """The classes as a set of sets of spellings."""
    return {
        frozenset(a for a, j in zip(classes.answers_G, classes.class_of_G, strict=True) if j == k)
        for k in range(len(classes.keys_K))
    }


def test_missing_answers_are_in_no_class():
    classes = classify(["5", None, "", "5.0", r"\text{}"], judge=NoJudge())
    assert classes.class_of_G == (0, MISSING, MISSING, 0, MISSING)
    assert classes.keys_K == ("5",)


def test_a_group_of_missing_answers_has_no_class():
    assert classify([None, None], judge=NoJudge()).keys_K == ()


def test_the_judge_is_not_asked_when_forms_decide():
    judge = ScriptedJudge()
    classify(["1", "2", r"\frac12", "(1,2)", r"\text{east}", "x^2", r"\{1,2\}"], judge=judge)
    assert judge.asked == []


def test_a_chain_of_verdicts_is_not_a_class():
    """a ~ b ~ c but not a ~ c (math-verify says such things): nothing is merged, in any order."""
    a, b, c = OPEN[:3]
    for order in itertools.permutations([a, b, c]):
        classes = classify(order, judge=ScriptedJudge([(a, b), (b, c)]))
        assert len(classes.keys_K) == 3


def test_a_bridge_does_not_dissolve_the_class_it_leans_on():
    """a, b, c are all equal; d is called equal to a alone: b and c stay together."""
    a, b, c, d = OPEN[:4]
    classes = classify([a, b, c, d], judge=ScriptedJudge([(a, b), (b, c), (a, c), (a, d)]))
    assert partition(classes) == {frozenset({b, c}), frozenset({a}), frozenset({d})}


def test_undecided_pairs_are_different_and_counted():
    a, b, c = OPEN[:3]
    classes = classify([a, b, c], judge=ScriptedJudge([(a, b)], undecided=[(a, c), (b, c)]))
    assert partition(classes) == {frozenset({a, b}), frozenset({c})}
    assert classes.undecided_pairs == 2


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.permutations(range(6)))
def test_any_verdicts_give_a_partition_that_ignores_the_order(edges, order):
    """Whatever the judge says, classes are cliques of its verdicts and the same for every order."""
    judge = ScriptedJudge([(OPEN[i], OPEN[j]) for i, j in edges if i != j])
    straight = partition(classify(OPEN, judge=judge))
    shuffled = partition(classify([OPEN[i] for i in order], judge=judge))
    assert straight == shuffled
    assert sum(map(len, straight)) == len(OPEN)
    for members in straight:
        for pair in itertools.combinations(members, 2):
            assert frozenset(pair) in judge.equal


def test_gold_matches_a_class_only_as_a_whole():
    a, b, c, gold = OPEN[:4]
    classes = classify([a, b, c], judge=ScriptedJudge([(a, b)]))
    whole = classes.class_of_G[0]
    assert find_class(classes, gold, judge=ScriptedJudge([(gold, a), (gold, b)])) == (whole, 0)
    assert find_class(classes, gold, judge=ScriptedJudge([(gold, a)])) == (None, 0)
    assert find_class(classes, gold, judge=ScriptedJudge([(gold, a), (gold, b), (gold, c)])) == (None, 0)  # two classes
    assert find_class(classes, gold, judge=ScriptedJudge(undecided=[(gold, a)])) == (None, 1)
    assert find_class(classes, b, judge=ScriptedJudge()) == (whole, 0)  # by its key, without asking


def test_the_audit_names_spellings_and_who_merged_them():
    a, b = OPEN[:2]
    classes = classify(["1/2", "0.5", "0.5", a, b, None], judge=ScriptedJudge([(a, b)]))
    audit = classes.audit()
    assert [(s.text, s.count, s.merged_by) for s in audit["1/2"]] == [("0.5", 2, "form"), ("1/2", 1, "form")]
    (merged,) = (spellings for key, spellings in audit.items() if key != "1/2")
    assert {(s.text, s.merged_by) for s in merged} == {(a, "form"), (b, "judge")}


def test_tolerance_merges_physics_answers_and_stays_transitive():
    spellings = ["1.602e-19", r"1.6 \times 10^{-19}", "1.60e-19", r"1.604\cdot10^{-19}"]
    assert len(classify(spellings, judge=NoJudge()).keys_K) == 3
    assert len(classify(spellings, judge=NoJudge(), significant_digits=2).keys_K) == 1


SPELLINGS = st.sampled_from(
    [
        "1/2",
        r"\frac12",
        "0.5",
        ".50",
        "50%",
        "50",
        r"50\%",
        "x=5",
        "5",
        "y = 5",
        "(1,2)",
        "1,2",
        "2,1",
        r"\{1,2\}",
        "C",
        r"\text{C}",
        "1,000",
        "1000",
        r"\sqrt{8}",
        r"2\sqrt2",
        "x^2-1",
        "(x-1)(x+1)",
        r"\text{no}",
        "on",
        "",
        "[0,1)",
        r"0 \le x < 1",
    ]
)


@given(SPELLINGS, SPELLINGS, SPELLINGS)
def test_equality_is_reflexive_symmetric_and_transitive(a, b, c):
    judge = NoJudge()
    assert same_answer(a, a, judge=judge) == (a != "")
    assert same_answer(a, b, judge=judge) == same_answer(b, a, judge=judge)
    if same_answer(a, b, judge=judge) and same_answer(b, c, judge=judge):
        assert same_answer(a, c, judge=judge)


# Several groups at once


@given(st.lists(st.lists(st.sampled_from(["1", "1.0", r"\frac12", "0.5", "7", "x", "", None]), max_size=6), max_size=4))
def test_groups_that_are_classified_together_are_as_when_classified_apart(groups):
    joined = classify([answer for group in groups for answer in group], judge=NoJudge())
    parts = split_classes(joined, [len(group) for group in groups])
    assert list(map(told, parts)) == [told(classify(group, judge=NoJudge())) for group in groups]


def told(classes):
    keys = [[form.key for form in forms] for forms in classes.forms_K]
    return classes.keys_K, classes.class_of_G, classes.answers_G, keys, classes.audit()


@given(st.lists(st.sampled_from(OPEN[:4]), min_size=1, max_size=6), st.integers(0, 6), st.data())
def test_parts_keep_the_classes_of_the_whole(answers, cut, data):
    pairs = list(itertools.combinations(OPEN[:4], 2))
    judge = ScriptedJudge(data.draw(st.lists(st.sampled_from(pairs), max_size=4)))
    whole = classify(answers, judge=judge)
    parts = split_classes(whole, [min(cut, len(answers)), max(len(answers) - cut, 0)])
    assert [part.keys_K[j] for part in parts for j in part.class_of_G] == [whole.keys_K[j] for j in whole.class_of_G]
    for part in parts:
        assert part.keys_K == tuple(sorted(part.keys_K))
        assert all(part.forms_K)  # no class is empty
        assert part.audit().keys() == set(part.keys_K)
        for place, answer in enumerate(part.answers_G):
            assert find_class(part, answer, judge=judge)[0] == part.class_of_G[place]


def test_an_answer_from_outside_is_compared_with_what_a_part_itself_says():
    """Merged across two groups: each part knows its own spelling alone, under the key of both."""
    a, b, c = OPEN[:3]
    judge = ScriptedJudge([(a, b), (a, c), (b, c)])
    one, other = split_classes(classify([a, b], judge=judge), [1, 1])
    assert one.keys_K == other.keys_K
    assert [find_class(part, c, judge=judge) for part in (one, other)] == [(0, 0), (0, 0)]


def test_undecided_pairs_are_counted_once():
    a, b = OPEN[:2]
    whole = classify([a, b], judge=ScriptedJudge(undecided=[(a, b)]))
    assert [part.undecided_pairs for part in split_classes(whole, [1, 1])] == [1, 0]
