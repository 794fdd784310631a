"""The public names: their signatures are pinned, and each does from Python what its command does."""

import importlib
import importlib.util
import inspect
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from line_files import read_lines, write_lines
from safetensors.torch import load_file

import scrl
from scrl.config import read_config
from scrl.credit.methods import METHODS, where_found
from scrl.policy.model_paths import model_folder

SIGNATURES = {
    "assign_credit": "(group, method='scrl', *, elsewhere=None, **choices)",
    "audit": "(rollouts, method=None, *, seed=0, **choices)",
    "classify": "(answers_G, *, significant_digits=None)",
    "credit_rule": "(method='scrl', *, preset='paper', reader='boxed', num_trained=None, seed=0, "
    "significant_digits=None, **settings)",
    "evaluate": "(model, benchmarks, *, out=None, **settings)",
    "explain_answer": "(answer, significant_digits=None)",
    "get_reader": "(name)",
    "label": "(rollouts, method='scrl', *, out=None, **choices)",
    "resume": "(folder, *, listener=None)",
    "same_answer": "(first, second, *, significant_digits=None)",
    "sample": "(model, questions, num_samples=16, *, seed=0, **settings)",
    "sweep": "(rollouts, method='scrl', *, preset='paper', reader='boxed', significant_digits=None, seed=0, **values)",
    "train": "(config=None, questions=None, *, out=None, listener=None, **settings)",
    "Completion": "(text='', entropy=None, answer=<Unread.UNREAD: 'unread'>, facts=mappingproxy({}), is_cut=False)",
    "Elsewhere": "(num_questions, shares=<factory>, stock=())",
    "Evidence": "(group, classes, tally, truth=None, reference_share=None, elsewhere=None, kept_label=None, seed=0)",
    "Group": "(completions, question_id='', step=0)",
    "Labels": "(positive=None, negatives=frozenset())",
    "Question": "(id, text, gold=None, level=None, system=None)",
    "TrainingResult": "(folder)",
}
SMALL = {
    "model": "embedded", "steps": 2, "questions_per_step": 2, "completions": 8, "trained": 4,
    "prompt": {"style": "chat", "instruction": "", "system": ""}, "sampling": {"max_tokens": 48},
    "optimizer": {"learning_rate": 1e-4, "warmup": 0.0, "schedule": "constant"}, "evaluation": {"completions": 0},
}  # fmt: skip
TEXTS = ["Compute 3*4+5.", "Compute 17-(2+6).", "Compute 8*7.", "Compute 5+6*2."]


def signature(public):
    parameters = inspect.signature(public).parameters.values()
    bare = inspect.Signature([each.replace(annotation=inspect.Parameter.empty) for each in parameters])
    return str(bare)


