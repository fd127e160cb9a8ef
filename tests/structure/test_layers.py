"""Imports of the product go downwards, without cycles, and never from planner to simulator."""

from pathlib import Path

from benchmarks import structure

ROOT = Path(__file__).parents[2]


def test_imports_go_down_without_cycles_not_even_for_type_checking():
    imports = structure.imports(ROOT, structure.tracked(ROOT))
    loaded = {(one.source, one.target) for one in imports if one.kind != "function"}
    assert structure.cycles(loaded) == []
    upward = structure.upward(imports)
    assert upward["privplan_to_simulate"] == []
    assert upward["to_a_higher_layer"] == []
    parts = {part for one in imports for part in (one.source, one.target)}
    modules = [part for part in parts if part.startswith("privplan.")]
    assert [module for module in modules if structure.layer_of(module) is None] == []
