"""A run of the campaign → the few small files that are kept of it: no weights, no completions, no text of a benchmark.

RESULTS/CAMPAIGN/METHOD-SEED/about.json          the commit, GPU and versions it ran with, and its seconds
RESULTS/CAMPAIGN/METHOD-SEED/config.yaml         every setting
RESULTS/CAMPAIGN/METHOD-SEED/metrics.jsonl       a line per step
RESULTS/CAMPAIGN/METHOD-SEED/evaluations.jsonl   a line per evaluation of the run, before and after training
RESULTS/CAMPAIGN/METHOD-SEED/votes.jsonl         per step and question: how often each answer was given
RESULTS/CAMPAIGN/METHOD-SEED/BENCHMARK.json      a measurement of the last checkpoint on questions never trained on
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scrl.data.jsonl import read_json_lines
from scrl.data.whole_files import write_whole

COPIED = ("config.yaml", "metrics.jsonl")
"""Files of a run folder that are kept as they are."""
VERSIONS = ("torch", "transformers", "numpy")


def condense(run: Path, measured: Path | None, about: Mapping[str, Any], out: Path) -> None:
    """Write what is kept of a run folder and of a `scrl evaluate` folder into the new folder `out`."""
    out.mkdir(parents=True)
    if run.is_dir():
        for name in COPIED:
            write_whole(out / name, (run / name).read_text(encoding="utf-8"))
        kept = (json.dumps(_without_text(line.fields)) + "\n" for line in read_json_lines(run / "evaluations.jsonl"))
        write_whole(out / "evaluations.jsonl", "".join(kept))
        write_whole(out / "votes.jsonl", "".join(json.dumps(line) + "\n" for line in vote_lines(run)))
        environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
        about = {**about, "versions": {name: environment["versions"].get(name) for name in VERSIONS}}
    if measured is not None:
        for line in read_json_lines(measured / "evaluations.jsonl"):
            write_whole(out / f"{line.fields['benchmark']}.json", json.dumps(_without_text(line.fields)) + "\n")
    write_whole(out / "about.json", json.dumps(about, indent=1) + "\n")


def _without_text(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in evaluation.items() if name != "answers"}


def vote_lines(run: Path) -> Iterator[dict[str, Any]]:
    """Per step and question, the votes for every answer, most frequent first, and how many of them were right."""
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for line in read_json_lines(run / "rollouts.jsonl"):
        groups.setdefault((line.fields["step"], line.fields["question_id"]), []).append(line.fields)
    for (step, question_id), rows in groups.items():
        votes = Counter(row["answer_class"] for row in rows if row["answer_class"] is not None)
        yield {
            "step": step,
            "question_id": question_id,
            "completions": len(rows),
            "right": sum(bool(row.get("correct")) for row in rows),
            "positive": next((row["answer_class"] for row in rows if row["label"] == "positive"), None),
            "votes": dict(sorted(votes.items(), key=lambda vote: (-vote[1], vote[0]))),
        }
