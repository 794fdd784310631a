"""Figures of an audit → what they mean for training, in words, each with the figure behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scrl.credit.elsewhere import REPEATED
from scrl.credit.methods.scrl import ScrlSettings

UNANIMOUS_SHARE = 0.8
"""From this share of unanimous questions: at most one question in five still has a signal."""
WEAK_COVERAGE = 1 / 8
"""Too weak below this share of questions with a sharp consensus: less than one of a step's 8 questions has a label."""
STOCK_LABELS = 0.25
"""Stock answers dominate from this share of majority labels. Right answers repeat less: the three most frequent ones
make up 22 % of AMC, 11 % of MATH-500, 9 % of 256 questions of GSM8K."""
CLOSED_SET = 10
"""With fewer distinct answers in all completions they are a closed set (A to D, yes and no), in which the three most
popular say nothing."""
NO_ANSWER = 0.5
"""From this share of completions without an answer, the reader or the length does not fit; `sound:` leaves out many."""
FEW_QUESTIONS = 20
"""Below this number of questions the verdict says how few they are; right answers to fewer decide nothing."""
PAPER = ScrlSettings()
"""The thresholds of a sharp consensus."""
CHANCE = 0.5
"""The AUROC of an entropy that knows nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    words: str
    figures: dict[str, Any]


def verdict(audit: Mapping[str, Any]) -> list[Finding]:
    """What the audit's figures say: reasons against training first; without any, that it is likely to help."""
    against = [*_weak_votes(audit), *_stock(audit)]
    return [*against, *([] if against else [_helps(audit)]), *_gate(audit), *_closed_set(audit)]


def _weak_votes(audit: Mapping[str, Any]) -> Iterator[Finding]:
    votes, gold = audit["votes"], audit["gold"]
    missing, unanimous, sharp = votes["no_answer_share"], votes["unanimous_share"], votes["sharp_share"]
    if max(audit["group_sizes"]) == 1:
        words = "One completion per question, so there is no vote to look at. Sample 16 or more of each question."
        yield Finding("no_votes", words, {"group_sizes": audit["group_sizes"]})
        return
    if missing >= NO_ANSWER and not audit["sound_alone"]:
        words = (
            f"Few votes: {missing:.0%} of completions have no answer that counts. Change --reader or allow more tokens."
        )
        yield Finding("no_answers", words, {"no_answer_share": missing})
    if unanimous >= UNANIMOUS_SHARE:
        words = (
            f"Already unanimous: on {unanimous:.0%} of the questions all completions give one answer, so there is "
            "nothing to push. Take harder questions, or a higher temperature."
        )
        yield Finding("unanimous", words, {"unanimous_share": unanimous})
    if sharp < WEAK_COVERAGE:
        words = (
            f"Too weak: only {sharp:.0%} of the questions have a sharp consensus (a share of {PAPER.min_share:.1%} and "
            f"a lead of more than {PAPER.min_margin:.1%}). Take easier questions or a stronger model; or is one answer "
            "spelled in many ways (scrl label --audit)?"
        )
        yield Finding("too_weak", words, {"sharp_share": sharp})
    elif gold is not None and gold["questions"] >= FEW_QUESTIONS and gold["vote_gain"]["interval"][0] <= 0:
        gain = gold["vote_gain"]
        words = (
            f"Too weak: the most frequent answer is right on {_of(gold['majority_accuracy'])} of the questions, a "
            f"single completion on {_of(gold['pass@1'])}: the vote is not clearly better ({_points(gain)})."
        )
        yield Finding("too_weak", words, {"vote_gain": gain})


def _stock(audit: Mapping[str, Any]) -> Iterator[Finding]:
    stock = audit["stock"]
    share = stock["label_share"]
    if share is None or share < STOCK_LABELS or stock["distinct_answers"] < CLOSED_SET:
        return
    labels = stock["labels"]
    is_decided = audit["gold"] is not None and audit["gold"]["questions"] >= FEW_QUESTIONS
    popular, other = (labels[kind]["right"] if is_decided else None for kind in ("popular", "other"))
    if popular is not None and other is not None and popular >= other:
        return  # popular and right: these questions do have such answers
    names = ", ".join(item["answer"] for item in stock["popular"][: stock["num_stock"]])
    words = (
        f"Stock answers dominate: {share:.0%} of the majority labels are one of the {stock['num_stock']} answers most "
        f"popular over the other questions (over all: {names}). A rule that looks at one question at a time cannot see "
        "that; contrast can."
    )
    if popular is not None and other is not None:
        words += f" Of sharp labels that are popular elsewhere {popular:.0%} are right, of the others {other:.0%}."
    else:
        words += f" But if {REPEATED}."
    yield Finding("stock_answers", words, {"stock_label_share": share, "labels": labels})


def _helps(audit: Mapping[str, Any]) -> Finding:
    votes, gold = audit["votes"], audit["gold"]
    words = (
        f"Likely to help on these questions: {votes['sharp_share']:.0%} of them have a sharp consensus, and on "
        f"{1 - votes['unanimous_share']:.0%} the completions still differ."
    )
    figures = {"sharp_share": votes["sharp_share"], "unanimous_share": votes["unanimous_share"]}
    if gold is None:
        words += " Whether that consensus is right only gold answers can tell; 20 are better than none."
    else:
        figures["vote_gain"] = gold["vote_gain"]
        words += (
            f" The most frequent answer is right on {_of(gold['majority_accuracy'])} of the questions, a "
            f"single completion on {_of(gold['pass@1'])}: {_points(gold['vote_gain'])} to learn from."
        )
    if gold is not None and gold["questions"] < min(FEW_QUESTIONS, audit["questions"]):
        words += f" But right answers are known to only {gold['questions']} of {audit['questions']} questions."
    elif audit["questions"] < FEW_QUESTIONS:
        words += f" But these are only {audit['questions']} questions."
    return Finding("likely_to_help", words, figures)


def _closed_set(audit: Mapping[str, Any]) -> Iterator[Finding]:
    coverage = audit["methods"].get("contrast-label", {}).get("coverage", 0.0)
    is_scarce = coverage < audit["votes"]["sharp_share"] / 2
    if (number := audit["stock"]["distinct_answers"]) < CLOSED_SET and audit["stock"]["is_known"] and is_scarce:
        words = f"Few answers: {number} different ones in all, so contrast hardly gives a label; if {REPEATED}."
        yield Finding("closed_set", words, {"distinct_answers": number})


def _gate(audit: Mapping[str, Any]) -> Iterator[Finding]:
    """The gate chooses among rare answers, so it is measured there."""
    auroc = (audit["gold"] or {}).get("rare_entropy_auroc")
    if auroc is None or auroc["interval"][0] > CHANCE or audit["gold"]["questions"] < FEW_QUESTIONS:
        return
    words = (
        f"Entropy gate not informative: where the right answer is rare (groups: {auroc['groups']}), {_of(auroc)} of "
        "the wrong rare answers are more uncertain than it, and a coin would give 50%. What scrl rules out, it "
        "rules out for being rare."
    )
    yield Finding("gate_not_informative", words, {"rare_entropy_auroc": auroc})


def _of(figure: Mapping[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{figure['mean']:.0%} [{low:.0%}, {high:.0%}]"


def _points(figure: Mapping[str, Any]) -> str:
    low, high = figure["interval"]
    return f"{100 * figure['mean']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
