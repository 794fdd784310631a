"""Keep of a run what a table needs: no weights, no completions, no text of a benchmark.

    python results/keep.py results/amc-1.5b/scrl-2 work/scrl-2 work/scrl-2-math500

The first folder is new; the others are a run's, of `scrl train`, and those of `scrl evaluate` for its last checkpoint.
Of what `scrl evaluate` drew also how right the votes of all completions and of sound ones are.
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
from scrl.lab.stored_groups import stored_groups

READERS = ("boxed", "sound:boxed")
VOTES = 16


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
                _write(out / f"votes-{path.name}", vote_accuracies(path))
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


def vote_accuracies(path: Path) -> Iterator[dict[str, Any]]:
    """Per question, how right the vote of its first 16 completions is by each reader; answers that tie share it."""
    by_reader: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        first, by_question = Path(place) / path.name, defaultdict[str, list[dict[str, Any]]](list)
        for line in read_json_lines(path):
            by_question[line.fields["question_id"]].append(line.fields)
        _write(first, (fields for lines in by_question.values() for fields in lines[:VOTES]))
        for reader in READERS:
            groups = stored_groups(open_completions(first), credit_rule("ttrl", reader=reader), keep_texts=False)
            by_reader[reader] = {
                stored.question_id: majority_accuracy(stored.tally, stored.classes.keys_K.index(stored.truth.key))
                if stored.truth and stored.truth.key is not None
                else 0.0
                for stored in groups
            }
    for question_id in by_reader[READERS[0]]:
        yield {"question_id": question_id, **{reader: by_reader[reader][question_id] for reader in READERS}}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--commit", help="of this checkout, where there is no git")
    given = parser.parse_args()
    keep(*given.folders, commit=given.commit or commit_here())
