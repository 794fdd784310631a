"""Run folders that were damaged, edited or made by somebody else: refused in words, or resumed to the same end."""

import json
import os
import shutil
import threading
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from cases import how_many
from line_files import forged, read_lines
from runs import differences, do, go_on, no_reports, small, stop_after_a_step
from safetensors.torch import load_file, save_file

from scrl.errors import InputError, TrainingError
from scrl.evaluation.settings import build_settings, read_settings
from scrl.files.checkpoint_file import file_sum, own_sum, write_sums
from scrl.files.whole_files import whole_file, write_whole
from scrl.policy.model import load_model, model_identity
from scrl.policy.settings import ComputeSettings
from scrl.reporting.evaluations import best_step_of
from scrl.reporting.report import write_report
from scrl.training import run_folder
from scrl.training.export import export_model, find_checkpoint
from scrl.training.run_folder import RunFolder, check_room

SETTINGS = (
    "steps=2", "questions=arithmetic:easy:train:4", "completions=4", "trained=2", "sampling.max_tokens=32",
    "evaluation.held_out=arithmetic:easy:held-out:2:1", "evaluation.completions=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped after its first step, and the same run whole."""
    folder = tmp_path_factory.mktemp("runs")
    with no_reports():
        do(folder / "whole", *SETTINGS)
        stop_after_a_step(folder / "run", *SETTINGS)
    return folder


@pytest.fixture
def run(stopped, tmp_path):
    return Path(shutil.copytree(stopped / "run", tmp_path / "run"))


def flip(path, place=0.5):
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def edit_state(run, **changes):
    """As somebody would who makes a folder by hand, with sums that fit."""
    path = run / "checkpoints" / "last" / "trainer_state.json"
    state = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in state.items() if value is not GONE}))
    write_sums(path.parent, 1, "")


GONE = object()


def edit_config(run, before, after):
    text = (run / "config.yaml").read_text()
    assert before in text
    (run / "config.yaml").write_text(text.replace(before, after, 1))


