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
        pin, *hashes = block.split(" \\\n")
        assert PIN.fullmatch(pin), pin
        assert hashes, f"{pin} has no hash"
        for line in hashes:
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line), pin
        locked.append(pin)
    assert locked == (ROOT / "constraints.txt").read_text().split()


EXTRAS = (
    "plots",
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
)


def name_of(requirement):
    """The normalised name of a requirement, without version and extras."""
    return re.split(r"[\[<>=~! ]", requirement)[0].lower().replace("_", "-")


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = list(project["dependencies"])
    for extra in EXTRAS:
        requirements += project["optional-dependencies"][extra]

    # An extra brings other extras of privplan, which is not pinned itself.
    names = set(map(name_of, requirements)) - {"privplan"}
    pins = (ROOT / "constraints.txt").read_text().split()
    unpinned = names - set(map(name_of, pins))
    assert not unpinned, sorted(unpinned)
