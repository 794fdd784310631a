"""Keep of a run what a table needs: no weights, no completions, no text of a benchmark.

    python results/keep.py results/amc-1.5b/scrl-2 work/scrl-2 work/scrl-2-math500

The first folder is new; the others are a run's, of `scrl train`, and those of `scrl evaluate` for its last checkpoint.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from scrl.files.jsonl import read_json_lines


def keep(out: Path, *folders: Path) -> None:
    """Write the files of `out`; about.json comes last, so that a folder that has it has all."""
    out.mkdir(parents=True)
    about: dict[str, Any] = {"commit": _commit(), "gpu": _gpu()}
    for folder in folders:
        evaluations = [_without_text(line.fields) for line in read_json_lines(folder / "evaluations.jsonl")]
        if not (folder / "environment.json").is_file():  # of `scrl evaluate`
            for record in evaluations:
                _write(out / f"{record['benchmark']}.json", [record])
            continue
        _write(out / "evaluations.jsonl", evaluations)
        _write(out / "votes.jsonl", vote_lines(folder))
        for name in ("config.yaml", "metrics.jsonl"):
            shutil.copyfile(folder / name, out / name)
        environment = folder / "environment.json"  # the first file that is written; evaluations are measured last
        seconds = (folder / "evaluations.jsonl").stat().st_mtime - environment.stat().st_mtime
        about["seconds"] = {"train": round(seconds)}
        about["versions"] = json.loads(environment.read_text(encoding="utf-8"))["versions"]
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _gpu() -> str:
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"


def _without_text(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in evaluation.items() if name != "answers"}


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


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


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
