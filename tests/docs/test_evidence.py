"""Evidence is read: a page says its result first, and its rows are in files."""

import csv
import re
from pathlib import Path

import pytest

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
PAGES = sorted(EVIDENCE.glob("*.md"))
TEXTS = {page.stem: page.read_text(encoding="utf-8") for page in PAGES}
FILES = sorted(EVIDENCE.glob("*/*.csv"))
# Of all pages together: an hour and a half of reading.
MAX_WORDS = 20_000
# A longer sentence in a table is prose.
MAX_WORDS_OF_A_CELL = 25
# Lines of at most 160 columns.
MAX_LINES_OF_A_RESULT = 10


def test_all_pages_together_can_be_read():
    assert sum(len(text.split()) for text in TEXTS.values()) <= MAX_WORDS


@pytest.mark.parametrize("name", sorted(set(TEXTS) - {"README"}))
def test_a_page_begins_with_its_result(name):
    title, blank, *lines = TEXTS[name].splitlines()
    assert title.startswith("# ")
    assert blank == ""
    result = "\n".join(lines).split("\n\n")[0]
    assert result.startswith("**Result.** ")
    assert len(result.splitlines()) <= MAX_LINES_OF_A_RESULT
    assert max(map(len, result.splitlines())) <= 160


@pytest.mark.parametrize("name", TEXTS)
def test_cells_of_tables_are_no_prose(name):
    for line in TEXTS[name].splitlines():
        if line.startswith("|"):
            longest = max(len(cell.split()) for cell in line.split("|"))
            assert longest <= MAX_WORDS_OF_A_CELL, line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_rows_is_linked_and_whole(path):
    link = f"]({path.relative_to(EVIDENCE)})"
    assert any(link in text for text in TEXTS.values())
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    assert rows
    assert {len(row) for row in rows} == {len(head)}


def test_every_linked_file_of_rows_exists():
    for text in TEXTS.values():
        for link in re.findall(r"\]\(([^)]+\.csv)\)", text):
            assert EVIDENCE / link in FILES
