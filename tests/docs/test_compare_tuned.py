"""The tables of docs/evidence/compare-tuned.md are those of the stored comparisons."""

from pathlib import Path

from benchmarks import compare_tuned
from simulate.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "compare-tuned.md").read_text(encoding="utf-8")


def test_the_tables_are_written_from_the_stored_comparisons():
    assert compare_tuned.replaced(PAGE, compare_tuned.written()) == PAGE
    stored = {path.stem for path in compare_tuned.STORED.glob("*.csv")}
    assert stored == {one.name for one in compare_tuned.COMPARISONS}


def test_no_method_of_a_table_spends_more_than_its_budgets():
    for one in compare_tuned.COMPARISONS:
        found = compare_tuned.methods(compare_tuned.STORED / f"{one.name}.csv")
        clients = {name for name, entry in ALGORITHMS.items() if entry.unit == "client"}
        assert set(found) == {*clients, "FedAvg"}
        for name, method in found.items():
            for line in method.lines:
                kept = float(line["realised_upper"]) <= float(line["budget"])
                assert kept is (name != "FedAvg")
                assert line["verdict"] == "kept" or name == "FedAvg"
                assert int(line["runs"]) == one.trials
