"""Run folders that are damaged at random, and what every command that reads one makes of them.

python tests/training/damage.py 200    # as many folders; prints the figures, exits with 1 for a traceback, a hang,
                                       # a write outside the folder, or a result that is silently another
"""

import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("training", "")]

from kills import TINY
from line_files import forged
from processes import scrl
from runs import differences, digest

SECONDS = 60
COMMANDS = {
    "train": lambda run: ("train", "--resume", run),
    "export": lambda run: ("export", run, "--out", run / "exported"),
    "evaluate": lambda run: ("evaluate", run / "checkpoints" / "best", "arithmetic:easy:train:2", "--samples", "2", "--max-tokens", "16", "--out", run / "measured"),
    "answers": lambda run: ("answers", run, "--draw-check", "2"),
    "report": lambda run: ("report", run, "--out", run / "page.html"),
    "compare": lambda run: ("compare", run),
    "audit": lambda run: ("audit", run / "rollouts.jsonl"),
    "label": lambda run: ("label", run / "rollouts.jsonl", "--out", run / "labels.jsonl"),
}  # fmt: skip


def exchange(path, rng):
    """Two words of one size change places."""
    data, size = bytearray(path.read_bytes()), rng.choice((1, 2, 4, 8))
    one, other = (rng.randrange(max(1, len(data) // size)) * size for _ in range(2))
    data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]
    path.write_bytes(data)


def forge(path, rng):
    import json

    try:
        value = json.loads(path.read_text())
        path.write_text(forged(value, np.random.default_rng(rng.randrange(2**32))))
    except (ValueError, IndexError):
        path.write_bytes(rng.randbytes(rng.randrange(300)))


def link(path, target):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def damage(run, other, victim, rng):
    """Do something to a random file or folder of a run; what was done."""
    files = sorted(path for path in run.rglob("*") if path.is_file())
    path = rng.choice(files)
    name = path.relative_to(run)
    folder = rng.choice([run / "checkpoints", run / "checkpoints" / "last", run / "checkpoints" / "best"])
    kinds = {
        "link to a victim": lambda: link(path, victim / "precious"), "dangling link": lambda: link(path, victim / "new"),
        "folder is a link": lambda: link(folder, victim), "exchanged words": lambda: exchange(path, rng),
        "truncated": lambda: os.truncate(path, rng.randrange(path.stat().st_size + 1)), "forged": lambda: forge(path, rng),
        "foreign file": lambda: shutil.copy(other / name, path) if (other / name).is_file() else path.unlink(),
        "foreign folder": lambda: [shutil.rmtree(folder), shutil.copytree(other / folder.relative_to(run), folder)],
        "pipe": lambda: pipe(path), "gone": path.unlink, "empty": lambda: path.write_bytes(b""),
    }  # fmt: skip
    kind = rng.choice(list(kinds))
    kinds[kind]()
    return f"{kind}: {folder.relative_to(run) if 'folder' in kind else name}"


def everything(folder, but):
    """All files under a folder but one part of it, with what they hold."""
    paths = [path for path in folder.rglob("*") if path != but and but not in path.parents]
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def attack(command, run, whole, place):
    """What is wrong with how a command ends; None if nothing is."""
    before = everything(place, run)
    done = scrl(*COMMANDS[command](run), cwd=place, seconds=SECONDS)
    words = f"{done.stdout}\n{done.stderr}"
    if everything(place, run) != before:
        return "wrote outside"
    if done.returncode not in (0, 1, 2):
        return f"exit code {done.returncode}: {words[-300:]}"
    if "Traceback" in words or "\x1b" in words:
        return f"traceback or escape: {words[-600:]}"
    if done.returncode:
        return None
    if command == "export" and digest(run / "exported") != digest(whole / "checkpoints" / "best"):
        return "silently another model"
    if command == "train" and (wrong := set(differences(run, whole)) - {"files", "card"}):
        return f"silently another run: {wrong}"
    return None


def main(number):
    rng, wrong = random.Random(1), 0
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for each, seed in (("whole", 0), ("other", 1)):
            assert scrl("train", *TINY, f"seed={seed}", "--out", place / each, cwd=place).returncode == 0
        shutil.copytree(place / "whole", place / "begun")
        text = (place / "begun" / "config.yaml").read_text()
        (place / "begun" / "config.yaml").write_text(text.replace("steps: 3", "steps: 4"))
        assert scrl("train", "--resume", shutil.copytree(place / "begun", place / "longer"), cwd=place).returncode == 0
        (place / "victim").mkdir()
        (place / "victim" / "precious").write_text("precious")
        for count in range(1, number + 1):
            command = rng.choice(list(COMMANDS))
            whole = place / ("longer" if command == "train" else "whole")
            run = Path(shutil.copytree(place / ("begun" if command == "train" else "whole"), place / "run"))
            what = damage(run, place / "other", place / "victim", rng)
            found = attack(command, run, whole, place)
            wrong += found is not None
            if found or count % 50 == 0:
                print(f"{count} folders, {wrong} wrong; {command}, {what}: {found}", flush=True)
            shutil.rmtree(run)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
