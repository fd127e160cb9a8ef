"""Planning problems that the tests share."""

from typing import Any

from privplan.accounting.calibrate import noise_multiplier
from privplan.accounting.certificate import certify
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.plan import GroupPlan, ObjectiveValue, Plan
from privplan.planning.problem import Problem
from privplan.planning.theorem_3 import step_constants
from privplan.spec.spec import Spec


def make_problem(**changes):
    """Three groups of 200 clients, 20 rounds."""
    settings: dict[str, Any] = {
        "names": ("strict", "medium", "loose"),
        "clients": (200, 200, 200),
        "epsilons": (1.0, 2.0, 4.0),
        "deltas": (1e-3,) * 3,
        "rounds": 20,
        "cohort": 60.0,
        "sampling": SamplingLaw.POISSON,
        "relation": Relation.ADD_REMOVE,
        "clipping_norm": 1.0,
        "dimension": 1000,
        "constants": step_constants(0.1, 5),
    }
    return Problem(**{**settings, **changes})


def members(name, clients, epsilon, **fields):
    """Plain data of a group."""
    return {"name": name, "clients": clients, "epsilon": epsilon, **fields}


def spec_data(**changes):
    """Plain data of a small spec."""
    data: dict[str, Any] = {
        "name": "small",
        "groups": [members("strict", 200, 1.0), members("loose", 300, 4.0)],
        "delta": 1e-4,
        "rounds": 10,
        "cohort": 50,
        "sampling": "poisson",
        "relation": "add_remove",
        "clipping_norm": 1.0,
        "local": {"steps": 5, "batch_size": 5, "learning_rate": 0.1},
        "model": {"name": "mlp-digits", "parameters": 2410},
        "planning": {"accountant": "rdp", "ratios": "gdpfed_plus"},
    }
    return {**data, **changes}


def make_spec(**changes):
    """A small spec; ``planning`` is merged, everything else replaced.

    Plans are the best ones, without slack to spend less.
    """
    data = spec_data()
    planning = {**data["planning"], **changes.pop("planning", {})}
    has_slack = planning["ratios"] in ("balanced", "noise")
    if has_slack and planning.get("release") in (None, "joint"):
        planning = {"slack": 0.0, **planning}
    data["planning"] = planning
    return Spec.parse({**data, **changes})


def keeps_every_budget(plan):
    """Whether each group has guarantees, and all are within its budget."""
    budgets = {group.name: group.epsilon for group in plan.groups}
    rows = [row for row in plan.certificate if row.guarantee]
    all_within_budget = all(row.epsilon_upper <= budgets[row.group] for row in rows)
    return all_within_budget and {row.group for row in rows} == set(budgets)


def given_plan(spec, numbers, release="per_group"):
    """A certified plan of each group's sampling ratio and noise multiplier."""
    groups = []
    rows = []
    least_multiplier = min(sigma for _, sigma in numbers.values())
    # In a sum of all groups each client counts by its scale, 1 / noise multiplier.
    summed = {
        group.name: group.clients * numbers[group.name][0] / numbers[group.name][1]
        for group in spec.groups
    }
    for group in spec.groups:
        ratio, noise_multiplier = numbers[group.name]
        privacy: dict[str, Any] = {
            "delta": spec.delta_of(group),
            "relation": Relation(spec.relation),
        }
        history = History.repeated(
            Release(noise_multiplier, ratio, spec.sampling), spec.rounds
        )
        rows += certify(history, group=group.name, accountants=("pld",), **privacy)
        # In a joint release the group that needs the least noise is scaled by 1.
        scale = 1.0
        weight = 1 / len(spec.groups)
        if release == "joint":
            scale = least_multiplier / noise_multiplier
            weight = summed[group.name] / sum(summed.values())
        groups.append(
            GroupPlan(
                name=group.name,
                clients=group.clients,
                epsilon=group.epsilon,
                delta=privacy["delta"],
                sampling_ratio=ratio,
                expected_cohort=ratio * group.clients,
                noise_multiplier=noise_multiplier,
                kept_fraction=1.0,
                weight=weight,
                scale=scale,
            )
        )
    return Plan(
        spec=spec,
        release=release,
        groups=tuple(groups),
        bound={},
        mean_noise_std=0.1,
        objective=ObjectiveValue(name="given", value=0.0),
        status="given",
        certificate=tuple(rows),
    )


def calibrated(budget, ratio):
    """The noise multiplier that a calibration finds for a budget."""
    return noise_multiplier(
        budget.epsilon,
        budget.delta,
        sampling_ratio=ratio,
        rounds=budget.rounds,
        sampling=budget.sampling,
        relation=budget.relation,
    )
