"""Pinned versions: one hash or more for each, and the same versions in both files."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)")


def test_every_pinned_version_has_hashes():
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text().strip())
    locked = []
    for block in blocks:
        first, *hashes = block.split(" \\\n")
        assert PIN.fullmatch(first), first
        assert hashes, f"{first} has no hash"
        assert all(
            re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", one) for one in hashes
        ), first
        locked.append(first)
    assert locked == (ROOT / "constraints.txt").read_text().split()


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in (
        "simulate",
        "dask",
        "slurm",
        "hub",
        "notebooks",
        "app",
        "explain",
        "docs",
        "attest",
        "proof",
        "dev",
    ):
        wanted += project["optional-dependencies"][extra]
    names = {
        re.split(r"[\[<>=~! ]", one)[0].lower().replace("_", "-") for one in wanted
    }
    names.discard("privplan")  # whose extras another extra brings
    pins = (ROOT / "constraints.txt").read_text().split()
    pinned = {one.split("==")[0].lower().replace("_", "-") for one in pins}
    assert names <= pinned, sorted(names - pinned)
