"""docs/reproduction.md says what the stored results say."""

from pathlib import Path

from benchmarks import reproduction
from privplan.contrib.reproduction.tables import PAPERS, tables

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_the_page_is_written_from_the_stored_results():
    assert reproduction.replaced(PAGE, reproduction.written()) == PAGE


def test_every_table_of_the_five_papers_has_its_line():
    """As many tables as the papers have: 10, 3, 5, 5 and 22."""
    assert len(PAPERS.names()) == 5
    counts = {"gdpfed-plus": 10, "dp2-fedsam": 3, "dp-fedpgn": 5, "hyperfl": 5, "robust-hdp": 22}
    known = {one.name for one in tables()}
    for paper, count in counts.items():
        assert {f"{paper}-table-{number}" for number in range(1, count + 1)} <= known
    for one in tables():
        assert f"| {one.title}" in PAGE
        assert one.claims or one.left_out
