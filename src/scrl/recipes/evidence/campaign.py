"""Which runs the campaign has, with all their settings, and how to run one of them.

    A   amc-1.5b      Qwen2.5-Coder-1.5B-Instruct on AMC without answers; MATH-500 is measured and never trained on
    B   gsm8k-0.5b    Qwen2.5-Coder-0.5B-Instruct on rows 1 to 256 of GSM8K; rows 257 to 512 are held out

A working folder holds `models/` and `data/`, which the settings name. A run that has results is not run again:

    RESULTS/CAMPAIGN/METHOD-SEED/about.json          the commit, GPU and versions it ran with, and its seconds
    RESULTS/CAMPAIGN/METHOD-SEED/config.yaml         every setting
    RESULTS/CAMPAIGN/METHOD-SEED/metrics.jsonl       a line per step
    RESULTS/CAMPAIGN/METHOD-SEED/evaluations.jsonl   a line per evaluation of the run, before and after training
    RESULTS/CAMPAIGN/METHOD-SEED/votes.jsonl         per step and question: how often each answer was given
    RESULTS/CAMPAIGN/METHOD-SEED/BENCHMARK.json      a measurement of the last checkpoint on questions never trained on

All runs are made with the code of one commit, whatever came later: `Code` names a source tree and its commit.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from scrl.child_processes import child
from scrl.data.jsonl import read_json_lines
from scrl.data.whole_files import write_whole
from scrl.errors import ConfigError, InputError, TrainingError, did_you_mean
from scrl.settings import merged

CAMPAIGNS = ("amc-1.5b", "gsm8k-0.5b")
METHODS = ("ttrl", "scrl", "contrast")
SEEDS = (2, 3, 4)
START = "start"
"""Takes the place of a method: the model before training, on the questions of MEASURED."""
MEASURED = {"amc-1.5b": "math500"}
"""Benchmarks that the start model and every last checkpoint are measured on, besides what a run measures itself."""
MEASUREMENT = {"samples": 4, "temperature": 0.6, "top_p": 0.95, "max_tokens": 1536}
HALVES = {"gsm8k-1-256.jsonl": slice(0, 256), "gsm8k-257-512.jsonl": slice(256, 512)}
"""Files of questions made from data/gsm8k.jsonl."""


@dataclass(frozen=True, slots=True)
class EvidenceRun:
    """One run: a campaign, a method or START, and a seed."""

    campaign: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        """`amc-1.5b/scrl-2`: its folder below the results."""
        return f"{self.campaign}/{self.method}-{self.seed}"


@dataclass(frozen=True, slots=True)
class Code:
    """What the runs are made with: by default this installation, and the commit of its checkout."""

    source: Path | None = None
    """A folder to import `scrl` from, for instance `src` of another checkout."""
    commit: str | None = None
    """Given if the source is not a checkout."""


def all_runs() -> list[EvidenceRun]:
    """All runs in execution order: seed by seed, so that methods can be compared early."""
    starts = [EvidenceRun(campaign, START, seed) for campaign, seed in product(MEASURED, SEEDS)]
    trained = [EvidenceRun(campaign, method, seed) for campaign in CAMPAIGNS for seed in SEEDS for method in METHODS]
    return [*trained, *starts]


def find_run(name: str) -> EvidenceRun:
    runs = {run.name: run for run in all_runs()}
    if name not in runs:
        raise ConfigError(f"{name}: there is no such run in the campaign.{did_you_mean(name, runs)}")
    return runs[name]


def settings_of(run: EvidenceRun) -> dict[str, Any]:
    """Every setting of a run, written out in full."""
    known = yaml.safe_load(files("scrl.recipes.evidence").joinpath("settings.yaml").read_bytes())
    settings = merged(known["all"], known["campaigns"][run.campaign])
    return settings | {"method": run.method, "credit": known["credit"].get(run.method), "seed": run.seed}


def missing_runs(results: Path) -> list[EvidenceRun]:
    return [run for run in all_runs() if not (results / run.name / "about.json").is_file()]


def carry_out(run: EvidenceRun, work: Path, results: Path, code: Code) -> None:
    """Train, measure the last checkpoint, keep the small files, and delete the weights."""
    import torch

    place = work / "campaign" / run.name
    if place.exists():
        raise InputError(f"{place}: is left from a run that did not end; look at it, then delete it")
    _split_gsm8k(work / "data")
    place.mkdir(parents=True)
    seconds = {}
    trained, measured = place / "run", place / "measured"
    if run.method != START:
        write_whole(place / "settings.yaml", yaml.safe_dump(settings_of(run), sort_keys=False))
        seconds["train"] = _scrl(work, code, "train", place / "settings.yaml", "--out", trained)
    if run.campaign in MEASURED:
        model = trained / "checkpoints" / "last" if run.method != START else settings_of(run)["model"]
        flags = [word for key, value in MEASUREMENT.items() for word in (f"--{key.replace('_', '-')}", value)]
        words = ("evaluate", model, MEASURED[run.campaign], "--data-dir", "data", "--seed", run.seed)
        seconds["math500"] = _scrl(work, code, *words, *flags, "--out", measured)
    about = {
        "commit": code.commit,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "CPU",
        "seconds": {name: round(value) for name, value in seconds.items()},
    }
    condense(trained, measured, about, results / run.name)
    shutil.rmtree(place)


def _split_gsm8k(data: Path) -> None:
    """Make the files of questions that campaign B names, if they do not exist yet."""
    source = data / "gsm8k.jsonl"
    if source.is_file():
        lines = source.read_text(encoding="utf-8").splitlines(keepends=True)
        for name, rows in HALVES.items():
            if not (data / name).exists():
                write_whole(data / name, "".join(lines[rows]))


def _scrl(work: Path, code: Code, *words: object) -> float:
    """Run a command of ours in the working folder; return its seconds."""
    began = time.monotonic()
    path = [str(code.source.resolve())] if code.source else []
    path += [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
    environment = os.environ | ({"PYTHONPATH": os.pathsep.join(path)} if path else {})
    command = [sys.executable, "-m", "scrl", *map(str, words)]
    with child(command, cwd=work, env=environment) as process:
        ended = process.wait()
    if ended:
        raise TrainingError(f"`scrl {' '.join(map(str, words))}` ended with exit code {ended}; see its messages above")
    return time.monotonic() - began


def carry_out_all(
    runs: Sequence[EvidenceRun], work: Path, results: Path, code: Code, jobs: int
) -> Iterator[tuple[EvidenceRun, int]]:
    """Execute several runs, `jobs` of them in parallel, each in its own process; yields (run, exit code)."""
    waiting, running = list(runs), dict[EvidenceRun, tuple[ExitStack, subprocess.Popen[bytes]]]()
    options = {"--work": work, "--results": results, "--source": code.source, "--commit": code.commit}
    words = [str(word) for option, value in options.items() if value is not None for word in (option, value)]
    with ExitStack() as children:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop(0)
                command = [sys.executable, "-m", "scrl", "evidence", "--only", run.name, *words]
                own = children.enter_context(ExitStack())
                running[run] = own, own.enter_context(child(command))
            for run, (own, process) in list(running.items()):
                if (ended := process.poll()) is not None:
                    own.close()
                    del running[run]
                    yield run, ended
            time.sleep(0.2)


# What is kept of a run: no weights, no completions, no text of a benchmark


def condense(run: Path, measured: Path, about: Mapping[str, Any], out: Path) -> None:
    """Write what is kept of a run folder and of a `scrl evaluate` folder into the new folder `out`."""
    out.mkdir(parents=True)
    if run.is_dir():
        for name in ("config.yaml", "metrics.jsonl"):
            write_whole(out / name, (run / name).read_text(encoding="utf-8"))
        kept = (json.dumps(_without_text(line.fields)) + "\n" for line in read_json_lines(run / "evaluations.jsonl"))
        write_whole(out / "evaluations.jsonl", "".join(kept))
        write_whole(out / "votes.jsonl", "".join(json.dumps(line) + "\n" for line in vote_lines(run)))
        environment = json.loads((run / "environment.json").read_text(encoding="utf-8"))
        versions = {name: environment["versions"].get(name) for name in ("torch", "transformers", "numpy")}
        about = {**about, "commit": about["commit"] or environment["commit"], "versions": versions}
    if measured.is_dir():
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
