"""Runs that are killed at random moments and at every file operation, and what they end with.

python tests/training/kills.py 200    # full and LoRA runs, as many kills; prints the figures, exits with 1 if a run differs
"""

import random
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

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


def main(number):
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
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
