"""examples/first_run.ipynb: its cells run from top to bottom, and compute what its text says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent / "examples" / "first_run.ipynb"
CELLS = json.loads(PATH.read_text(encoding="utf-8"))["cells"]

RUN = """
import json, sys

cells = json.load(open(sys.argv[1], encoding="utf-8"))["cells"]
space = {"__name__": "__main__"}
for cell in cells:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), cell["id"], "exec"), space)
found = {
    "questions": [[q.text, q.gold] for q in space["questions"]],
    "samples": [len(each.samples_G) for each in space["sampled"]],
    "lies": [votes for votes, _ in space["lies"]],
    "votes": space["votes"],
    "gold": space["liar"].question.gold,
    "credits": {
        name: {
            "positive": credit.labels.positive,
            "negatives": sorted(credit.labels.negatives),
            "counts": dict(zip(credit.tally.keys_K, credit.tally.counts_K)),
            "answers": credit.answers,
            "rewards": credit.rewards.tolist(),
            "advantages": credit.advantages.tolist(),
        }
        for name, credit in space["credits"].items()
    },
    "folder": str(space["folder"]),
    "report": str(space["report"]),
    "steps": space["steps"],
    "evaluations": space["evaluations"],
    "lines": [len(axes.lines) for axes in (space["left"], space["right"])],
}
json.dump(found, open("found.json", "w"))
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The folder it ran in, what it printed, and what its cells computed."""
    cwd = tmp_path_factory.mktemp("notebook")
    # One thread: on a busy machine several threads of so small a model wait for each other more than they work.
    env = os.environ | {"MPLBACKEND": "Agg", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(PATH)], capture_output=True, text=True, timeout=900, cwd=cwd, env=env
    )
    assert done.returncode == 0, done.stderr
    return cwd, done.stdout, json.loads((cwd / "found.json").read_text())


def test_it_is_stored_without_outputs():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len(code) >= 8


def test_the_questions_are_right(notebook):
    _, printed, found = notebook
    assert len(found["questions"]) == 16
    for text, gold in found["questions"]:
        assert eval(text.removeprefix("Compute ").removesuffix(".")) == int(gold)
    assert all(text in printed for text, _ in found["questions"])


def test_consensus_lies_somewhere(notebook):
    _, printed, found = notebook
    assert found["samples"] == [32] * 16
    assert found["votes"] == min(found["lies"])
    assert printed.count("WRONG") == len(found["lies"])


def test_ttrl_rewards_the_lie_and_scrl_does_not(notebook):
    _, printed, found = notebook
    ttrl, scrl = found["credits"]["TTRL"], found["credits"]["SCRL"]
    assert ttrl["positive"] != found["gold"]
    assert ttrl["counts"][ttrl["positive"]] == found["votes"] == max(ttrl["counts"].values())
    assert ttrl["negatives"] == []
    assert ttrl["rewards"] == [float(answer == ttrl["positive"]) for answer in ttrl["answers"]]
    assert scrl["positive"] is None
    assert scrl["negatives"]
    assert all(scrl["counts"][answer] / 32 < 0.125 for answer in scrl["negatives"])
    assert f"trusts {ttrl['positive']}, rules out 0" in printed
    assert f"trusts None, rules out {len(scrl['negatives'])}" in printed


def test_advantages_sum_to_zero(notebook):
    for credit in notebook[2]["credits"].values():
        assert len(credit["advantages"]) == 32
        assert sum(credit["advantages"]) == pytest.approx(0, abs=1e-6)
        assert max(credit["advantages"]) > 0.5


def test_it_trains_and_shows_the_run(notebook):
    cwd, printed, found = notebook
    folder = cwd / found["folder"]
    assert [line["step"] for line in found["steps"]] == list(range(15))
    assert [record["step"] for record in found["evaluations"]] == [0, 5, 10, 15]
    assert found["evaluations"][-1]["pass@1"] > found["evaluations"][0]["pass@1"]
    assert found["lines"] == [2, 2]
    assert (folder / "checkpoints" / "last" / "model.safetensors").is_file()
    assert "<html" in (cwd / found["report"]).read_text()
    assert str(folder / "report.html") in printed
