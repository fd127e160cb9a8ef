"""A plan as a runnable project of another framework, or as plain JSON for any other."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from privplan.errors import InputError, one_of
from privplan.files import write_bytes, write_text
from privplan.guard.opening import check_settings
from privplan.guard.rounds import planned_noise_std, planned_shares
from privplan.plan import GroupPlan, Plan

Files = dict[str, str]
"""Texts of the files by path."""
_MOST_OF_NAME = 23
"""Letters before the digest in the name of an app, which Flower limits to 32."""


def _text(name: str, **values: object) -> str:
    """A template with its values."""
    source = files("privplan.contrib.adapters") / "templates" / f"{name}.txt"
    return Template(source.read_text(encoding="utf-8")).substitute(values)


def _ranges(plan: Plan) -> list[tuple[str, int, int]]:
    """Name, first client and number of clients of each group."""
    ranges = []
    first = 0
    for group in plan.groups:
        ranges.append((group.name, first, group.clients))
        first += group.clients
    return ranges


def _groups(plan: Plan) -> str:
    lines = []
    for name, first, count in _ranges(plan):
        # Without quotes, but with escapes for what would break the line.
        shown = json.dumps(name)[1:-1]
        epsilon = plan.group(name).epsilon
        lines.append(f"- {shown}: {first} to {first + count - 1}, epsilon {epsilon:g}")
    return "\n".join(lines)


def _local(plan: Plan) -> dict[str, object]:
    """Numbers of an example's training, with the parameters that it leaves alone.

    It trains 5; the others give its updates the length of the plan's.
    """
    local = plan.spec.local
    unused = max(0, plan.spec.model.parameters - 5)
    return {"steps": local.steps, "rate": local.learning_rate, "unused": unused}


def _task(plan: Plan) -> str:
    return _text("task.py", groups=_groups(plan), **_local(plan))


def _readme(
    plan: Plan, needs: str, user_file: str, command: str, note: str = ""
) -> str:
    return _text(
        "README.md",
        needs=needs,
        own=user_file,
        command=command,
        wheel=wheel_name(),
        groups=_groups(plan),
        note=note,
    )


def package_of(plan: Plan) -> str:
    """Name of a project's package: one plan's code is never imported for another's.

    Processes that outlive a run import each name once.
    """
    words = re.findall("[a-z0-9]+", plan.spec.name.lower())
    name = "_".join(["guarded", *words])[:_MOST_OF_NAME].rstrip("_")
    return f"{name}_{plan.digest[:8]}"


def wheel_name() -> str:
    """File name of the wheel of this version of privplan."""
    return f"privplan-{distribution('privplan').version}-py3-none-any.whl"


def wheel() -> bytes:
    """The running privplan as a wheel: a project needs no index that knows its name."""
    installed = distribution("privplan")
    root = Path(str(files("privplan"))).parent
    info = f"privplan-{installed.version}.dist-info"
    packed: dict[str, bytes] = {}
    for package in ("privplan", "simulate"):
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                packed[path.relative_to(root).as_posix()] = path.read_bytes()
    for name in ("METADATA", "entry_points.txt"):
        packed[f"{info}/{name}"] = (installed.read_text(name) or "").encode()
    # An editable installation has the licence beside the packages.
    licence_file = root / "LICENSE"
    licence = installed.read_text("licenses/LICENSE")
    if licence is None and licence_file.is_file():
        licence = licence_file.read_text(encoding="utf-8")
    packed[f"{info}/licenses/LICENSE"] = (licence or "").encode()
    kind = (
        "Wheel-Version: 1.0\nGenerator: privplan\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n"
    )
    packed[f"{info}/WHEEL"] = kind.encode()
    record = ""
    for name, data in packed.items():
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    packed[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in packed.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def _flower(plan: Plan, folder: Path) -> Files:
    nodes = f'--federation-config "num-supernodes={plan.spec.population}"'
    command = f"flwr run . --stream {nodes}"
    package = package_of(plan)
    values = {
        "package": package,
        "app": package.replace("_", "-"),
        "wheel": (folder / wheel_name()).as_uri(),
        "folder": json.dumps(str(folder)),
    }
    return {
        "pyproject.toml": _text("flower/pyproject.toml", **values),
        f"{package}/__init__.py": "",
        f"{package}/server_app.py": _text("flower/server_app.py", package=package),
        f"{package}/client_app.py": _text("flower/client_app.py", package=package),
        f"{package}/task.py": _task(plan),
        "README.md": _readme(
            plan,
            "flwr[simulation]>=1.41,<1.43",
            f"{package}/task.py",
            command,
            _text("flower/note.md"),
        ),
    }


def _nvflare(plan: Plan, folder: Path) -> Files:
    # NVFlare names its sites from 1.
    sites: dict[str, list[str]] = {}
    for name, first, count in _ranges(plan):
        numbers = range(first + 1, first + count + 1)
        sites[name] = [f"site-{number}" for number in numbers]
    norms = {
        group.name: group.clipping_norm or plan.spec.clipping_norm
        for group in plan.groups
    }
    return {
        "job.py": _text("nvflare/job.py", sites=repr(sites), norms=repr(norms)),
        "client.py": _text("nvflare/client.py"),
        "task.py": _task(plan),
        "README.md": _readme(plan, "nvflare==2.9.*", "task.py", "python job.py"),
    }


def _opacus(plan: Plan, folder: Path) -> Files:
    if len(plan.groups) != 1:
        rule = "must be one; Opacus has one noise multiplier for all records"
        raise InputError.one("plan.groups", rule, len(plan.groups))
    [group] = plan.groups
    rate = plan.spec.local.learning_rate
    text = _text(
        "opacus/train.py", clients=group.clients, rate=rate, group=repr(group.name)
    )
    return {
        "train.py": text,
        "README.md": _readme(plan, "opacus>=1.5,<1.7", "train.py", "python train.py"),
    }


def _pfl(plan: Plan, folder: Path) -> Files:
    if plan.release != "joint" and len(plan.groups) > 1:
        rule = "must be joint; pfl adds the updates of all groups in one sum"
        raise InputError.one("plan.release", rule, plan.release)
    first = {name: start for name, start, _ in _ranges(plan)}
    cohort = max(1, round(sum(group.expected_cohort for group in plan.groups)))
    rounds = plan.spec.rounds
    values = {"first": repr(first), "cohort": cohort, "rounds": rounds, **_local(plan)}
    return {
        "train.py": _text("pfl/train.py", **values),
        "README.md": _readme(
            plan,
            "pfl[pytorch]==0.6.*",
            "train.py",
            "python train.py",
            "The guard stores no model of pfl: after an interruption training starts "
            "from the first model\nwith the rounds that are left. Store the model by "
            "pfl's checkpoints, and load it.\n",
        ),
    }


def _json(plan: Plan, folder: Path) -> Files:
    """What another implementation needs: every number of every round, spelled out."""
    data = {
        "format": "privplan.deployment/1",
        "plan": plan.digest,
        "unit": plan.unit,
        "relation": str(plan.spec.relation),
        "sampling": plan.spec.laws,
        "rounds": plan.spec.rounds,
        "release": plan.release,
        "local": plan.spec.local.model_dump(mode="json"),
        "groups": [_group_numbers(plan, group) for group in plan.groups],
    }
    return {"deployment.json": json.dumps(data, indent=1, allow_nan=False) + "\n"}


def _group_numbers(plan: Plan, group: GroupPlan) -> dict[str, Any]:
    """What a group does in each round."""
    [share] = planned_shares(plan, 1, (group,))
    summed_group = None if plan.release == "joint" else group.name
    segments = [
        {
            "rounds": segment.rounds,
            "sampling_ratio": segment.sampling_ratio,
            "noise_multiplier": segment.noise_multiplier,
        }
        for segment in group.segments or ()
    ]
    whole_run = {
        "rounds": plan.spec.rounds,
        "sampling_ratio": group.sampling_ratio,
        "noise_multiplier": group.noise_multiplier,
    }
    return {
        "name": group.name,
        "clients": group.clients,
        "epsilon": group.epsilon,
        "delta": group.delta,
        "sampling": plan.law_of(group),
        "clipping_norm": group.clipping_norm or plan.spec.clipping_norm,
        "scale": group.scale,
        "clip_bound": plan.clip_bound(group),
        "weight_of_sum": share.factor,
        "rounds": segments or [whole_run],
        "noise_std_of_first_round": planned_noise_std(plan, 1, summed_group),
    }


TARGETS: dict[str, Callable[[Plan, Path], Files]] = {
    "flower": _flower,
    "nvflare": _nvflare,
    "opacus": _opacus,
    "pfl": _pfl,
    "json": _json,
}
"""Makers of the files of a project, by framework."""


def export(plan: Plan, target: str, folder: Path) -> list[Path]:
    """Write the project of a framework, with the plan."""
    name = target.casefold()
    if name not in TARGETS:
        raise InputError.one("to", one_of(TARGETS, target), target)
    check_settings(plan, "public", None)
    texts = TARGETS[name](plan, folder.resolve())
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError.one("output", "must be a new or an empty folder", str(folder))
    written = []
    for name, text in {"plan.json": plan.to_json(), **texts}.items():
        path = folder / name
        write_text(path, text)
        written.append(path)
    # A project that runs needs privplan.
    if "README.md" in texts:
        write_bytes(folder / wheel_name(), wheel())
        written.append(folder / wheel_name())
    return written
