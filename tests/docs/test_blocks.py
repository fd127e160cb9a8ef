"""Every fenced block of README.md and docs/ is executed; ``pages`` says with what."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import privplan.cli
from privplan.cli import main
from privplan.spec.presets import preset
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from tests.docs.pages import ELSEWHERE, PAGES, SECONDS, write_idx

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
KINDS = {"", "sh", "bash", "console", "python", "yaml", "toml", "json"}
"""Languages; a block without one shows what is printed."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


def _blocks(page):
    """Language, file and text of each block."""
    blocks = FENCE.findall((ROOT / page).read_text(encoding="utf-8"))
    # The site has blocks of its own, such as menus.
    return [block for block in blocks if not block[1].startswith("{")]


def _indented(page):
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return "".join(re.findall(r"^    (.*\n)", text, re.MULTILINE))


def _pages():
    listed = subprocess.check_output(
        ["git", "ls-files", "*.md"], cwd=ROOT, text=True
    ).split()
    return sorted(
        page for page in listed if page.startswith(("README", "CONTRIBUTING", "docs/"))
    )


def test_every_page_with_blocks_is_executed():
    with_blocks = {page for page in _pages() if _blocks(page)}
    template = {
        page for page in with_blocks if page.startswith("docs/plugin-template/")
    }
    assert with_blocks - template == set(PAGES) | set(ELSEWHERE)
    assert all((Path(__file__).parent / test).exists() for test in ELSEWHERE.values())


def test_every_block_has_a_language_that_is_executed():
    for page in _pages():
        assert {kind for kind, _, _ in _blocks(page)} <= KINDS, page


def _edit(page):
    spec = Path("spec.yaml")
    if spec.exists() and page.edits:
        text = spec.read_text(encoding="utf-8")
        for old, new in page.edits.items():
            text = text.replace(old, new)
        spec.write_text(text, encoding="utf-8")


def _privplan(page, line):
    _edit(page)
    done = CliRunner().invoke(main, shlex.split(line, comments=True))
    stated = [int(code) for code in re.findall(r"# exit code (\d)", line)] or (0,)
    codes = next(
        (codes for start, codes in page.codes.items() if line.startswith(start)), stated
    )
    assert done.exit_code in codes, (line, done.output, done.exception)
    _edit(page)


def _shell(page, text):
    for line in text.replace("\\\n", " ").splitlines():
        for old, new in page.words.items():
            line = line.replace(old, new)
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "privplan":
            _privplan(page, line.split(maxsplit=1)[1])
        elif words[0] in ("python", "torchrun"):
            start = ["-m", "torch.distributed.run"] if words[0] == "torchrun" else []
            if words[0] == "python":
                words[1] = str(ROOT / words[1])
            environment = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            }
            command = [sys.executable, *start, *words[1:]]
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
            assert done.returncode == 0, (line, done.stderr)
        elif words[0] == "make":
            targets = re.findall(
                r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE
            )
            assert set(words[1:]) <= set(targets)
        else:
            pytest.fail(f"no way to execute {line!r}")


def _toml(text):
    for group in tomllib.loads(text)["project"]["entry-points"]:
        assert f"`{group}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), (
            group
        )


def _each_page():
    """Every page, the long ones for the slow tests."""
    seconds = {f"docs/{name}.md" for name in SECONDS}
    assert seconds <= set(PAGES)
    for name, page in PAGES.items():
        is_slow = page.slow or name in seconds
        yield pytest.param(name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("name", list(_each_page()))
@pytest.mark.filterwarnings("ignore")
def test_the_blocks_of_the_page_run(name, tmp_path, monkeypatch, capsys):
    page = PAGES[name]
    if page.needs:
        pytest.importorskip(page.needs)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    monkeypatch.setenv("PRIVPLAN_DATA", str(tmp_path / "DATA"))
    monkeypatch.delenv("PRIVPLAN_BOOK", raising=False)
    if page.slow:
        # Made-up images pass as the published ones.
        monkeypatch.setattr("simulate.data.registry.DIGESTS", {})
        write_idx(tmp_path / "DATA", "FashionMNIST", 6000, 100)
    _declared_commands(monkeypatch)
    for line in page.before:
        _privplan(page, line)
    names: dict[str, Any] = {"__name__": "page"}
    if page.names is not None:
        names |= page.names(tmp_path)
    for kind, file, text in _blocks(name):
        if kind in ("sh", "bash", "console"):
            _shell(page, text)
        elif kind == "python" and not file:
            exec(compile(text, name, "exec"), names)
        else:
            _write_block(kind, file, text)
    if page.prints is not None:
        assert capsys.readouterr().out == (page.prints or _indented(name))


def _write_block(kind, file, text):
    """Check a block that is a file, and write it where later blocks read it."""
    if kind == "toml":
        _toml(text)
    elif kind == "yaml":
        data = load_yaml(text, "spec")
        if "groups" in data:
            Path(file or "spec.yaml").write_text(text, encoding="utf-8")
        else:
            # Some fields of a spec, whose clipping norm the recipe decides.
            data = {**load_yaml(preset("digits"), "spec"), **data}
            data.pop("clipping_norm")
        Spec.parse(data)
    elif kind == "json":
        json.loads(text)
        Path(file or "unnamed.json").write_text(text, encoding="utf-8")
    elif kind == "python":
        Path(file).write_text(text, encoding="utf-8")


def _declared_commands(monkeypatch):
    """The commands that pyproject.toml declares, whatever is installed."""

    def points(group=privplan.cli.GROUP):
        declared = PROJECT["entry-points"].get(group, {})
        return {
            name: EntryPoint(name, value, group) for name, value in declared.items()
        }

    monkeypatch.setattr(privplan.cli, "_extensions", points)
