"""Names are printed and exported so that neither a terminal nor a spreadsheet executes them."""

import gzip

import pytest
from click.testing import CliRunner

from privplan.cli import main
from privplan.files import csv_cell, printable
from simulate.data.registry import read_unpacked
from tests.book.runs import run


@pytest.mark.parametrize("formula", ["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1"])
def test_a_formula_is_text_in_a_cell(formula):
    assert csv_cell(formula) == f"'{formula}"


def test_control_characters_are_escaped():
    assert printable("a\x1b[2Jb\x07\u202e") == "a\\x1b[2Jb\\x07\\u202e"
    assert printable("Zürich, 2\nlines") == "Zürich, 2\nlines"


def test_names_of_a_book_are_safe(tmp_path):
    folder, book = run(tmp_path / "r\x1b[31m"), tmp_path / "book"
    options = ["--population", "=HYPERLINK(1)", "--address", str(book)]
    added = CliRunner().invoke(main, ["book", "add", str(folder), *options], color=True)
    assert added.exit_code == 0, added.output
    assert "\x1b" not in added.output


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(2_000_000)))
    with pytest.raises(ValueError, match="1000000 bytes or less"):
        read_unpacked(path, 1_000_000)
    assert len(read_unpacked(path)) == 2_000_000
