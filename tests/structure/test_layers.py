"""Imports of the product go downwards, without cycles, and never from planner to simulator."""

from pathlib import Path

from benchmarks import structure

ROOT = Path(__file__).parents[2]
IMPORTS = structure.imports(ROOT, structure.tracked(ROOT))


def test_no_import_cycles_not_even_for_type_checking():
    loaded = {(one.source, one.target) for one in IMPORTS if one.kind != "function"}
    assert structure.cycles(loaded) == []


def test_the_planner_never_imports_the_simulator():
    assert structure.upward(IMPORTS)["privplan_to_simulate"] == []


def test_no_module_imports_a_higher_layer():
    assert structure.upward(IMPORTS)["to_a_higher_layer"] == []


def test_every_module_has_a_layer():
    parts = {part for one in IMPORTS for part in (one.source, one.target)}
    modules = [part for part in parts if part.startswith("privplan.")]
    assert [module for module in modules if structure.layer_of(module) is None] == []
