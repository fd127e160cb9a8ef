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

    Exit code 0: every required package is there, with what it needs itself (extras may
    be missing). 2: one is not.
    """
    from privplan.cli import render
    from privplan.distribution import own_version

    own_version()  # refused where nothing says what is needed
    installed_packages = packages()
    machine = devices()
    environment = {name: os.environ.get(name) for name in PLACES}
    missing: dict[str, list[str]] = {}
    for package in installed_packages:
        if package["problem"]:
            extra = package["extra"] or "required"
            missing.setdefault(extra, []).append(package["package"])

    if form == "json":
        render.data(
            {
                "versions": versions(),
                "packages": installed_packages,
                "devices": machine,
                "environment": environment,
                "missing": missing,
            }
        )
    else:
        for name, value in versions().items():
            render.text(f"{name}: {value}")
        _show_packages(installed_packages)
        _show_devices(machine)
        for name, meaning in PLACES.items():
            render.text(f"{name} ({meaning}): {environment[name] or 'not set'}")
        _show_missing(missing)
    ctx.exit(2 if "required" in missing else 0)


def _show_packages(rows: list[dict[str, Any]]) -> None:
    """Print the table of packages."""
    from privplan.cli import render

    cells = [
        [
            row["package"],
            row["found"] or "-",
            row["needed"] or "any",
            row["extra"] or "every installation",
            row["problem"] or "ok",
        ]
        for row in rows
    ]
    columns = ["package", "found", "needed", "needed by", "result"]
    render.table("packages", columns, cells, words=True)


def _show_devices(machine: dict[str, Any]) -> None:
    """Print what training can use."""
    from privplan.cli import render

    cuda = ", ".join(machine.get("cuda", ())) or "none"
    torch = machine["torch"] or f"not usable ({machine['reason']})"
    cores = f"{machine['cpu_cores']} processor cores"
    render.text(f"devices: {cores}, CUDA devices: {cuda}")
    render.text(f"torch: {torch}")


def _show_missing(missing: dict[str, list[str]]) -> None:
    """Print what to install, by extra."""
    from privplan.cli import render

    for extra, names in missing.items():
        what = f"'privplan[{extra}]'"
        which = f"extra {extra}"
        if extra == "required":
            what = "-U privplan"
            which = extra
        listed = ", ".join(names)
        render.text(f"missing or broken, {which}: {listed}; pip install {what}")
    if not missing:
        render.text("nothing is missing")


# Extras that no command needs.
_DEVELOPMENT = ("dev", "fuzz", "notebooks")


def packages() -> list[dict[str, Any]]:
    """Packages of privplan and its extras, with what they lack themselves."""
    rows = []
    for line in requires("privplan") or ():
        requirement = Requirement(line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", line)
        extra_name = extra[1] if extra else None
        if extra_name in _DEVELOPMENT:
            continue
        name = requirement.name
        fault = problem(requirement) or "; ".join(_unmet(name, {name}))
        row = {
            "package": name,
            "extra": extra_name,
            "needed": str(requirement.specifier) or None,
            "found": _version(name),
            "problem": fault or None,
        }
        rows.append(row)
    return rows


def problem(requirement: Requirement) -> str | None:
    """What is wrong with the version that is installed."""
    installed_version = _version(requirement.name)
    if installed_version is None:
        return "missing"
    if requirement.specifier.contains(installed_version, prereleases=True):
        return None
    return f"not {requirement.specifier}"


def _unmet(name: str, seen: set[str]) -> Iterator[str]:
    """Requirements of an installed package, and of those, that are not met.

    Args:
        name: of the package.
        seen: packages that were asked before; it grows.
    """
    for line in requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": ""}):
            continue
        if problem(requirement) is not None:
            what = f"{requirement.name}{requirement.specifier}"
            yield f"{name} needs {what}, found {_version(requirement.name)}"
        elif requirement.name not in seen:
            seen.add(requirement.name)
            yield from _unmet(requirement.name, seen)


def versions() -> dict[str, str]:
    """Versions of privplan, Python and the platform."""
    return {
        "privplan": _version("privplan") or "not installed",
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def installed(*names: str) -> dict[str, str]:
    """Versions of those of the distributions that are installed."""
    versions_by_name = {name: _version(name) for name in names}
    return {
        name: version
        for name, version in versions_by_name.items()
        if version is not None
    }


def machine_kind() -> str:
    """Processor and number of cores of this machine."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        pattern = r"(?m)^model name\s*: (.+)$"
        match = re.search(pattern, info.read_text(encoding="utf-8"))
        model = match[1] if match else model
    return f"{model}, {os.cpu_count()} cores"


def devices() -> dict[str, Any]:
    """Processor cores for this process, and what PyTorch finds where it is there."""
    # Not on every platform.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = os.cpu_count() or 1
    if affinity is not None:
        cores = len(affinity(0))
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
        "cuda": [torch.cuda.get_device_name(index) for index in range(count)],
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
