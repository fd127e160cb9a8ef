"""The spec: every fault named, all at once, and what is derived from it."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from privplan.errors import InputError
from privplan.spec.presets import PRESETS, preset
from privplan.spec.removed import REMOVED
from privplan.spec.spec import Spec
from privplan.yaml_text import load_yaml
from tests.planning.problems import make_spec, spec_data

GROUP = "{name: strict, clients: 100, epsilon: 2}"


def changed(path, value):
    """The small spec with a value replaced; ``groups.0.epsilon`` reaches into lists."""
    data: Any = json.loads(json.dumps(spec_data(), allow_nan=True))
    *parents, field = path.split(".")
    place = data
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place.setdefault(parent, {})
    place[int(field) if field.isdigit() else field] = value
    return data


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_specs(name):
    spec = Spec.parse(load_yaml(preset(name), name))
    assert spec.name == name
    assert spec.warnings() == []
    if spec.unit == "client":
        assert spec.delta_of(spec.groups[0]) == pytest.approx(spec.population**-1.1)
    jsonschema.validate(yaml.safe_load(preset(name)), Spec.model_json_schema())


def _fields(data, folder="."):
    with pytest.raises(InputError) as caught:
        Spec.parse(data, folder)
    return [fault.field for fault in caught.value.faults]


def test_a_plan_names_every_number_and_old_specs_have_no_new_field():
    spec = make_spec(server={"optimizer": "adam"}, averaging={})
    data = spec.model_dump(mode="json")
    assert data["server"] == {
        "optimizer": "adam",
        "learning_rate": 0.01,
        "epsilon": 0.001,
    }
    assert data["averaging"] == {"method": "ema", "decay": 0.8}
    assert Spec.parse(data) == spec
    assert not {"server", "averaging"} & make_spec().model_dump().keys()


def test_faults_between_sound_fields_are_reported_beside_faulty_ones():
    data = changed("groups.0.name", "loose")
    data |= {"rounds": 0, "cohort": 5000}
    data["planning"]["sparsification"] = [0.5]
    assert _fields(data) == ["rounds", "groups", "cohort", "planning.sparsification"]


def record_data(**changes):
    group = {"name": "one", "clients": 5, "epsilon": 2.0, "records": 100}
    return {
        **spec_data(unit="record", cohort=None, planning={}, groups=[group]),
        **changes,
    }


@pytest.mark.parametrize("data", [spec_data(), record_data()])
def test_a_dump_has_the_fields_of_both_units_in_one_order(data):
    dump = Spec.parse(data).model_dump(mode="json")
    assert list(dump["planning"])[:4] == [
        "accountant",
        "calibration",
        "ratios",
        "release",
    ]
    assert dump["groups"][0]["min_weight"] is None
    assert (
        ("unit" in dump)
        == ("records" in dump["groups"][0])
        == (data.get("unit") == "record")
    )


def test_faults_of_fields_parts_and_rules_are_reported_at_once():
    data = changed(
        "planning", {"ratios": "uniform", "weights": "optimal", "free": ["rounds"]}
    )
    data["groups"][0] |= {"records": 3, "min_weight": 0.1, "clients": 0}
    data |= {"local": {"epochs": 2}, "rounds": 0, "cohort": 1}
    assert set(_fields({**data, "colour": "red"})) == {
        "groups.strict.clients",
        "groups.strict.records",
        "groups.strict.min_weight",
        "local.epochs",
        "rounds",
        "cohort",
        "planning.weights",
        "planning.free",
        "colour",
    }


def test_the_schema_allows_what_a_spec_may_hold():
    """Every spec of docs/inverse.md, and specs of records as written and dumped."""
    schema = Spec.model_json_schema()
    page = (Path(__file__).parents[2] / "docs/inverse.md").read_text()
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    dumped = Spec.parse(record_data()).model_dump(mode="json")
    for data in (*map(yaml.safe_load, blocks), spec_data(), record_data(), dumped):
        jsonschema.validate(data, schema)
    for faulty in (
        record_data(unit="people"),
        spec_data(rounds=None),
        spec_data(colour=1),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(faulty, schema)


def test_fixed_noise_says_what_it_spends_and_has_no_risk_beside_it():
    fixed = {"name": "a", "clients": 500, "noise_multiplier": 2.0}
    [group] = make_spec(groups=[fixed], planning={"ratios": "uniform"}).groups
    assert 0 < group.epsilon < 5
    fixed_and_risk = {**fixed, "risk": {"advantage": 0.2}}
    with pytest.raises(InputError, match="noise_multiplier: cannot go with a risk"):
        make_spec(groups=[fixed_and_risk], planning={"ratios": "uniform"})


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("clipping", 1.0, "field; write clipping_norm"),
        ("clipping", {"quantile": 0.5}, "field; write planning.clipping"),
        ("groups", {"a": {}, "b": {}}, f"- {GROUP}, found 'a mapping of a, b'"),
        ("cohort", "30%", "must be a number of clients; write 150 for 30% of 500 "),
        ("cohort", 0.3, "per group (2); write 150 for 30% of 500 clients"),
        ("cohort", "120%", "must be a number of clients, found"),
    ],
)
def test_a_guess_is_answered_with_what_is_taken(field, value, line):
    with pytest.raises(InputError, match=re.escape(line)):
        Spec.parse({**spec_data(), field: value})


@pytest.mark.parametrize("path", REMOVED)
def test_a_field_that_was_removed_names_what_to_use(path):
    value: Any = 1
    for name in reversed(path.split(".")):
        value = [{"name": "a", **value}] if name == "*" else {name: value}
    with pytest.raises(InputError) as raised:
        Spec.parse({**spec_data(), **value})
    field = path.replace("*", "a")
    use = REMOVED[path]
    assert str(raised.value) == f"{field}: was removed in 0.2; use {use}, found 1"
