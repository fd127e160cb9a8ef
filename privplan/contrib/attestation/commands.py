"""``privplan attest``: keys, and heads in external logs.

Also options of ``simulate`` and ``verify``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from privplan.cli import TRUSTED, WITNESSING, SuggestingGroup, in_section, render

_FILE = click.Path(path_type=Path)
_PARTY = (
    click.option(
        "--name", default="server", show_default=True, help="Name of the party."
    ),
    click.option(
        "--role",
        type=click.Choice(["server", "client"]),
        default="server",
        show_default=True,
    ),
)


@in_section("verify")
@click.group(
    name="attest",
    cls=SuggestingGroup,
    help="Keys of signed runs, and heads of signed runs in external logs.",
)
def command() -> None:
    """What a deployment needs beside ``simulate --signing-key`` and ``verify``."""


@command.group(
    name="keys",
    cls=SuggestingGroup,
    help="Keys of the parties that sign statements about a run.",
)
def keys() -> None:
    """Ed25519 keys; public ones belong in ``signers`` of a spec."""


def _party(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_PARTY):
        command = option(command)
    return command


@keys.command(
    "new",
    help="Write a new secret key to FILE (mode 600), and print its entry for signers in "
    "a spec.",
    epilog="Example: privplan attest keys new server.key --name server",
)
@click.argument("file", type=_FILE)
@_party
def new(file: Path, name: str, role: str) -> None:
    """Write a new secret key, and print its entry in a spec."""
    from privplan.contrib.attestation.keys import new_key
    from privplan.spec.groups import Signer
    from privplan.values import parse

    parse(Signer, {"name": name, "role": role, "key": "0" * 64})
    _show(new_key(file).public, name, role)


@keys.command(
    "show", epilog="Example: privplan attest keys show server.key --name server"
)
@click.argument("file", type=_FILE)
@_party
def show(file: Path, name: str, role: str) -> None:
    """Print the entry for signers in a spec of the secret key in FILE."""
    from privplan.contrib.attestation.keys import SigningKey

    _show(SigningKey.load(file).public, name, role)


def _show(public: str, name: str, role: str) -> None:
    render.text("signers:")
    render.text(
        f"  - {{name: {json.dumps(name)}, role: {role}, key: {json.dumps(public)}}}"
    )


@command.command(
    "anchor",
    help="Put the head of RUN's signed statements into a log; the receipt goes to "
    "anchors.jsonl.\n\nThe log should be out of reach of whoever can change the run "
    "folder.",
    epilog="Example: privplan attest anchor run --log heads.log",
)
@click.argument("run", type=_FILE)
@click.option("--log", type=_FILE, metavar="FILE", help="A local log file.")
@click.option("--tsa", metavar="ADDRESS", help="A time-stamping authority (RFC 3161).")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
def anchor(run: Path, log: Path | None, tsa: str | None, form: str) -> None:
    """Put the head of a run's signed statements into a log."""
    from privplan.contrib.attestation.anchors import LocalLog, TimeStamps, post_to
    from privplan.contrib.attestation.anchors import anchor as anchored
    from privplan.errors import InputError
    from privplan.plan import Plan
    from privplan.record import PLAN, run_folder

    if (log is None) == (tsa is None):
        named_logs = "nothing" if log is None else "both"
        rule = "exactly one of --log and --tsa must be given"
        raise InputError.one("log", rule, named_logs)
    run_folder(run)
    plan = Plan.load(run / PLAN)
    chosen = TimeStamps(post_to(tsa)) if tsa is not None else LocalLog(log or Path())
    new_anchor = anchored(run, plan, chosen)
    count = new_anchor.statements
    head = new_anchor.head
    if form == "json":
        render.data({"run": str(run), "statements": count, "head": head})
    else:
        render.text(f"anchored {count} statements of {run}: head {head}")


def _signing(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        from privplan.contrib.attestation.attestor import Signing

        context.meta[WITNESSING] = Signing(value)


def _trusted_log(
    context: click.Context, parameter: click.Parameter, value: Any
) -> None:
    if value is not None:
        from privplan.contrib.attestation.anchors import LocalLog

        log = LocalLog(value)
        # Also where no anchor asks for it.
        log.check()
        context.meta.setdefault(TRUSTED, []).append(log)


def _trusted_authority(
    context: click.Context, parameter: click.Parameter, value: Any
) -> None:
    if value is not None:
        from privplan.contrib.attestation.anchors import TimeStamps

        context.meta.setdefault(TRUSTED, []).append(TimeStamps(certificates=value))


def _option(name: str, callback: Callable[..., None], line: str) -> click.Option:
    return click.Option(
        [name],
        type=_FILE,
        metavar="FILE",
        expose_value=False,
        callback=callback,
        help=line,
    )


OF_SIMULATE = [
    _option(
        "--signing-key",
        _signing,
        "Secret key (attest keys new) of a server in the signers.",
    ),
]
OF_VERIFY = [
    _option(
        "--anchor-log",
        _trusted_log,
        "Log that holds anchored heads of signed statements.",
    ),
    _option(
        "--tsa-certificate",
        _trusted_authority,
        "Root certificate (PEM) of the authority that time-stamped heads.",
    ),
]
