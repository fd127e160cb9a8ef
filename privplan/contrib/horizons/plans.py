"""Plans of a horizon: each group's budget split over several runs on the same people.

A run with share s of a group's budget gets the Gaussian strength mu sqrt(s), where mu is that of
the whole budget, since squared strengths of Gaussian mechanisms add up. Histories of sampled
releases compose to a little less or more; so the strengths of a group are scaled by one factor
until the guarantee of all its releases in all runs uses the budget up and never exceeds it. That
guarantee is one composition, not a sum of epsilons.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privplan.accounting.certificate import CertificateRow, certify
from privplan.accounting.gdp import epsilon_of, mu_of
from privplan.accounting.release import History
from privplan.contrib.horizons.models import Horizon, HorizonModel, check, horizon_of
from privplan.errors import Fault, InfeasibleError, InputError
from privplan.files import load_json, read_text, write_text
from privplan.plan import Plan
from privplan.planning.noise import FAST_ACCOUNTANTS
from privplan.planning.solver import solve
from privplan.spec.objectives import is_objective
from privplan.spec.removed import set_aside
from privplan.spec.spec import Spec
from privplan.values import Checked, Fraction, digest, parse

Floats = NDArray[np.float64]

_SPENT = (0.993, 1.0)
_ITERATIONS = 6
_SPLITS = 3
_NOISE_TERMS = {"noise": 1.0, "privacy_noise": 1.0, "noise_std": 0.5}
"""Terms of objectives that fall with a share s, as s to minus this power."""


class HorizonPlan(Checked):
    """One plan per run, with shares, and the certificate of all runs as one composition.

    Attributes:
        spec: the problem, whose budgets are over all runs.
        horizon: the runs.
        shares: part of each group's budget by run, in squared Gaussian strength.
        plans: one per run; a plan's own epsilons hold for that run only.
        certificate: bounds on each group's epsilon over all runs, by accountant.
    """

    schema_version: Literal[1] = 1
    spec: Spec
    horizon: Horizon
    shares: tuple[Fraction, ...]
    plans: tuple[Plan, ...]
    certificate: tuple[CertificateRow, ...]

    @property
    def digest(self) -> str:
        """Content hash of the horizon: of the budgets over all runs, the plans and the rest."""
        return digest(self._content())

    def _content(self) -> dict[str, Any]:
        """Plain data, in which the horizon is a block of the spec, as it was written there."""
        data = self.model_dump(mode="json")
        return {**data, "spec": {**data["spec"], "horizon": data.pop("horizon")}}

    def plain(self) -> dict[str, Any]:
        """The horizon with its digest as plain data, which ``load`` reads."""
        content = self._content()
        return {**content, "digest": digest(content)}

    def save(self, path: Path | str) -> list[str]:
        """Write the horizon with its digest, and each run's plan beside it; returns the paths."""
        write_text(path, json.dumps(self.plain(), indent=1, allow_nan=False) + "\n")
        paths = [str(path)]
        for plan, model in zip(self.plans, self.horizon.all_models(), strict=True):
            paths.append(str(plan_path(path, model)))
            plan.save(paths[-1])
        return paths

    @classmethod
    def load(cls, path: Path | str) -> HorizonPlan:
        """Read what ``save`` wrote.

        As a plan, a horizon is refused without its digest or with another one. Its budgets cannot
        be checked against its certificate instead, since a plan may leave a part of a budget
        unspent, and a larger budget would pass.
        """
        try:
            data = load_json(read_text(path, "horizon"))
        except ValueError:
            raise InputError.one("horizon", "must be JSON", str(path)) from None
        if not isinstance(data, dict):
            raise InputError.one("horizon", "must be a mapping of fields", type(data).__name__)
        if not {"spec", "shares", "plans", "certificate"} <= data.keys():
            rule = "must be what privplan book horizon wrote"
            raise InputError.one("horizon", rule, f"fields {', '.join(data)}"[:100])
        written = data.pop("digest", "nothing")
        if written != digest(data):
            rule = "must be the hash of the horizon; it was edited by hand, or written by a version"
            rule += " without digests, so solve the spec again"
            raise InputError.one("horizon.digest", rule, written)
        block = data["spec"].get("horizon") if isinstance(data["spec"], dict) else None
        spec, _ = set_aside(data["spec"])
        plans = tuple(Plan.of_content(one) for one in data["plans"])
        content = {**data, "spec": spec, "plans": plans, "horizon": horizon_of(block)}
        return parse(cls, content)


def plan_path(path: Path | str, model: HorizonModel) -> Path:
    """Where the plan of a model is written, beside the horizon's file."""
    base = Path(path)
    return base.with_name(f"{base.stem}-{model.name}{base.suffix or '.json'}")


def solve_horizon(
    spec: Spec, horizon: Horizon, *, second_opinion: bool | None = None
) -> HorizonPlan:
    """The plans of all runs of a horizon."""
    check(spec, horizon)
    models = horizon.all_models()
    _require_runs(spec, models)
    shares = np.full(len(models), 1 / len(models))
    if horizon.split == "given":
        shares = np.array([model.share or 0.0 for model in models])
    plans = _plans(spec, models, shares, second_opinion)
    if horizon.split in ("worst", "mean"):
        for _ in range(_SPLITS):
            better = _shares(plans, shares, worst=horizon.split == "worst")
            if np.max(np.abs(better - shares)) < 5e-3:
                break
            shares = better
            plans = _plans(spec, models, shares, second_opinion)
    return HorizonPlan(
        spec=spec,
        horizon=horizon,
        shares=tuple(float(share) for share in shares),
        plans=plans,
        certificate=_certificate(spec, plans),
    )


