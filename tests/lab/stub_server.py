"""A server that speaks OpenAI's protocol, badly if it is told to."""

import asyncio
import json
import re
import threading
import zlib
from collections import Counter

FAULTS = ("busy", "error", "drop", "cut", "open cut", "no completion", "twice", "hang")


def some_faults(key, attempt):
    """About every third request goes wrong, and none more than twice in a row; the same every time."""
    draw = zlib.crc32(f"{key}{attempt}".encode())
    if attempt >= 2 or draw % 3:
        return "answer"
    kind = FAULTS[draw // 3 % len(FAULTS)]
    return "answer" if kind == "hang" and draw // 24 % 4 else kind  # each costs a timeout


class StubServer:
    """`fault`, or `fault(key, attempt)`, says what happens to a request; a key is (question, seed)."""

    def __init__(self, fault="answer", *, has_logprobs=True):
        self.fault, self.has_logprobs = fault, has_logprobs
        self.attempts, self.answered, self.kinds = Counter(), Counter(), Counter()
        self.bodies, self.headers = [], []
        self._loop = asyncio.new_event_loop()

    def __enter__(self):
        started = threading.Event()

        def serve():
            asyncio.set_event_loop(self._loop)
            self._server = self._loop.run_until_complete(asyncio.start_server(self._connection, "127.0.0.1", 0))
            started.set()
            self._loop.run_forever()

        self._thread = threading.Thread(target=serve, daemon=True)
        self._thread.start()
        started.wait()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *_):
        async def stop():
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connection(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])
                body = json.loads(await reader.readexactly(length))
                if not await self._answer(head, body, writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the server is to
        finally:
            writer.close()

    async def _answer(self, head, body, writer):
        """Whether the connection stays."""
        self.bodies.append(body)
        self.headers.append(head)
        text = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        key = (text, body.get("seed"))
        attempt = self.attempts[key]
        self.attempts[key] += 1
        kind = self.fault(key, attempt) if callable(self.fault) else self.fault
        self.kinds[kind] += 1
        whole = response(200, json.dumps(self.completion(body, text)))
        if kind == "hang":
            await asyncio.sleep(3600)
        texts = {
            "answer": whole,
            "twice": whole * 2,
            "busy": response(429, '{"error": {"message": "slow down"}}', "Retry-After: 0\r\n"),
            "error": response(500, "<html>"),
            "no completion": response(200, '{"error": "upstream"}'),
            "drop": b"",
            "cut": whole[:-40],
            # without a length, the end of the connection is the end of the body
            "open cut": re.sub(rb"Content-Length: \d+\r\n", b"", whole)[:-40],
        }
        self.answered[key] += kind in ("answer", "twice")
        writer.write(kind if isinstance(kind, bytes) else texts[kind])
        await writer.drain()
        return kind not in ("drop", "cut", "open cut")

    def completion(self, body, text):
        content = answer_to(text, body.get("seed"))
        # Two tokens: probabilities 1/2, 1/4 and a rest of 1/4; then 1, all of it.
        tops = [[-0.6931471805599453, -1.3862943611198906], [0.0, -9999.0]]
        if "messages" in body:
            said = {"message": {"role": "assistant", "content": content}}
            likeliest = [[{"token": "x", "logprob": p} for p in top] for top in tops]
            tokens = [{"token": "x", "logprob": top[0]["logprob"], "top_logprobs": top} for top in likeliest]
            logprobs = {"content": tokens}
        else:
            said = {"text": content}
            likeliest = [{str(n): p for n, p in enumerate(top)} for top in tops]
            logprobs = {"token_logprobs": [top[0] for top in tops], "top_logprobs": likeliest}
        has_logprobs = self.has_logprobs and body.get("logprobs")
        choice = {"index": 0, "finish_reason": "stop", "logprobs": logprobs if has_logprobs else None, **said}
        return {"id": "c", "object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": 2}}


def answer_to(text, seed):
    """What the server says to one request and no other."""
    return f"{text} … \\boxed{{{seed}}}"


def response(status, body, headers=""):
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body.encode())}\r\n{headers}\r\n{body}".encode()