def test_public_signatures_do_not_change_unnoticed():
    functions = {name for name in scrl.__all__ if inspect.isfunction(getattr(scrl, name))}
    assert functions <= SIGNATURES.keys()
    assert {name: signature(getattr(scrl, name)) for name in SIGNATURES} == SIGNATURES


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two steps on questions from memory."""
    questions = [*TEXTS[:3], scrl.Question("3", TEXTS[3], gold="17")]
    return scrl.train(SMALL | {"credit": {"std_floor": 0.0}}, questions, out=tmp_path_factory.mktemp("api") / "run")


def test_train_takes_questions_from_memory_and_returns_a_light_result(run):
    assert [line["step"] for line in run.metrics] == [0, 1]
    assert (run.checkpoint / "model.safetensors").is_file()
    assert run.report.is_file()
    assert run.evaluations == []
    written = read_lines(run.folder / "questions.jsonl")
    assert written[0] == {"id": "0", "question": TEXTS[0]}
    assert written[3] == {"id": "3", "question": TEXTS[3], "answer": "17"}


def test_a_finished_run_is_not_resumed_and_bad_questions_leave_no_folder(run, tmp_path):
    with pytest.raises(scrl.InputError, match="2 steps"):
        scrl.resume(run.folder)
    with pytest.raises(scrl.InputError, match="questions"):
        scrl.train(SMALL, ["Compute 1+1.", 2], out=tmp_path / "bad")
    with pytest.raises(scrl.InputError, match="out="):
        scrl.train(SMALL, tmp_path / "bad")
    with pytest.raises(scrl.DataError, match=r"gone\.txt"):
        scrl.train(SMALL, str(tmp_path / "gone.txt"), out=tmp_path / "bad")
    with pytest.raises(scrl.ConfigError, match="stepz"):
        scrl.train(SMALL | {"stepz": 3}, TEXTS, out=tmp_path / "bad")
    with pytest.raises(scrl.InputError, match=r"^questions\[1\]: field"):  # no file of theirs
        scrl.train(SMALL, ["Compute 1+1.", "What is \frac{1}{2}?"], out=tmp_path / "bad")
    with pytest.raises(scrl.InputError, match="tokenizer"):
        scrl.train(SMALL, ["Čo je 1+1?", "Compute 1+1."], out=tmp_path / "bad")  # refused after the folder was made
    with pytest.raises(scrl.InputError, match=r"^questions\[1\]: .*surrogate"):
        scrl.train(SMALL, ["Compute 1+1.", "half: \ud800"], out=tmp_path / "bad")
    assert not (tmp_path / "bad").exists()
    (tmp_path / "bare.yaml").write_text("model: embedded\nstepz: 3\n")
    with pytest.raises(scrl.DataError, match=r"bare\.yaml:2"):
        scrl.train(tmp_path / "bare.yaml", TEXTS, out=tmp_path / "bad")  # questions are not missing
    with pytest.raises(scrl.ConfigError, match=r"max_token"):
        scrl.sample("embedded", TEXTS, 2, max_token=40)
    with pytest.raises(scrl.ConfigError, match="num_samples"):
        scrl.sample("embedded", TEXTS, 0)


def test_a_method_as_an_object_is_found_again_or_says_how(tmp_path, monkeypatch):
    code = "from dataclasses import replace\nfrom scrl.credit.methods.ttrl import TTRL\nM = replace(TTRL, name='m')\n"
    (tmp_path / "mine_here.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("mine_here").M
    assert where_found(mine) == "mine_here:M"
    assert where_found(METHODS["ttrl"]) == "ttrl"
    with pytest.raises(scrl.ConfigError, match="method='my_methods:MINE'"):
        scrl.train(SMALL, TEXTS, out=tmp_path / "bad", method=replace(mine, name="nowhere"))
    with pytest.raises(scrl.ConfigError, match="method='my_methods:MINE'"):
        scrl.train(SMALL | {"method": replace(mine, name="nowhere")}, TEXTS, out=tmp_path / "bad")


def test_a_run_on_questions_from_memory_is_resumed_from_any_folder(tmp_path, monkeypatch, no_report):
    monkeypatch.chdir(tmp_path)
    small = SMALL | {"steps": 1, "evaluation": {"completions": 0}}
    run = scrl.train(small, TEXTS, out="run")
    monkeypatch.chdir("/")
    with pytest.raises(scrl.InputError, match="1 steps"):  # its questions were found
        scrl.resume(tmp_path / run.folder)


@pytest.fixture
def no_report(monkeypatch):
    """Drawing the page takes longer than these runs."""
    monkeypatch.setattr("scrl.reporting.report.write_report", lambda folders, out: out.touch())


def test_settings_may_be_given_by_name(tmp_path, no_report):
    (tmp_path / "q.txt").write_text("\n".join(TEXTS))
    small = {name: value for name, value in SMALL.items() if name not in ("sampling", "model")}
    small |= {"steps": 1, "evaluation": {"completions": 0}}
    done = scrl.train(small, TEXTS, model="embedded", max_tokens=40, out=tmp_path / "a")
    assert read_config(done.folder / "config.yaml").sampling.max_tokens == 40
    done = scrl.train(model="embedded", questions=str(tmp_path / "q.txt"), max_tokens=40, out=tmp_path / "b", **small)
    assert len(done.metrics) == 1
    for name, ours in {"num_generations": "completions", "modle": "'model'", "output_dir": "out"}.items():
        with pytest.raises(scrl.ConfigError, match=f"{name}.*{ours}"):
            scrl.train(SMALL, TEXTS, out=tmp_path / "bad", **{name: 8})
    with pytest.raises(scrl.ConfigError, match=r"sampling\.max_tokens"):
        scrl.train(SMALL | {"max_tokens": 40}, TEXTS, out=tmp_path / "bad")
    [record] = scrl.evaluate("embedded", "arithmetic:easy:train:2", out=tmp_path / "e", completions=2, max_tokens=40)
    assert (record["samples"], record["max_tokens"]) == (2, 40)
    assert (record["temperature"], record["top_p"]) == (0.6, 0.95)  # the defaults of `scrl evaluate`
    with pytest.raises(scrl.ConfigError, match=r"max_gen_toks.*max_tokens"):
        scrl.evaluate("embedded", "arithmetic:easy:train:2", max_gen_toks=40)
    assert not (tmp_path / "bad").exists()


def test_of_several_processes_the_first_alone_makes_and_removes_the_folder(tmp_path, monkeypatch):
    out, settings = tmp_path / "run", {"engine": "trl", "questions": str(tmp_path / "q.txt")}
    is_refused = False

    def fake_train(_config, folder, _listener):
        assert folder == out
        if is_refused:
            raise scrl.InputError("refused")
        if os.environ["RANK"] == "0":
            (folder / "config.yaml").touch()

    monkeypatch.setattr("scrl.engines.choice.check_engine", lambda config: None)
    monkeypatch.setattr("scrl.engines.choice.engine_of", lambda config: SimpleNamespace(train=fake_train))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    scrl.train(SMALL, **settings, out=out)
    assert not out.exists()  # it is made by the first
    monkeypatch.setenv("RANK", "0")
    assert scrl.train(SMALL, **settings, out=out).folder == out
    with pytest.raises(scrl.InputError, match="exists already"):
        scrl.train(SMALL, **settings, out=out)
    (out / "config.yaml").unlink()  # as before the first process has written anything
    is_refused = True
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(scrl.InputError, match="refused"):
        scrl.train(SMALL, **settings, out=out)
    assert out.is_dir()
    with pytest.raises(scrl.ConfigError, match="several processes"):
        scrl.train(SMALL, **settings)
    with pytest.raises(scrl.InputError, match="questions"):
        scrl.train(SMALL, TEXTS, engine="trl", out=out)


def test_sample_label_and_evaluate(run, tmp_path, caplog):
    groups = scrl.sample(str(run.checkpoint), TEXTS[:2], 4, prompt=SMALL["prompt"], max_tokens=48, temperature=0.7)
    assert [len(sampled.samples_G) for sampled in groups] == [4, 4]
    unsaid = scrl.sample(str(run.checkpoint), TEXTS[:2], 4, max_tokens=48, temperature=0.7)
    assert [each.group for each in unsaid] == [each.group for each in groups]
    assert "instruction" in caplog.text
    with pytest.raises(scrl.InputError, match="1 of 1 prompts"):
        scrl.sample("embedded", ["What is 1+1?"], 4)
    assert scrl.assign_credit(groups[0].group).rewards.shape == (4,)
    summary = scrl.label(run.folder / "rollouts.jsonl", "ttrl", out=tmp_path / "labels.jsonl")
    assert (summary["completions"], summary["steps"]) == (32, 2)
    found = scrl.audit(run.folder / "rollouts.jsonl", ["ttrl", "scrl"])
    assert found["methods"]["ttrl"]["coverage"] == summary["positive_questions"] / summary["questions"]
    assert scrl.audit(run.folder / "rollouts.jsonl", "ttrl")["votes"] == found["votes"]
    values = {"min_share": [0.25, 0.5], "min_margin": 0, "max_negative_share": 0.1, "entropy_weight": 0}
    rows = scrl.sweep(run.folder / "rollouts.jsonl", **values)
    assert [(row["min_share"], row["min_margin"]) for row in rows] == [(0.25, 0), (0.5, 0)]
    half = scrl.label(run.folder / "rollouts.jsonl", min_share=0.5, min_margin=0)
    assert rows[1]["positive_questions"] == half["positive_questions"]
    with pytest.raises(scrl.InputError, match="'oracle'"):
        scrl.sweep(run.folder / "rollouts.jsonl", "oracle")
    with pytest.raises(scrl.ConfigError, match="min_shar"):
        scrl.sweep(run.folder / "rollouts.jsonl", min_shar=[0.5])
    questions = write_lines(tmp_path / "q.jsonl", [{"question": TEXTS[0], "answer": "17"}])
    [record] = scrl.evaluate("embedded", str(questions), out=tmp_path / "e", samples=4, sampling={"max_tokens": 48})
    assert record["samples"] == 4


# One file


PATH = Path(__file__).parent.parent / "examples" / "train_in_one_file.py"
spec = importlib.util.spec_from_file_location("train_in_one_file", PATH)
example = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = example  # its dataclasses look for it there
spec.loader.exec_module(example)


def test_the_trainer_in_one_file_learns_the_weights_of_the_package(tmp_path):
    source = PATH.read_text(encoding="utf-8")
    assert "import scrl" not in source
    assert "from scrl" not in source
    assert source.count("\n") < 250
    torch.set_num_threads(1)
    questions = [f"Compute ({a}+{b})*{b}-{a}." for a, b in zip(range(11, 21), range(34, 94, 6), strict=True)]
    # two steps are a pass, so the third begins a second round, and nine others are enough for p̄
    few = {"steps": 3, "questions_per_step": 5, "completions": 8}
    run = scrl.train(
        SMALL | few | {"model": "embedded-hasty", "trained": 8}, questions, temperature=1.0, out=tmp_path / "run"
    )
    votes = [line.get("votes_drawn") for line in run.metrics]
    folder = model_folder("embedded-hasty")
    tokenizer = example.AutoTokenizer.from_pretrained(folder)
    model = example.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    settings = example.Settings(**few, max_tokens=48, temperature=1.0, learning_rate=1e-4, instruction="")
    example.train(model, tokenizer, questions, settings)
    weights = load_file(run.checkpoint / "model.safetensors")
    learned = model.state_dict()

    def distance(one, other):
        return sum(float((one[name] - other[name]).square().sum()) for name in weights) ** 0.5

    assert votes[0] == 80
    assert 0 < votes[2] < 80
    # Adam divides by the gradient's size, so rounding of the tiniest gradients shows; all others agree.
    assert distance(weights, before) > 0.01
    assert distance(weights, learned) < 2e-3 * distance(weights, before)
