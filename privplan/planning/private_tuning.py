"""Plans whose recipe is tuned on private data: every budget holds for the best of all runs.

One run is planned with smaller budgets, such that the bound of Papernot and Steinke on the
release of the best run meets each group's budget. The certificate keeps the rows of one run and
gives the guarantee of the selection in rows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from privplan.accounting.certificate import OF_ONE_RUN, CertificateRow, laws
from privplan.accounting.release import History, Relation
from privplan.accounting.selection import epsilon_of_selection
from privplan.errors import InfeasibleError
from privplan.plan import Plan
from privplan.spec.spec import Spec
from privplan.spec.tuning import PrivateTuning

ACCOUNTANT = "selection"
"""Accountant of the certificate's rows on the best of all runs."""
_CLOSE = 0.005
"""Largest share of a budget that the search leaves unspent."""
_STEPS = 30


def shape_of(tuning: PrivateTuning) -> float:
    """Eta of the law of the number of runs; ``inf`` for Poisson."""
    if tuning.law == "poisson":
        return math.inf
    return 1.0 if tuning.law == "geometric" else tuning.shape or 0.5


def selected_epsilon(plan: Plan, history: History, delta: float) -> float:
    """Upper bound on epsilon of the best run of a plan with ``tuning``, for one group.

    Args:
        plan: the plan.
        history: releases of one run about the group.
        delta: failure probability.
    """
    tuning = plan.spec.tuning
    assert tuning is not None
    relation = Relation(plan.spec.relation)
    return epsilon_of_selection(history, delta, relation, mean=tuning.runs, shape=shape_of(tuning))


def solve_with_tuning(spec: Spec, solve: Callable[[Spec], Plan]) -> Plan:
    """Returns a plan of one run, certified for the best of the runs of ``spec.tuning``.

    Args:
        spec: the spec.
        solve: solves a spec without ``tuning``.

    Raises:
        InfeasibleError: when no noise keeps a budget.
    """
    budgets = {group.name: group.epsilon for group in spec.groups}
    shares = dict.fromkeys(budgets, 0.5)
    best: Plan | None = None
    for _ in range(_STEPS):
        groups = tuple(
            group.model_copy(update={"epsilon": budgets[group.name] * shares[group.name]})
            for group in spec.groups
        )
        run = solve(spec.model_copy(update={"groups": groups, "tuning": None}))
        plan = _certified(run, spec)
        used = {
            row.group: row.epsilon_upper / budgets[row.group]
            for row in plan.certificate
            if row.accountant == ACCOUNTANT
        }
        if max(used.values()) <= 1:
            best = plan
            if min(used.values()) >= 1 - _CLOSE:
                break
        for name, share in used.items():
            # towards the middle of what may stay unspent; the bound grows faster than a run's
            shares[name] *= min(2.0, max(0.5, ((1 - _CLOSE / 2) / share) ** 0.9))
    if best is None:
        raise InfeasibleError("tuning: no noise was found that keeps the budgets over all runs")
    return best


def _certified(run: Plan, spec: Spec) -> Plan:
    """The plan of one run with the budgets of the spec and rows on the best of all runs."""
    budgets = {group.name: group for group in spec.groups}
    own = {group.name: group.model_copy(update={"epsilon": budgets[group.name].epsilon})
           for group in run.groups}  # fmt: skip
    decided = run.spec.model_copy(update={"groups": spec.groups, "tuning": spec.tuning})
    tuning = spec.tuning
    assert tuning is not None
    note = (
        f"tuning: the budgets hold for the best of K runs, K {tuning.law} with mean "
        f"{tuning.runs:g}, recipes drawn independently of the data; the score must be part of a "
        "run's releases or come from public data, and only the best run may be shown"
    )
    plan = run.model_copy(
        update={
            "spec": decided,
            "groups": tuple(own[group.name] for group in run.groups),
            "warnings": (*run.warnings, note),
        }
    )
    rows = [
        row.model_copy(update={"guarantee": False, "kind": f"{row.kind}{OF_ONE_RUN}"})
        for row in run.certificate
    ]
    for group in plan.groups:
        history = plan.history(group)
        rows.append(
            CertificateRow(
                group=group.name,
                accountant=ACCOUNTANT,
                epsilon_lower=0.0,
                epsilon_upper=selected_epsilon(plan, history, group.delta),
                delta=group.delta,
                sampling=laws(history),
                relation=Relation(plan.spec.relation),
                version="privplan-selection 1",
                guarantee=True,
                kind="upper bound",
            )
        )
    return plan.model_copy(update={"certificate": tuple(rows)})
