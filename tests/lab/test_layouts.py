"""Completions as other tools write them. The files in layouts/ were written by TRL 1.16, verl 0.9.1 and lm-eval themselves;
the answers were put into their samplers' mouths. OpenAI's lines follow its API reference."""

import json
import math
from pathlib import Path

import pytest
from line_files import write_lines
from processes import scrl

from scrl.data.completion_files import ANY, CompletionColumns, open_completions
from scrl.data.questions import COLUMN_NAMES
from scrl.errors import DataError
from scrl.records import UNREAD

FILES = Path(__file__).parent / "layouts"
SAID = {
    "42": ["So \\boxed{42}.", "It is \\boxed{42}", "\\boxed{41}", "no idea"],
    "7": ["\\boxed{7}", "\\boxed{7}", "\\boxed{12}", "\\boxed{7}"],
}


def read(path, columns=ANY):
    source = open_completions(path, columns)
    return source.layout.name, list(source.rollouts())


def by_gold(rollouts):
    found = {}
    for rollout in rollouts:
        found.setdefault(rollout.gold, []).append(rollout.text)
    return found


def test_verl_writes_a_file_a_step():
    name, rollouts = read(FILES / "verl")
    assert name == "verl rollout dump"
    assert by_gold(r for r in rollouts if r.step == 1) == by_gold(r for r in rollouts if r.step == 2) == SAID
    assert {r.group for r in rollouts} == {(1, "verl-0"), (1, "verl-1"), (2, "verl-0"), (2, "verl-1")}
    assert {r.entropy for r in rollouts} == {None}


def test_steps_are_read_in_the_order_of_their_numbers(tmp_path):
    row = {"input": "a", "output": "b", "gts": None, "score": 0.0}
    for step in (10, 2):
        write_lines(tmp_path / f"{step}.jsonl", [row | {"step": step}])
    assert [r.step for r in read(tmp_path)[1]] == [2, 10]


def test_lm_eval_writes_each_document_once_a_filter():
    name, rollouts = read(FILES / "samples_sums.jsonl")
    assert name == "lm-eval samples"
    assert len((FILES / "samples_sums.jsonl").read_text().splitlines()) == 4  # two documents, two filters
    assert by_gold(rollouts) == SAID
    assert [r.question_id for r in rollouts] == ["0"] * 4 + ["1"] * 4


def test_trl_writes_parquet():
    pytest.importorskip("pyarrow")
    name, rollouts = read(FILES / "completions_00001.parquet")
    assert name == "TRL completions"
    assert [r.text for r in rollouts] == SAID["42"] + SAID["7"]
    assert {r.group for r in rollouts} == {(1, "completions_00001-0"), (1, "completions_00001-1")}


def test_openai_batch_output_with_the_likeliest_tokens(tmp_path):
    # ½, ¼ and a rest of ¼: H = ½ log 2 + ½ log 4; then a sure token: H = 0
    top = [{"token": "a", "logprob": math.log(0.5)}, {"token": "b", "logprob": math.log(0.25)}]
    tokens = [
        {"token": "a", "logprob": math.log(0.5), "top_logprobs": top},
        {"token": "c", "logprob": 0.0, "top_logprobs": [{"token": "c", "logprob": 0.0}, {"token": "d", "logprob": -99.0}]},
    ]  # fmt: skip
    choices = [
        {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": end}
        | {"logprobs": {"content": tokens}}
        for text, end in (("\\boxed{1}", "stop"), ("…", "length"))
    ]
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": choices}
    batch = {"id": "batch_req_1", "custom_id": "q7", "response": {"status_code": 200, "body": body}, "error": None}
    name, rollouts = read(write_lines(tmp_path / "a.jsonl", [batch]))
    assert name == "OpenAI batch output"
    failed = {"id": "batch_req_2", "custom_id": "q8", "response": None, "error": {"code": "batch_expired"}}
    file = open_completions(write_lines(tmp_path / "b.jsonl", [failed, batch, failed]))
    assert list(file.rollouts()) == [rollout._replace(line=2) for rollout in rollouts]
    assert "left out: 2" in file.note
    assert [r.question_id for r in rollouts] == ["q7", "q7"]
    assert [r.is_finished for r in rollouts] == [True, False]
    assert rollouts[0].entropy == pytest.approx(0.75 * math.log(4) / 2 + 0.0)  # ½·1 + ½·2 bits = 1.5 bits, halved
    assert all(r.is_entropy_estimate for r in rollouts)
    name, rollouts = read(write_lines(tmp_path / "b.jsonl", [body]))
    assert (name, rollouts[0].question_id) == ("OpenAI responses", "chatcmpl-1")


def test_the_entropy_from_drawn_tokens_alone_is_their_mean_surprise(tmp_path):
    drawn = {"token_logprobs": [None, -1.0, -2.0], "top_logprobs": None}
    body = {"id": "cmpl-1", "choices": [{"text": "\\boxed{1}", "logprobs": drawn}, {"text": "", "logprobs": None}]}
    _, (first, second) = read(write_lines(tmp_path / "a.jsonl", [body]))
    assert (first.entropy, first.is_entropy_estimate) == (1.5, True)
    assert (second.entropy, second.is_entropy_estimate) == (None, False)
    own = {"question_id": "a", "completion": "\\boxed{1}", "logprobs": [-1.0, -3.0]}
    _, (estimated, given) = read(write_lines(tmp_path / "b.jsonl", [own, own | {"entropy": 0.3}]))
    assert (estimated.entropy, estimated.is_entropy_estimate) == (2.0, True)
    assert (given.entropy, given.is_entropy_estimate) == (0.3, False)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "p", "completions": ["a", "b"], "entropies": [0.1, 0.2], "answer": "4"},
        {"question_id": "x", "responses": [{"text": "a", "entropy": 0.1}, {"text": "b", "entropy": 0.2}], "gold": "4"},
    ],
)
def test_lists_of_completions(tmp_path, row):
    for path in (write_lines(tmp_path / "a.jsonl", [row]), tmp_path / "a.json"):
        if path.suffix == ".json":
            path.write_text(json.dumps([row]))
        name, rollouts = read(path)
        assert name == "completions in lists, one per question"
        assert [(r.text, r.entropy, r.gold) for r in rollouts] == [("a", 0.1, "4"), ("b", 0.2, "4")]
        assert len({r.question_id for r in rollouts}) == 1


