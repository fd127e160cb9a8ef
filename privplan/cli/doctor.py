"""``privplan doctor``: versions, extras, devices, and what is missing."""

from __future__ import annotations

import os

import click

PLACES = {"PRIVPLAN_DATA": "folder with data sets", "PRIVPLAN_BOOK": "budget book"}
"""Environment variables of the project."""


@click.command(name="doctor", short_help="Show versions, extras and devices, and what is missing.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def command(ctx: click.Context, form: str) -> None:
    """Show versions, extras, devices, and what is missing.

    Exit code 0: every required package is there (extras may be missing). 2: one is not.
    """
    from privplan.cli import render
    from privplan.io.environment import devices, packages, versions

    found, seen, places = packages(), devices(), {name: os.environ.get(name) for name in PLACES}
    extras = dict.fromkeys(one.extra for one in found if one.extra)
    lacking = {
        extra: [one.name for one in found if one.extra == extra and one.problem]
        for extra in ("", *extras)
    }
    if form == "json":
        listed = [
            {"package": one.name, "extra": one.extra or None, "needed": one.needed or None,
             "found": one.found, "problem": one.problem or None}
            for one in found
        ]  # fmt: skip
        missing = {extra or "required": names for extra, names in lacking.items() if names}
        report = {"packages": listed, "devices": seen, "environment": places, "missing": missing}
        render.data({"versions": versions(), **report})
    else:
        for name, value in versions().items():
            render.text(f"{name}: {value}")
        rows = [
            [one.name, one.found or "-", one.needed or "any", one.extra or "every installation",
             one.problem or "ok"]
            for one in found
        ]  # fmt: skip
        columns = ["package", "found", "at least", "needed by", "result"]
        render.table("packages", columns, rows, words=True)
        cuda = ", ".join(seen.get("cuda", ())) or "none"
        torch = seen["torch"] or f"not usable ({seen['reason']})"
        render.text(f"devices: {seen['cpu_cores']} processor cores, CUDA devices: {cuda}")
        render.text(f"torch: {torch}")
        for name, meaning in PLACES.items():
            render.text(f"{name} ({meaning}): {places[name] or 'not set'}")
        for extra, names in lacking.items():
            if names:
                remedy = next(one.remedy for one in found if one.extra == extra)
                what = f"extra {extra}" if extra else "required"
                render.text(f"missing, {what}: {', '.join(names)}; {remedy}")
        if not any(lacking.values()):
            render.text("nothing is missing")
    ctx.exit(2 if lacking[""] else 0)
