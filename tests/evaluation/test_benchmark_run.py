"""A model on benchmarks, through files: what is graded is what was written, and an interruption changes nothing."""

import json
import os

import numpy as np
import pytest
from cases import how_many
from line_files import forged, read_lines, write_lines

from scrl.errors import ConfigError, DataError, InputError
from scrl.evaluation import benchmark_run
from scrl.evaluation.benchmark_run import load_benchmarks, measure
from scrl.evaluation.settings import build_settings, read_settings
from scrl.files.checkpoint_file import own_sum
from scrl.files.whole_files import write_whole
from scrl.policy.model import load_model

os.environ.setdefault("HF_HUB_OFFLINE", "1")
STREAM = "arithmetic:easy:train:5"
FILES = (
    "started_with.json", "evaluations.jsonl", "evaluation.yaml",
    "rollouts/arithmetic-easy-train-5.jsonl",
)  # fmt: skip


class Listener:
    """Records its calls; Ctrl-C comes when `stop_after` questions are done."""

    def __init__(self, stop_after=None):
        self.notes, self.questions, self.records, self.stop_after = [], [], [], stop_after

    def note(self, text):
        self.notes.append(text)

    def progress(self, benchmark, questions, total):
        self.questions.append((benchmark, questions, total))
        if questions == self.stop_after:
            raise KeyboardInterrupt

    def tokens(self, done, most):
        self.drawn = (done, most)

    def evaluation(self, record):
        self.records.append(record)


def settings_of(*benchmarks, **changes):
    """Two completions per question, two questions at a time."""
    values = {
        "model": "embedded", "benchmarks": benchmarks or (STREAM,), "samples": 2,
        "sampling": {"temperature": 0.6, "top_p": 0.95, "max_tokens": 24},
        "compute": {"sampler_rows": 4}, "prompt": {"instruction": ""},
    }  # fmt: skip
    return build_settings(values | changes)


@pytest.mark.parametrize("given", [{"max_tokens": 24}, {"sampling": {"max_tokens": 24}}])
def test_one_sampling_setting_leaves_the_others_as_the_paper_has_them(given):
    sampling = build_settings({"model": "embedded", "benchmarks": [STREAM], **given}).sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.6, 0.95, 24)


def contents(folder, names=FILES):
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def model():
    return load_model("embedded", settings_of().compute)