def test_a_table_with_prompt_and_completion(tmp_path):
    (tmp_path / "a.csv").write_text('prompt,completion,answer\np,"\\boxed{1}, so",1\nq,\\boxed{2},\np,\\boxed{3},1\n')
    name, rollouts = read(tmp_path / "a.csv")
    assert name == "one completion per row"
    assert [(r.question_id, r.text, r.gold) for r in rollouts] == [
        ("a-0", "\\boxed{1}, so", "1"), ("a-1", "\\boxed{2}", None), ("a-0", "\\boxed{3}", "1"),
    ]  # fmt: skip


@pytest.mark.parametrize("entropy", [False, [], "low", "nan"])
def test_what_is_no_number_is_no_entropy(tmp_path, entropy):
    path = write_lines(tmp_path / "a.jsonl", [{"prompt": "p", "response": "r", "entropy": entropy}])
    with pytest.raises(DataError, match=r"a\.jsonl:1: field 'entropy'"):
        read(path)


def test_columns_can_be_named(tmp_path):
    (tmp_path / "a.csv").write_text("frage,antwort,prompt,h\nx,\\boxed{1},z,0.5\n")
    columns = CompletionColumns(completion="antwort", question="frage", entropy="h")
    _, (rollout,) = read(tmp_path / "a.csv", columns)
    assert (rollout.question_id, rollout.text, rollout.entropy) == ("a-0", "\\boxed{1}", 0.5)
    with pytest.raises(DataError, match=r"a\.csv:2.*'antword'"):
        read(tmp_path / "a.csv", columns._replace(completion="antword"))


@pytest.mark.parametrize("name", [name for name in COLUMN_NAMES["gold_column"][0].split() if name != "final_answer"])
def test_gold_has_the_names_it_has_in_question_files(tmp_path, name):
    (tmp_path / "a.csv").write_text(f"frage,antworttext,{name}\nx,\\boxed{{1}},1\n")
    source = open_completions(tmp_path / "a.csv", CompletionColumns(completion="antworttext", question="frage"))
    assert [r.gold for r in source.rollouts()] == ["1"]
    assert f"gold: {name}" in source.note


def test_beside_a_completion_its_own_answer_and_whether_it_is_right_are_no_gold(tmp_path):
    rows = [{"prompt": "p", "completion": "\\boxed{1}", "final_answer": "1", "label": True}]  # as TRL's KTO has it
    source = open_completions(write_lines(tmp_path / "a.jsonl", rows))
    assert [r.gold for r in source.rollouts()] == [None]
    assert "gold: no column" in source.note


