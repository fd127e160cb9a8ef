"""A plan that contradicts its spec or its own noise is bad input, whatever its hash."""

import json
import os

import pytest

import privplan
from privplan import values
from privplan.accounting.accountant import accountant
from privplan.accounting.release import Relation
from privplan.errors import InputError
from privplan.guard import Guard
from privplan.plan import Plan
from privplan.promise import require_certified
from privplan.record import PLAN
from privplan.report.tables import promise_line
from privplan.verification.verify import approved_plan, judge, load_run
from tests.command import refused, verify
from tests.guard.plans import two_groups
from tests.verification import honest_run


def rewritten(path, change):
    """Change a stored plan as a forger would, with the digest of what it says then."""
    data = json.loads(path.read_text())
    del data["digest"]
    change(data)
    path.write_text(json.dumps({**data, "digest": values.digest(data)}))


def _group(field, value):
    """A change of a field of the first group."""
    return lambda data: data["groups"][0].update({field: value})


def _row(field, value):
    """A change of a field of the first row of the certificate."""
    return lambda data: data["certificate"][0].update({field: value})


CONTRADICTIONS = {
    "groups.strict.epsilon": _group("epsilon", 10.0),
    "groups.strict.delta": _group("delta", 0.01),
    "groups.strict.clients": _group("clients", 801),
    "groups.strict.expected_cohort": _group("expected_cohort", 17.0),
    "groups.strict.contributions": _group("contributions", 2),
    "certificate.strict.pld.delta": _row("delta", 0.01),
    "certificate.strict.pld.relation": _row("relation", "replace_one"),
    "certificate.strict.pld.unit": _row("unit", "record"),
    "certificate.strict": _row("guarantee", False),
    "certificate.group": _row("group", "nobody"),
    "plan.certificate.strict": lambda data: data["certificate"].clear(),
    "plan.certificate.strict.pld.epsilon_upper": _row("epsilon_upper", 0.9999),
    "plan.certificate.strict.pld.epsilon_lower": _row("epsilon_lower", 0.1),
    "plan.certificate.strict.pld.sampling": _row("sampling", "full"),
}


@pytest.mark.parametrize("field", CONTRADICTIONS)
def test_a_contradiction_is_bad_input_that_names_the_field(field, tmp_path):
    honest_run.write_run(tmp_path)
    rewritten(tmp_path / PLAN, CONTRADICTIONS[field])
    answered = verify(tmp_path)
    assert answered.exit_code == 2
    assert answered.stdout == ""
    assert f"{field}: " in answered.stderr


@pytest.mark.parametrize(
    "change", [_group("noise_multiplier", 1.5), _group("noise_multiplier", 16.0)]
)
def test_noise_that_the_certificate_does_not_follow_is_found(change, tmp_path):
    """Also after the genuine plan was read, whose bounds are stored."""
    honest_run.write_run(tmp_path)
    Plan.load(tmp_path)
    rewritten(tmp_path / PLAN, change)
    assert "must be what the plan's releases cost" in verify(tmp_path).stderr


@pytest.mark.parametrize("field", ["weight", "scale"])
def test_weights_in_one_sum_are_those_of_its_scales(field, tmp_path):
    path = tmp_path / "plan.json"
    two_groups(12).save(path)
    rewritten(path, lambda data: data["groups"][0].update({field: 0.9}))
    with pytest.raises(InputError, match=r"strict\.weight: must be what its scale giv"):
        Plan.load(path)


def test_all_contradictions_are_named_at_once(tmp_path):
    honest_run.write_run(tmp_path)
    for field in ("groups.strict.epsilon", "groups.strict.delta"):
        rewritten(tmp_path / PLAN, CONTRADICTIONS[field])
    with pytest.raises(InputError) as error:
        load_run(tmp_path)
    fields = {fault.field.rpartition(": ")[2] for fault in error.value.faults}
    assert {"groups.strict.epsilon", "groups.strict.delta"} <= fields


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["explain"],
        ["report"],
        ["simulate", "--algorithm", "planned", "--dataset", "digits", "-o", "run"],
        ["compare", "--algorithms", "planned", "--dataset", "digits", "-o", "runs"],
        ["attack", "--algorithm", "planned", "--dataset", "digits"],
        ["export", "--to", "flower", "-o", "project"],
        ["book", "reserve", "--run", "a", "--address", "book.sqlite"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_takes_a_certificate_that_was_not_computed(
    words, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    honest_run.plan().save("plan.json")
    rewritten(tmp_path / "plan.json", _row("epsilon_upper", 0.9999))
    command = words[: 1 + (words[0] == "book")]
    options = words[len(command) :]
    assert "epsilon_upper: must be" in refused(*command, "plan.json", *options)
    assert os.listdir() == ["plan.json"]


def test_no_guard_opens_with_a_certificate_that_was_not_computed(tmp_path):
    honest_run.plan().save(tmp_path / "plan.json")
    rewritten(tmp_path / "plan.json", _group("noise_multiplier", 1.5))
    with pytest.raises(InputError, match="must be what the plan's releases cost"):
        Guard(tmp_path / "plan.json", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_explained_by_its_plan(tmp_path):
    """Which may promise what an algorithm without noise did not keep."""
    honest_run.write_run(tmp_path)
    assert "must be a plan, not a run folder, which privplan verify" in refused(
        "explain", tmp_path
    )


def test_what_was_planned_is_computed(tmp_path):
    plan = honest_run.write_run(tmp_path)
    strict = plan.groups[0]
    relation = Relation(plan.spec.relation)
    cost = accountant("pld").epsilon(plan.history(strict), strict.delta, relation)
    assert judge(load_run(tmp_path), 0).groups[0].planned == cost.upper
    assert require_certified(plan) is plan
    assert promise_line(Plan.load(tmp_path)).startswith("unverified")


def test_an_upper_bound_below_what_is_certain_is_found():
    plan = honest_run.plan()
    guarantee = plan.certificate[0]
    low = guarantee.model_copy(
        update={
            "accountant": "rdp",
            "guarantee": False,
            "kind": "upper bound",
            "epsilon_lower": 0.0,
            "epsilon_upper": guarantee.epsilon_lower / 2,
        }
    )
    changed = plan.model_copy(update={"certificate": (*plan.certificate, low)})
    with pytest.raises(InputError, match=r"strict\.rdp\.epsilon_upper"):
        require_certified(changed)


def test_the_approved_plan_is_not_the_one_that_the_run_has(tmp_path):
    """However it is named: the trainer wrote whatever lies in the run's folder."""
    run = tmp_path / "run"
    run.mkdir()
    honest_run.write_run(run)
    inside = run / "guard"
    inside.mkdir()
    (inside / "plan.json").write_bytes((run / PLAN).read_bytes())
    (tmp_path / "link").symlink_to(run)
    (tmp_path / "plan-link.json").symlink_to(run / PLAN)
    os.link(run / PLAN, tmp_path / "second-name.json")
    for name in ("run", "run/plan.json", "run/guard", "link", "plan-link.json"):
        with pytest.raises(InputError, match="not the one that the run has"):
            approved_plan(tmp_path / name, run)
    assert "plan: must be the plan that was approved" in refused(
        "verify", run, "--plan", tmp_path / "second-name.json"
    )
    with pytest.raises(InputError, match="not the one that the run has"):
        privplan.verify(run, plan=run, rounds=0)
    kept_elsewhere = tmp_path / "approved.json"
    kept_elsewhere.write_bytes((run / PLAN).read_bytes())
    assert approved_plan(kept_elsewhere, run) == Plan.load(run)
