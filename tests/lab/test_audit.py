"""`scrl audit`: figures by hand, and what the verdict says about completions made to be lied about."""

import dataclasses
import json
import random

import pytest
from line_files import read_lines, write_lines
from processes import scrl

from scrl import audit
from scrl.credit.method import needing
from scrl.credit.methods.ttrl import TTRL
from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.errors import ConfigError
from scrl.evaluation.statistics import clustered_interval
from scrl.lab.audit import audit_groups
from scrl.lab.label import label_file
from scrl.lab.stored_groups import stored_groups


def row(question, answer, entropy=0.2, **more):
    return {"question_id": question, "answer": answer, "entropy": entropy} | more


def audited(path, *methods, reader="boxed", **options):
    rules = {name: credit_rule(name, reader=reader) for name in methods or ("ttrl", "scrl", "contrast")}
    groups = stored_groups(open_completions(path), next(iter(rules.values())), keep_texts=False)
    return audit_groups(groups, rules, **options)


def codes(audit):
    return [finding["code"] for finding in audit["verdict"]]


def stock_file(path, *, gold, steps=1, seed=0):
    """24 questions of 16 completions: three of four have 1 or 0 as their majority, the others an answer of their own."""
    rng, rows = random.Random(seed), []
    for step in range(steps):
        for number in range(24):
            own = str(100 + number)
            top = own if number % 4 == 0 else str(number % 2)
            said = [top] * 9 + [str(rng.randrange(1000, 9000)) for _ in range(6)] + [None]
            rows += [row(f"q{number}", a, rng.random(), step=step, **({"gold": own} if gold else {})) for a in said]
    return write_lines(path, rows)


def test_figures_by_hand(tmp_path):
    # a: 3 × 1, 1 × 2 (right, more certain); b: 2 × 5 (right), 1 × 6, one without an answer and cut
    rows = [row("a", "1", 0.4, gold="2", finished=True)] * 3 + [row("a", "2", 0.1, finished=True)]
    rows += [row("b", "5", 0.1, gold="5", finished=True)] * 2 + [row("b", "6", 0.3, finished=True)]
    rows += [row("b", None, 0.5, finished=False)]
    found = audited(write_lines(tmp_path / "r.jsonl", rows), "ttrl", "scrl")
    votes, gold = found["votes"], found["gold"]
    assert votes["agreement"] == (3 / 4 + 2 / 4) / 2
    assert votes["margin"] == (2 / 4 + 1 / 4) / 2
    assert votes["sharp_share"] == 1.0  # both leads are above 1/8
    assert votes["no_answer_share"] == votes["cut_share"] == 1 / 8
    assert votes["entropy"] == "exact"
    assert found["methods"]["ttrl"]["coverage"] == 1.0
    assert found["methods"]["ttrl"]["positive_accuracy"] == 0.5
    assert gold["majority_accuracy"]["mean"] == 0.5
    assert gold["pass@1"]["mean"] == (1 / 4 + 2 / 4) / 2
    assert gold["entropy_auroc"]["mean"] == 1.0  # a: 0.4 > 0.1; b: 0.3 > 0.1


def test_methods_agree_with_scrl_label(tmp_path):
    path = stock_file(tmp_path / "r.jsonl", gold=True, steps=8)
    found = audited(path, "ttrl", "scrl", "contrast", "oracle")
    for name, figures in found["methods"].items():
        summary = label_file(path, credit_rule(name))
        assert figures["coverage"] == summary["positive_questions"] / summary["questions"]
        for key in ("stock_label_share", "push_stock", "push_right", "push_stock_wrong", "positive_accuracy"):
            assert figures[key] == summary.get(key), (name, key)


@pytest.mark.parametrize("gold", [True, False])
def test_stock_answers_are_found_with_gold_and_without(tmp_path, gold):
    found = audited(stock_file(tmp_path / "r.jsonl", gold=gold))
    finding = found["verdict"][0]
    # 18 of 24 labels are 0 or 1
    assert (finding["code"], finding["figures"]["stock_label_share"]) == ("stock_answers", 18 / 24)
    assert audited(tmp_path / "r.jsonl", "scrl", "contrast")["verdict"][0] == finding  # whichever methods are asked for
    if gold:  # popular labels are never right, the others always
        popular, other = {"labels": 18, "right": 0.0}, {"labels": 6, "right": 1.0}
        assert found["stock"]["labels"] == {"popular": popular, "other": other}
        pushes = {name: figures["push_stock_wrong"] for name, figures in found["methods"].items()}
        assert 0 < pushes["contrast"] < pushes["scrl"]  # 9/16 here against 0.28 elsewhere: less, but still towards them


