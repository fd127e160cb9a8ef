"""The functions that users call from Python, one per question; docs/api.md lists all names.

Values have the other half of the interface as methods, such as ``Spec.replace`` and ``Plan.plot``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privplan.errors import InputError, checked_call

if TYPE_CHECKING:
    from privplan.accounting.certificate import Certificate
    from privplan.accounting.release import History
    from privplan.accounting.tradeoff import TradeOff
    from privplan.plan import Plan
    from privplan.spec.spec import Spec
    from privplan.verification.checks.check import Run
    from privplan.verification.verify import Verdict


@checked_call
def preset(name: str = "digits") -> Spec:
    """A ready spec to start from; ``privplan init --preset NAME`` writes it as YAML.

    >>> privplan.preset("gdpfed-fmnist").groups["strict"].epsilon
    0.5
    """
    from privplan.files import load_yaml
    from privplan.spec.presets import preset as text
    from privplan.spec.spec import Spec

    return Spec.parse(load_yaml(text(name), "spec"))


@checked_call
def account(
    history: History | None = None, *, accountants: Sequence[str] = (), **releases: Any
) -> Certificate:
    """What a mechanism costs: bounds on epsilon by accountant; ``.epsilon`` is the guarantee.

    Args:
        history: releases, such as ``plan.history("strict")``; or else equal ones, by numbers.
        accountants: names, such as pld, rdp, prv; the project's own when empty.
        releases: ``noise_multiplier`` (standard deviation of the noise over the clipping norm),
            ``sampling_ratio`` (chance of a client to be in a round), ``rounds``; ``delta``, or
            ``clients`` for clients^-1.1; ``sampling`` (poisson, fixed_size, full,
            cyclic_poisson:B) and ``relation`` (add_remove, replace_one, zero_out).

    >>> privplan.account(noise_multiplier=1.5, sampling_ratio=0.02, rounds=50, delta=1e-5).epsilon
    0.4559...
    """
    from privplan.accounting.certificate import composition

    return composition(history=history, **releases).certify(accountants)


@checked_call
def calibrate(
    epsilon: float,
    *,
    solve_for: str = "noise_multiplier",
    accountant: str = "pld",
    **releases: Any,
) -> float:
    """The value of one parameter with which a mechanism just keeps a budget.

    Args:
        epsilon: the budget over all rounds, at ``delta``.
        solve_for: noise_multiplier, sampling_ratio, rounds, cohort (of ``clients``) or delta.
        accountant: whose upper bound keeps the budget.
        releases: all other parameters, as for ``account``.

    >>> privplan.calibrate(0.5, delta=1e-5, sampling_ratio=0.02, rounds=50)
    1.4259...
    """
    from privplan.accounting.certificate import calibrated_composition

    return calibrated_composition(solve_for, epsilon, accountant=accountant, **releases)[0]


@checked_call
def tradeoff(history: History | None = None, **releases: Any) -> TradeOff:
    """What the best attacker can achieve at most, by the accountant pld; called as ``account`` is.

    ``advantage`` is the largest true-positive minus false-positive rate; ``true_positives`` are
    the rates at false-positive rates of 0.1%, 1% and 10%.

    >>> 0 < privplan.tradeoff(plan.history("strict"), delta=1e-5).advantage < 0.5
    True
    """
    from privplan.accounting.certificate import composition

    return composition(history=history, **releases).tradeoff()[1]


@checked_call
def verify(
    run: Run | Path | str,
    *,
    plan: Plan | Path | str | None = None,
    rounds: int | str | None = None,
) -> Verdict:
    """Recompute what a run spent from its ledger alone, and compare it with the plan's budgets.

    Args:
        run: a run folder, or what ``load_run`` or ``simulate.train`` returned.
        plan: the plan that was approved; a run of another one is broken.
        rounds: how many are executed again where simulator and data are found: a number, ``all``,
            or as many as fit into 10 s when left out; ``replay.json`` in the run folder keeps it.

    >>> privplan.verify("run", rounds=0).outcome
    'kept'
    """
    from privplan.plan import Plan
    from privplan.verification.verify import execute_again, judge, load_run

    folder = _folder(run, "verify")
    approved = () if plan is None else (plan if isinstance(plan, Plan) else Plan.load(plan),)
    loaded = replace(load_run(folder), trusted=approved)
    again = execute_again(folder, None if rounds is None else str(rounds), loaded.record, {})
    return judge(loaded, *again)


def _folder(run: Any, name: str) -> Path:
    """The folder of a run."""
    found = getattr(run, "folder", run)
    if isinstance(found, Path | str):
        return Path(found)
    raise InputError.one(
        "run", f"must be a folder, as in privplan.{name}('run')", type(run).__name__
    )
