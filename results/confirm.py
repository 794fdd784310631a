"""Make the runs of confirmation.md on one GPU, several at once: what is said there, as settings.

    python results/confirm.py WORK choose ours votes gold rivals --at-once 5

WORK has models/qwen2.5-coder-0.5b-instruct and data/gsm8k.jsonl. The small files of each run come to STUDY/ARM-SEED
here, and a run that has them is not made again, so after an interruption the same command goes on. `ours` waits for all
runs of `choose`. A run that fails is named, and its log is in WORK/logs; the others go on. End it with Ctrl-C, which
ends what it has started, too. What --trial measures is in WORK/tried and counts for nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from filelock import FileLock
from keep import commit_here

from scrl.settings import merged

RESULTS = Path(__file__).parent
MODEL = "models/qwen2.5-coder-0.5b-instruct"
EXPLORED, CONFIRMED = "sound-0.5b", "confirm-0.5b"
ROWS, UNSEEN = "gsm8k-1-512", "gsm8k-513-768"
ALL_ROWS, FRESH = "gsm8k-1-1024", ("gsm8k-769-1024", "gsm8k-1025-1319")
"""Trained on, and measured: of the rows that are trained on the last 256, and those never seen."""
LAST = "about.json"
"""What is kept last of a run."""
SEEDS = (11, 12, 13, 14, 15)
Settings = dict[str, Any]

COMMON: Settings = {
    "model": MODEL,
    "reader": "boxed",
    "probe": 0,
    "questions_per_step": 32,
    "completions": 16,
    "trained": 16,
    "sampling": {"temperature": 0.6, "max_tokens": 512},
    "compute": {"sampler_rows": 1024},
    "evaluation": {"completions": 0},
    "checkpoint_every": 1000,
    "guard": {"mode": "observe"},
}
ONE: Settings = {"questions_per_update": 1, "optimizer": {"learning_rate": 5e-7}}
SIXTEEN: Settings = {"questions_per_update": 16, "optimizer": {"learning_rate": 3e-6}}
"""The paper's update, and ours."""


SOUND: Settings = {"reader": "sound:boxed", "label_votes": "start", "label_completions": 32}
"""Sound completions alone vote and are paid; the start model's votes decide."""


def contrast_label(min_contrast: float) -> Settings:
    return {"method": "contrast-label", "credit": {"min_contrast": min_contrast}}


TRIED: dict[str, Settings] = {
    "one": SOUND | contrast_label(0.3) | ONE,
    "sixteen": SOUND | contrast_label(0.3) | SIXTEEN,
    "wide-one": SOUND | contrast_label(0.15) | ONE,
    "ttrl-one": SOUND | {"method": "ttrl"} | ONE,
}
"""One of these becomes ours."""
AS_PRINTED: Settings = ONE | {"completions": 32, "sampling": {"temperature": 1.0}}
RIVALS: dict[str, Settings] = {
    f"{method}-{name}": settings | {"method": method}
    for name, settings in (("printed", AS_PRINTED), ("sixteen", SIXTEEN | {"completions": 32}))
    for method in ("ttrl", "scrl")
}

TRIAL: Settings = {
    "limit": 10, "label_completions": 4, "steps": 1, "questions_per_step": 2, "questions_per_update": 1,
    "completions": 4, "trained": 4, "compute": {"sampler_rows": 64}, "evaluation": {"questions": 2},
}  # fmt: skip


