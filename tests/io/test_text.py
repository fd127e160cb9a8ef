"""Names are printed and exported so that no terminal or spreadsheet executes them."""

import gzip
import sys
import unicodedata

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.visible import (
    KEPT_LINES,
    csv_cell,
    in_html,
    in_latex,
    in_markdown,
    printable,
)
from simulate.data.reading import read_unpacked
from tests.book.runs import run


@pytest.mark.parametrize("formula", ["=1+1", "+cmd", "-2+3", "@SUM(A1)"])
def test_a_formula_is_text_in_a_cell(formula):
    assert csv_cell(formula) == f"'{formula}"


def test_a_cell_has_no_line_of_its_own_and_numbers_stay_numbers():
    assert csv_cell("\t=1") == "\\t=1"
    assert csv_cell("a\r\nb") == "a\\r\\nb"
    assert csv_cell(-2.5) == -2.5


def test_what_cannot_be_seen_is_escaped():
    assert (
        printable("a\x1b[2Jb\x07\u202e\x7f\x9b") == "a\\x1b[2Jb\\x07\\u202e\\x7f\\x9b"
    )
    assert printable("Zürich, 2\nlines", KEPT_LINES) == "Zürich, 2\nlines"
    assert printable("Zürich, 2\nlines") == "Zürich, 2\\nlines"


@pytest.mark.slow
def test_no_letter_without_a_glyph_passes():
    """By Unicode's own categories, and its default ignorable letters and marks."""
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    blank = [
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x180B,
        0x2800,
        0x3164,
        0xFE0F,
        0xFFA0,
        0xE0100,
    ]
    for point in [*range(sys.maxunicode + 1), *blank]:
        letter = chr(point)
        if unicodedata.category(letter) in hidden or point in blank:
            assert printable(letter).isascii(), hex(point)


@pytest.mark.parametrize(
    ("escape", "shown"),
    [
        (in_html, "&lt;b title=&quot;&quot;&gt;[x](y)|`\\x1b"),
        (in_markdown, '&lt;b title=""&gt;\\[x\\](y)\\|\\`\\\\x1b'),
        (in_latex, '<b title="">[x](y)|`\\textbackslash{}x1b'),
    ],
)
def test_markup_is_shown_literally(escape, shown):
    assert escape('<b title="">[x](y)|`\x1b') == shown


def test_names_of_a_book_are_safe(tmp_path):
    folder = run(tmp_path / "r\x1b[31m")
    book = tmp_path / "book"
    options = ["--population", "=HYPERLINK(1)", "--address", str(book)]
    added = CliRunner().invoke(main, ["book", "add", str(folder), *options], color=True)
    assert added.exit_code == 0, added.output
    assert "\x1b" not in added.output


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(2_000_000)))
    assert len(read_unpacked(path)) == 2_000_000
    monkeypatch.setattr("simulate.data.reading.MAX_UNPACKED", 1_000_000)
    with pytest.raises(ValueError, match="1000000 bytes or less"):
        read_unpacked(path)