def _plans(
    spec: Spec, models: Sequence[HorizonModel], shares: Floats, second_opinion: bool | None
) -> tuple[Plan, ...]:
    """The plans of the runs, whose composition keeps every budget and uses it up."""
    deltas = [spec.delta_of(group) for group in spec.groups]
    strengths = [mu_of(group.epsilon, d) for group, d in zip(spec.groups, deltas, strict=True)]
    factors = np.ones(len(spec.groups)) * 0.998
    kept: tuple[Plan, ...] | None = None
    for _ in range(_ITERATIONS):
        solved: dict[str, Plan] = {}
        plans = []
        for model, share in zip(models, shares, strict=True):
            epsilons = [
                epsilon_of(mu * factor * math.sqrt(share), delta)
                for mu, factor, delta in zip(strengths, factors, deltas, strict=True)
            ]
            run = _run_spec(spec, model, epsilons)
            key = run.model_copy(update={"name": ""}).model_dump_json()
            if key not in solved:
                with model.named_in_errors():
                    solved[key] = solve(run, second_opinion=second_opinion)
            plans.append(_named(solved[key], run))
        spent = np.array(_spent(spec, plans))
        own = np.array([_own_share(plans, m) for m in range(len(spec.groups))])
        if np.all(spent <= 1):
            kept = tuple(plans)
        # a group that leaves its own budgets unspent gains nothing by larger ones
        done = (spent <= _SPENT[1]) & ((spent >= _SPENT[0]) | (own < 0.97))
        if np.all(done):
            break
        factors = np.where(done, factors, factors * 0.998 / spent)
    if kept is None:
        worst = int(np.argmax(spent))
        raise InfeasibleError(
            f"groups.{spec.groups[worst].name}.epsilon: {spec.groups[worst].epsilon:g} is "
            f"overspent by {spent[worst] - 1:.2%} over all runs of the horizon"
        )
    return kept


def _run_spec(spec: Spec, model: HorizonModel, epsilons: Sequence[float]) -> Spec:
    data, own = spec.model_dump(mode="json"), model.own_fields()
    groups = [
        {**group, "epsilon": epsilon, "delta": spec.delta_of(asked)}
        for group, epsilon, asked in zip(data["groups"], epsilons, spec.groups, strict=True)
    ]
    name = f"{spec.name}-{model.name}"
    with model.named_in_errors():
        return Spec.parse({**data, **own, "groups": groups, "name": name})


def _require_runs(spec: Spec, models: Sequence[HorizonModel]) -> None:
    """Raise InputError with the faults of the fields of all models."""
    faults: list[Fault] = []
    for model in models:
        if model.own_fields():
            try:
                _run_spec(spec, model, [group.epsilon for group in spec.groups])
            except InputError as error:
                faults += error.faults
    if faults:
        raise InputError(faults)


def _named(plan: Plan, run: Spec) -> Plan:
    """The plan of an equal run under this run's name."""
    return plan.model_copy(update={"spec": plan.spec.model_copy(update={"name": run.name})})


def _history(plans: Sequence[Plan], group: int) -> History:
    """All releases in which a client of the group takes part, over all runs."""
    parts = [part for plan in plans for part in plan.history(plan.groups[group])]
    return History(parts)


def _spent(spec: Spec, plans: Sequence[Plan]) -> list[float]:
    """Certified epsilon over all runs, over the budget, of each group."""
    rows = _certificate(spec, plans)
    return [
        max(row.epsilon_upper for row in rows if row.guarantee and row.group == group.name)
        / group.epsilon
        for group in spec.groups
    ]


def _own_share(plans: Sequence[Plan], group: int) -> float:
    """The largest part of its own budget that a run of the group spends."""
    name = plans[0].groups[group].name
    return max(
        row.epsilon_upper / plan.groups[group].epsilon
        for plan in plans
        for row in plan.certificate
        if row.guarantee and row.group == name
    )


def _certificate(spec: Spec, plans: Sequence[Plan]) -> tuple[CertificateRow, ...]:
    return tuple(
        row
        for m, group in enumerate(spec.groups)
        for row in certify(
            _history(plans, m),
            group=group.name,
            delta=spec.delta_of(group),
            relation=spec.relation,
            accountants=FAST_ACCOUNTANTS,
            unit=spec.unit,
        )
    )


def _shares(plans: Sequence[Plan], shares: Floats, *, worst: bool) -> Floats:
    """Shares of the least worst or mean objective, by terms of noise that fall with the share."""
    if not all(is_objective(plan.spec.planning.ratios) for plan in plans):
        raise InputError.one("horizon.split", "needs an objective to minimise", "fixed ratios")
    power = _power(plans[0])
    noise = np.array([_noise_term(plan) for plan in plans])
    scaled = noise * shares**power
    if not worst:
        wanted = scaled ** (1 / (power + 1))
        return np.asarray(wanted / wanted.sum())
    rest = np.array([plan.objective.value for plan in plans]) - noise
    low, high = float(rest.max()), float(rest.max() + scaled.sum() * len(plans) ** (1 + power))
    for _ in range(200):
        level = (low + high) / 2
        if np.sum((scaled / np.maximum(level - rest, 1e-300)) ** (1 / power)) > 1:
            low = level
        else:
            high = level
    wanted = (scaled / (high - rest)) ** (1 / power)
    return np.asarray(wanted / wanted.sum())


def _power(plan: Plan) -> float:
    return next((power for name, power in _NOISE_TERMS.items() if name in plan.bound), 1.0)


def _noise_term(plan: Plan) -> float:
    found: list[Any] = [plan.bound[name] for name in _NOISE_TERMS if name in plan.bound]
    return float(found[0]) if found else plan.objective.value
