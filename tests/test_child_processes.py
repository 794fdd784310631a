"""No process stays behind that somebody has started for a run."""

import ast
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import scrl
from scrl.child_processes import child, forked

SLEEP = [sys.executable, "-Sc", "import time; time.sleep(600)"]
PARENT = """
import sys
from scrl.child_processes import child, forked

with child([sys.executable, "-c", sys.argv[1]] if len(sys.argv) > 1 else ["sleep", "600"]) as process:
    print(process.pid, flush=True)
    process.wait()
"""


def is_running(pid):
    """One that has ended may be waited for by nobody, in a container without an init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(*pids):
    deadline = time.monotonic() + 600
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def test_children_and_their_children_end_with_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT, PARENT], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        assert all(map(is_running, pids))
        parent.kill()
        parent.wait()
        assert wait_until_gone(*pids) == []


def test_a_child_ends_with_its_block():
    with child(SLEEP) as process:
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_one_that_has_ended_has_its_own_exit_code():
    with child([sys.executable, "-Sc", "raise SystemExit(3)"]) as process:
        assert process.wait() == 3


def test_nothing_else_starts_processes():
    source, starters = Path(scrl.__file__).parent, {"subprocess", "multiprocessing", "concurrent", "pty"}
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "") or ""]
            )
            if isinstance(node, ast.Import | ast.ImportFrom) and {name.partition(".")[0] for name in names} & starters:
                found.add(path.relative_to(source).as_posix())
    assert found == {"child_processes.py", "training/run_folder.py"}  # the latter git, which ends by itself


def test_work_in_a_copy_needs_no_file_below_1024():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_030)]
    assert forked(lambda: 7, seconds=5, memory=2**30) == 7
    for file in files:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
