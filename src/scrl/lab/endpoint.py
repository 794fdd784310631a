"""Completions from a server that speaks OpenAI's protocol: one request each, retried until it is answered.

Every request has its own connection: on one that is kept alive, a server that answers twice would answer the next
question with the completion of this one. The `openai` client would be one more dependency around the same code: it
neither limits the size of an answer nor knows that a busy server is answering our other requests.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Any

import httpx2

from scrl.data.completion_files import ANY, OPENAI
from scrl.data.prompts import STYLES, styled_messages
from scrl.data.rollouts import ESTIMATE, rollout_of
from scrl.errors import ConfigError, EndpointError
from scrl.files.jsonl import MAX_LINE
from scrl.lab.endpoint_settings import EndpointSettings
from scrl.listener import Listener
from scrl.records import Question
from scrl.seeds import generator_for

KEY_VARIABLE = "SCRL_API_KEY"
RETRIED = (408, 409, 425, 429)
"""Status codes of temporary refusals, as are all from 500 on."""
QUESTION_REFUSED = (400, 413, 422)
"""Status codes that may concern only one question, such as one that is too long; all others concern every request."""
STOP_AFTER = 3
"""Questions given up in a row, with no answer in between: then the server is at fault, not the questions."""
FIRST_WAIT, LONGEST_WAIT, LONGEST_RETRY_AFTER = 0.5, 60.0, 3600.0
"""Seconds: the first wait, the longest, and the longest that a server may ask for."""
MAX_BODY = 2**28
"""Bytes of an answer: 100,000 tokens, each with twenty log-probabilities."""


def request_body(settings: EndpointSettings, question: Question, number: int) -> dict[str, Any]:
    """What a server is sent to draw completion `number` of a question; in style `plain`, a prompt without a chat."""
    style = STYLES["chat" if settings.prompt.style == "auto" else settings.prompt.style]
    messages, sampling = styled_messages(question, style, settings.prompt), settings.sampling
    body: dict[str, Any] = {"model": settings.model, "max_tokens": sampling.max_tokens}
    body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.top_k:  # not OpenAI's, but known to most servers
        body["top_k"] = sampling.top_k
    if settings.seed is not None:
        body["seed"] = int(generator_for(settings.seed, "endpoint", question.id, number).integers(2**31))
    if style.thinking is not None:
        body["chat_template_kwargs"] = {"enable_thinking": style.thinking}
    if style.is_chat:
        body["messages"] = messages
        logprobs = {"logprobs": True, "top_logprobs": settings.logprobs}
    else:
        body["prompt"] = messages[0]["content"]
        logprobs = {"logprobs": settings.logprobs}
    return body | logprobs if settings.logprobs else body


def rollout_line(question: Question, number: int, response: Any) -> dict[str, Any]:
    """A response as a line of a rollout file; ValueError if it is not a completion."""
    try:
        [fields] = OPENAI.convert(response | {"custom_id": question.id}, ANY)
        line = {
            "question_id": question.id,
            "step": 0,
            "sample": number,
            "completion": fields["completion"],
            "entropy": fields.get("entropy"),
            ESTIMATE: fields.get(ESTIMATE),
            "num_tokens": (response.get("usage") or {}).get("completion_tokens"),
            "finished": fields.get("finished"),
            "question": question.text,
            "gold": question.gold,
        }
        rollout_of(line, 0)  # check that what is stored can be read
        if len(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace")) >= MAX_LINE:
            raise ValueError(f"it has more than {MAX_LINE:,} bytes")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"its answer is not a completion: {error!r}") from error
    return {name: value for name, value in line.items() if value is not None or name == "entropy"}


@dataclass(eq=False)
class _UnansweredError(Exception):
    reason: str
    status: int | None = None
    wait: float = 0.0
    is_final: bool = False
    """The same request will not be answered later either."""


class Endpoint:
    """A server, and how requests to it have gone."""

    def __init__(self, settings: EndpointSettings, listener: Listener, num_questions: int) -> None:
        """The key, if a server wants one, is read from the environment."""
        self._stop_after = min(STOP_AFTER, num_questions)
        self._settings, self._listener = settings, listener
        self._key = os.environ.get(KEY_VARIABLE, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise ConfigError(f"{KEY_VARIABLE}: the key in this variable has characters that no request can carry")
        is_chat = settings.prompt.style == "auto" or STYLES[settings.prompt.style].is_chat
        self._url = f"{settings.endpoint}/{'chat/completions' if is_chat else 'completions'}"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._client = httpx2.AsyncClient(
                headers=headers | {"Accept-Encoding": "identity"},  # a small body could unpack to any size
                timeout=None,  # asyncio's applies, to the whole request
                limits=httpx2.Limits(max_keepalive_connections=0),
            )
        except (ValueError, ImportError, httpx2.InvalidURL) as error:
            raise ConfigError(f"HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY: cannot be used: {error}") from error
        self._has_noted_no_logprobs = False
        self._given_up: set[str] = set()
        self.answered = 0
        self.failures: list[tuple[str, str]] = []
        """(question_id, reason) of completions that were given up."""

    async def aclose(self) -> None:
        await self._client.aclose()

    async def complete(self, question: Question, number: int) -> dict[str, Any] | None:
        """The line of one completion, however many requests it takes; None if it is given up.

        EndpointError if no other would be answered either.
        """
        tries, seen = 0, self.answered
        for attempt in count():
            try:
                line = await self._request(question, number)
            except _UnansweredError as fault:
                # A server that is too busy for this request while it answers others is not failing.
                tries += not (fault.status == 429 and self.answered > seen)
                seen = self.answered
                if fault.is_final or tries > self._settings.retries:
                    self._give_up(question, fault)
                    return None
                self._listener.retried(fault.reason)
                if fault.wait > LONGEST_WAIT:
                    self._listener.note(f"The server asks for a pause of {fault.wait:,.0f} s: {fault.reason}")
                await asyncio.sleep(max(fault.wait, backoff(attempt)))
                continue
            self.answered += 1
            self._given_up.clear()
            has_no_entropy = bool(line["completion"]) and line["entropy"] is None
            if self._settings.logprobs and has_no_entropy and not self._has_noted_no_logprobs:
                self._has_noted_no_logprobs = True
                self._listener.note("The server gives no log-probabilities: methods that need entropies are left out.")
            return line
        raise AssertionError("the loop has no end")

    def _give_up(self, question: Question, fault: _UnansweredError) -> None:
        """Leave this completion to a later call, or stop if no question is answered."""
        self._given_up.add(question.id)
        concerns_all = fault.is_final and fault.status not in QUESTION_REFUSED
        if concerns_all or len(self._given_up) >= self._stop_after:
            raise EndpointError(f"{self._url}: {fault.reason}{self._advice(fault.status)}")
        self.failures.append((question.id, fault.reason))

    async def _request(self, question: Question, number: int) -> dict[str, Any]:
        request = request_body(self._settings, question, number)
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._settings.timeout),
                self._client.stream("POST", self._url, json=request) as response,
            ):
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > MAX_BODY:
                        raise _UnansweredError(f"its answer has more than {MAX_BODY:,} bytes")
        except TimeoutError:
            raise _UnansweredError(f"no answer in {self._settings.timeout:g} s") from None
        except (httpx2.RequestError, httpx2.InvalidURL, UnicodeError) as error:
            is_unreachable = isinstance(error, httpx2.ConnectError) and not self.answered
            is_final = is_unreachable or not isinstance(error, httpx2.RequestError)
            reason = f"no answer: {str(error) or type(error).__name__}"
            raise _UnansweredError(self._clean(reason), is_final=is_final) from None
        status = response.status_code
        if status != 200:
            is_final = status not in RETRIED and status < 500
            reason = self._clean(f"HTTP {status}: {_refusal(bytes(body)) or response.reason_phrase}")
            raise _UnansweredError(reason, status, retry_after(response.headers), is_final)
        try:
            return rollout_line(question, number, json.loads(body))
        except (ValueError, RecursionError) as error:
            raise _UnansweredError(self._clean(str(error))) from None

    def _clean(self, text: str) -> str:
        """One short line without the key, which a server may repeat."""
        text = text.replace(self._key, "…") if self._key else text
        return " ".join(text.split())[:300]

    def _advice(self, status: int | None) -> str:
        key = f"Set the key in the environment variable {KEY_VARIABLE}."
        ways = {
            None: "Is the server running, and is --endpoint right?",
            401: key,
            403: key,
            404: f"Look at --endpoint (most end in /v1) and at --model ({self._settings.model!r}).",
        }
        if self._settings.logprobs:
            fewer = "If log-probabilities are the reason, ask for fewer with --logprobs 5, or none with --logprobs 0."
            ways |= dict.fromkeys(QUESTION_REFUSED, fewer)
        return f". {ways[status]}" if status in ways else ""


def _refusal(body: bytes) -> Any:
    """The server's reason, in UTF-8 whatever it says."""
    reason: Any = body.decode("utf-8", "replace")
    with suppress(ValueError, RecursionError):
        reason = json.loads(body)
    for name in ("error", "detail", "message"):
        reason = reason.get(name) or reason if isinstance(reason, dict) else reason
    return reason


def backoff(attempt: int) -> float:
    """Seconds to wait: twice as long after every attempt, and randomised, so that not all come back at once."""
    return min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1)  # noqa: S311 - no secret


def retry_after(headers: Mapping[str, str]) -> float:
    """The seconds of a Retry-After, which is a number or a date; 0 without one."""
    text = headers.get("retry-after", "")
    with suppress(ValueError, TypeError, OverflowError):
        seconds = float(text) if text.isdecimal() else (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        return min(max(0.0, seconds), LONGEST_RETRY_AFTER)
    return 0.0
