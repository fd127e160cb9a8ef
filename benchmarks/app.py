"""How fast the page of ``privplan app`` answers in a headless Chromium; its errors.

Random sliders are moved by a step; a time is from the key to the new plan on the page.
Beside it, CPU of the server for a move with all that follows the plan: what one more
epsilon buys, the YAML. The plan that the page shows at last is compared with that of
``solve``.

    python benchmarks/app.py [--moves 200]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from privplan import solve
from privplan.contrib import app
from privplan.report.tables import answer
from privplan.spec.presets import preset


class Browser:
    """One page; ``errors`` of its console and ``requests`` are those seen so far."""

    def __init__(self, folder: Path, width: int = 1200) -> None:
        from websockets.sync.client import connect

        program = shutil.which("chromium")
        assert program is not None, "needs Chromium"
        words = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "about:blank",
        ]
        words += [f"--user-data-dir={folder}", "--remote-debugging-port=0"]
        self._open = ExitStack()
        opened = subprocess.Popen([program, *words], stderr=subprocess.PIPE, text=True)
        self._open.enter_context(opened)
        self._open.callback(opened.terminate)
        assert opened.stderr is not None
        host = _address(opened.stderr)
        with urlopen(f"http://{host}/json") as response:
            targets = json.load(response)
        page = next(target for target in targets if target["type"] == "page")
        self._socket = self._open.enter_context(
            connect(page["webSocketDebuggerUrl"], max_size=None)
        )
        self.errors: list[Any] = []
        self.requests: list[str] = []
        self._calls = 0
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def call(self, method: str, **parameters: Any) -> Any:
        """The answer to a command of the protocol; events before it are noticed."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters}
        self._socket.send(json.dumps(call))
        while True:
            message = json.loads(self._socket.recv(60))
            if message.get("id") == self._calls:
                return message["result"]
            self._notice(message["method"], message["params"])

    def _notice(self, event: str, details: dict[str, Any]) -> None:
        """Keep what an event says of requests and errors."""
        if event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        entry = details.get("entry", details)
        is_error = "error" in (entry.get("level"), entry.get("type"))
        if event == "Runtime.exceptionThrown" or is_error:
            self.errors.append(details)

    def visit(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        is_there = f"location.href === {json.dumps(address)}"
        while not self.run(f"{is_there} && document.readyState === 'complete'"):
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")


def _address(lines: Iterable[str]) -> str:
    """Where Chromium listens, from what it prints."""
    for line in lines:
        match = re.search(r"listening on ws://([^/]+)", line)
        if match is not None:
            return match[1]
    raise RuntimeError("Chromium does not say where it listens")


THUMBS = """[...document.querySelectorAll("marimo-slider")]
  .map((one) => one.shadowRoot.querySelector("[role=slider]"))
  .filter((one) => one && one.getBoundingClientRect().width > 0)"""
MOVE = """new Promise((done) => {
  const words = (id) => document.querySelector(id)?.textContent ?? "";
  const seen = () => words("#state") + words("#law-plan"), before = seen();
  const whole = words("#spec"), thumb = THUMBS[AT], start = performance.now();
  const each = new KeyboardEvent("keydown", {key: KEY, bubbles: true, composed: true});
  let first = null;
  thumb.focus();
  thumb.dispatchEvent(each);
  const look = () => {
    if (first === null && seen() !== before) first = performance.now() - start;
    if (first !== null && words("#spec") !== whole) return done(first);
    setTimeout(look, performance.now() - start > 2e4 ? done(null) : 5);
  };
  look();
})""".replace("THUMBS", THUMBS)


@dataclass(frozen=True)
class Moved:
    """What was seen while sliders moved.

    Attributes:
        times: milliseconds of each move; None where the page did not answer.
        cpu: seconds of the server for a move.
        errors: of the console.
        hosts: that the page asked.
        spec: that the page shows at last.
        cells: of the plan's table then.
    """

    times: list[float]
    cpu: float
    errors: list[Any]
    hosts: set[str]
    spec: str
    cells: list[str]


def _host(address: str) -> str:
    """The scheme and host of an address."""
    match = re.match(r"\w+:(//[^/]+)?", address)
    assert match is not None
    return match[0]


CELLS = """[...document.querySelectorAll("#plan td")].map((cell) => cell.textContent)"""


def move(spec: Path, folder: Path, moves: int) -> Moved:
    """Serve a spec's page, move random sliders, and read what it shows."""
    import psutil

    port = app.free_port(0)
    generator = random.Random(1)
    times: list[float] = []
    server = app.serve(str(folder), str(spec), None, port)
    try:
        while not app.answers(port):
            time.sleep(0.1)
        with Browser(folder / "profile") as browser:
            browser.visit(f"http://{app.HOST}:{port}/")
            while not browser.run('!!document.querySelector("#spec")'):
                time.sleep(0.2)
            sliders = browser.run(f"({THUMBS}).length")
            before = psutil.Process(server.pid).cpu_times()
            for _ in range(moves):
                key = generator.choice(["ArrowLeft", "ArrowRight"])
                slider = str(generator.randrange(sliders))
                script = MOVE.replace("AT", slider).replace("KEY", f'"{key}"')
                times.append(browser.run(script))
            after = psutil.Process(server.pid).cpu_times()
            return Moved(
                times=times,
                cpu=(after.user + after.system - before.user - before.system) / moves,
                errors=browser.errors,
                hosts={_host(address) for address in browser.requests},
                spec=browser.run('document.querySelector("#spec").textContent'),
                cells=browser.run(CELLS),
            )
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Move the sliders of the ready spec, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moves", type=int, default=200)
    moves = parser.parse_args().moves
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.yaml"
        spec.write_text(preset(app.READY), encoding="utf-8")
        moved = move(spec, Path(folder), moves)
    plan = solve(yaml.safe_load(moved.spec))
    cells = [*chain.from_iterable(answer(plan)[1][2])]
    print(
        f"median of {moves} moves {statistics.median(moved.times):.0f} ms, of the first "
        f"50 {statistics.median(moved.times[:50]):.0f} ms; {moved.cpu:.2f} s of CPU a "
        f"move; {len(moved.errors)} errors in the console; asked: "
        f"{', '.join(moved.hosts)}; the last plan's {len(cells)} cells "
        f"{'are' if moved.cells == cells else 'are NOT'} those of solve; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
