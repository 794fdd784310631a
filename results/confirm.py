"""Make the runs of confirmation.md on one GPU, several at once: what is said there, as settings.

    python results/confirm.py WORK larger larger-start --at-once 3

WORK has the model folders in models/, and data/gsm8k.jsonl and data/math500.jsonl. The small files of each run come to
STUDY/ARM-SEED here, and a run that has them is not made again, so after an interruption the same command goes on. A run
that fails is named, and its log is in WORK/logs; the others go on. End it with Ctrl-C, which ends what it has started,
too. What --trial measures is in WORK/tried and counts for nothing.
"""

from __future__ import annotations

import argparse
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
LAST = "about.json"
"""What is kept last of a run."""
Settings = dict[str, Any]


class Model(NamedTuple):
    """A model, and what its runs share."""

    folder: str
    study: str
    max_tokens: int


SMALL = Model("models/qwen2.5-coder-0.5b-instruct", "confirm-0.5b", 512)
LARGE = Model("models/qwen2.5-coder-1.5b-instruct", "confirm-1.5b", 1024)
SMALL_ON_MATH = Model(SMALL.folder, "confirm-math-0.5b", LARGE.max_tokens)
GSM8K = ("gsm8k-769-1024", "gsm8k-1025-1319")
FOLDS = {"a": "gsm8k-1-1024", "b": "gsm8k-1-768-and-1025-1319"}
"""Trained on; each leaves out the other of GSM8K."""
MATH = ("math500-odd", "math500-even")
QUESTIONS = ("gsm8k.jsonl", "math500.jsonl")
"""The files that these are parts of."""

COMMON: Settings = {
    "reader": "boxed",
    "probe": 0,
    "questions_per_step": 32,
    "completions": 16,
    "trained": 16,
    "sampling": {"temperature": 0.6},
    "compute": {"sampler_rows": 512},
    "evaluation": {"completions": 0},
    "checkpoint_every": 1000,
    "guard": {"mode": "observe"},
}
ONE: Settings = {"questions_per_update": 1, "optimizer": {"learning_rate": 5e-7}}
SIXTEEN: Settings = {"questions_per_update": 16, "optimizer": {"learning_rate": 3e-6}}
"""The paper's update, and one with fewer, larger steps."""
ROUNDS: Settings = ONE | {
    "method": "contrast-label",
    "credit": {"min_contrast": 0.4},
    "label_votes": "round",
    "label_completions": 16,
}
"""Ours: an answer becomes a label where it stands out in votes drawn before each pass."""
GOLD: Settings = SIXTEEN | {"method": "oracle"}
FIRST: Settings = ONE | {"method": "ttrl", "label_votes": "start", "label_completions": 32, "reader": "sound:boxed"}
"""Ours of the first attempt, and of the third."""
RIVALS: dict[str, Settings] = {
    f"{method}-{name}": settings | {"method": method, "completions": 32}
    for name, settings in (("printed", ONE | {"sampling": {"temperature": 1.0}}), ("sixteen", SIXTEEN))
    for method in ("ttrl", "scrl")
}
TRIAL: Settings = {
    "limit": 10, "label_completions": 4, "steps": 1, "questions_per_step": 2, "questions_per_update": 1,
    "completions": 4, "trained": 4, "compute": {"sampler_rows": 64}, "evaluation": {"questions": 2},
}  # fmt: skip


