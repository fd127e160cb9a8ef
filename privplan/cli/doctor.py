"""``privplan doctor``: versions, extras, devices, and what is missing."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement

PLACES = {"PRIVPLAN_DATA": "folder with data sets", "PRIVPLAN_BOOK": "budget book"}
"""Environment variables of the project."""


@click.command(name="doctor", epilog="Example: privplan doctor --format json")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def doctor_command(ctx: click.Context, form: str) -> None:
    """Show versions, extras, devices, and what is missing.

    Exit code 0: every required package is there, with what it needs itself (extras may be missing).
    2: one is not.
    """
    from privplan.cli import render

    found, seen, places = (
        packages(),
        devices(),
        {name: os.environ.get(name) for name in PLACES},
    )
    missing: dict[str, list[str]] = {}
    for one in found:
        if one["problem"]:
            missing.setdefault(one["extra"] or "required", []).append(one["package"])
    if form == "json":
        report = {
            "packages": found,
            "devices": seen,
            "environment": places,
            "missing": missing,
        }
        render.data({"versions": versions(), **report})
    else:
        for name, value in versions().items():
            render.text(f"{name}: {value}")
        rows = [
            [one["package"], one["found"] or "-", one["needed"] or "any",
             one["extra"] or "every installation", one["problem"] or "ok"]
            for one in found
        ]  # fmt: skip
        columns = ["package", "found", "needed", "needed by", "result"]
        render.table("packages", columns, rows, words=True)
        cuda = ", ".join(seen.get("cuda", ())) or "none"
        torch = seen["torch"] or f"not usable ({seen['reason']})"
        render.text(
            f"devices: {seen['cpu_cores']} processor cores, CUDA devices: {cuda}"
        )
        render.text(f"torch: {torch}")
        for name, meaning in PLACES.items():
            render.text(f"{name} ({meaning}): {places[name] or 'not set'}")
        for extra, names in missing.items():
            what = "-U privplan" if extra == "required" else f"'privplan[{extra}]'"
            which = extra if extra == "required" else f"extra {extra}"
            render.text(
                f"missing or broken, {which}: {', '.join(names)}; pip install {what}"
            )
        if not missing:
            render.text("nothing is missing")
    ctx.exit(2 if "required" in missing else 0)


# --- What is installed: versions of required packages and extras, and devices for training. ------

_DEVELOPMENT = ("dev", "fuzz", "notebooks")  # extras that no command needs


def packages() -> list[dict[str, Any]]:
    """Packages of privplan and its extras by metadata, with what they lack themselves."""
    listed = []
    for line in requires("privplan") or ():
        needed, extra = (
            Requirement(line),
            re.search(r"extra\s*==\s*['\"]([\w-]+)", line),
        )
        group = extra[1] if extra else None
        if group not in _DEVELOPMENT:
            wrong = problem(needed) or "; ".join(_unmet(needed.name, {needed.name}))
            row = {
                "package": needed.name,
                "extra": group,
                "needed": str(needed.specifier) or None,
            }
            listed.append(
                {**row, "found": _version(needed.name), "problem": wrong or None}
            )
    return listed


def problem(needed: Requirement) -> str | None:
    """What is wrong with the version that is installed."""
    found = _version(needed.name)
    if found is None:
        return "missing"
    return (
        None
        if needed.specifier.contains(found, prereleases=True)
        else f"not {needed.specifier}"
    )


def _unmet(name: str, seen: set[str]) -> Iterator[str]:
    """Requirements of an installed package, and of what it requires, that are not met."""
    for line in requires(name) or ():
        needed = Requirement(line)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        if problem(needed) is not None:
            yield f"{name} needs {needed.name}{needed.specifier}, found {_version(needed.name)}"
        elif needed.name not in seen:
            seen.add(needed.name)
            yield from _unmet(needed.name, seen)


def versions() -> dict[str, str]:
    """Versions of privplan, Python and the platform."""
    return {
        "privplan": _version("privplan") or "not installed",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def installed(*names: str) -> dict[str, str]:
    """Versions of those of the distributions that are installed."""
    return {name: found for name in names if (found := _version(name)) is not None}


def machine_kind() -> str:
    """Processor and number of cores of this machine."""
    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.is_file():
        named = re.search(
            r"(?m)^model name\s*: (.+)$", info.read_text(encoding="utf-8")
        )
        model = named[1] if named else model
    return f"{model}, {os.cpu_count()} cores"


def devices() -> dict[str, Any]:
    """Processor cores for this process, and what PyTorch finds; without PyTorch the cores only."""
    own = getattr(os, "sched_getaffinity", None)  # not on every platform
    cores = len(own(0)) if own is not None else os.cpu_count() or 1
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as error:
        line = (str(error).splitlines() or ["no reason given"])[0]
        return {"cpu_cores": cores, "torch": None, "reason": line}
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "cpu_cores": cores,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": [torch.cuda.get_device_name(one) for one in range(count)],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
