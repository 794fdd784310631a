"""Runs that are killed at random moments and at every file operation, and what they end with; other commands, too.

python tests/training/kills.py 200         # full and LoRA runs, as many kills; prints the figures, exits with 1 if a run differs
python tests/training/kills.py 100 export  # a command: reproduce, rollouts or export
"""

import hashlib
import random
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("training", "", "lab")]

from processes import Command, die_at, scrl
from runs import SMALL, differences

TINY = (*SMALL, "steps=3", "questions=arithmetic:easy:train:2", "completions=4", "trained=2", "sampling.max_tokens=24")
KINDS = {"full": TINY, "lora": (*TINY, "lora.rank=2")}


def start_or_resume(folder, settings, prepare=None):
    """The command that goes on with the run in `folder`, or starts it where it has not begun."""
    is_begun = (folder / "config.yaml").exists()
    if not is_begun:
        shutil.rmtree(folder, ignore_errors=True)
    words = ("--resume", folder) if is_begun else (*settings, "--out", folder)
    return Command("train", *words, cwd=folder.parent, prepare=prepare)


def is_finished(done):
    return done.returncode == 0 or "has done all its" in done.stderr


def killed_at_operation(number, folder, settings):
    """Whether a run was killed at its `number`-th file operation; it has gone on to its end since."""
    done = start_or_resume(folder, settings, partial(die_at, number, str(folder))).finish()
    if done.returncode != -signal.SIGKILL:
        assert is_finished(done), done.stderr
        return False
    rest = start_or_resume(folder, settings).finish()
    assert is_finished(rest), rest.stderr
    return True


def killed_at_random(folder, settings, rng, left):
    """Kill a run again and again, at most `left` times, until it has got to its end; how often it was killed."""
    kills = 0
    while True:
        command = start_or_resume(folder, settings)
        if kills < left:
            time.sleep(rng.uniform(0.0, 2.5))
            command.signal(signal.SIGKILL)
        done = command.finish()
        if is_finished(done):
            return kills
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1


REPRODUCE = (
    "reproduce", "--run", "qwen2.5-3b/math500/32-16/scrl", "--scale", "demo", "--limit=2", "--questions_per_step=2",
    "--completions=4", "--trained=2", "--sampling.max_tokens=40", "--steps", "1", "--out", "out",
)  # fmt: skip
SAME = ("rollouts.jsonl", "evaluations.jsonl", ".safetensors", ".csv", ".md", ".yaml", "tokenizer.json", "c.jsonl")


def result(folder):
    """What a command has left: digests by name, of lines in any order; nothing that tells the time."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.endswith(SAME)]
    lines = {path.relative_to(folder).as_posix(): sorted(path.read_bytes().splitlines()) for path in files}
    return {
        name: hashlib.sha256(b"\n".join(each)).hexdigest() for name, each in lines.items() if "/." not in f"/{name}"
    }


def command_kills(number, name, here, server):
    """Kill a command at random moments of its time, then let it go on to its end; how many ends are not the same."""
    (here / "q.jsonl").write_text("".join(f'{{"id": "q{n}", "question": "What is {n}?"}}\n' for n in range(40)))
    rollouts = (
        "rollouts",
        "--endpoint",
        server.url,
        "--model",
        "m",
        "--questions",
        here / "q.jsonl",
        "-n",
        "8",
        "--out",
        "c.jsonl",
    )
    words = {"reproduce": REPRODUCE, "rollouts": rollouts, "export": ("export", here / "run", "--out", "out")}[name]
    assert scrl("train", *TINY, "--out", here / "run", cwd=here).returncode == 0
    rng, kills, ends, differing, expected, seconds = random.Random(1), 0, 0, 0, None, 0.0
    while kills < number:
        place = here / "place"
        place.mkdir()
        while True:
            resumed = ("--resume",) if name == "reproduce" and (place / "out").is_dir() else ()
            start, command = time.monotonic(), Command(*words, *resumed, cwd=place)
            if expected and kills < number:
                time.sleep(rng.uniform(0.0, seconds))
                command.signal(signal.SIGKILL)
            done = command.finish()
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
            kills += 1
            if name == "export" and (place / "out").is_dir():  # it appears whole: killed after its work was done
                break
        seconds = seconds or time.monotonic() - start
        expected = expected or result(place)
        ends += 1
        differing += result(place) != expected
        print(f"{name}: {kills} kills, {ends} ends, {differing} differing", flush=True)
        shutil.rmtree(place)
    return int(differing > 0)


def main(number, command=None):
    if command:
        from stub_server import StubServer

        with tempfile.TemporaryDirectory() as place, StubServer() as server:
            return command_kills(number, command, Path(place), server)
    rng, counts = random.Random(1), {"kills": 0, "runs": 0, "differing": 0}
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        for kind, settings in KINDS.items():
            whole, share = here / f"{kind}-whole", counts["kills"] + number // len(KINDS)
            assert scrl("train", *settings, "--out", whole, cwd=here).returncode == 0
            operation, is_more = 0, True
            while counts["kills"] < share:
                folder = here / f"{kind}-run"
                operation += 1
                is_more = is_more and killed_at_operation(operation, folder, settings)
                kills = int(is_more) or killed_at_random(folder, settings, rng, share - counts["kills"])
                found = differences(folder, whole)
                counts["kills"] += kills
                counts["runs"] += 1
                counts["differing"] += bool(found)
                print(f"{kind}: {counts} {f'operation {operation}' if is_more else 'random'} {found or ''}", flush=True)
                shutil.rmtree(folder)
    return int(counts["differing"] > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200, *sys.argv[2:]))