class Run(NamedTuple):
    """A run, or the start model if there are no settings; its name is STUDY/ARM-SEED."""

    name: str
    model: Model
    settings: Settings | None
    measured: tuple[str, ...]
    completions: int = 32

    @property
    def seed(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def is_kept(self) -> bool:
        return (RESULTS / self.name / LAST).is_file()


def runs_of(stage: str) -> list[Run]:
    """The runs of a stage, seed by seed."""
    sound, faster = {"reader": "sound:boxed"}, merged(ROUNDS, {"optimizer": {"learning_rate": 1e-6}})
    match stage:
        case "larger":
            return [trained(LARGE, "ours", faster, MATH[0], 24, seed) for seed in (11, 12, 13, 14)]
        case "larger-default":
            return [trained(LARGE, "default", {"questions_per_step": 8}, MATH[0], 0, seed) for seed in (13, 14)]
        case "larger-rivals":
            return [trained(LARGE, name, arm, MATH[0], 24, seed) for seed in (11, 12) for name, arm in RIVALS.items()]
        case "second":
            return [
                trained(SMALL, f"rounds-{fold}", ROUNDS | sound, rows, 64, seed)
                for seed in (21, 22, 23, 24, 25)
                for fold, rows in FOLDS.items()
            ]
        case "gold":
            return [trained(SMALL, "gold-wide", GOLD, FOLDS["a"], 48, seed) for seed in (11, 12, 13, 14, 15)]
        case "rivals":
            rivals = RIVALS.items()
            return [trained(SMALL, name, arm, FOLDS["a"], 48, seed) for seed in (11, 12, 13) for name, arm in rivals]
        case "third":
            return [
                trained(SMALL, f"ttrl-{fold}", FIRST, rows, 40, seed)
                for seed in (31, 32, 33, 34, 35)
                for fold, rows in FOLDS.items()
            ]
        case "fourth":
            return [
                trained(SMALL_ON_MATH, f"rounds-{fold}", faster, rows, 24, seed)
                for seed in (41, 42, 43, 44, 45)
                for fold, rows in zip(FOLDS, MATH, strict=True)
            ]
        case "start":
            return [Run(f"{SMALL.study}/start-20", SMALL, None, GSM8K, completions=160)]
        case "larger-start":
            return [Run(f"{LARGE.study}/start-20", LARGE, None, MATH, completions=128)]
        case "fourth-start":
            return [Run(f"{SMALL_ON_MATH.study}/start-20", SMALL_ON_MATH, None, MATH, completions=160)]
    raise ValueError(stage)


STAGES = (
    "larger", "larger-start", "second", "start", "gold", "rivals", "larger-default", "larger-rivals", "third",
    "fourth", "fourth-start",
)  # fmt: skip


def trained(model: Model, arm: str, settings: Settings, rows: str, steps: int, seed: int) -> Run:
    """A run of an arm, with all its settings."""
    own = {
        "model": model.folder,
        "questions": f"data/{rows}.jsonl",
        "steps": steps,
        "seed": seed,
        "sampling": {"max_tokens": model.max_tokens},
    }
    measured = GSM8K if model is SMALL else MATH
    return Run(f"{model.study}/{arm}-{seed}", model, merged(merged(COMMON, own), settings), measured)


def write_questions(work: Path) -> None:
    """The rows that are trained on and measured."""
    data = work / "data"
    gsm8k, math500 = ((data / name).read_text(encoding="utf-8").splitlines(keepends=True) for name in QUESTIONS)
    parts = {
        GSM8K[0]: gsm8k[768:1024],
        GSM8K[1]: gsm8k[1024:],
        FOLDS["a"]: gsm8k[:1024],
        FOLDS["b"]: gsm8k[:768] + gsm8k[1024:],
        MATH[0]: math500[::2],
        MATH[1]: math500[1::2],
    }
    for name, part in parts.items():
        (data / f"{name}.jsonl").write_text("".join(part), encoding="utf-8")


def make(run: Run, work: Path, commit: str, *, is_trial: bool) -> float:
    """Train, measure, and keep the small files; the seconds it took."""
    began = time.monotonic()
    made, measured, log, tried = (work / part / run.name for part in ("runs", "measured", "logs", "tried"))
    kept = tried if is_trial else RESULTS / run.name
    for path in (made, measured, log):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path in (made, measured, tried):  # of a run that was lost half-way, or tried before
        shutil.rmtree(path, ignore_errors=True)
    scrl, model, folders = [sys.executable, "-m", "scrl"], run.model.folder, [str(measured)]
    commands: list[list[str]] = []
    if run.settings is not None:
        settings = log.with_suffix(".yaml")
        text = yaml.safe_dump(merged(run.settings, TRIAL if is_trial else {}))
        settings.write_text(text, encoding="utf-8")
        commands += [[*scrl, "train", str(settings), "--out", str(made)]]
        model, folders = f"{made}/checkpoints/last", [str(made), str(measured)]
    questions = [f"data/{name}.jsonl" for name in run.measured]
    how = ["--reader", "boxed", "--completions", str(run.completions), "--k", "16", "--seed", str(run.seed)]
    how += ["--max-tokens", str(8 if is_trial else run.model.max_tokens)]
    how += ["--sampler-rows", "64", "--limit", "2"] if is_trial else ["--sampler-rows", "1024"]
    commands += [[*scrl, "evaluate", model, *questions, *how, "--out", str(measured)]]
    commands += [[sys.executable, str(RESULTS / "keep.py"), "--commit", commit, str(kept), *folders]]
    with log.open("wb") as out:
        for command in commands:
            subprocess.run(command, check=True, cwd=work, stdout=out, stderr=subprocess.STDOUT)
    shutil.rmtree(made / "checkpoints", ignore_errors=True)
    return time.monotonic() - began


def work_through(
    stages: Sequence[str], at_once: int, make_one: Callable[[Run], float], seeds: Sequence[int] = ()
) -> list[str]:
    """Make all runs (of these seeds alone, if any) that are not kept yet, in order; the names of those that failed."""
    running: dict[Future[float], str] = {}
    failed = list[str]()
    runs = [run for stage in stages for run in runs_of(stage) if not seeds or run.seed in seeds]
    waiting = [run for run in runs if not run.is_kept]
    with ThreadPoolExecutor(at_once) as pool:
        while waiting or running:
            while waiting and len(running) < at_once:
                run = waiting.pop(0)
                running[pool.submit(make_one, run)] = run.name
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, problem = running.pop(future), future.exception()
                failed += [name] if problem else []
                print(f"{name}: {problem or f'{future.result():.0f} s'}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("stages", nargs="+", choices=STAGES)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=(), help="these alone, where the time is short")
    parser.add_argument("--commit", help="of this checkout, where there is no git")
    parser.add_argument("--trial", action="store_true", help="one small step each, to see that everything is there")
    given = parser.parse_args()
    for name in QUESTIONS:
        if not (path := given.work / "data" / name).is_file():
            parser.error(f"{path} is not there; it holds the questions, one per line, in the benchmark's order")
    commit = given.commit or commit_here()
    make_one = partial(make, work=given.work.absolute(), commit=commit, is_trial=given.trial)
    with FileLock(given.work / "lock", timeout=0):
        write_questions(given.work)
        failed = work_through(given.stages, given.at_once, make_one, given.seeds)
    print(f"failed: {', '.join(failed) or 'none'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
