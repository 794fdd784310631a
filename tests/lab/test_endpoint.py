"""What is asked of a server, how long is waited for it, and what is taken from its answer."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_server import StubServer, response

from scrl.data.prompts import BOXED, NUMBER
from scrl.errors import EndpointError
from scrl.lab.endpoint import Endpoint, backoff, request_body, retry_after, rollout_line
from scrl.lab.endpoint_settings import build_settings
from scrl.records import Question


def test_what_a_server_is_asked_for():
    settings = {"endpoint": "http://x/v1/", "model": "m", "questions": "q.txt", "max_tokens": 7, "temperature": 0.5}
    question = Question("a", "What is 2?")
    bodies = [request_body(build_settings(settings), question, number) for number in (0, 1, 0)]
    assert bodies[0] == bodies[2] == bodies[1] | {"seed": bodies[0]["seed"]}
    assert bodies[0]["seed"] != bodies[1]["seed"]
    assert {name: value for name, value in bodies[0].items() if name != "seed"} == {
        "model": "m", "max_tokens": 7, "temperature": 0.5, "top_p": 1.0, "logprobs": True, "top_logprobs": 20,
        "messages": [{"role": "user", "content": f"What is 2? {BOXED}"}],
    }  # fmt: skip

    def body(asked=question, **more):
        return request_body(build_settings(settings | more), asked, 0)

    assert not {"seed", "logprobs", "top_logprobs"} & body(seed=None, logprobs=0).keys()
    assert body(reader="last-number")["messages"][0]["content"].endswith(NUMBER)
    assert body(questions="arithmetic:easy")["messages"][0]["content"] == "What is 2?"
    assert body(Question("a", "?", system="Be brief."))["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body(prompt_style="qwen3")["chat_template_kwargs"] == {"enable_thinking": False}
    plain = body(prompt_style="plain", instruction="", sampling={"top_k": 5, "max_tokens": 7})
    assert (plain["prompt"], plain["logprobs"], plain["top_k"], "messages" in plain) == ("What is 2?\n", 20, 5, False)


@given(st.integers(0, 10**6))
def test_waits_double_up_to_a_minute(attempt):
    longest = min(60, 0.5 * 2 ** min(attempt, 20))
    assert longest / 2 <= backoff(attempt) <= longest


def test_retry_after_is_a_number_or_a_date():
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after": "1" * 9}) == 3600
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 50 < retry_after({"retry-after": later}) <= 100
    for text in ("", "soon", "-5", "nan", "1e308", "Wed, 21 Oct 2015 07:28:00 GMT", "1" * 400):
        assert retry_after({"retry-after": text}) in (0, 3600)
    assert retry_after({}) == 0


@pytest.fixture
def complete(monkeypatch):
    """`complete(server)`: one completion, the waits before retries and their reasons; each wait answers `others`."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SCRL_API_KEY", raising=False)

    def run(server, others=0, **more):
        waits, reasons = [], []
        listener = SimpleNamespace(note=reasons.append, retried=reasons.append)
        settings = build_settings({"endpoint": server.url, "model": "m", "questions": "q", **more})

        async def ask():
            async def sleep(seconds):
                waits.append(seconds)
                endpoint.answered += others

            endpoint = Endpoint(settings, listener, 1 + others)
            try:
                with monkeypatch.context() as patch:
                    patch.setattr("scrl.lab.endpoint.asyncio.sleep", sleep)
                    return await endpoint.complete(Question("a", "?"), 0)
            finally:
                await endpoint.aclose()

        return asyncio.run(ask()), waits, reasons

    return run


def test_the_servers_own_wish_is_waited_for(complete):
    refusals = [
        response(429, "", "Retry-After: 30\r\n"),
        response(503, '{"detail": "loading"}', "Retry-After: 400\r\n"),
    ]
    with StubServer(lambda key, attempt: refusals[attempt] if attempt < 2 else "answer") as server:
        line, waits, reasons = complete(server)
    assert line["completion"].endswith("}")
    assert waits == [30, 400]
    assert reasons[:2] == ["HTTP 429: X", "HTTP 503: loading"]
    assert "400 s" in reasons[2]  # a long one is said at once


def test_a_server_that_fails_on_is_given_up(complete):
    with StubServer("error") as server:
        with pytest.raises(EndpointError, match="/v1/chat/completions: HTTP 500"):
            complete(server, retries=3)
        assert sum(server.attempts.values()) == 4


def test_a_full_server_is_waited_for_as_long_as_it_answers_others(complete):
    with StubServer(lambda key, attempt: "busy" if attempt < 6 else "answer") as server:
        assert complete(server, others=1, retries=2)[0]["question_id"] == "a"
    with StubServer("busy") as server, pytest.raises(EndpointError, match="HTTP 429"):
        complete(server, retries=2)
    with StubServer("error") as server:
        assert complete(server, others=1, retries=2)[0] is None  # it fails at this one alone


@pytest.mark.parametrize("broken", [
    {}, [], {"choices": []}, {"choices": None}, {"choices": [{"text": "a"}, {"text": "b"}]},
    {"choices": [{"message": {"content": 5}}]},
    {"choices": [{"text": "a", "logprobs": {"token_logprobs": [float("nan")]}}]},
    {"choices": [{"text": "a", "logprobs": {"token_logprobs": ["x"]}}]},
    *({"choices": [{"text": "a", "logprobs": {"token_logprobs": [drawn], "top_logprobs": [{"a": -1.0, "b": top}]}}]}
      for drawn, top in ((-1e308, -2.0), (-1.0, float("nan")), (-1.0, 5.0), (float("-inf"), -1.0))),
    {"choices": [{"text": "a"}], "usage": {"completion_tokens": "many"}},
])  # fmt: skip
def test_a_response_that_is_no_completion_is_never_stored(broken):
    with pytest.raises(ValueError, match="not a completion"):
        rollout_line(Question("a", "?"), 0, broken)


def test_what_a_server_leaves_out_is_not_made_up():
    line = rollout_line(Question("a", "?"), 3, {"choices": [{"message": {"content": None}, "finish_reason": "length"}]})
    assert line == {
        "question_id": "a", "step": 0, "sample": 3, "completion": "", "entropy": None, "finished": False, "question": "?",
    }  # fmt: skip
