"""The tables of docs/evidence/compare-tuned.md are those of the stored comparisons."""

from pathlib import Path

from benchmarks import compare_tuned
from simulate.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evidence" / "compare-tuned.md").read_text(encoding="utf-8")


def test_the_tables_are_written_from_the_stored_comparisons():
    assert compare_tuned.replaced(PAGE, compare_tuned.written()) == PAGE
    stored = {path.stem for path in compare_tuned.STORED.glob("*.csv")}
    assert stored == {comparison.name for comparison in compare_tuned.COMPARISONS}


def test_no_method_of_a_table_spends_more_than_its_budgets():
    private = {name for name, entry in ALGORITHMS.items() if entry.unit == "client"}
    for comparison in compare_tuned.COMPARISONS:
        table = compare_tuned.STORED / f"{comparison.name}.csv"
        methods = compare_tuned.methods(table)
        assert set(methods) == {*private, "FedAvg"}

        # FedAvg stands beside the private methods, without noise: no budget holds.
        for name, method in methods.items():
            for line in method.lines:
                is_paid = float(line["realised_upper"]) <= float(line["budget"])
                assert is_paid is (name != "FedAvg")
                assert line["verdict"] == "kept" or name == "FedAvg"
                assert int(line["runs"]) == comparison.trials
