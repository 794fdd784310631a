"""Hostile settings, questions, rollouts, models and reports: an error in words or a right result, soon and in little memory."""

import gzip
import json
import os
import resource
import shutil
import signal
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from cases import how_many
from line_files import forged

from scrl.config import RunConfig, read_config
from scrl.credit.rule import credit_rule
from scrl.data.prompts import PromptSettings, prompt_text, prompt_tokens, usable_questions
from scrl.data.questions import load_questions
from scrl.errors import ConfigError, InputError, ScrlError
from scrl.evaluation.answer_sheet import answer_rows
from scrl.lab.label import label_file
from scrl.policy.model import load_model, load_tokenizer
from scrl.policy.model_paths import model_folder
from scrl.policy.settings import ComputeSettings
from scrl.records import Question
from scrl.reporting.evaluations import read_place
from scrl.reporting.result_rows import result_rows, result_table
from scrl.reporting.sources import read_run
from scrl.reporting.tables import FORMATS
from scrl.sampling.local import end_tokens
from scrl.settings import setting_rows

SECONDS, BYTES = 60, 2**30
"""Enough for a busy machine; what hangs takes longer."""
LONG = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
VALUES = ("-1", "\udcff", "[1, [2]]", LONG, "{a: {b: [.nan, 1]}}")
NAMES = [name for name, _, _ in setting_rows(RunConfig)]
BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
FILES = (
    BOMB, MERGES, f"seed: {LONG}", "seed: 2024-13-45", f"x: {DEEP}", "x: &x [*x]", "x: " + "{a: " * 3000, "- " * 3000,
    "x: !!python/object/apply:os.system [ls]", "x: !!binary abc", "seed: 1:" + "59:" * 400, "1: 2", "x: 2001-01-01 25:61:61",
    "? [1, 2]\n: 3", "x: !!int abc", "\x00", "x: " + "a" * 2_000_000, "x: [" + "1, " * 200_000 + "]", "x: !!timestamp z",
    "x: !!set {a, b}", "x: !!omap [1]", "<<: 1", "x: *nope", "\t:", "x: !!float _", "null", "3", "[]", "", "...", "--- 1\n--- 2",
    "model: embedded\nquestions: {a: 1}", "model: embedded\nquestions: arithmetic:easy\ncredit: {1: 2}",
    "model: embedded\nquestions: arithmetic:easy\nreader: os.system", "model: embedded\nquestions: arithmetic:easy\nmethod: os:system",
)  # fmt: skip
LINES = (
    "null", "3", '"text"', "[]", "{}", "{", DEEP, '{"question": ' + DEEP + "}", '{"question": null}', '{"question": ""}',
    '{"question": 3}', '{"question": "\\ud800"}', '{"question": "\\u0000"}', '{"question": "' + "a" * 40_000_000 + '"}',
    '{"question": [{"role": "user"}]}', '{"question": "q", "answer": {}}', '{"question": "q", "answer": NaN}',
    '{"question": "q", "answer": ' + LONG + "}", '{"question": "q", "id": true}', '{"question": "q", "id": [1]}', "\x00", "\x1b[2K",
    '{"question": "q", "problem": "p"}', '{"question": "\\frac"}', '{"question": "q", "answer": 1e999}', '{"q": 1' + "," * 99 + "}",
)  # fmt: skip
GOOD = {"question_id": "q", "completion": "\\boxed{1}"}
ROLLOUTS = (
    *LINES, *(json.dumps(GOOD | each) for each in (
        {"completion": 3}, {"completion": "\\boxed{" * 50_000}, {"completion": "\\boxed{" + "9" * 100_000 + "}"},
        {"completion": "\\boxed{9^{9^{9^9}}}"}, {"completion": "\\boxed{" + "(" * 30_000 + "}"}, {"question_id": None},
        {"question_id": []}, {"step": -1}, {"step": "x"}, {"step": 10**400}, {"entropy": "x"}, {"entropy": float("nan")},
        {"gold": []}, {"gold": "\\frac{1}{0}"}, {"sample": -1}, {"completion": "\\boxed{" + "\\sqrt{" * 500 + "2" + "}" * 501},
        {"completion": "\\boxed{\\binom{10^9}{10^8}}"}, {"completion": "\\boxed{1/" + "0" * 999 + "}"}, {"completion": "a" * 10**6},
        {"completion": "\\boxed{x^{" + "9" * 50 + "}}"}, {"completion": "\\boxed{1e999999999}"},
    )),
)  # fmt: skip
SHAPES = (
    {"num_hidden_layers": 10**6}, {"num_hidden_layers": -1}, {"num_hidden_layers": "x"}, {"hidden_size": 0}, {"hidden_size": 10**9},
    {"vocab_size": 10**12}, {"vocab_size": -5}, {"model_type": "nothing"}, {"model_type": 3}, {"num_attention_heads": 0},
    {"torch_dtype": "os.system"}, {"auto_map": {"AutoConfig": "evil.Config"}, "model_type": "evil"}, {"rope_parameters": []},
    {"quantization_config": {"quant_method": "x"}}, {"architectures": 7}, {"max_position_embeddings": "many"},
    {"num_labels": 10**9}, {"head_dim": 10**6}, {"id2label": {"9" * 20: "x"}},
)  # fmt: skip
TEMPLATES = (
    "{% for i in range(10**12) %}{% endfor %}", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ ((10**10)**9999)**9999 }}", "{{ 'a' * 10**12 }}", "{{ 'a' * 10**8 }}", "{{ '%099999999999d' % 1 }}", "{{ 1 / 0 }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
    "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "{{ 'a' | center(10**11) }}",
    "{{ (range(99999) | list * 9999) | length }}", "{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% include 'x' %}", "{{",
)  # fmt: skip
EVALUATION = {"step": 0, "benchmark": "b", "pass@1": 0.5, "questions": 1, "pass@1_by_question": {"q": 0.5}}
EVALUATIONS = (
    *(json.dumps(EVALUATION | each) for each in (
        {"pass@" + LONG: 0.1}, {"pass@" + "9" * 400: 0.1}, {"step": -1}, {"step": 10**400}, {"benchmark": []}, {"pass@1": "x"},
        {"pass@1": 10**400}, {"pass@1_by_question": []}, {"pass@1_by_question": {"q": "x"}}, {"pass@1_low": []}, {"seed": [1]},
        {"benchmark": "\x1b[2K"}, {"benchmark": "b" * 10**6}, {"questions": -1}, {"samples": 10**300}, {"maj@0": 0.5},
    )), "null", DEEP, "{", '{"step": 1' + "}" * 99,
)  # fmt: skip
CONFIGS = (
    *FILES, "seed: [1]", "seed: {a: 1}", "method: [scrl]", "evaluation: 3", "credit: {a: {b: {c: 1}}}", "steps: many",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """What is imported with the first model is not counted."""
    load_model("embedded", ComputeSettings(device="cpu"))


class TookTooLongError(BaseException):
    """Not caught by what catches errors."""


@contextmanager
def bounded():
    """No more than a minute and a gigabyte."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def end(_number, _frame):
        raise TookTooLongError

    handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < BYTES


def outcome(use):
    """None where all is well: a result, or an error of ours in few words."""
    try:
        with bounded():
            use()
    except ScrlError as error:
        return None if str(error).strip() and len(str(error)) < 20_000 else "no words, or too many"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:300]
    return None


def in_file(path, text, use):
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return use(path)


def found_wrong(cases):
    return {str(name)[:80]: wrong for name, use in cases if (wrong := outcome(use)) is not None}


def test_settings(tmp_path):
    base = ["model=embedded", "questions=arithmetic:easy"]
    values = [
        (f"{name}={value}", lambda n=name, v=value: read_config(None, [*base, f"{n}={v}"]))
        for name in NAMES
        for value in VALUES
    ]
    files = [(text, lambda t=text: in_file(tmp_path / "x.yaml", t, read_config)) for text in FILES]
    assert found_wrong([*values, *files]) == {}


def test_questions(tmp_path):
    cases = [(line, lambda t=line: in_file(tmp_path / "x.jsonl", f"{t}\n", load_questions)) for line in LINES]
    cases += [
        (f"csv {line}", lambda t=line: in_file(tmp_path / "x.csv", f"question,answer\n{t}\n", load_questions))
        for line in LINES
    ]
    assert found_wrong(cases) == {}


def test_rollouts(tmp_path):
    rule = credit_rule("scrl", num_trained=None)
    cases = [
        (line, lambda t=line: in_file(tmp_path / "x.jsonl", f"{t}\n{json.dumps(GOOD)}\n", lambda path: label_file(path, rule)))
        for line in ROLLOUTS
    ]  # fmt: skip
    assert found_wrong(cases) == {}


def test_a_line_that_is_small_only_while_it_is_packed(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(bytes(2**20))
    with pytest.raises(ScrlError, match=r"x\.jsonl\.gz:1"), bounded():
        label_file(path, credit_rule("scrl", num_trained=None))


def test_models(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    shutil.copytree(model_folder("embedded"), folder)
    shape = json.loads((folder / "config.json").read_text())

    monkeypatch.setattr("scrl.policy.model.LOAD_SECONDS", 0.5)

    def load(config):
        (folder / "config.json").write_text(config)
        load_model(str(folder), ComputeSettings(device="cpu"))

    texts = [*(json.dumps(shape | changes) for changes in SHAPES), "null", "3", "[]", "{}", "", "{", DEEP]
    assert found_wrong([(text, lambda t=text: load(t)) for text in texts]) == {}


@pytest.mark.parametrize("name", ["tokenizer.json", "adapter_config.json", "chat_template.jinja", "anything", "additional_chat_templates/a.jinja"])  # fmt: skip
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)]
)
def test_pipes_and_devices_in_a_model_folder_are_not_opened(name, make, tmp_path):
    path = shutil.copytree(model_folder("embedded"), tmp_path / "model") / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(InputError, match=path.name), bounded():
        load_model(str(tmp_path / "model"), ComputeSettings(device="cpu"))


def test_token_ids_and_tokenizers(tmp_path):
    """Folders with anything in tokenizer.json or generation_config.json, then one whose tokenizer panics."""
    rng, folder = np.random.default_rng(0), tmp_path / "model"
    shutil.copytree(model_folder("embedded"), folder)

    def load(name, text):
        before = (folder / name).read_text()
        (folder / name).write_text(text)
        try:
            model = load_model(str(folder), ComputeSettings(device="cpu"))
            end_tokens(model.model, model.tokenizer)
            usable_questions([Question("q", "Compute 1+1.")], model.tokenizer, PromptSettings(), model.model.config, 8)
        finally:
            (folder / name).write_text(before)

    texts = {name: json.loads((folder / name).read_text()) for name in ("tokenizer.json", "generation_config.json")}
    cases = [(name, forged(texts[name], rng)) for _ in range(how_many(10, 100)) for name in texts]
    cases += [
        ("generation_config.json", json.dumps({"eos_token_id": each})) for each in (2**70, "abc", [1.5, None], {"a": 1})
    ]
    panic = {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}
    far = {"model": texts["tokenizer.json"]["model"] | {"vocab": {"<end>": 1, "<unknown>": 2, "1": 10**9}}}
    cases += [("tokenizer.json", json.dumps(texts["tokenizer.json"] | each)) for each in (panic, far)]
    assert found_wrong([(text[-60:], lambda n=name, t=text: load(n, t)) for name, text in cases]) == {}


def test_answers_of_other_shapes():
    rng, step = np.random.default_rng(0), {"step": 0, "samples": 16}
    answers = {"q": {"question": "1+1", "votes": [["2", 0.75], ["3", 0.25]], "cut": 0.25}}
    texts = [json.loads(text) for _ in range(200) if len(text := forged({"answers": answers}, rng)) < 1000]
    cases = [
        (text, lambda t=text: [answer_rows(step | t), answer_rows(step | {"answers": answers}, t)]) for text in texts
    ]
    assert found_wrong(cases) == {}


def test_chat_templates(monkeypatch):
    monkeypatch.setattr("scrl.data.prompts.SECONDS", 0.3)
    tokenizer = load_tokenizer("embedded")

    def refused(template):
        tokenizer.chat_template = template
        with pytest.raises(ConfigError, match=r"^prompt: the "):
            prompt_text(Question("q", "1+1"), tokenizer, PromptSettings())

    assert found_wrong([(template, lambda t=template: refused(t)) for template in TEMPLATES]) == {}
    tokenizer.chat_template = "{{ messages[0].content }}"
    assert prompt_text(Question("q", "1+1"), tokenizer, PromptSettings(instruction="")) == "1+1"


DEEPER = "{% set a = namespace(x=[1], y=[1], t=(1,)) %}{% for i in range(N) %}{% set a.x = [a.x, a.x] %}{% set a.y = [a.y, a.y] %}{% set a.t = (a.t, a.t) %}{% endfor %}"
ENDLESS = (
    "{{ a.x == a.y }}", "{{ a.x < a.y }}", "{{ a.x in [a.y] }}", "{{ [a.x, a.y] | sort }}", "{{ {a.t: 1} }}", "{{ [a.x, a.y] | unique | list }}",
    "{{ a.x }}", "{{ a.x | tojson }}", "{{ a.x | max == a.y }}", "{{ [a.x].index(a.y) }}", "{{ [a.x] | groupby(0) }}", "{{ a.t | string | length }}",
)  # fmt: skip


def random_steps(rng):
    """Replacements, patterns and steps of a tokenizer, any of which may take for ever."""
    patterns = ({"String": "1"}, {"String": ""}, {"Regex": ""}, {"Regex": "(1+)+$"}, {"Regex": "(?:1|1)*2"})
    replace = {
        "type": "Replace",
        "pattern": patterns[rng.integers(len(patterns))],
        "content": "11" * rng.integers(1, 9),
    }
    return {"type": "Sequence", "normalizers": [replace] * int(rng.integers(1, 60))}


def test_what_a_model_brings_ends_within_seconds(tmp_path, monkeypatch):
    """Templates, normalizers and decoders at random; an own process is stopped even within a call into C or Rust."""
    monkeypatch.setattr("scrl.data.prompts.SECONDS", 0.2)
    monkeypatch.setattr("scrl.policy.model.LOAD_SECONDS", 0.3)
    rng, tokenizer, folder = np.random.default_rng(0), load_tokenizer("embedded"), tmp_path / "model"
    shutil.copytree(model_folder("embedded"), folder)
    plain = json.loads((folder / "tokenizer.json").read_text())
    for _ in range(how_many(12, 100)):
        tokenizer.chat_template = DEEPER.replace("N", str(rng.integers(1, 60))) + ENDLESS[rng.integers(len(ENDLESS))]
        steps = random_steps(rng)
        token = plain["added_tokens"][0] | {"id": 90, "content": "111", "normalized": bool(rng.integers(2))}
        changes = {"normalizer": steps, "added_tokens": [*plain["added_tokens"], token]}
        if rng.random() < 0.5:
            changes = {"decoder": {"type": "Sequence", "decoders": steps["normalizers"]}}
        (folder / "tokenizer.json").write_text(json.dumps(plain | changes))

        def ask():
            prompt_text(Question("q", "1+1"), tokenizer, PromptSettings())

        def load_and_ask():
            other = load_tokenizer(str(folder))
            prompt_tokens(Question("q", "1" * 40), other, PromptSettings(instruction=""))
            other.decode([other.convert_tokens_to_ids("1")] * 40)

        for use in (ask, load_and_ask):
            assert outcome(use) is None


def test_reports(tmp_path):
    def read(name, text):
        files = {
            "config.yaml": "seed: 0", "metrics.jsonl": "", "rollouts.jsonl": "",
            "evaluations.jsonl": json.dumps(EVALUATION),
        }  # fmt: skip
        for each, content in (files | {name: text}).items():
            (tmp_path / each).write_bytes(content.encode("utf-8", "surrogatepass"))
        table = result_table(result_rows([read_place(str(tmp_path))]))
        assert all("\x1b" not in form(table) for form in FORMATS.values())
        read_run(tmp_path, "run")

    cases = [(line, lambda t=line: read("evaluations.jsonl", t)) for line in EVALUATIONS]
    cases += [(text, lambda t=text: read("config.yaml", t)) for text in CONFIGS]
    cases += [(f"rollout {line}", lambda t=line: read("rollouts.jsonl", t)) for line in ROLLOUTS]
    cases += [(f"step {line}", lambda t=line: read("metrics.jsonl", t)) for line in LINES]
    assert found_wrong(cases) == {}
