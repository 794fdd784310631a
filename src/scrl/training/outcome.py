"""What a run says at its end: the vote of the start model, that of the trained one, and what lay between."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scrl.metrics import PASS_OR_MAJ, SETS
from scrl.training.probe import duration
from scrl.training.run_folder import RunFolder


def outcome_notes(folder: RunFolder, say: Callable[[str], None]) -> Iterator[str]:
    """For each set of questions that was measured before and after, and for the whole run."""
    evaluations, steps = folder.lines("evaluations.jsonl", say), folder.lines("metrics.jsonl", say)
    for name, words in SETS.items():
        records = [record for record in evaluations if record["benchmark"] == name]
        if len(records) > 1:  # the first is that of the start model
            yield f"{words}: {_change(records[0], records[-1])}"
    if steps:
        tokens = sum(step["tokens"] + step.get("tokens_votes", 0) for step in steps)
        seconds = sum(value for step in steps for key, value in step.items() if key.startswith("seconds_"))
        saved = sum(step.get("tokens_saved", 0) for step in steps)
        less = f"; questions that teach nothing would have taken {saved:,.0f} more" if saved else ""
        yield f"training took {tokens:,} sampled tokens and {duration(seconds)}{less}"


def _change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The vote before and after; without gold, how many questions have another answer now."""
    for vote in (name for name in before if name.startswith("maj@") and PASS_OR_MAJ.fullmatch(name)):
        size = vote.removeprefix("maj@")
        return (
            f"the vote of {size} completions is right on {after[vote]:.1%}; the start model's was on {before[vote]:.1%}"
        )
    pairs = [(before["answers"][name]["votes"], after["answers"][name]["votes"]) for name in before["answers"]]
    changed = sum([vote[0] for vote in one[:1]] != [vote[0] for vote in two[:1]] for one, two in pairs)
    agree = f"{after['agreement']:.0%} of the completions agree with it, {before['agreement']:.0%} did"
    return f"{changed} of {len(pairs)} have another most frequent answer than before; {agree}"
