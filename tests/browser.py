"""A headless Chromium, driven by its DevTools protocol."""

import json
import re
import shutil
import subprocess
from contextlib import ExitStack
from urllib.request import urlopen

import pytest


class Browser:
    """One page; ``errors`` of its console and ``requests`` are those seen so far."""

    def __init__(self, folder, size="1200,1000"):
        connect = pytest.importorskip("websockets.sync.client").connect
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        if program is None:
            pytest.skip("no chromium")
        words = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "about:blank"]
        words += [f"--user-data-dir={folder}", f"--window-size={size}", "--remote-debugging-port=0"]
        self._open = ExitStack()
        opened = subprocess.Popen([program, *words], stderr=subprocess.PIPE, text=True)
        self._open.enter_context(opened)
        self._open.callback(opened.terminate)
        found = (re.search(r"listening on ws://([^/]+)", one) for one in opened.stderr)
        host = next(one[1] for one in found if one)
        with urlopen(f"http://{host}/json") as pages:
            page = next(one for one in json.load(pages) if one["type"] == "page")
        self._socket = self._open.enter_context(
            connect(page["webSocketDebuggerUrl"], max_size=None)
        )
        self.errors, self.requests, self._calls = [], [], 0
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._open.close()

    def call(self, method, **given):
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": given}))
        while (said := json.loads(self._socket.recv(60))).get("id") != self._calls:
            event, found = said["method"], said["params"]
            if event == "Network.requestWillBeSent":
                self.requests.append(found["request"]["url"])
            one = found.get("entry", found)
            if event == "Runtime.exceptionThrown" or "error" in (one.get("level"), one.get("type")):
                self.errors.append(found)
        return said["result"]

    def run(self, script):
        """The value of an expression, or of its promise."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")
