"""Checkpoints are whole or not there, whenever a kill comes; the three files are cut back to where they were."""

import json

import pytest
from listeners import Listener
from runs import small

from scrl.errors import InputError, TrainingError
from scrl.files.checkpoint_file import write_sums
from scrl.files.run_state import Standing
from scrl.training.loop import resume
from scrl.training.model_card import model_card
from scrl.training.run_folder import FILES, RunFolder, environment


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run", small(), "cpu")


def fill(name):
    """A checkpoint that holds nothing but its name."""
    return lambda place: (place / "weights").write_text(name)


def checkpoints(folder):
    return {path.name: (path / "weights").read_text() for path in (folder.path / "checkpoints").iterdir()}


def test_a_new_folder_holds_the_settings_the_environment_and_three_empty_files(folder):
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"checkpoints", "config.yaml", "environment.json", *FILES}
    assert all((folder.path / name).read_bytes() == b"" for name in FILES)
    assert folder.config() == small().resolved()
    assert json.loads((folder.path / "environment.json").read_text()) == environment(small(), "cpu")


def test_a_saved_checkpoint_replaces_the_one_before_and_leaves_nothing_else(folder):
    folder.save(folder.last, fill("first"), 1, "run")
    assert checkpoints(folder) == {"last": "first"}
    folder.save(folder.last, fill("second"), 1, "run")
    folder.save(folder.best, fill("best"), 1, "run")
    assert checkpoints(folder) == {"last": "second", "best": "best"}


# The states that a kill can leave within `save`, in their order: the new one is written as a draft, is whole, the old
# one steps aside, the new one takes its place.
@pytest.mark.parametrize(("left", "recovered"), [
    ({".last.draft": "half"}, {}), ({"last": "old", ".last.draft": "half"}, {"last": "old"}),
    ({"last": "old", ".last.whole": "new"}, {"last": "new"}),
    ({".last.old": "old", ".last.whole": "new"}, {"last": "new"}),
    ({"last": "new", ".last.old": "old"}, {"last": "new"}), ({".last.whole": "new"}, {"last": "new"}),
    ({".last.old": "old", ".last.draft": "half"}, {"last": "old"}),
    ({".last.old": "older", ".last.whole": "new", ".last.draft": "half"}, {"last": "new"}),
    ({"last": "l", "best": "b", ".best.whole": "better"}, {"last": "l", "best": "better"}),
    ({"last": "old", ".last.whole": "half"}, {"last": "old"}), ({".last.old": "old", ".last.whole": "half"}, {"last": "old"}),
])  # fmt: skip
def test_whatever_a_kill_left_becomes_whole_checkpoints(folder, left, recovered):
    for name, content in left.items():
        (folder.path / "checkpoints" / name).mkdir()
        (folder.path / "checkpoints" / name / "weights").write_text(content)
        if content != "half":
            write_sums(folder.path / "checkpoints" / name, 1, "")
    folder.recover()
    assert checkpoints(folder) == recovered
    folder.recover()  # and once more changes nothing
    assert checkpoints(folder) == recovered


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(folder):
    def fail(place):
        (place / "weights").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(TrainingError, match="No space left on device"):
        folder.save(folder.last, fail, 1, "run")
    assert checkpoints(folder) == {}
    folder.save(folder.last, fill("first"), 1, "run")
    with pytest.raises(TrainingError, match=r"No space left on device.*last"):
        folder.save(folder.last, fail, 1, "run")
    assert checkpoints(folder) == {"last": "first"}


def test_the_files_are_cut_back_to_where_they_were(folder):
    folder.append("metrics.jsonl", [{"step": 0}])
    lengths = folder.lengths()
    assert lengths == {"metrics.jsonl": len('{"step": 0}\n'), "rollouts.jsonl": 0, "evaluations.jsonl": 0}
    folder.append("metrics.jsonl", [{"step": 1}])
    folder.append("rollouts.jsonl", [{"completion": "né"}, {}])
    assert (folder.path / "rollouts.jsonl").read_text(encoding="utf-8") == '{"completion": "né"}\n{}\n'
    folder.cut(lengths)
    assert folder.lengths() == lengths


def test_a_file_that_is_gone_is_named(folder):
    (folder.path / "evaluations.jsonl").unlink()
    with pytest.raises(InputError, match=r"evaluations\.jsonl"):
        folder.cut(dict.fromkeys(FILES, 0))


def test_a_run_is_written_by_one_process_alone(folder):
    with folder.held():
        (folder.path / "metrics.jsonl").write_text("precious")
        with pytest.raises(InputError, match="another process"):
            resume(folder.path, Listener())
    assert (folder.path / "metrics.jsonl").read_text() == "precious"
    with folder.held():
        pass  # it is free again
    assert not (folder.path / ".lock").exists()


@pytest.mark.parametrize("method", ["scrl", "oracle"])
def test_a_checkpoint_says_where_its_rewards_came_from(method):
    assert ("label-free" in model_card(small(f"method={method}"), Standing(2, ()))) == (method == "scrl")


def test_no_number_is_written_that_json_does_not_know(folder):
    with pytest.raises(ValueError, match="JSON"):
        folder.append("metrics.jsonl", [{"loss": float("nan")}])
    assert folder.lengths()["metrics.jsonl"] == 0
