"""The command ``privplan app``."""

from __future__ import annotations

import tempfile
import time
from importlib.util import find_spec

import click

from privplan.cli import in_section


@in_section("plan")
@click.command("app", epilog="Example: privplan app spec.yaml")
@click.argument("spec", metavar="[SPEC]", required=False)
@click.option(
    "--forecast", "proxy", metavar="PROXY", help="Forecast by that table of proxy runs."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="0: any that is free."
)
@click.option("--no-browser", "silent", is_flag=True, help="Only print the address.")
def command(spec: str | None, proxy: str | None, port: int, silent: bool) -> None:
    """Open a page with a slider and a field for each number of SPEC, and their plan.

    SPEC may also be a plan or a run folder. The page is served on this machine alone;
    Ctrl-C ends it.
    """
    # Only the process that serves the page imports it.
    if find_spec("marimo") is None:
        raise ModuleNotFoundError(name="marimo")

    from privplan.cli import render
    from privplan.contrib.app import HOST, Desk, answers, free_port, serve

    Desk.of(spec, proxy)  # its faults before anything is served
    port = free_port(port)
    with tempfile.TemporaryDirectory(prefix="privplan-app-") as folder:
        server = serve(folder, spec, proxy, port)
        try:
            while server.poll() is None and not answers(port):
                time.sleep(0.1)
            render.text(f"the page is at http://{HOST}:{port}; Ctrl-C ends it")
            if not silent:
                click.launch(f"http://{HOST}:{port}")
            server.wait()
        except KeyboardInterrupt:
            return
        finally:
            server.terminate()
            server.wait()
