"""What contributors' pages name exists: paths, names, commands, options and counts."""

import ast
import importlib
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from benchmarks import structure
from privplan.guidance import NoSuchNameError
from privplan.spec.spec import Spec
from tests.structure import test_spec_fields

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    *DECISIONS.glob("*.md"),
]
BASES = (
    ROOT,
    ROOT / "privplan",
    ROOT / "simulate",
    ROOT / "docs",
    DECISIONS,
    ROOT / "tests",
)
"""Folders from which a page may name a path."""
SOURCES = (".py", ".toml", ".yaml", ".txt", ".sh", ".j2", "Makefile")
ELSEWHERE = {
    "docs/decisions/withdrawn.md": {
        "results/METHOD/seed-S",
        "S",
        "METHOD",
        "CINIC-10/train",
        # Names that are gone, as the page says.
        "tf32",
        "wrong_constant",
    },  # of the reader
    "docs/decisions/gpu.md": {"tf32"},  # an option that is gone, as the page says
    "docs/decisions/optuna.md": {"Study"},  # of Optuna
    "CONTRIBUTING.md": {"uv", "universal", "CASE"},  # of uv, and a placeholder
}
"""Words of other programs, by page."""


def tracked_files():
    listed = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split()
    return [name for name in listed if (ROOT / name).is_file()]


class Source:
    """The words of the code, and the groups of entry points that it names."""

    def __init__(self, text):
        self.words = set(re.findall(r"[A-Za-z_]\w*", text))
        self.groups = set(re.findall(r"\bprivplan\.\w+(?=\"|\])", text))


@pytest.fixture(scope="module")
def source():
    """The code, without pages and their tests."""
    files = [
        name
        for name in tracked_files()
        if name.endswith(SOURCES) and not name.startswith(("docs/", "tests/docs/"))
    ]
    return Source(
        "\n".join((ROOT / name).read_text(encoding="utf-8") for name in files)
    )


def quoted(text):
    """The words between backticks of a page, outside its blocks of code."""
    without_blocks = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for phrase in re.findall(r"`([^`]+)`", without_blocks):
        yield from (word.strip("(),.;:") for word in phrase.split())


def is_path(word):
    return bool(re.fullmatch(r"[\w./-]+", word)) and (
        "/" in word or word.endswith((".py", ".md"))
    )


def is_dotted_name(word):
    return bool(re.fullmatch(r"(privplan|simulate|tests|benchmarks)(\.\w+)+", word))


def exists(dotted_name):
    """Whether a module, or something in one, has this name."""
    parts = dotted_name.split(".")
    member = importlib.import_module(parts[0])
    for count, part in enumerate(parts[1:], 2):
        try:
            member = getattr(member, part)
        except (AttributeError, NoSuchNameError):
            try:
                member = importlib.import_module(".".join(parts[:count]))
            except ImportError:
                return False
    return True


def faults_of(text, source, elsewhere=frozenset()):
    """What a page names that does not exist."""
    for word in quoted(text):
        if word in elsewhere:
            continue
        if is_path(word):
            if not any((base / word).exists() for base in BASES):
                yield f"path {word}"
        elif is_dotted_name(word):
            # Of a registry's group of entry points there is no module.
            if word not in source.groups and not exists(word):
                yield f"name {word}"
        else:
            names = set(re.findall(r"[A-Za-z_]\w+", word))
            yield from (f"word {name}" for name in names - source.words - elsewhere)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page, source):
    elsewhere = ELSEWHERE.get(str(page.relative_to(ROOT)), set())
    assert list(faults_of(page.read_text(encoding="utf-8"), source, elsewhere)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("See `privplan/lint/frameworks`.", "path privplan/lint/frameworks"),
        ("See `cli/no_such.py`.", "path cli/no_such.py"),
        ("See `privplan.laws.law.NoSuchLaw`.", "name privplan.laws.law.NoSuchLaw"),
        ("See `privplan.no_such_group`.", "name privplan.no_such_group"),
        ("Ask for `no_such_quantity`.", "word no_such_quantity"),
        ("Use `privplan solve --no_such_option`.", "word no_such_option"),
    ],
)
def test_a_page_that_names_what_is_gone_is_refused(text, fault, source):
    assert list(faults_of(text, source)) == [fault]


def test_the_layers_of_the_page_are_those_of_the_test():
    page = (DECISIONS / "layout.md").read_text(encoding="utf-8")
    listed = [
        re.findall(r"`(\w+)`", line) for line in re.findall(r"(?m)^\d+\. .*$", page)
    ]
    assert listed == [layer.split() for layer in structure.LAYERS]


@pytest.mark.parametrize("page", ["README.md", "spec-fields.md"])
def test_the_number_of_fields_is_the_limit_and_is_used(page):
    [stated] = re.findall(
        r"has at most (\d+) fields", (DECISIONS / page).read_text(encoding="utf-8")
    )
    fields = test_spec_fields.fields(Spec.model_json_schema())
    assert int(stated) == test_spec_fields.MAX_FIELDS == len(fields)


def test_every_decision_is_in_the_list_of_decisions():
    listed = (DECISIONS / "README.md").read_text(encoding="utf-8")
    pages = {page.stem for page in DECISIONS.glob("*.md")} - {"README"}
    assert set(re.findall(r"\]\((\S+)\.md\)", listed)) == pages
    assert set(listed.rpartition(":hidden:\n")[2].strip("`\n").split()) == pages


@pytest.fixture(scope="module")
def callers():
    """Files of the product, by the name of each function or method that they call."""
    files = defaultdict(set)
    for path in structure.tracked(ROOT):
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                files[called].add(path)
    return files


def test_privacy_noise_is_drawn_where_the_page_says(callers):
    draws = {"simulate/mechanisms.py", "privplan/guard/rounds.py"}
    compares = {
        "privplan/verification/checks/regenerated_noise.py",
        "simulate/engine/measurements.py",
    }
    for path in draws:
        assert f"`{path}`" in PAGES[0].read_text(encoding="utf-8")
    # A replay draws again what was drawn, and releases nothing.
    core = set()
    for path in callers["standard_normal"]:
        if "/contrib/" not in path and not path.startswith("simulate/replay/"):
            core.add(path)
    assert core == draws | compares


def test_only_one_file_of_the_core_prints(callers):
    core = {path for path in callers["print"] if "/contrib/" not in path}
    assert core == {"privplan/cli/render.py"}


LAW_AND_ITS_PARTS = ("Law", "LawPrivacy", "LawDraw", "LawEvidence")


def test_the_table_of_a_law_names_every_default():
    """Each method and attribute of ``Law`` is in the table of what to override."""
    section = PAGES[0].read_text(encoding="utf-8").partition("### A sampling law")[2]
    table = section.partition("```python")[0]
    tree = ast.parse(
        (ROOT / "privplan" / "laws" / "law.py").read_text(encoding="utf-8")
    )
    members = set()
    attributes = set()
    for part in tree.body:
        if isinstance(part, ast.ClassDef) and part.name in LAW_AND_ITS_PARTS:
            for node in part.body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    members.add(node.name)
                if isinstance(node, ast.AnnAssign) and isinstance(
                    node.target, ast.Name
                ):
                    attributes.add(node.target.id)
    assert len(members) > 25
    # Set by whoever makes the law, or explained by the docstring of the class.
    without_a_choice = {"name", "title", "recipe_momentum", "contributions"}
    named = set(re.findall(r"`(\w+)`", table))
    assert members | attributes - without_a_choice <= named
