"""Proxy runs: plans around a spec's, trained into a table that forecasts are made from."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from privplan.errors import InputError
from privplan.forecast.features import ProxyRun, ProxyTable
from privplan.forecast.model import Forecaster
from privplan.planning.choices import relative_noise
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.cli.proxy import forecast as command
from simulate.data.partition.schemes import scheme
from simulate.proxy.search import (
    DRAWN,
    PROXY_JOURNAL,
    Variation,
    label_skew,
    proxy_run,
    trained,
    variations,
    varied,
)
from tests.simulate.tuning.test_tuning import DATA, SETTING, TEXT

PLAIN = Spec.parse(DATA).model_dump(mode="json", exclude={"groups_from"})


def test_variations_are_drawn_by_the_seed_alone():
    spec = Spec.parse(DATA)
    first = variations(spec, ["iid", "dirichlet:0.3"], 12, 3, 0.5)
    assert first == variations(spec, ["iid", "dirichlet:0.3"], 20, 3, 0.5)[:12]
    assert first != variations(spec, ["iid", "dirichlet:0.3"], 12, 4, 0.5)
    assert {one.partition for one in first[:2]} == {"iid", "dirichlet:0.3"}
    assert {one.decay is None for one in first} == {True, False}


def test_a_variation_changes_budgets_rounds_and_recipe():
    own = solve(Spec.parse(PLAIN), second_opinion=False)
    one = Variation(epsilons=(2.0, 2.0), rounds=4, partition="iid", seed=0, share=1.0)
    plan = varied(PLAIN, one)
    assert [group.epsilon for group in plan.groups] == [4.0, 16.0]
    assert relative_noise(plan) < relative_noise(own)
    other = varied(PLAIN, one.model_copy(update={"decay": 0.0, "clip": 2.0, "step": 0.5}))
    assert other.spec.clipping_norm == pytest.approx(2 * plan.spec.clipping_norm)
    assert other.spec.averaging is None
    assert other.spec.server.learning_rate == pytest.approx(
        (plan.spec.server.learning_rate or 0) / 4, rel=1e-3
    )


def test_a_run_has_the_groups_classes_and_accuracies():
    one = Variation(
        epsilons=(1.0, 1.0), rounds=2, partition="by-class:strict=0,8,9", seed=1, share=0.3
    )
    run = proxy_run((SETTING.model_copy(update={"spec": PLAIN}), one))
    strict, loose = run["coverage"]["shares"]
    assert loose[0] == loose[8] == loose[9] == 0
    assert sum(strict) == pytest.approx(1)
    parts = zip(run["coverage"]["clients"], run["accuracy_by_group"], strict=True)
    total = sum(share * value for share, value in parts)
    assert total == pytest.approx(run["accuracy"], abs=0.05)


def test_skew_is_nothing_for_iid_clients_and_one_for_clients_of_one_class():
    plan = solve(Spec.parse({**PLAIN, "rounds": 1}), second_opinion=False)

    def skew(partition):
        setting = SETTING.model_copy(update={"partition": partition})
        return label_skew(trained(setting, plan, 0.1, 0)[0])

    assert skew("iid") < 0.03
    assert skew("dirichlet:0.3") == pytest.approx(0.25, abs=0.06)  # (1.3 / 4 - 0.1) / 0.9
    assert skew("shards:1") > 0.7


def test_the_command_writes_a_table_and_resumes(tmp_path):
    spec, out = tmp_path / "spec.yaml", tmp_path / "proxy.json"
    spec.write_text(TEXT)
    words = [str(spec), "--dataset=digits", "--runs=12", "--share=0.1", "-o", str(out)]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 0, done.output
    table = ProxyTable.load(out)
    assert len(table.runs) == 12
    assert len(Forecaster(table).held_out()) == 12
    journal = Path(f"{out}.runs") / PROXY_JOURNAL
    lines = journal.read_text().splitlines()
    first = json.loads(lines[0])
    first["rows"]["accuracy"] = 0.123
    journal.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    assert CliRunner().invoke(command, words).exit_code == 0
    assert ProxyTable.load(out).runs[0].accuracy == 0.123  # not trained again


def test_wrong_input_is_one_line(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(TEXT)
    words = [str(spec), "--dataset=digits", "--partition=apart", "-o", str(tmp_path / "p.json")]
    done = CliRunner().invoke(command, words)
    assert isinstance(done.exception, InputError)
    assert "partition: must be" in str(done.exception)
    done = CliRunner().invoke(command, [*words[:2], "--runs=3", "-o", str(tmp_path / "p.json")])
    assert done.exit_code == 2


def test_drawn_partitions_are_of_all_kinds():
    found = variations(Spec.parse(DATA), [DRAWN], 200, 3, 0.5, 10)
    kinds = Counter(one.partition.partition(":")[0] for one in found)
    assert kinds["iid"] > 20
    assert kinds["dirichlet"] > 20
    assert kinds["by-class"] > 80
    held = [one.partition for one in found if one.partition.startswith("by-class")]
    assert {text.count(",") for text in held} == {0, 1, 2, 3, 4}  # up to half of the classes
    assert {text[9:].partition("=")[0] for text in held} == {"strict", "loose"}
    for text in held:
        scheme(text)
    assert variations(Spec.parse(DATA), [DRAWN], 3, 3, 0.5, 10) == found[:3]


def test_a_variation_changes_the_cohort():
    one = Variation(epsilons=(1.0, 1.0), rounds=4, cohort=0.5, partition="iid", seed=0, share=1.0)
    own, plan = varied(PLAIN, one.model_copy(update={"cohort": 1.0})), varied(PLAIN, one)
    assert plan.spec.cohort == pytest.approx((own.spec.cohort or 0) / 2, abs=0.5)
    population = sum(group.clients for group in own.groups)
    most = varied(PLAIN, one.model_copy(update={"cohort": 1e6}))
    assert most.spec.cohort == population


def test_classes_count_by_their_records_and_not_by_the_clients_of_their_group():
    one = Variation(
        epsilons=(1.0, 1.0), rounds=1, partition="by-class:strict=0,1,2,3,4,5,6,7",
        seed=1, share=0.1,
    )  # fmt: skip
    run = ProxyRun.model_validate(proxy_run((SETTING.model_copy(update={"spec": PLAIN}), one)))
    assert run.coverage.overall() == pytest.approx([0.1] * 10, abs=0.01)
    without = run.coverage.model_copy(update={"frequency": None})
    assert without.overall()[0] < 0.08
