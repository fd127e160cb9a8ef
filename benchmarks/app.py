"""How fast the page of ``privplan app`` answers in a headless Chromium, and whether it errs.

Random sliders are moved by a step; a time is from the key to the new plan on the page. Beside it,
CPU of the server for a move with all that follows the plan: what one more epsilon buys, the YAML.
The plan that the page shows at last is compared with that of ``solve``.

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
from contextlib import ExitStack
from dataclasses import dataclass
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
        found = (re.search(r"listening on ws://([^/]+)", one) for one in opened.stderr)
        host = next(one[1] for one in found if one)
        with urlopen(f"http://{host}/json") as pages:
            page = next(one for one in json.load(pages) if one["type"] == "page")
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

    def call(self, method: str, **given: Any) -> Any:
        """The answer to a command of the protocol; events before it are looked through."""
        self._calls += 1
        self._socket.send(
            json.dumps({"id": self._calls, "method": method, "params": given})
        )
        while (said := json.loads(self._socket.recv(60))).get("id") != self._calls:
            event, found = said["method"], said["params"]
            if event == "Network.requestWillBeSent":
                self.requests.append(found["request"]["url"])
            one = found.get("entry", found)
            if event == "Runtime.exceptionThrown" or "error" in (
                one.get("level"),
                one.get("type"),
            ):
                self.errors.append(found)
        return said["result"]

    def visit(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=address)
        while not self.run(
            f"location.href === {json.dumps(address)} && document.readyState === 'complete'"
        ):
            time.sleep(0.05)

    def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")


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
    """What was seen while sliders moved."""

    times: list[float]  # milliseconds of each move; None where the page did not answer
    cpu: float  # seconds of the server for a move
    errors: list[Any]  # of the console
    hosts: set[str]  # that the page asked
    spec: str  # that the page shows at last
    cells: list[str]  # of the plan's table then


def move(spec: Path, folder: Path, moves: int) -> Moved:
    """Serve a spec's page, move random sliders, and read what it shows."""
    import psutil

    port, draw, times = app.free_port(0), random.Random(1), []
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
                key = draw.choice(["ArrowLeft", "ArrowRight"])
                at = str(draw.randrange(sliders))
                times.append(
                    browser.run(MOVE.replace("AT", at).replace("KEY", f'"{key}"'))
                )
            after = psutil.Process(server.pid).cpu_times()
            cells = '[...document.querySelectorAll("#plan td")].map((one) => one.textContent)'
            return Moved(
                times=times,
                cpu=(after.user + after.system - before.user - before.system) / moves,
                errors=browser.errors,
                hosts={re.match(r"\w+:(//[^/]+)?", one)[0] for one in browser.requests},  # type: ignore[index]
                spec=browser.run('document.querySelector("#spec").textContent'),
                cells=browser.run(cells),
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
        found = move(spec, Path(folder), moves)
    plan = solve(yaml.safe_load(found.spec))
    wanted = [cell for row in answer(plan)[1][2] for cell in row]
    print(
        f"median of {moves} moves {statistics.median(found.times):.0f} ms, of the first 50 "
        f"{statistics.median(found.times[:50]):.0f} ms; {found.cpu:.2f} s of CPU a move; "
        f"{len(found.errors)} errors in the console; asked: {', '.join(found.hosts)}; "
        f"the last plan's {len(wanted)} cells "
        f"{'are' if found.cells == wanted else 'are NOT'} those of solve; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


if __name__ == "__main__":
    main()