class Run(NamedTuple):
    """A run, or the start model if there are no settings; its name is STUDY/ARM-SEED."""

    name: str
    settings: Settings | None
    measured: tuple[str, ...]
    completions: int

    @property
    def seed(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def is_kept(self) -> bool:
        return (RESULTS / self.name / LAST).is_file()


def runs_of(stage: str) -> list[Run]:
    """The runs of a stage; none of `ours` before it is chosen."""
    if stage == "choose":
        return [
            Run(f"{EXPLORED}/{name}-1", trained(arm, ROWS, steps=32, seed=1), (UNSEEN,), 32)
            for name, arm in TRIED.items()
        ]
    if stage == "votes":
        fresh = [Run(f"{EXPLORED}/start-{seed}", None, FRESH, 16) for seed in SEEDS]
        return [Run(f"{EXPLORED}/start-1", None, ("gsm8k-1-256",), 32), *fresh]
    gold: Settings = SIXTEEN | {"method": "oracle"}
    arms = {"ours": {"ours": TRIED[name]} if (name := chosen()) else {}, "gold": {"gold-wide": gold}, "rivals": RIVALS}
    return [
        Run(f"{CONFIRMED}/{name}-{seed}", trained(arm, ALL_ROWS, steps=48, seed=seed), FRESH, 32)
        for name, arm in arms[stage].items()
        for seed in SEEDS
    ]


def trained(arm: Settings, rows: str, *, steps: int, seed: int) -> Settings:
    """All settings of a run."""
    return merged(COMMON, merged({"questions": f"data/{rows}.jsonl", "steps": steps, "seed": seed}, arm))


def chosen() -> str | None:
    """The arm with the highest maj@16 on questions never seen; None before all are measured."""
    scores: dict[str, float] = {}
    for name in TRIED:
        folder = RESULTS / EXPLORED / f"{name}-1"
        if not (folder / LAST).is_file():
            return None
        scores[name] = json.loads((folder / f"{UNSEEN}.json").read_text("utf-8"))["maj@16"]
    return max(scores, key=lambda name: scores[name])


def write_questions(work: Path) -> None:
    """The rows that are trained on and measured."""
    data = work / "data"
    lines = (data / "gsm8k.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    for name in ("gsm8k-1-256", ROWS, UNSEEN, ALL_ROWS, *FRESH):
        first, last = map(int, name.split("-")[1:])
        (data / f"{name}.jsonl").write_text("".join(lines[first - 1 : last]), encoding="utf-8")


def make(run: Run, work: Path, commit: str, *, is_trial: bool) -> float:
    """Train, measure, and keep the small files; the seconds it took."""
    began = time.monotonic()
    made, measured, log, tried = (work / part / run.name for part in ("runs", "measured", "logs", "tried"))
    kept = tried if is_trial else RESULTS / run.name
    for path in (made, measured, log):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path in (made, measured, tried):  # of a run that was lost half-way, or tried before
        shutil.rmtree(path, ignore_errors=True)
    scrl, model, folders = [sys.executable, "-m", "scrl"], MODEL, [str(measured)]
    commands: list[list[str]] = []
    if run.settings is not None:
        settings = log.with_suffix(".yaml")
        text = yaml.safe_dump(merged(run.settings, TRIAL if is_trial else {}))
        settings.write_text(text, encoding="utf-8")
        commands += [[*scrl, "train", str(settings), "--out", str(made)]]
        model, folders = f"{made}/checkpoints/last", [str(made), str(measured)]
    questions = [f"data/{name}.jsonl" for name in run.measured]
    how = f"--reader boxed --completions {run.completions} --k 16 --seed {run.seed} --sampler-rows "
    how += "64 --max-tokens 8 --limit 2" if is_trial else "1024 --max-tokens 512"
    commands += [[*scrl, "evaluate", model, *questions, *how.split(), "--out", str(measured)]]
    commands += [[sys.executable, str(RESULTS / "keep.py"), "--commit", commit, str(kept), *folders]]
    with log.open("wb") as out:
        for command in commands:
            subprocess.run(command, check=True, cwd=work, stdout=out, stderr=subprocess.STDOUT)
    shutil.rmtree(made / "checkpoints", ignore_errors=True)
    return time.monotonic() - began


def work_through(stages: Sequence[str], at_once: int, make_one: Callable[[Run], float]) -> list[str]:
    """Make all runs that are not kept yet, in order, this many at once; the names of those that failed."""
    running: dict[Future[float], str] = {}
    begun, failed = set[str](), list[str]()
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            waiting = [run for stage in stages for run in runs_of(stage) if not run.is_kept and run.name not in begun]
            for run in waiting[: at_once - len(running)]:
                begun.add(run.name)
                running[pool.submit(make_one, run)] = run.name
            if not running:
                return failed
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, problem = running.pop(future), future.exception()
                failed += [name] if problem else []
                print(f"{name}: {problem or f'{future.result():.0f} s'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("stages", nargs="+", choices=("choose", "votes", "ours", "gold", "rivals"))
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--commit", help="of this checkout, where there is no git")
    parser.add_argument("--trial", action="store_true", help="one small step each, to see that everything is there")
    given = parser.parse_args()
    commit = given.commit or commit_here()
    make_one = partial(make, work=given.work.absolute(), commit=commit, is_trial=given.trial)
    with FileLock(given.work / "lock", timeout=0):
        write_questions(given.work)
        failed = work_through(given.stages, given.at_once, make_one)
    print(f"chosen: {chosen() or 'not yet'}; failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
