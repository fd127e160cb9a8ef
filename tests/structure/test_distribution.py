"""The description and the files of the distribution."""

import re
import shutil
import subprocess
import sys
import tarfile
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
    assert [
        name for name in named if not any((root / name).exists() for root in roots)
    ] == []


@pytest.mark.slow
def test_the_source_distribution_has_all_tests(tmp_path):
    pytest.importorskip("setuptools")
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    copy = tmp_path / "copy"
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    subprocess.run(
        [sys.executable, "-c", code], cwd=copy, check=True, capture_output=True
    )
    [archive] = (copy / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    wanted = {
        n for n in names if n.startswith(("tests/", "docs/", "privplan/", "simulate/"))
    }
    assert wanted <= inside
