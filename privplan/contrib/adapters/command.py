"""``privplan export``: a plan as a runnable project of another framework."""

from __future__ import annotations

from pathlib import Path

import click

from privplan.cli import in_section
from privplan.cli.folders import FolderPath

_MODEL_FORMATS = (
    "coreml gguf ggml h5 hf huggingface keras mlflow onnx pickle pkl pt pth pytorch "
    "safetensors savedmodel tensorrt tflite torch torchscript"
)
"""Formats of models, which a plan has none of."""


@in_section("tools")
@click.command(
    "export",
    help="Write a project that executes PLAN with its guard; replace its model and its "
    "data.\n\nWhat a framework cannot express is refused, with the reason.",
    short_help="Write a runnable project of another framework under a plan.",
    epilog="Example: privplan export plan.json --to flower -o project",
)
@click.argument("plan", metavar="PLAN")
@click.option(
    "--to",
    "target",
    required=True,
    metavar="FRAMEWORK",
    help="flower, nvflare, opacus or pfl; json for an implementation of your own.",
)
@click.option(
    "-o",
    "--output",
    type=FolderPath(),
    help="A new folder; FRAMEWORK-project.",
)
def command(plan: str, target: str, output: Path | None) -> None:
    """Write a project that executes a plan with its guard."""
    from privplan.cli import render
    from privplan.contrib.adapters.export import export
    from privplan.errors import InputError
    from privplan.plan import Plan

    if target.casefold() in _MODEL_FORMATS.split():
        rule = (
            "must be a framework that executes a plan; privplan publish RUN -o BUNDLE "
            "writes a run's model, and in Python run.model() is a module for "
            "torch.onnx.export and torch.save"
        )
        raise InputError.one("to", rule, target)
    for path in export(Plan.load(plan), target, output or Path(f"{target}-project")):
        render.text(f"wrote {path}")
