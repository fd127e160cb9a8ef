"""``privplan keys``: keys of the parties that sign statements about a run."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.cli import render


@click.group(name="keys", help="Keys of the parties that sign statements about a run.")
def command() -> None:
    """Ed25519 keys; public ones belong in ``signers`` of a spec."""


@command.command("new")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="server", show_default=True, help="Name of the party.")
@click.option(
    "--role", type=click.Choice(["server", "client"]), default="server", show_default=True
)
def new(file: Path, name: str, role: str) -> None:
    """Write a new secret key to FILE (mode 600), and print its entry for signers in a spec."""
    from privplan.attestation.keys import new_key
    from privplan.spec.groups import Signer
    from privplan.values import parse

    parse(Signer, {"name": name, "role": role, "key": "0" * 64})
    _show(new_key(file).public, name, role)


@command.command("show")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--name", default="server", show_default=True, help="Name of the party.")
@click.option(
    "--role", type=click.Choice(["server", "client"]), default="server", show_default=True
)
def show(file: Path, name: str, role: str) -> None:
    """Print the entry for signers in a spec of the secret key in FILE."""
    from privplan.attestation.keys import SigningKey

    _show(SigningKey.load(file).public, name, role)


def _show(public: str, name: str, role: str) -> None:
    import json

    render.text("signers:")
    render.text(f"  - {{name: {json.dumps(name)}, role: {role}, key: {json.dumps(public)}}}")
