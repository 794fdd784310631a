"""Keep of a run what a table needs: no weights, no completions, no text of a benchmark.

    python results/keep.py results/amc-1.5b/scrl-2 work/scrl-2 work/scrl-2-math500

The first folder is new; the others are a run's, of `scrl train`, and those of `scrl evaluate` for its last checkpoint.
Of what `scrl evaluate` drew also the votes, and how right they are of all completions and of sound ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from scrl.credit.rule import credit_rule
from scrl.data.completion_files import open_completions
from scrl.evaluation.gold import majority_accuracy
from scrl.files.jsonl import read_json_lines
from scrl.lab.stored_groups import StoredGroup, stored_groups

READERS = ("boxed", "sound:boxed")
VOTES, BLOCK = 16, 32
"""Completions whose vote is judged by each reader; completions that count as a draw of their own."""


def keep(out: Path, *folders: Path, commit: str) -> None:
    """Write the files of `out`, a new folder; about.json comes last, so that a folder that has it has all."""
    if (out / "about.json").exists():
        raise FileExistsError(out)
    out.mkdir(parents=True, exist_ok=True)
    about: dict[str, Any] = {"commit": commit, "gpu": _gpu()}
    for folder in folders:
        evaluations = [_without_text(line.fields) for line in read_json_lines(folder / "evaluations.jsonl")]
        if not (folder / "environment.json").is_file():  # of `scrl evaluate`
            for record in evaluations:
                name = record["benchmark"].rpartition("/")[2].removesuffix(".jsonl")
                _write(out / f"{name}.json", [record | {"benchmark": name}])
            for path in sorted(folder.glob("rollouts/*.jsonl")):
                _write(out / f"votes-{path.name}", question_votes(path))
            continue
        _write(out / "evaluations.jsonl", evaluations)
        _write(out / "votes.jsonl", vote_lines(folder))
        for name in ("config.yaml", "metrics.jsonl"):
            shutil.copyfile(folder / name, out / name)
        environment = folder / "environment.json"  # the first file that is written
        ends = (folder / name for name in ("metrics.jsonl", "evaluations.jsonl"))
        seconds = max(path.stat().st_mtime for path in ends) - environment.stat().st_mtime
        about["seconds"] = {"train": round(seconds)}
        about["versions"] = json.loads(environment.read_text(encoding="utf-8"))["versions"]
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def commit_here() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _gpu() -> str:
    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"


def _without_text(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in evaluation.items() if name != "answers"}


def _write(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def vote_lines(run: Path) -> Iterator[dict[str, Any]]:
    """Per step and question, the votes for every answer, most frequent first, and how many of them were right.

    Answers, which may tell those of a benchmark, are numbered per question, in the order of their first vote.
    """
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for line in read_json_lines(run / "rollouts.jsonl"):
        groups.setdefault((line.fields["step"], line.fields["question_id"]), []).append(line.fields)
    numbers: dict[str, dict[str, int]] = {}
    for (step, question_id), rows in groups.items():
        number = numbers.setdefault(question_id, {})
        votes = Counter(row["answer_class"] for row in rows if row["answer_class"] is not None)
        for answer in votes:
            number.setdefault(answer, len(number))
        label = next((row["answer_class"] for row in rows if row["label"] == "positive"), None)
        yield {
            "step": step,
            "question_id": question_id,
            "completions": len(rows),
            "right": sum(bool(row.get("correct")) for row in rows),
            "positive": None if label is None else number[label],
            "votes": {number[answer]: count for answer, count in votes.most_common()},
        }


def question_votes(path: Path) -> Iterator[dict[str, Any]]:
    """Per question how often each answer was given, which one is right, and how right its first 16 completions vote.

    Answers are numbered, most frequent first, and counted in blocks of 32 completions; those that tie for the vote
    share it.
    """
    groups = _groups(path, "boxed")
    with tempfile.TemporaryDirectory() as place:
        first, by_question = Path(place) / path.name, defaultdict[str, list[dict[str, Any]]](list)
        for line in read_json_lines(path):
            by_question[line.fields["question_id"]].append(line.fields)
        _write(first, (fields for lines in by_question.values() for fields in lines[:VOTES]))
        firsts = {reader: {group.question_id: group for group in _groups(first, reader)} for reader in READERS}
    for group in groups:
        counts_K, right, given = group.tally.counts_K, _right(group), group.tally.class_of_G
        order = sorted(range(len(counts_K)), key=lambda j: -counts_K[j])
        blocks = [given[first : first + BLOCK] for first in range(0, len(given), BLOCK)]
        yield {
            "question_id": group.question_id,
            "completions": [len(block) for block in blocks],
            "right": None if right is None else order.index(right),
            "votes": [[block.count(j) for block in blocks] for j in order],
            **{
                reader: majority_accuracy(by_id[group.question_id].tally, _right(by_id[group.question_id]))
                for reader, by_id in firsts.items()
            },
        }


def _groups(path: Path, reader: str) -> list[StoredGroup]:
    return stored_groups(open_completions(path), credit_rule("ttrl", reader=reader), keep_texts=False)


def _right(group: StoredGroup) -> int | None:
    """The class of the right answer, if it was given."""
    return group.classes.keys_K.index(group.truth.key) if group.truth and group.truth.key is not None else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--commit", help="of this checkout, where there is no git")
    given = parser.parse_args()
    keep(*given.folders, commit=given.commit or commit_here())
