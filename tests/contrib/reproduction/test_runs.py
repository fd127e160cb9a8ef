"""Tables of runs: runs by the command, the journal, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from privplan.contrib.reproduction.claims import Result
from privplan.contrib.reproduction.command import execute
from privplan.contrib.reproduction.epsilon_distribution import with_distribution
from privplan.contrib.reproduction.runs import run_table
from privplan.contrib.reproduction.tables import Method, Setting, Table, table_of, tables
from privplan.files import load_yaml
from privplan.spec.presets import preset
from privplan.spec.spec import Spec


def settings(clipping_norm: float = 1.0) -> list[Setting]:
    spec = {**load_yaml(preset("digits"), "preset"), "rounds": 2}
    methods = {
        "DP-FedAvg": Method("DP-FedAvg"),
        "DP-FedSAM, rho 0.2": Method("DP-FedSAM", {"rho": 0.2}, {"clipping_norm": clipping_norm}),
    }
    return [Setting("digits", spec, "digits", methods)]


def table(clipping_norm: float = 1.0) -> Table:
    return Table(
        "toy-table-1",
        "Table 1",
        trained={"reduced": lambda: settings(clipping_norm)},
        printed={("DP-FedAvg", "digits"): (50.0, 0.5)},
    )


def refuse(arguments: Sequence[str]) -> Mapping[str, Any]:
    raise AssertionError(f"trained again: {arguments}")


def test_runs_are_trained_once_and_resume(tmp_path):
    shown: list[int] = []
    first = run_table(
        table(), "reduced", [0], tmp_path, execute,
        finished=lambda one: shown.append(len(one.cells)),
    )  # fmt: skip
    assert shown == [1, 2]
    assert [cell.row for cell in first.cells] == ["DP-FedAvg", "DP-FedSAM, rho 0.2"]
    record = json.loads((tmp_path / "runs/digits/DP-FedAvg/seed-0/record.json").read_text())
    cell = first.cells[0]
    assert cell.values == (100 * record["accuracy"],)
    assert (cell.published, cell.published_error) == (50.0, 0.5)
    assert all(0 < (spent or 9) <= 2 for spent in cell.spent.values())  # the strictest budget
    named = json.loads((tmp_path / "runs/digits/DP-FedSAM-rho-0.2/seed-0/record.json").read_text())
    assert named["configuration"]["numbers"]["rho"] == 0.2
    again = run_table(table(), "reduced", [0], tmp_path, refuse)
    assert again == first
    assert Result.load(again.save(tmp_path)) == again
    with pytest.raises(AssertionError, match=r"trained again.*rho"):
        run_table(table(clipping_norm=0.5), "reduced", [0], tmp_path, refuse)
    with pytest.raises(AssertionError, match="--seed=1"):
        run_table(table(), "reduced", [0, 1], tmp_path, refuse)


@pytest.mark.parametrize("size", ["full", "reduced"])
def test_hyperfl_s_methods_with_noise_protect_records(size):
    from simulate.algorithms.registry import ALGORITHMS

    for setting in table_of("hyperfl-table-1").trained[size]():
        for row, method in setting.methods.items():
            spec = Spec.parse({**setting.spec, **method.changes})
            private = row in {"DP-FedAvg", "CENTAUR", "PPSGD"}
            assert spec.unit == ("record" if private else "client")
            entry = ALGORITHMS.get(method.algorithm)
            assert (entry.unit == "record" or entry.record_level) is private


def test_every_declared_setting_is_a_valid_spec():
    """Also of full sizes, which no machine of the tests can train."""
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.data.registry import DATASETS
    from simulate.models.registry import model

    checked: set[str] = set()
    for one in tables():
        for size, make in one.trained.items():
            for setting in make():
                for row, method in setting.methods.items():
                    assert setting.dataset.partition(":")[0] in DATASETS, one.name
                    entry = ALGORITHMS.get(method.algorithm)
                    assert set(method.hyperparameters) <= set(entry.hyperparameters)
                    data = {**setting.spec, **method.changes}
                    text = json.dumps(data, sort_keys=True)
                    if text in checked:
                        continue
                    checked.add(text)
                    spec = Spec.parse(with_distribution(data))
                    built = model(spec.model.name)
                    assert built.parameters == spec.model.parameters, (one.name, size, row)


def test_the_reduced_tables_of_robust_hdp_keep_its_distributions():
    """Budgets, clients, batch sizes and partition are the paper's; records are half of them."""
    for name in ("4", "16", "17", "22"):
        table = table_of(f"robust-hdp-table-{name}")
        full = {one.column: one for one in table.trained["full"]()}
        for small in table.trained["reduced"]():
            law, paper = (one.spec["epsilon_distribution"] for one in (small, full[small.column]))
            assert {**law, "records": 2 * law["records"]} == paper
            assert law["batch_sizes"] == ([128] if name == "4" else [16, 32, 64, 128])
            assert small.partition == full[small.column].partition
            for row, method in small.methods.items():
                rate = full[small.column].methods[row].changes["local"]["learning_rate"]
                assert method.changes["local"]["learning_rate"] == pytest.approx(10 * rate)


def test_a_reconstruction_is_measured_by_the_attack(tmp_path):
    """One record per client: closed-form inversion reads the digits' images without noise."""
    one = settings()[0]
    methods = {name: Method(name) for name in ("FedAvg", "DP-FedAvg")}
    setting = Setting(
        "digits", one.spec, "digits", methods, options={"attack": "closed", "images": "2"}
    )
    table = Table("toy-table-2", "", trained={"reduced": lambda: [setting]}, measure="PSNR in dB")
    cells = {cell.row: cell for cell in run_table(table, "reduced", [0], tmp_path, execute).cells}
    assert cells["FedAvg"].mean > 40 > 15 > cells["DP-FedAvg"].mean
    assert set(cells["FedAvg"].spent.values()) == {None}
    assert all(0 < (spent or 0) < 9 for spent in cells["DP-FedAvg"].spent.values())
