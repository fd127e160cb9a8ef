"""``privplan doctor``: versions, extras, devices, and what is missing."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import click

PLACES = {"PRIVPLAN_DATA": "folder with data sets", "PRIVPLAN_BOOK": "budget book"}
"""Environment variables of the project."""


@click.command(name="doctor", epilog="Example: privplan doctor --format json")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.pass_context
def doctor_command(ctx: click.Context, form: str) -> None:
    """Show versions, extras, devices, and what is missing.

    Exit code 0: every required package is there (extras may be missing). 2: one is not.
    """
    from privplan.cli import render

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


# --- What is installed: versions of required packages and extras, and devices for training. ------

_REQUIREMENT = re.compile(r"^([\w.-]+)(?:\[[^]]*\])?\s*(?:>=\s*([\w.]+))?")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")
_DEVELOPMENT = ("dev", "fuzz", "notebooks")
"""Extras that no command needs."""


@dataclass(frozen=True)
class Package:
    """A required package.

    Attributes:
        name: name of the distribution.
        needed: least version; empty when any will do.
        found: installed version; None when the package is missing.
        extra: the extra that needs it; empty for a package that every installation needs.
    """

    name: str
    needed: str
    found: str | None
    extra: str = ""

    @property
    def problem(self) -> str:
        """``missing``, ``too old``, or empty."""
        if self.found is None:
            return "missing"
        return "too old" if _numbers(self.found) < _numbers(self.needed) else ""

    @property
    def remedy(self) -> str:
        """The command that installs the package."""
        return f"pip install 'privplan[{self.extra}]'" if self.extra else "pip install -U privplan"


def packages() -> list[Package]:
    """Packages that privplan and its extras need, as its metadata say; those of tools left out.

    A package that several extras need is listed under each.
    """
    found = []
    for line in requires("privplan") or ():
        match, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        group = extra.group(1) if extra else ""
        if match is not None and group not in _DEVELOPMENT:
            found.append(Package(match[1], match[2] or "", _version(match[1]), group))
    return found


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
        named = re.search(r"(?m)^model name\s*: (.+)$", info.read_text(encoding="utf-8"))
        model = named[1] if named else model
    return f"{model}, {os.cpu_count()} cores"


def devices() -> dict[str, Any]:
    """Processor cores for this process, and what PyTorch finds; without PyTorch the cores only."""
    found: dict[str, Any] = {"cpu_cores": _cores()}
    try:
        torch = import_module("torch")
    except (ImportError, OSError) as error:
        line = (str(error).splitlines() or ["no reason given"])[0]
        return {**found, "torch": None, "reason": line}
    cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())]
    return {
        **found,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": names if cuda else [],
    }


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    """Leading numbers of a version, for comparison."""
    return tuple(int(word) for word in re.findall(r"\d+", text.partition("+")[0])[:3])
