"""Imports go downwards, without cycles, and never from planner to simulator."""

from pathlib import Path

from benchmarks import structure

ROOT = Path(__file__).parents[2]


def test_imports_go_down_without_cycles_not_even_for_type_checking():
    imports = structure.imports(ROOT, structure.tracked(ROOT))
    # An import within a function runs after both modules were loaded.
    on_load = [line for line in imports if line.kind != "function"]
    assert structure.cycles({(line.source, line.target) for line in on_load}) == []

    upward = structure.upward(imports)
    assert upward["privplan_to_simulate"] == []
    assert upward["to_a_higher_layer"] == []

    modules = {line.source for line in imports} | {line.target for line in imports}
    for module in modules:
        if module.startswith("privplan."):
            assert structure.layer_of(module) is not None, module
