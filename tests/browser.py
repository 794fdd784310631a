"""Headless Chromium over its DevTools protocol through pipes: JSON messages, each ended by a zero byte."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip
needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the path"),
]


class Browser:
    """One page; `events` holds all that it said without being asked."""

    def __init__(self):
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self._write = os.pipe()
        self._read, ours = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(  # it reads from 3 and writes to 4
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{ours}', "bash", *command],
            pass_fds=(theirs, ours), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs), os.close(ours)
        self._numbers, self._rest, self._session, self.events = itertools.count(1), b"", {}, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def _message(self):
        while b"\0" not in self._rest:
            read = os.read(self._read, 1 << 20)
            if not read:
                raise RuntimeError("the browser has gone")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def ask(self, method, **params):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (message := self._message()).get("id") != number:
            self.events.append(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        return message["result"]

    def open(self, path):
        """Go to a file, and wait until it has loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def run(self, script):
        """The value of an expression, or of a promise of it."""
        found = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "error in the script"))
        return found["result"].get("value")

    def look(self, width, scheme="light", height=900):
        """Be this wide, in light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def named(self, *methods):
        return [event for event in self.events if event.get("method") in methods]

    def close(self):
        self._process.terminate()
        self._process.wait()
        os.close(self._write), os.close(self._read)
        self._profile.cleanup()