@pytest.fixture
def no_sampling(monkeypatch, model):
    """Every completion that is drawn fails the test; and the model, of which nothing is asked, is loaded once."""
    monkeypatch.setattr(benchmark_run, "load_model", lambda *a, **k: model)
    monkeypatch.setattr("scrl.sampling.local.LocalSampler.sample", lambda *a, **k: pytest.fail("something was drawn"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An evaluation that nothing interrupted."""
    out = tmp_path_factory.mktemp("whole")
    listener = Listener()
    measure(settings_of(), out, listener)
    assert listener.drawn[1] == 24  # the most tokens of a completion
    return out


# Figures from a file that was written by hand: four questions, four completions each

BOXED = {
    "q0": ["7", "7", "5", None],  # gold 7
    "q1": ["4", "4", "3", "3"],  # gold 3
    "q2": [None, None, None, None],  # gold 9
    "q3": ["1", "1", "1", "1"],  # no gold
}
GOLD = {"q0": "7", "q1": "3", "q2": "9", "q3": None}


def entropy(name, answer):
    return 0.2 if name == "q3" else 0.5 if answer is None else 0.1 if answer == GOLD[name] else 0.3


@pytest.fixture
def by_hand(tmp_path):
    """Questions, and all their completions, so that nothing is left to draw."""
    texts = {name: f"Compute {number}+2." for number, name in enumerate(BOXED)}
    rows = [{"id": name, "question": texts[name], "answer": GOLD[name]} for name in BOXED]
    questions = write_lines(tmp_path / "hand.jsonl", rows)
    answers = [(name, number, answer) for name, given in BOXED.items() for number, answer in enumerate(given)]
    rollouts = [
        {
            "question_id": name, "step": 0, "sample": number, "completion": f"\\boxed{{{answer}}}" if answer else "?",
            "entropy": entropy(name, answer), "num_tokens": place, "finished": answer is not None,
            "question": texts[name], **({"gold": GOLD[name]} if GOLD[name] else {}),
        }
        for place, (name, number, answer) in enumerate(answers, start=1)
    ]  # fmt: skip
    (tmp_path / "out" / "rollouts").mkdir(parents=True)
    summed = (line | {"sum": own_sum(line)} for line in rollouts)
    write_lines(tmp_path / "out" / "rollouts" / "hand.jsonl", summed)
    return settings_of(str(questions), samples=4, ks=(2, 4)), tmp_path / "out"


def test_figures_equal_those_worked_out_by_hand(by_hand, no_sampling):
    settings, out = by_hand
    (record,) = measure(settings, out, Listener())
    assert read_lines(out / "evaluations.jsonl") == [record]
    assert (record["questions"], record["gold_questions"], record["samples"]) == (4, 3, 4)
    assert record["pass@1_by_question"] == {"q0": 0.5, "q1": 0.5, "q2": 0.0}
    # two of four are right: 1 − C(2, 2) / C(4, 2) = 5/6
    assert record["pass@2_by_question"] == pytest.approx({"q0": 5 / 6, "q1": 5 / 6, "q2": 0.0})
    assert record["maj@4_by_question"] == {"q0": 1.0, "q1": 0.5, "q2": 0.0}  # q1 is a tie, q2 has no votes
    scores = [record[name] for name in ("pass@1", "pass@2", "pass@4", "maj@4")]
    assert scores == pytest.approx([1 / 3, 5 / 9, 2 / 3, 1 / 2])
    assert record["pass@1_low"] < 1 / 3 < record["pass@1_high"]
    assert record["answered"] == pytest.approx(11 / 16)  # 3 + 4 + 0 + 4
    assert record["truncated"] == pytest.approx(5 / 16)
    assert record["agreement"] == pytest.approx((2 + 2 + 0 + 4) / 16)
    assert record["accuracy_given_answer"] == pytest.approx(4 / 7)  # of the questions with gold: 2 + 2 of 3 + 4
    assert (record["tokens"], record["length_mean"]) == (136, 8.5)  # 1 + … + 16
    assert record["entropy_correct"] == pytest.approx(0.1)
    assert record["entropy_incorrect"] == pytest.approx((3 * 0.3 + 5 * 0.5) / 8)
    assert record["entropy_mean"] == pytest.approx((4 * 0.1 + 3 * 0.3 + 5 * 0.5 + 4 * 0.2) / 16)


ROLLOUT = {"question_id": "q0", "question": "Compute 0+2.", "completion": "?", "entropy": 0.1, "num_tokens": 1}
ROLLOUT |= {"finished": True}


@pytest.mark.parametrize(("number", "line"), [
    (3, "{"), (1, "[]"), (16, "null"), (5, '{"question_id": "q1"}'),
    (2, '{"question_id": "q0", "question": "Compute 0+2.", "completion": "?"}'), (9, ""), (4, "\xff"),
    (2, json.dumps(ROLLOUT | {"entropy": "high"})), (2, json.dumps(ROLLOUT | {"completion": 4})),
])  # fmt: skip
def test_a_broken_line_is_named(by_hand, no_sampling, number, line):
    settings, out = by_hand
    path = out / "rollouts" / "hand.jsonl"
    found = path.read_text().splitlines()
    path.write_bytes(("\n".join([*found[: number - 1], line, *found[number:]]) + "\n").encode("latin-1"))
    with pytest.raises(DataError, match=rf"hand\.jsonl:{number}"):
        measure(settings, out, Listener())
    assert not (out / "evaluations.jsonl").exists()


def test_edited_completions_are_refused(by_hand, no_sampling):
    """Edits at random: another digit, another value, two lines exchanged."""
    (settings, out), rng = by_hand, np.random.default_rng(0)
    path = out / "rollouts" / "hand.jsonl"
    lines, whole = path.read_text().splitlines(), path.read_text()
    for n in range(how_many(18, 100)):
        edited, (one, other) = list(lines), rng.choice(len(lines), 2, replace=False)
        if n % 3 == 0:
            edited[one], edited[other] = edited[other], edited[one]
        elif n % 3 == 1:
            edited[one] = edited[one].replace(str(n % 10), str((n + 1) % 10), 1)
        else:
            edited[one] = forged(json.loads(edited[one]), rng)
        path.write_text("\n".join(edited) + "\n")
        if edited == lines:
            continue
        with pytest.raises(DataError, match=r"hand\.jsonl:"):
            measure(settings, out, Listener())
    path.write_text(whole)
    assert measure(settings, out, Listener())


@pytest.mark.parametrize("change", [{"question_id": "q9"}, {"question": "Compute 8+8."}])
def test_completions_of_other_questions_are_refused_before_anything_is_drawn(by_hand, no_sampling, change):
    settings, out = by_hand
    path = out / "rollouts" / "hand.jsonl"
    found = read_lines(path)
    write_lines(path, [*found[:4], found[4] | change, *found[5:12]])  # the last question is missing
    with pytest.raises(DataError, match=r"hand\.jsonl:5"):
        measure(settings, out, Listener())


# Interrupted and resumed


@pytest.mark.parametrize("stop_after", [2, 5])
def test_an_interrupted_evaluation_ends_with_the_same_bytes(whole, tmp_path, stop_after):
    with pytest.raises(KeyboardInterrupt):
        measure(settings_of(), tmp_path, Listener(stop_after))
    assert not (tmp_path / "evaluations.jsonl").exists()
    listener = Listener()
    measure(read_settings(tmp_path), tmp_path, listener)
    assert listener.questions[0] == (STREAM, stop_after, 5)
    assert contents(tmp_path) == contents(whole)


def test_nobody_else_writes_to_an_evaluation_that_goes_on(whole, tmp_path):
    class Intruder(Listener):
        """Tries to resume the evaluation whenever some of its questions are done."""

        def progress(self, benchmark, questions, total):
            before = contents(tmp_path, FILES[-1:])
            with pytest.raises(InputError, match="another process"):
                measure(read_settings(tmp_path), tmp_path, Listener())
            assert contents(tmp_path, FILES[-1:]) == before

    measure(settings_of(), tmp_path, Intruder())
    assert contents(tmp_path) == contents(whole)
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("share", [0.0, 0.35, 0.999])
def test_a_file_cut_anywhere_ends_with_the_same_bytes(whole, tmp_path, share):
    rollouts = (whole / FILES[-1]).read_bytes()
    (tmp_path / "rollouts").mkdir()
    (tmp_path / FILES[-1]).write_bytes(rollouts[: int(share * len(rollouts))])
    measure(settings_of(), tmp_path, Listener())
    assert contents(tmp_path) == contents(whole)


def test_a_finished_evaluation_draws_nothing_again(whole, no_sampling):
    before = contents(whole)
    listener = Listener()
    measure(read_settings(whole), whole, listener)
    assert contents(whole) == before
    assert listener.questions == [(STREAM, 5, 5)]


# Sets of questions


def test_several_benchmarks_and_results_of_those_with_gold_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("Compute 3+4.\nCompute 4+5.\n")
    listener, out = Listener(), tmp_path / "out"
    first, second = measure(settings_of(str(tmp_path / "mine.txt"), "arithmetic:easy:train:1"), out, listener)
    assert [first["benchmark"], second["benchmark"]] == [str(tmp_path / "mine.txt"), "arithmetic:easy:train:1"]
    assert [record["questions"] for record in listener.records] == [2, 1]
    assert ("pass@1" in first, "pass@1" in second) == (False, True)
    assert {path.name for path in (out / "rollouts").iterdir()} == {"mine.jsonl", "arithmetic-easy-train-1.jsonl"}


def test_a_question_that_the_model_cannot_read_is_refused_before_anything_is_sampled(tmp_path, no_sampling):
    (tmp_path / "mine.txt").write_text("Compute 3+4.\nOù est la gare?\n")
    with pytest.raises(InputError, match="'mine-1'"):
        measure(settings_of(str(tmp_path / "mine.txt")), tmp_path / "out", Listener())
    assert not (tmp_path / "out").exists()


def test_questions_are_asked_without_an_instruction_that_the_model_cannot_read(tmp_path):
    (tmp_path / "mine.txt").write_text("Compute 3+4.\n")
    listener, source = Listener(), str(tmp_path / "mine.txt")
    (record,) = measure(settings_of(source, prompt={}), tmp_path / "a", listener)
    assert any(source in note and "instruction" in note for note in listener.notes)
    (bare,) = measure(settings_of(source), tmp_path / "b", Listener())  # instruction: ""
    assert (record.pop("prompt")["style"], bare.pop("prompt")["instruction"]) == ("auto", "")
    assert record == bare


def test_deleting_gold_changes_no_figure_that_needs_none(tmp_path):
    rows = [{"id": f"q{number}", "question": f"Compute {number}+2."} for number in range(3)]
    mine = settings_of(str(write_lines(tmp_path / "mine.jsonl", rows)))
    (without,) = measure(mine, tmp_path / "out-without", Listener())
    write_lines(tmp_path / "mine.jsonl", [row | {"answer": "5"} for row in rows])
    (with_gold,) = measure(mine, tmp_path / "out-with", Listener())
    assert without == {key: with_gold[key] for key in without}
    assert "pass@1" in with_gold
    assert not [key for key in without if "@" in key or key in ("gold_questions", "entropy_correct", "by_level")]
    assert {"answered", "truncated", "entropy_mean", "agreement"} <= without.keys()


@pytest.mark.parametrize(
    ("text", "max_tokens"), [("Compute 3+4.", 256), ("Compute 3+4.", 3072), (f"Compute {'+'.join(['11'] * 150)}.", 24)]
)
def test_prompts_and_completions_beyond_the_models_context_are_refused(tmp_path, text, max_tokens):
    (tmp_path / "mine.txt").write_text(text)
    settings = settings_of(str(tmp_path / "mine.txt"), sampling={"max_tokens": max_tokens})
    with pytest.raises(InputError, match="256 tokens"):
        measure(settings, tmp_path / "out", Listener())
    assert not (tmp_path / "out").exists()


# Settings


def test_settings_that_make_no_sense_are_refused():
    wrong = {
        "k": {"ks": (3,)}, "k: .* 0": {"ks": (0,)}, "completions": {"samples": 0}, "top_p": {"sampling": {"top_p": 2}},
        "compute.sampler_rows": {"compute": {"rows": 1}}, "prompt_style": {"prompt": {"style": "shakespeare"}},
        "questions": {"benchmarks": ()}, "limit": {"limit": 0},
    }  # fmt: skip
    for named, change in wrong.items():
        with pytest.raises(ConfigError, match=named):
            settings_of(**change)


@pytest.mark.parametrize(
    "names", [("aime24", "aime24"), ("a/mine.jsonl", "b/mine.jsonl"), ("mine.txt", "mine.csv"), ("a:b", "a-b")]
)
def test_two_benchmarks_that_would_share_a_file_are_refused(names):
    with pytest.raises(ConfigError, match="questions"):
        settings_of("amc", *names)


@pytest.mark.parametrize("text", ["{", "model: 3", "- a", "", "model: m\nbenchmarks: [a]\nsamplse: 3", "\xff"])
def test_settings_that_no_evaluation_wrote(tmp_path, text):
    with pytest.raises(InputError, match="no evaluation"):
        read_settings(tmp_path)
    (tmp_path / "evaluation.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"evaluation\.yaml"):
        read_settings(tmp_path)


def test_gold_in_a_file_that_nobody_could_match_is_reported(tmp_path):
    rows = [{"question": "2+2?", "answer": "4"}, {"question": "3+3?", "answer": "}}{"}]
    source, listener = write_lines(tmp_path / "mine.jsonl", rows), Listener()
    load_benchmarks(settings_of(str(source)), listener)
    assert any("1 of 2" in note and "mine-1" in note for note in listener.notes)


def test_one_that_is_killed_while_a_benchmark_is_added_goes_on(tmp_path, monkeypatch):
    measure(settings_of(), tmp_path, Listener())
    more = settings_of(STREAM, "arithmetic:medium:train:2")

    def die_at(path, *arguments, **options):
        if path.name == "started_with.json":
            raise KeyboardInterrupt
        write_whole(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(benchmark_run, "write_whole", die_at)
        with pytest.raises(KeyboardInterrupt):
            measure(more, tmp_path, Listener())
    assert read_settings(tmp_path) == more