def test_popular_and_right_answers_are_no_stock_answers(tmp_path):
    path = stock_file(tmp_path / "r.jsonl", gold=True)
    rows = [r | {"gold": str(int(r["question_id"][1:]) % 2)} for r in read_lines(path)]
    assert "stock_answers" not in codes(audited(write_lines(path, rows)))


def test_a_closed_set_of_answers_has_no_stock_answers(tmp_path):
    rows = [row(f"q{q}", "ABCD"[(q + (s == 0)) % 4]) for q in range(24) for s in range(8)]
    assert codes(audited(write_lines(tmp_path / "r.jsonl", rows))) == ["likely_to_help", "closed_set"]


def test_right_answers_to_a_few_questions_decide_nothing(tmp_path):
    """One wrong vote of one question has an interval of no width."""
    rows = [row(f"q{q}", str(q if s < 5 else 100 * q + s)) for q in range(30) for s in range(8)]
    rows = [line | {"gold": "-1"} if line["question_id"] == "q0" else line for line in rows]
    found = audited(write_lines(tmp_path / "r.jsonl", rows))
    assert codes(found) == ["likely_to_help"]
    assert "only 1 of 30 questions" in found["verdict"][0]["words"]


def test_a_few_right_stock_answers_acquit_none(tmp_path):
    """Gold of two questions: one answered by a popular answer, right, one by another, wrong."""
    rows = [row(f"q{q}", "1" if q % 5 and s < 6 else str(1000 * q + s // 6)) for q in range(40) for s in range(8)]
    golds = {"q1": {"gold": "1"}, "q0": {"gold": "7"}}
    rows = [line | golds.get(line["question_id"], {}) for line in rows]
    assert codes(audited(write_lines(tmp_path / "r.jsonl", rows)))[0] == "stock_answers"


def test_a_closed_set_in_which_contrast_gives_labels_is_not_said_to_lack_them(tmp_path):
    rows = [row(f"q{q}", "ABCD"[(q + (s == 0)) % 4]) for q in range(24) for s in range(16)]
    found = audited(write_lines(tmp_path / "r.jsonl", rows), "ttrl", "contrast-label")
    assert found["methods"]["contrast-label"]["coverage"] == 1
    assert codes(found) == ["likely_to_help"]


def test_unanimous_too_weak_unreadable_and_likely_to_help(tmp_path):
    same = [row(f"q{q}", str(q)) for q in range(20) for _ in range(8)]
    assert codes(audited(write_lines(tmp_path / "a.jsonl", same))) == ["unanimous"]
    apart = [row(f"q{q}", str(100 * q + s)) for q in range(20) for s in range(8)]
    assert codes(audited(write_lines(tmp_path / "b.jsonl", apart))) == ["too_weak"]
    mute = [row(f"q{q}", None if s % 2 else str(q)) for q in range(20) for s in range(8)]
    assert codes(audited(write_lines(tmp_path / "c.jsonl", mute)))[0] == "no_answers"
    good = [row(f"q{q}", str(q if s < 5 else 100 * q + s), gold=str(q)) for q in range(30) for s in range(8)]
    found = audited(write_lines(tmp_path / "d.jsonl", good))
    assert codes(found) == ["likely_to_help"]
    assert found["verdict"][0]["figures"]["vote_gain"]["mean"] == pytest.approx(3 / 8)  # 1 − 5/8
    # a vote that is right as often as a single completion: one question of four is right throughout
    luck = [row(f"q{q}", str(q) if q % 4 == 0 or s < 5 else "-1", gold=str(q if q % 4 == 0 else 7))
            for q in range(28) for s in range(8)]  # fmt: skip
    assert codes(audited(write_lines(tmp_path / "e.jsonl", luck)))[0] == "too_weak"


def test_completions_that_the_check_leaves_out_are_no_fault_of_the_reader(tmp_path):
    """Three of eight completions calculate, and agree."""
    rows = [
        {"question_id": f"q{q}", "completion": f"{q} + 1 = {q + 1}: " * (s < 3) + f"\\boxed{{{q + 1}}}", "entropy": 0.2}
        for q in range(20)
        for s in range(8)
    ]
    found = audited(write_lines(tmp_path / "c.jsonl", rows), reader="sound:boxed")
    assert found["votes"]["no_answer_share"] == 5 / 8
    assert codes(found) == ["likely_to_help"]


def test_a_gate_that_knows_nothing_is_said_to(tmp_path):
    """40 questions whose right answer is rare, with entropies drawn at random, or higher for wrong answers."""
    rng = random.Random(3)

    def rows(knows):
        for q in range(40):
            for s in range(16):
                answer = str(q) if s < 10 else f"{1000 * q + s}"
                is_right = s == 12
                yield row(f"q{q}", answer, rng.random() + (knows and not is_right), gold=f"{1000 * q + 12}")

    assert "gate_not_informative" in codes(audited(write_lines(tmp_path / "a.jsonl", rows(False))))
    assert "gate_not_informative" not in codes(audited(write_lines(tmp_path / "b.jsonl", rows(True))))


def test_one_completion_per_question_is_no_consensus(tmp_path):
    rows = [row(f"q{q}", str(q)) for q in range(30)]
    assert codes(audited(write_lines(tmp_path / "r.jsonl", rows)))[0] == "no_votes"


def test_methods_that_the_file_cannot_serve_are_refused_by_name(tmp_path):
    rows = [{"question_id": f"q{q}", "answer": "1"} for q in range(3) for _ in range(4)]
    found = audited(write_lines(tmp_path / "r.jsonl", rows), "ttrl", "scrl", "restrain", "compass", "oracle")
    assert list(found["methods"]) == ["ttrl"]
    assert found["refused"]["scrl"].startswith("an entropy")
    assert set(found["refused"]) == {"scrl", "restrain", "compass", "oracle"}
    assert found["votes"]["entropy"] is None
    reads = dataclasses.replace(TTRL, name="reads", needs=needing("text"))
    found = audit(tmp_path / "r.jsonl", ["ttrl", reads])
    assert (list(found["methods"]), list(found["refused"])) == (["ttrl"], ["reads"])


def test_methods_may_be_given_as_they_are(tmp_path):
    path = stock_file(tmp_path / "r.jsonl", gold=True)
    mine = dataclasses.replace(TTRL, name="mine")
    alone = audit(path, mine)
    assert alone["methods"] == {"mine": audit(path, "ttrl")["methods"]["ttrl"]}
    assert audit(path, ["ttrl", mine])["methods"].keys() == {"ttrl", "mine"}
    with pytest.raises(ConfigError, match="method"):
        audit(path, ["ttrl", dataclasses.replace(TTRL, idea="another")])


def test_the_command_writes_and_prints(tmp_path):
    path = stock_file(tmp_path / "r.jsonl", gold=True, steps=8)
    done = scrl("audit", path, "--out", tmp_path / "a.json", "--method", "ttrl", "--method", "scrl")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "a.json").read_text())["methods"].keys() == {"ttrl", "scrl"}
    assert scrl("audit", tmp_path / "none.jsonl").returncode == 2
    assert scrl("audit", path, "--out", path).returncode == 2


def test_the_clustered_interval_draws_questions_whole():
    # ten visits of one question are no ten questions: with two questions, one all right, the mean is 0, ½ or 1
    assert clustered_interval({"a": [1.0] * 10, "b": [0.0] * 10}, seed=0) == (0.0, 1.0)
    low, high = clustered_interval({str(q): [float(q % 2)] for q in range(100)}, seed=0)
    assert low == pytest.approx(0.4, abs=0.03)  # ½ ± 1.96 √(¼ / 100)
    assert high == pytest.approx(0.6, abs=0.03)
    assert clustered_interval({"a": [1.0], "b": []}, seed=0) == (1.0, 1.0)
