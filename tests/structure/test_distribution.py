"""The description and the files of the distribution."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RELATIVE = re.compile(r"\]\((?!https?://)[^)]+\)")


@pytest.fixture(scope="module")
def setup_module_():
    spec = spec_from_file_location("distribution_setup", ROOT / "setup.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("repository", [None, "https://example.org/privplan/"])
def test_the_description_has_no_relative_link(setup_module_, repository):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert RELATIVE.search(text)
    shown = setup_module_.description(text, repository)
    assert RELATIVE.search(shown) is None
    links = re.findall(r"\]\((https://example.org[^)]+)\)", shown)
    if repository is None:
        assert not links
        assert "CONTRIBUTING.md" not in shown
    else:
        named = [link.split("/main/")[1] for link in links]
        assert all((ROOT / name.partition("#")[0]).exists() for name in named)


def test_every_file_of_the_architecture_page_exists():
    named = re.findall(
        r"`([\w./]+\.py|[\w/]+/)`", (ROOT / "docs" / "architecture.md").read_text()
    )
    assert len(named) > 40
    roots = (ROOT, ROOT / "privplan", ROOT / "simulate")
    for name in named:
        assert any((root / name).exists() for root in roots), name


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """The source distribution and the wheel of the tracked files, and their names."""
    pytest.importorskip("setuptools")
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    copy = tmp_path_factory.mktemp("copy")
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    for function in ("build_sdist", "build_wheel"):
        code = f"from setuptools.build_meta import {function} as build; build('dist')"
        subprocess.run(
            [sys.executable, "-c", code], cwd=copy, check=True, capture_output=True
        )
    return copy / "dist", names


@pytest.mark.slow
def test_the_source_distribution_has_all_tests(distributions):
    folder, names = distributions
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    folders = ("tests/", "docs/", "privplan/", "simulate/")
    assert {name for name in names if name.startswith(folders)} <= inside
    assert "LICENSE" in inside


@pytest.mark.slow
def test_the_wheel_is_what_an_index_asks_for(distributions):
    """What ``twine check`` asks, and what the wheel must hold: types and licence."""
    folder, names = distributions
    [archive] = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as packed:
        inside = packed.namelist()
        [metadata] = [name for name in inside if name.endswith("dist-info/METADATA")]
        about = message_from_string(packed.read(metadata).decode())
        info = metadata.removesuffix("METADATA")
        assert packed.read(f"{info}licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        points = packed.read(f"{info}entry_points.txt").decode()
    assert about["Description-Content-Type"].startswith("text/markdown")
    assert RELATIVE.search(about.get_payload()) is None
    assert about["License-Expression"] == "Apache-2.0"
    assert about["License-File"] == "LICENSE"
    assert "\n" not in about["Summary"]
    # An index refuses requirements by address.
    assert not [line for line in about.get_all("Requires-Dist") if "@" in line]
    assert "privplan = privplan.__main__:run" in points
    product = {name for name in names if name.startswith(("privplan/", "simulate/"))}
    assert product - {*inside} == set()
    assert not [name for name in inside if name.startswith("tests/")]