def end(run, stopped):
    """How a resumed run ends: what it was refused with, or what of it is not as in the whole run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            go_on(run)
    except (InputError, TrainingError) as error:
        return str(error)
    return differences(run, stopped / "whole")


LAST = "checkpoints/last"
BINARY = ("model.safetensors", "optimizer.pt", "trainer_state.json", "checkpoint.json", "config.json", "tokenizer.json")
STATE = {
    "step": ("1", -1, 1.5, None, True, [], GONE), "labels": (3, [], {"q": 3}, "x"), "history": ({}, [1], [{"a": "b"}], None),
    "best_score": ("high", []), "best_step": ("1", -1), "sampler_rows": ("many", -3, None), "evaluated_at": ("0", {}),
    "reference_shares": ([], {"q": "x"}), "is_released": (3, "no"), "last_votes": (3, {"q": 1}, {"q": {"a": [1, 0]}}, []),
    "questions": (3, "other", GONE), "files": ({}, {"../victim.txt": 0}, [], GONE, {"metrics.jsonl": 0}, {"metrics.jsonl": "0"}),
    "micro_batch": ("x", -1, [], 0), "most_tokens": ("x", -1, True), "surplus": (1,), "settings": (GONE, {}, []), "version": (GONE, 0, 2, "1"),
}  # fmt: skip
DAMAGE = {
    **{f"a flipped byte at {place} of {name}": lambda run, n=name, p=place: flip(run / LAST / n, p)
       for name in BINARY for place in (0.02, 0.98)},
    **{f"{name} is empty": lambda run, n=name: (run / LAST / n).write_bytes(b"") for name in BINARY},
    **{f"{name} is half": lambda run, n=name: os.truncate(run / LAST / n, (run / LAST / n).stat().st_size // 2) for name in BINARY},
    **{f"{name} is gone": lambda run, n=name: (run / LAST / n).unlink() for name in BINARY},
    **{f"{name} of the state is {value!r:.20}": lambda run, n=name, v=value: edit_state(run, **{n: v})
       for name, values in STATE.items() for value in values},
    **{f"a flipped byte in {name}": lambda run, n=name: flip(run / n, 0.4) for name in run_folder.FILES[:2]},
    "optimizer.pt is empty, and the sums fit": lambda run: (run / LAST / "optimizer.pt").write_bytes(b"") or edit_state(run),
    "more weights": lambda run: shutil.copy(run / LAST / "model.safetensors", run / LAST / "z.safetensors"),
    "another seed": lambda run: edit_config(run, "seed: 0", "seed: 1"),
    "another learning rate": lambda run: edit_config(run, "learning_rate: 0.0001", "learning_rate: 0.1"),
    "another method": lambda run: edit_config(run, "method: scrl", "method: ttrl"),
    "other questions": lambda run: edit_config(run, "easy:train:4", "easy:train:5"),
    "an adapter": lambda run: edit_config(run, "lora: null", "lora: {rank: 2}"),
    "no settings": lambda run: (run / "config.yaml").write_text("null"),
    "settings of a bomb": lambda run: (run / "config.yaml").write_text("a: &a [1,1]\nb: &b [*a,*a]\n" + "".join(
        f"c{i}: &c{i} [{','.join(['*b' if not i else f'*c{i - 1}'] * 9)}]\n" for i in range(9))),
    "other held-out questions": lambda run: edit_config(run, "easy:held-out:2:1", "easy:held-out:2:2"),
    "checkpoints elsewhere": lambda run: (run / "checkpoints").rename(run.parent / "c") and (run / "checkpoints").symlink_to(run.parent / "c"),
    "a lock that is a link": lambda run: (run / ".lock").symlink_to(run.parent / "victim.txt"),
    "lines that are a link": lambda run: (run / "metrics.jsonl").rename(run / "m") and (run / "metrics.jsonl").symlink_to("m"),
}  # fmt: skip


def test_a_sum_sees_exchanged_words_and_flipped_bits_of_any_size(tmp_path):
    """Random changes of a file of random length: words of 1 to 16 bytes exchanged, bits flipped in pairs."""
    rng, path = np.random.default_rng(0), tmp_path / "file"
    for _ in range(how_many(200, 1000)):
        data = rng.integers(256, size=rng.integers(64, 5000), dtype=np.uint8)
        path.write_bytes(data.tobytes())
        before, changed, size = file_sum(path), data.copy(), int(rng.integers(1, 17))
        one, other = (slice(at * size, (at + 1) * size) for at in rng.choice(len(data) // size, 2, replace=False))
        changed[one], changed[other] = data[other], data[one]
        if rng.random() < 0.5 or (changed == data).all():
            changed = data.copy()
            changed[[one.start, other.start]] ^= np.uint8(1 << rng.integers(8))
        path.write_bytes(changed.tobytes())
        assert file_sum(path) != before
        assert file_sum(path, 16) == file_sum(path, 16) != file_sum(path, 17)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: next(model.model.parameters()).view(-1)[1].mul_(1.01),
        lambda model: setattr(model.model.config, "rms_norm_eps", 1e-3),
        lambda model: setattr(model.tokenizer, "chat_template", "{{ messages[0].content }}"),
        lambda model: model.tokenizer.add_tokens(["§"]),
    ],
    ids=["a weight", "config", "template", "tokenizer"],
)
@torch.no_grad()
def test_another_model_has_another_identity(change):
    model = load_model("embedded", ComputeSettings(device="cpu"))
    before = model_identity(model)
    assert model_identity(load_model("embedded", ComputeSettings(device="cpu"))) == before
    change(model)
    assert model_identity(model) != before


USES = {
    "train or evaluate": lambda run, name="last": load_model(
        str(run / "checkpoints" / name), ComputeSettings(device="cpu")
    ),
    "export": lambda run, name="last": export_model(find_checkpoint(run, name), run.parent / "out"),
}


@pytest.mark.parametrize("use", USES)
def test_a_damaged_checkpoint_is_no_model(use, run):
    flip(run / LAST / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors"):
        USES[use](run)


def test_a_run_whose_state_does_not_say_its_settings_is_not_exported(run):
    edit_state(run, settings=GONE)
    with pytest.raises(InputError, match=r"trainer_state\.json.*settings"):
        find_checkpoint(run)


def test_an_export_reads_the_settings_of_a_state_alone(run):
    """Earlier commits wrote other fields beside them."""
    edit_state(run, probe=[[1, 2]], surplus=1, labels=GONE)
    assert find_checkpoint(run, "last").step == 1


def test_the_best_of_another_run_is_no_model_and_no_run_goes_on_beside_it(run, no_report, tmp_path):
    """Runs that differ in anything, drawn at random; one that was copied or resumed has its own."""
    rng, best = np.random.default_rng(0), "checkpoints/best"
    changes = ("seed=1", "questions=arithmetic:easy:train:3", "model=embedded-hasty", "method=ttrl", "optimizer.learning_rate=1e-5", "lora.rank=2", "trained=3")  # fmt: skip
    find_checkpoint(run, "best")
    load_model(str(run / best), ComputeSettings(device="cpu"))
    for change in (*changes[:3], *rng.choice(changes[3:], how_many(1, len(changes) - 3), replace=False)):
        other, whole = (tmp_path / f"{kind}-{change.replace(':', '-')}" for kind in ("other", "whole"))
        stop_after_a_step(other, *SETTINGS, change)
        shutil.copytree(run, whole, ignore=shutil.ignore_patterns("checkpoints"))
        shutil.copytree(other / "checkpoints", whole / "checkpoints")  # all of another run's
        with pytest.raises(InputError, match="settings"):
            find_checkpoint(whole)
        shutil.rmtree(run / best)
        shutil.copytree(other / best, run / best)
        for use in (*USES.values(), lambda run, _: go_on(run)):
            with pytest.raises(InputError, match=r"best: belongs to another run"):
                use(run, "best")


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_run_is_refused_in_words_and_nothing_of_it_changes(what, run, stopped, no_report, tmp_path):
    (tmp_path / "victim.txt").write_text("precious")
    DAMAGE[what](run)
    before = {path: path.read_bytes() for path in run.rglob("*.jsonl")}
    found = end(run, stopped)
    assert isinstance(found, str), f"resumed, and {found} are not the same"
    assert "\n" not in found
    assert {path: path.read_bytes() for path in run.rglob("*.jsonl")} == before
    assert (tmp_path / "victim.txt").read_text() == "precious"


@pytest.mark.parametrize(
    "harmless",
    [
        lambda run: None,
        lambda run: (run / LAST / "README.md").write_text("mine"),
        lambda run: (run / LAST / ".DS_Store").touch(),
        lambda run: (run / "checkpoints" / ".last.draft").symlink_to(run),
        lambda run: (run / "checkpoints" / ".last.old").mkdir(),
        lambda run: (run / "checkpoints" / ".last.whole").mkdir(),
        lambda run: flip(shutil.copytree(run / LAST, run / "checkpoints" / ".last.whole") / "model.safetensors"),
        lambda run: (run / ".report.html.0123456789abcdef.part").touch(),
        lambda run: [(run / LAST).rename(run / "elsewhere"), (run / LAST).symlink_to(run / "elsewhere")],
        lambda run: (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + '{"half'),
    ],
    ids=["nothing", "card", "stray file", "draft is a link", "old one left", "new one is empty", "new one is damaged", "half a page", "last is a link", "half a line"],
)  # fmt: skip
def test_a_run_with_harmless_changes_goes_on_exactly(harmless, run, stopped, no_report):
    harmless(run)
    found = end(run, stopped)
    assert found == [] or (found == ["files"] and (run / "elsewhere").is_dir())


def test_forged_states_and_sums_and_pipes_are_no_tracebacks_and_not_waited_for(run, stopped, no_report, tmp_path):
    """At random, most with sums that fit: refused in words, or resumed."""
    rng = np.random.default_rng(0)
    for n in range(how_many(12, 100)):
        copy = Path(shutil.copytree(run, tmp_path / str(n)))
        path = copy / rng.choice(
            [f"{LAST}/trainer_state.json", f"{LAST}/checkpoint.json", "environment.json", "config.yaml"]
        )
        if rng.random() < 0.1 or path.suffix == ".yaml":
            path.unlink()
            os.mkfifo(path)
        else:
            path.write_text(forged(json.loads(path.read_text()), rng))
            with suppress(RecursionError):
                sums = json.loads((copy / LAST / "checkpoint.json").read_text())
                files = sums["files"] | {"trainer_state.json": file_sum(copy / LAST / "trainer_state.json")}
                sums |= {"files": files if path.name == "trainer_state.json" else sums["files"]}
                del sums["sum"]
                (copy / LAST / "checkpoint.json").write_text(json.dumps(sums | {"sum": own_sum(sums)}))
        found = end(copy, stopped)
        assert isinstance(found, list) or "\n" not in found
        with suppress(InputError):
            best_step_of(copy / "checkpoints")
            export_model(find_checkpoint(copy), tmp_path / f"out{n}")


def test_settings_that_may_change_are_followed_and_said(run, no_report):
    edit_config(run, "steps: 2", "steps: 3")
    _, heard = go_on(run)
    assert "steps was 2 and is 3" in heard.text
    assert len(read_lines(run / "metrics.jsonl")) == 3


def test_the_old_checkpoint_goes_only_after_the_new_one_is_on_the_disk(tmp_path, monkeypatch):
    folder, done = RunFolder.create(tmp_path / "run", small(), "cpu"), []
    fsync, remove = os.fsync, run_folder._remove
    monkeypatch.setattr(os, "fsync", lambda fd: (done.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name), fsync(fd)))
    monkeypatch.setattr(run_folder, "_remove", lambda path: (done.append(f"remove {path.name}"), remove(path)))
    folder.save(folder.last, lambda place: (place / "weights").write_text("x"), 1, "run")
    last = len(done) - 1 - done[::-1].index("remove .last.old")
    assert {"weights", "checkpoint.json", ".last.draft", "checkpoints", *run_folder.FILES} <= set(done[:last])


def test_no_writer_of_a_run_folder_writes_through_a_link(run):
    """Two hundred random names: files, dangling links and links to other files are replaced by what is written."""
    rng, victim = np.random.default_rng(0), run.parent / "victim.txt"
    victim.write_text("precious")
    for _ in range(200):
        path = run / rng.choice(["checks.csv", "answers.csv", "report.html", f"x{rng.integers(99)}"])
        path.unlink(missing_ok=True)
        target = rng.choice([victim, run.parent / "nothing", run.parent])
        path.symlink_to(target)
        write_whole(path, "new")
        assert path.read_text() == "new"
        assert not path.is_symlink()
    assert victim.read_text() == "precious"
    assert not (run.parent / "nothing").exists()


def test_a_link_at_the_place_of_a_draft_or_of_the_page_is_not_written_through(stopped, tmp_path):
    run, victim = Path(shutil.copytree(stopped / "whole", tmp_path / "run")), tmp_path / "victim"
    victim.write_text("precious")
    (run / "report.html").unlink()
    for name in (".report.html.part", "report.html"):
        (run / name).symlink_to(victim)
    write_report([run], run / "report.html")
    assert victim.read_text() == "precious"
    assert not (run / "report.html").is_symlink()


def test_of_two_that_write_one_file_at_once_the_last_to_finish_wins(tmp_path):
    path, both = tmp_path / "file", threading.Barrier(2)

    def write():
        with whole_file(path) as file:
            file.write("first")
            both.wait()
            both.wait()

    thread = threading.Thread(target=write)
    thread.start()
    both.wait()
    write_whole(path, "second")
    assert path.read_text() == "second"
    both.wait()
    thread.join()
    assert (path.read_text(), [each.name for each in tmp_path.iterdir()]) == ("first", ["file"])


def test_an_evaluation_with_edited_settings_is_refused_with_both_values(tmp_path):
    settings = build_settings({"model": "embedded", "benchmarks": ["arithmetic:easy"]}).model_dump(mode="json")
    (tmp_path / "evaluation.yaml").write_text(json.dumps(settings | {"seed": 3}))
    assert read_settings(tmp_path).seed == 3
    (tmp_path / "started_with.json").write_text(json.dumps(settings))
    with pytest.raises(InputError, match="seed was 0 and is 3"):
        read_settings(tmp_path)


def test_an_adapter_is_found_from_another_folder_and_its_base_is_recognized(tmp_path, monkeypatch, no_report):
    from scrl.policy.model_paths import model_folder

    monkeypatch.chdir(tmp_path)
    shutil.copytree(model_folder("embedded"), "base")
    lora = ("model=./base", "lora.rank=2", "evaluation.completions=0")
    stop_after_a_step(tmp_path / "run", *lora)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    load_model(str(tmp_path / "run" / LAST), ComputeSettings(device="cpu"))
    monkeypatch.chdir(tmp_path)
    weights = load_file("base/model.safetensors")
    save_file({name: weight * 1.5 for name, weight in weights.items()}, "base/model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"model"):
        go_on(tmp_path / "run")


def test_the_step_of_the_best_checkpoint_is_read_from_itself(run):
    (run / LAST / "trainer_state.json").write_text(json.dumps({"best_step": 77}))
    assert best_step_of(run / "checkpoints") == 1


def test_a_full_disk_is_named_with_what_was_written_and_what_is_free(tmp_path, monkeypatch):
    folder = RunFolder.create(tmp_path / "run", small(), "cpu")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 1000))

    def fail(place):
        (place / "weights").write_bytes(bytes(2_000_000))
        raise RuntimeError("enforce fail at inline_container.cc")

    with pytest.raises(TrainingError, match="full"):
        folder.save(folder.last, fail, 1, "run")
    with pytest.raises(InputError, match=r"3\.00 GB"):
        check_room(tmp_path / "new", 3 * 10**9)
