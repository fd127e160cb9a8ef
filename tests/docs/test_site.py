"""The documentation site: links, sizes, readability, and its reference."""

import math
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest

import privplan
from privplan.cli import main
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LISTED = subprocess.check_output(
    ["git", "ls-files", "*.md"], cwd=ROOT, text=True
).split()
PAGES = [ROOT / name for name in LISTED if (ROOT / name).is_file()]
NO_GUIDES = ("evidence", "reference", "decisions", "plugin-template")
"""Folders of pages that are no guides."""
REFERENCE = ("glossary",)
GUIDES = [
    page
    for page in PAGES
    if page.is_relative_to(DOCS)
    and page.relative_to(DOCS).parts[0] not in NO_GUIDES
    and page.stem not in REFERENCE
]
INDEX = (DOCS / "index.md").read_text(encoding="utf-8").split("```{toctree}")
CORE = []
for listing in INDEX:
    if re.match("\n:caption: (Tutorials|How to)", listing):
        names = listing.split("```")[0].splitlines()[3:]
        CORE += [DOCS / f"{name}.md" for name in names]
"""Tutorials and how-to guides."""


def prose(text):
    """A page without code, tables, headings and marks."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [
        line
        for line in text.splitlines()
        if not line.startswith(("|", "#", "    ", "!", "<"))
    ]
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(lines))
    return re.sub(r"`[^`]*`", "name", text).replace("*", "")


def syllables(word):
    groups = len(re.findall(r"[aeiouy]+", word))
    return max(
        1, groups - (word.endswith("e") and not word.endswith("le") and groups > 1)
    )


def reading_ease(text):
    """Flesch's: 206.835 - 1.015 words per sentence - 84.6 syllables per word."""
    sentences = [
        sentence
        for sentence in re.split(r"[.!?:;]\s|\n\n|\n- ", text)
        if re.search(r"[a-z]", sentence)
    ]
    words = re.findall(r"[a-z]+", text.lower())
    spoken = sum(map(syllables, words)) / len(words)
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * spoken


def anchors(page):
    titles = re.findall(r"(?m)^#{1,6} (.+)$", page.read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\- ]", "", title) for title in titles)
    return {title.lower().replace(" ", "-") for title in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    written = {ROOT / line for line in ignored if line.startswith("docs/")}
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_with_links(page)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        # On GitHub there is no page that only ``make docs`` writes.
        assert linked.exists(), target
        assert linked not in written, target
        if anchor and linked.suffix == ".md" and linked.exists():
            assert anchor in anchors(linked), target


def prose_with_links(page):
    return re.sub(
        r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )


def test_guides_are_short():
    for page in GUIDES:
        assert len(page.read_text(encoding="utf-8").split()) <= 1500, page
    assert len(CORE) > 20
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in CORE) <= 15_000
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_guides_are_readable():
    scores = {
        page.stem: reading_ease(prose(page.read_text(encoding="utf-8")))
        for page in GUIDES
    }
    by_score = sorted(scores.items(), key=lambda item: item[1])
    assert sum(scores.values()) / len(scores) >= 50, by_score


def test_every_guide_begins_with_what_its_reader_can_do():
    for page in GUIDES:
        if page.stem not in ("index", "README"):
            assert "After this page" in page.read_text(encoding="utf-8")[:300], page


def test_every_field_and_command_is_in_the_reference(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import generate

    schema = Spec.model_json_schema()
    rows = list(generate.fields(schema, schema["$defs"]))
    assert len(rows) >= 80
    assert all(meaning for _, meaning, _, _ in rows), [
        row for row in rows if not row[1]
    ]
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    assert all(command is not None and command.help for command in commands)
    assert "privplan.cli:main" in (DOCS / "reference" / "commands.md").read_text()


def test_the_site_names_the_version_it_describes():
    assert (
        f"describe version {version('privplan')}: [what changed](../CHANGELOG.md)"
        in INDEX[0]
    )
    for cited in ("CITATION.cff", "docs/citing.md"):
        assert version("privplan") in (ROOT / cited).read_text(encoding="utf-8")


def chance(advantage):
    """An attacker's chance to be right in percent, rounded up to a tenth."""
    return f"{math.ceil(500 * (1 + advantage)) / 10:.1f}"


def test_chances_of_an_attacker_in_the_page_for_a_meeting():
    page = (DOCS / "tutorials" / "meeting.md").read_text(encoding="utf-8")
    spec = load_yaml(page.partition("```yaml\n")[2].partition("```")[0], "spec")
    plan = privplan.solve(Spec.parse(spec))
    delta = 300**-1.1
    for group in plan.groups:
        # The largest advantage of any (epsilon, delta)-private release, and the plan's.
        largest = 1 - 2 * (1 - delta) / (math.exp(group.epsilon) + 1)
        planned = privplan.tradeoff(plan.history(group.name), delta=delta).advantage
        head = f"| {group.epsilon:.0f} ({group.name}) |"
        assert f"{head} {chance(largest)} | {chance(planned)} |" in page


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    commands = (tmp_path / "reference" / "commands.html").read_text()
    assert "One of cifar-10" in commands
    assert "Optional argument" not in commands
    page = (tmp_path / "reference" / "api.html").read_text()
    assert "Validator(" not in page
    assert (
        page.count('role="heading"') == page.count('role="heading" aria-level="2"') > 0
    )
    assert "<pre>" not in page
