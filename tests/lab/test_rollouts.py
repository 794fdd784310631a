"""`scrl rollouts`: nothing lost and nothing doubled, whatever the server, the network and the user do."""

import json
import math
import signal
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from line_files import read_lines, write_lines
from processes import Command, untraced
from stub_server import StubServer, answer_to, response, some_faults

from scrl.cli.main import main
from scrl.data.completion_files import open_completions
from scrl.data.prompts import BOXED
from scrl.lab.endpoint import request_body
from scrl.lab.endpoint_settings import build_settings
from scrl.records import Question


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SCRL_API_KEY", raising=False)


def questions(number, path="q.jsonl"):
    rows = ({"id": f"q{n}", "question": f"What is {n}?", "answer": str(n)} for n in range(number))
    return str(write_lines(Path(path), rows))


def words(server, path, *more, n=4, model="m", out="c.jsonl"):
    given = {"--endpoint": server.url, "--model": model, "--questions": path, "-n": str(n), "--out": out}
    return ["rollouts", *chain(*given.items()), *more]


def stored():
    return read_lines(Path("c.jsonl"))


def one_error(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def assert_whole(number_of_questions, n):
    """Every completion is there once, and is what the server said to that very request."""
    lines = stored()
    places = [(line["question_id"], line["sample"]) for line in lines]
    assert sorted(places) == sorted((f"q{q}", i) for q in range(number_of_questions) for i in range(n))
    settings = build_settings({"endpoint": "http://x", "model": "m", "questions": "q.jsonl"})
    for line in lines:
        question = Question(line["question_id"], line["question"])
        body = request_body(settings, question, line["sample"])
        assert line["completion"] == answer_to(f"{question.text} {BOXED}", body["seed"])


# The file


def test_a_line_is_a_rollout_with_an_entropy_that_is_marked_as_an_estimate():
    with StubServer() as server:
        assert main(words(server, questions(3))) == 0
    assert_whole(3, 4)
    line = next(line for line in stored() if (line["question_id"], line["sample"]) == ("q2", 3))
    # Tokens of probabilities 1/2, 1/4 and 1/4: 3/2 log 2; then a certain one: 0. Their mean is 3/4 log 2.
    assert line["entropy"] == pytest.approx(0.75 * math.log(2))
    assert line == line | {"step": 0, "entropy_is_estimate": True, "num_tokens": 2, "finished": True}
    assert (line["question"], line["gold"]) == ("What is 2?", "2")
    found = list(open_completions(Path("c.jsonl")).rollouts())
    assert all(rollout.is_entropy_estimate and rollout.facts == {"length": 2.0} for rollout in found)
    assert main(["audit", "c.jsonl", "--method", "scrl"]) == 0
    assert main(["label", "c.jsonl", "--method", "scrl", "--out", "l.jsonl"]) == 0
    assert main(["sweep", "c.jsonl", "--method", "ttrl"]) == 0


def test_plain_prompts_go_to_completions():
    with StubServer() as server:
        assert main(words(server, questions(1), "--prompt-style", "plain", n=1)) == 0
    assert server.headers[0].startswith("POST /v1/completions ")
    assert stored()[0]["entropy"] == pytest.approx(0.75 * math.log(2))


def test_a_server_without_logprobs_is_named_once_and_methods_that_need_none_run(capsys):
    with StubServer(has_logprobs=False) as server:
        assert main(words(server, questions(2))) == 0
        assert capsys.readouterr().out.count("gives no log-probabilities") == 1
        assert all(line["entropy"] is None and "entropy_is_estimate" not in line for line in stored())
        assert main(["label", "c.jsonl", "--method", "ttrl"]) == 0


# Faults


@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_doubled_under_faults(number):
    """All ten thousand: make test-slow"""
    with StubServer(some_faults) as server:
        concurrency = ("--concurrency", "100", "--timeout", "2")
        assert main(words(server, questions(number // 20), *concurrency, n=20)) == 0
    assert_whole(number // 20, 20)
    assert set(server.kinds) == {"answer", "busy", "error", "drop", "cut", "open cut", "no completion", "twice", "hang"}
    assert sum(server.attempts.values()) > 1.2 * number


@pytest.mark.parametrize(("refused", "concurrency"), [(2, "8"), (0, "1")])  # the very first one, too
def test_a_question_that_is_refused_stops_no_other(refused, concurrency, capsys):
    too_long = response(400, '{"error": {"message": "maximum context length is 8 tokens"}}')
    with StubServer(lambda key, attempt: too_long if key[0].startswith(f"What is {refused}?") else "answer") as server:
        assert main(words(server, questions(4), "--concurrency", concurrency)) == 1
        assert f"'q{refused}': HTTP 400" in one_error(capsys)
        assert len(stored()) == 12
        server.fault = "answer"
        assert main(words(server, questions(4))) == 0
    assert_whole(4, 4)


@pytest.mark.parametrize(("status", "said", "named"), [
    (401, '{"error": {"message": "no key"}}', "SCRL_API_KEY"), (404, '{"detail": "Not Found"}', "--endpoint"),
    (400, "top_logprobs is at most 5", "top_logprobs"), (302, "", "HTTP 302"),
])  # fmt: skip
def test_what_no_other_request_would_change_stops_at_once_with_nothing_written(status, said, named, capsys, tmp_path):
    with StubServer(response(status, said)) as server:
        assert main(words(server, questions(2), "--concurrency", "1")) == 1
        # a 400 may concern one question alone: it stops when there is no other
        assert sum(server.attempts.values()) == (2 if status == 400 else 1)
    assert named in one_error(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]


def test_a_server_that_is_not_there(capsys, tmp_path):
    with StubServer() as server:
        pass
    assert main(words(server, questions(1))) == 1
    assert "--endpoint" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("SCRL_API_KEY", "sk-secret")
    with StubServer() as server:
        assert main(words(server, questions(1))) == 0
        assert all("Authorization: Bearer sk-secret\r\n" in head for head in server.headers)
        server.fault = response(401, "wrong key: sk-secret")
        assert main(words(server, questions(2))) == 1
    said = capsys.readouterr()
    assert "sk-secret" not in said.out + said.err
    assert all("sk-secret" not in path.read_text() for path in tmp_path.iterdir())
    monkeypatch.setenv("SCRL_API_KEY", "sk-\u2026")
    assert main(words(server, questions(1))) == 2
    assert "SCRL_API_KEY" in capsys.readouterr().err


def hostile_answer(rng):
    """A response of any status, charset, length, coding and wait that a server may make up."""
    words = [
        "abc",
        "{}",
        '{"error": ' * 3000,
        '{"choices": [{"text": 3}]}',
        "\ud800",
        '{"choices": [{"message": {"content": "x"}}]}',
        "",
    ]
    headers = (f"Content-Type: text/html; charset={rng.choice(CHARSETS)}", f"Retry-After: {rng.choice(['1e308', '-1', 'x', '0'])}",
               f"Content-Encoding: {rng.choice(['gzip', 'zstd', 'x'])}", "Transfer-Encoding: x", "X: \x00")  # fmt: skip
    chosen = "".join(f"{header}\r\n" for header in rng.choice(headers, 2))
    body = str(rng.choice(words)).encode("utf-8", "surrogatepass")
    head = f"HTTP/1.1 {rng.choice([200, 204, 301, 400, 429, 500, 999])} X\r\nContent-Length: {len(body) - rng.integers(2)}\r\n{chosen}\r\n"
    return head.encode() + body


CHARSETS = ("hex", "zlib", "rot13", "idna", "utf-16", "nothing", "undefined", "punycode", "unicode_escape", "utf-7")
ADDRESSES = ("http://[::1", "http://\x7f/v1", "http://x:99999999", "http://a..b", "http://" + "a" * 70, "http://\u2100", "http://xn--a/", "http://[v1.x]", "//x", "http:///v1")  # fmt: skip
PROXIES = ("foo://x", "socks5://x:1", "http://[", "x", "http://x:y", "http://\x7f")


def test_hostile_servers_addresses_and_proxies_end_in_one_line(capsys, monkeypatch, tmp_path):
    """100 answers at random, and every address and proxy above: no traceback, and nothing but completions is stored."""
    rng, path = np.random.default_rng(0), questions(1)
    with StubServer(lambda key, attempt: hostile_answer(rng)) as server:
        for _ in range(100):
            status = main(words(server, path, "--retries", "0", "--timeout", "1", n=1))
            assert status == 0 or (status == 1 and one_error(capsys))
            if Path("c.jsonl").exists():
                assert [line["completion"] for line in stored()] == ["x"]
                Path("c.jsonl").unlink(), Path("c.settings.json").unlink()
        for address in ADDRESSES:
            assert main(words(SimpleNamespace(url=address), path, "--retries", "0", n=1)) in (1, 2)
            assert one_error(capsys)
        monkeypatch.setenv("NO_PROXY", "")
        for proxy in PROXIES:
            monkeypatch.setenv("HTTP_PROXY", proxy)
            assert main(words(server, path, "--retries", "0", n=1)) in (1, 2)
            assert one_error(capsys)
    assert [each.name for each in tmp_path.iterdir()] == ["q.jsonl"]


def test_what_is_too_long_to_read_back_is_not_stored(capsys, monkeypatch):
    for limit in ("scrl.lab.endpoint.MAX_LINE", "scrl.lab.endpoint.MAX_BODY"):
        with monkeypatch.context() as patch, StubServer() as server:
            patch.setattr(limit, 100)
            assert main(words(server, questions(1), "--retries", "0", n=1)) == 1
            assert "100 bytes" in one_error(capsys)
    with StubServer(response(401, "")) as server:
        assert main(words(server, questions(100), n=10**6)) == 1  # asks at once


# Going on


def test_killed_at_any_moment_and_gone_on_with(tmp_path):
    with StubServer(some_faults) as server:
        asked = words(server, questions(50), "--timeout", "2", n=10)
        for kill in range(1, 4):
            command = Command(*asked, "--concurrency", 25, cwd=tmp_path, prepare=untraced)
            command.wait_for(lambda enough=60 * kill: count_lines() >= enough)
            command.signal(signal.SIGKILL)
            assert command.finish().returncode == -signal.SIGKILL
            assert 60 * kill <= count_lines() < 500
        with open("c.jsonl", "a") as file:
            file.write('{"question_id": "q0", "sample": 3, "compl')  # as if killed within a write
        assert Command(*asked, "--concurrency", 100, cwd=tmp_path).finish().returncode == 0
    assert_whole(50, 10)
    assert sum(server.answered.values()) <= 500 + 3 * 25  # asked for again: those in flight, at most 25 a kill


def count_lines():
    return Path("c.jsonl").read_bytes().count(b"\n") if Path("c.jsonl").exists() else 0


def test_ctrl_c_says_how_to_go_on(tmp_path):
    path = questions(5)
    with StubServer(lambda key, attempt: "hang" if key[0].startswith("What is 4?") else "answer") as server:
        command = Command(*words(server, path), cwd=tmp_path, prepare=untraced)
        command.wait_for(lambda: count_lines() == 16)
        command.signal(signal.SIGINT)
        done = command.finish(60)
        assert done.returncode == 130
        assert "c.jsonl has 16 of 20 completions" in done.stdout
        assert "Traceback" not in done.stderr
        server.fault = "answer"
        assert main(words(server, path)) == 0
    assert_whole(5, 4)


def test_more_completions_and_questions_can_be_added_and_nothing_is_asked_twice():
    with StubServer() as server:
        assert main(words(server, questions(3), "--limit", "2", n=2)) == 0
        assert main(words(server, questions(3), "--concurrency", "3", "--timeout", "50", n=4)) == 0
        assert main(words(server, questions(3))) == 0
        assert sum(server.attempts.values()) == 12
    assert_whole(3, 4)


@pytest.mark.parametrize(("more", "others", "reason"), [
    (["--temperature", "0.5"], {}, "sampling.temperature was 1.0 and is 0.5"),
    ([], {"model": "n"}, "model was 'm' and is 'n'"),
    (["--seed", "1"], {}, "seed was 0 and is 1"),
    (["--logprobs", "5", "--max-tokens", "9"], {}, "sampling.max_tokens was 1024 and is 9; logprobs was 20 and is 5"),
    (["--instruction", ""], {}, "prompt.instruction was None and is ''"),
    ([], {"n": 2}, "--completions"),
    (["--limit", "1"], {}, "'q1'"),
])  # fmt: skip
def test_other_settings_are_refused_with_both_values_and_the_file_stays(more, others, reason, capsys):
    with StubServer() as server:
        assert main(words(server, questions(2))) == 0
        before = Path("c.jsonl").read_bytes()
        assert main(words(server, questions(2), *more, **others)) == 2
        assert sum(server.attempts.values()) == 8
    assert reason in one_error(capsys)
    assert Path("c.jsonl").read_bytes() == before


@pytest.mark.parametrize("line", ["nonsense", '{"question_id": "q0"}', None])  # the last: one that is there already
def test_a_file_that_was_changed_is_refused_with_its_line(line, capsys):
    with StubServer() as server:
        assert main(words(server, questions(2))) == 0
        text = line or next(json.dumps(each) for each in stored() if (each["question_id"], each["sample"]) == ("q0", 0))
        with open("c.jsonl", "a") as file:
            file.write(text + "\n")
        assert main(words(server, questions(2))) == 2
    assert "c.jsonl:9" in capsys.readouterr().err


def test_a_changed_question_and_a_strange_file_are_refused(capsys, tmp_path):
    with StubServer() as server:
        assert main(words(server, questions(2))) == 0
        changed = [{"id": "q0", "question": "What else?"}, {"id": "q1", "question": "What is 1?"}]
        write_lines(tmp_path / "q.jsonl", changed)
        assert main(words(server, "q.jsonl")) == 2
        assert "'q0'" in capsys.readouterr().err
        (tmp_path / "c.settings.json").unlink()
        assert main(words(server, "q.jsonl")) == 2
        assert "c.jsonl" in capsys.readouterr().err
        (tmp_path / "c.jsonl").unlink()
        (tmp_path / "c.settings.json").write_text("mine")
        assert main(words(server, "q.jsonl")) == 2
        assert "c.settings.json" in capsys.readouterr().err
    assert (tmp_path / "c.settings.json").read_text() == "mine"


def test_two_processes_do_not_write_to_one_file(tmp_path, capsys):
    path = questions(2)
    with StubServer(lambda key, attempt: "hang" if attempt == 0 and "What is 1?" in key[0] else "answer") as server:
        command = Command(*words(server, path), cwd=tmp_path, prepare=untraced)
        command.wait_for(lambda: count_lines() == 4)
        assert main(words(server, path)) == 2
        assert "another process" in capsys.readouterr().err
        command.signal(signal.SIGKILL)
        command.finish()
        assert main(words(server, path)) == 0
    assert_whole(2, 4)


# Settings


SERVER = ("--endpoint", "http://x/v1", "--model", "m", "--questions", "q.jsonl")


@pytest.mark.parametrize(("given", "reason"), [
    (SERVER[:4], "--questions"),
    ((*SERVER, "q.txt"), "q.txt"),
    ((*SERVER, "--max-token", "5"), "--max-token"),
    ((*SERVER, "--num-generations", "5"), "--num-generations"),
    ((*SERVER, "--device", "cpu"), "--device"),
    ((*SERVER, "--steps", "5"), "--steps"),
    ((*SERVER, "--sampling.stop", "x"), "sampling.stop"),
    ((*SERVER, "--prompt.max-tokens", "5"), "prompt.max_tokens"),
    ((*SERVER, "-n", "0"), "completions"),
    ((*SERVER, "--temperature", "-1"), "temperature"),
    (("--endpoint", "localhost:8000", *SERVER[2:]), "endpoint"),
    (("--endpoint", "http://me:secret@x/v1", *SERVER[2:]), "endpoint"),
    (("--endpoint", "http://x/v1?key=secret", *SERVER[2:]), "SCRL_API_KEY"),
    ((*SERVER[:5], "none.jsonl"), "none.jsonl"),
    ((*SERVER, "--out", "c.csv"), "--out"),
    ((*SERVER, "--out", "none/c.jsonl"), "--out"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_line_and_nothing_is_written(given, reason, capsys, tmp_path):
    questions(1)
    assert main(["rollouts", *given, *(() if "--out" in given else ("--out", "c.jsonl"))]) == 2
    error = one_error(capsys)
    assert reason in error
    assert "secret" not in error
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]