@pytest.mark.parametrize(
    "row",
    [
        {"completions": ["a"]},
        {"question_id": "a", "antwort": "b"},
        {"prompt": "p", "completions": ["a"], "entropies": []},
        {"prompt": "p", "completion": 3},
        {"doc_id": 0, "doc": {}, "target": "1", "resps": []},
        {"question_id": "a", "completion": "b", "logprobs": 3},
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(tmp_path, row):
    path = write_lines(tmp_path / "a.jsonl", [row])
    with pytest.raises(DataError, match=r"a\.jsonl:1"):
        read(path)


def test_a_folder_of_two_kinds_is_refused(tmp_path):
    write_lines(tmp_path / "a.jsonl", [])
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"\.parquet"):
        read(tmp_path)
    (tmp_path / "a.parquet").unlink()
    write_lines(tmp_path / "a.jsonl", [{"question_id": "q", "completion": "4"}])
    write_lines(tmp_path / "b.jsonl", [{"id": "q", "answer": "4", "completions": ["5", "6"]}])
    with pytest.raises(DataError, match=r"b\.jsonl:1"):
        read(tmp_path)


@pytest.mark.parametrize("column", ["completion", "response"])
@pytest.mark.parametrize("answer", ["4", None])
def test_a_right_answer_beside_a_completion_is_never_counted_as_its_own(column, answer, tmp_path):
    file = write_lines(tmp_path / "a.jsonl", [{"question_id": "q", column: "\\boxed{5}", "answer": answer}])
    if column == "completion":
        with pytest.raises(DataError, match=r"a\.jsonl:1: .*--gold-column answer"):
            read(file)
    (rollout,) = read(file, CompletionColumns(gold="answer"))[1]
    assert (rollout.gold, rollout.answer) == (answer, UNREAD)


def test_a_long_completion_in_a_table(tmp_path):
    (tmp_path / "a.csv").write_text(f"id,completion\nq,{'x' * 200_000}\n")
    assert len(read(tmp_path / "a.csv")[1][0].text) == 200_000


def test_label_audit_and_sweep_read_them_and_say_so(tmp_path):
    done = scrl("label", FILES / "verl", "--method", "ttrl", "--summary", tmp_path / "s.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "s.json").read_text())["positive_accuracy"] == 1.0
    refused = scrl("label", FILES / "verl", "--method", "scrl")
    assert refused.returncode == 2
    assert "an entropy" in refused.stderr
    for command in ("audit", "sweep"):
        done = scrl(command, FILES / "samples_sums.jsonl")
        assert done.returncode == 0, done.stderr
        assert "scrl was left out" in done.stdout


@pytest.mark.parametrize(
    ("row", "golds"),
    [
        ({"prompt": "p", "completion": "\\boxed{4}", "answer": ["4", "5"]}, [(None, True)]),
        ({"prompt": "p", "completion": "\\boxed{4}", "answer": ["4"]}, [("4", False)]),
        ({"prompt": "p", "completion": "\\boxed{4}", "answer": []}, [(None, False)]),
        ({"prompt": "p", "completions": ["\\boxed{4}"] * 2, "answer": ["4", "5"]}, [(None, True)] * 2),
        ({"doc_id": 0, "doc": {}, "target": ["4", "5"], "resps": [["\\boxed{4}"]]}, [(None, True)]),
        ({"id": "r", "choices": [{"text": "\\boxed{4}"}], "gold": ["4"]}, [("4", False)]),
        ({"step": 1, "prompt": "p", "completion": "\\boxed{4}", "advantage": 0.5, "answer": ["4"]}, [("4", False)]),
        ({"input": "a", "output": "b", "gts": ["4", "5"], "score": 0.0, "step": 1}, [(None, True)]),
    ],
)
def test_several_right_answers_are_none_and_marked(tmp_path, row, golds):
    _, rollouts = read(write_lines(tmp_path / "a.jsonl", [row]))
    assert [(r.gold, r.has_several_golds) for r in rollouts] == golds


def test_questions_with_several_right_answers_are_counted_everywhere(tmp_path):
    """Two of three questions; a question counts once, however many completions it has."""
    golds = {"p": ["1", "2"], "q": ["1"], "r": ["2", "3"]}
    rows = [
        {"prompt": prompt, "completion": f"\\boxed{{{i}}}", "answer": gold}
        for prompt, gold in golds.items()
        for i in (1, 1, 2)
    ]
    path = write_lines(tmp_path / "a.jsonl", rows)
    commands = (
        ("label", "--method", "ttrl", "--summary", tmp_path / "s"), ("audit", "--out", tmp_path / "a"),
        ("sweep", "--method", "ttrl"),
    )  # fmt: skip
    for command, *more in commands:
        done = scrl(command, path, *more)
        assert done.returncode == 0, done.stderr
        assert "2 questions have several" in " ".join(done.stdout.split()), command
    summary = json.loads((tmp_path / "s").read_text())
    assert (summary["several_golds"], summary["gold_questions"]) == (2, 1)
    assert json.loads((tmp_path / "a").read_text())["several_golds"] == 2


def test_estimated_entropies_are_marked_everywhere(tmp_path):
    rows = [{"question_id": f"q{i}", "completion": f"\\boxed{{{i}}}", "logprobs": [-0.1 * i]} for i in (1, 1, 2, 2)]
    path = write_lines(tmp_path / "a.jsonl", rows)
    for command, *more in (("label", "--summary", tmp_path / "s"), ("audit", "--out", tmp_path / "a"), ("sweep",)):
        done = scrl(command, path, *more)
        assert done.returncode == 0, done.stderr
        assert "estimates" in done.stdout
    assert json.loads((tmp_path / "s").read_text())["estimated_entropies"] == 4
    assert json.loads((tmp_path / "a").read_text())["votes"]["entropy"] == "estimated"


def test_a_missing_file_names_the_nearest(tmp_path):
    (tmp_path / "rollouts.jsonl.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"Did you mean 'rollouts\.jsonl\.gz'"):
        open_completions(tmp_path / "rolouts.jsonl")
