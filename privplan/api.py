"""The functions that users call from Python; docs/api.md lists all names.

There is one per question. Values have the other half of the interface as methods, such
as ``Spec.replace`` and ``Plan.plot``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, overload

from privplan.errors import InputError
from privplan.guidance import checked_call

if TYPE_CHECKING:
    import numpy.typing as npt

    from privplan.accounting.certificate import Certificate
    from privplan.accounting.many import Bounds
    from privplan.accounting.release import History
    from privplan.accounting.tradeoff import TradeOff
    from privplan.evidence.replay import ReplayReport
    from privplan.plan import Forecast, Plan
    from privplan.spec.spec import Spec
    from privplan.verification.run import Run
    from privplan.verification.verdict import Verdict


class Releases(TypedDict, total=False):
    """Equal releases by numbers, and what their cost is counted at."""

    noise_multiplier: float  # standard deviation of the noise over the clipping norm
    sampling_ratio: float  # chance of a client to be in a round
    rounds: int
    delta: float  # clients^-1.1 when left out
    clients: int
    contributions: int  # most clients that one person has
    sampling: str  # poisson, or a law of docs/laws.md
    relation: str  # add_remove, replace_one or zero_out


class ManyReleases(TypedDict, total=False):
    """The same, some of them arrays whose shapes fit."""

    noise_multiplier: npt.ArrayLike
    sampling_ratio: npt.ArrayLike
    rounds: npt.ArrayLike
    delta: npt.ArrayLike
    clients: npt.ArrayLike
    contributions: npt.ArrayLike
    sampling: str | Sequence[str]
    relation: str | Sequence[str]
    tolerance: float  # gap of the bounds over the upper one, to aim at
    workers: int  # processes


@checked_call
def preset(name: str = "digits") -> Spec:
    """A ready spec to start from; ``privplan init --preset NAME`` writes it as YAML.

    >>> privplan.preset("gdpfed-fmnist").groups["strict"].epsilon
    0.5
    """
    from privplan.spec.presets import preset as text
    from privplan.spec.spec import Spec
    from privplan.yaml_text import load_yaml

    return Spec.parse(load_yaml(text(name), "spec"))


@overload
def account(
    history: History | None = None,
    *,
    accountants: Sequence[str] = (),
    **releases: Unpack[Releases],
) -> Certificate: ...
@overload
def account(**releases: Unpack[ManyReleases]) -> Bounds: ...
@checked_call
def account(
    history: History | None = None, *, accountants: Sequence[str] = (), **releases: Any
) -> Any:
    """What a mechanism costs: bounds on epsilon by accountant.

    ``.epsilon`` is the guarantee. A ``Certificate``, or for numbers in arrays
    ``Bounds`` of the accountant pld: arrays, within a relative ``tolerance`` (0.01)
    nearly always; 0.001 takes longer.

    Args:
        history: releases, such as ``plan.history("strict")``; or else equal ones, by
            numbers.
        accountants: names, such as pld, rdp, prv; the project's own when empty.
        releases: ``noise_multiplier`` (standard deviation of the noise over the
            clipping norm), ``sampling_ratio`` (chance of a client to be in a round),
            ``rounds``; ``delta``, or ``clients`` for clients^-1.1; ``sampling``
            (poisson, or a law of docs/laws.md), ``contributions`` and ``relation``
            (add_remove, replace_one, zero_out).

    >>> privplan.account(
    ...     noise_multiplier=1.5, sampling_ratio=0.02, rounds=50, delta=1e-5
    ... ).epsilon
    0.4559...
    """
    from privplan.accounting.composition import composition

    if isinstance(accountants, str):
        accountants = [accountants]
    has_arrays = any(
        hasattr(value, "__len__") and not isinstance(value, str)
        for value in releases.values()
    )
    if has_arrays:
        from privplan.accounting.many import bounds

        if [*accountants] not in ([], ["pld"]):
            raise InputError.one("accountants", "must be pld for arrays", accountants)
        return bounds(history=history, **releases)
    return composition(history=history, **releases).certify(accountants)


@checked_call
def calibrate(
    epsilon: float,
    *,
    solve_for: str = "noise_multiplier",
    accountant: str = "pld",
    **releases: Unpack[Releases],
) -> float:
    """The value of one parameter with which a mechanism just keeps a budget.

    Args:
        epsilon: the budget over all rounds, at ``delta``.
        solve_for: noise_multiplier, sampling_ratio, rounds, cohort (of ``clients``) or
            delta.
        accountant: whose upper bound keeps the budget.
        releases: all other parameters, as for ``account``.

    >>> privplan.calibrate(0.5, delta=1e-5, sampling_ratio=0.02, rounds=50)
    1.426...
    """
    from privplan.accounting.composition import calibrated_composition

    value, _ = calibrated_composition(
        solve_for, epsilon, accountant=accountant, **releases
    )
    return value


@checked_call
def tradeoff(history: History | None = None, **releases: Unpack[Releases]) -> TradeOff:
    """What the best attacker can achieve at most, by the accountant pld.

    It is called as ``account`` is. ``advantage`` is the largest true-positive minus
    false-positive rate; ``true_positives`` are the rates at false-positive rates of
    0.1%, 1% and 10%.

    >>> 0 < privplan.tradeoff(plan.history("strict"), delta=1e-5).advantage < 0.5
    True
    """
    from privplan.accounting.composition import composition

    _, curve = composition(history=history, **releases).tradeoff()
    return curve


@checked_call
def what_if(
    spec: Spec | Mapping[str, Any] | Path | str,
    vary: Mapping[str, Iterable[float]],
    *,
    workers: int = 1,
) -> Any:
    """The plans of a spec with some of its numbers varied, as a ``pandas.DataFrame``.

    All combinations of the values in ``vary`` are solved, over ``workers`` processes.
    One row per point and group, with ``noise_norm`` (of the mean update, in norm) or
    ``error``; ``plot()`` draws noise and weights.

    >>> privplan.what_if(plan.spec, {"groups.strict.epsilon": [1, 2]}).shape[0]
    6
    """
    from privplan.planning.sweep import Vary, in_full, sweep
    from privplan.report.plots import sweep_panels
    from privplan.report.show import Picture, frame_or_rows

    is_mapping = isinstance(vary, Mapping)
    if not is_mapping or any(isinstance(values, str) for values in vary.values()):
        rule = 'must be values by name, such as {"groups.strict.epsilon": [0.5, 1, 2]}'
        raise InputError.one("vary", rule, vary)
    data = spec_of(spec).plain()
    varied = []
    for name, values in vary.items():
        numbers = values if isinstance(values, Iterable) else [values]
        varied.append(Vary(in_full(data, name), tuple(map(float, numbers))))
    rows = sweep(data, varied, workers=workers)
    paths = [field.path for field in varied]
    return frame_or_rows(rows, lambda: Picture(partial(sweep_panels, rows, paths)))


@checked_call
def frontier(spec: Spec | Mapping[str, Any] | Path | str) -> Any:
    """How noise changes with rounds, cohort and budgets, as a ``pandas.DataFrame``.

    One row per changed plan: ``noise`` is that of the mean update in norm, ``change``
    is relative (per unit of epsilon for ``shadow_price``). ``plot()`` draws it.

    >>> "rounds" in set(privplan.frontier(plan.spec)["question"])
    True
    """
    from privplan.planning import frontier as chapter
    from privplan.report.plots import frontier_panels
    from privplan.report.show import Picture, frame_or_rows

    points = chapter.frontier(spec_of(spec))
    draw = partial(frontier_panels, points)
    return frame_or_rows([point.plain() for point in points], lambda: Picture(draw))


@checked_call
def forecast(
    plan: Plan | Path | str,
    proxy: Path | str,
    *,
    known_accuracy: str | None = None,
    coverage: Path | str | Mapping[str, Any] | None = None,
) -> Forecast:
    """Forecast accuracy of a plan before training.

    ``accuracy``, ``lower`` and ``upper`` are in [0, 1].

    Args:
        plan: or its file.
        proxy: a table of runs on proxy data (``privplan proxy forecast``).
        known_accuracy: PLAN.json=PERCENT, of a plan that was trained.
        coverage: the classes that each group holds, such as {"strict": [0.5, 0.5, 0]},
            or a file of it; the interval covers what may be when left out.

    >>> found = privplan.forecast("two-groups.json", "proxy.json")
    >>> 0 <= found.lower <= found.accuracy <= found.upper <= 1
    True
    """
    from privplan.forecast.coverage import read_coverage
    from privplan.forecast.model import forecaster_with, with_forecast
    from privplan.plan import Plan

    solved = Plan.load(plan)
    model = forecaster_with(str(proxy), known_accuracy, coverage)
    classes = read_coverage(
        coverage, solved.spec, model.table.classes, model.table.skew
    )
    return cast("Forecast", with_forecast(solved, model, classes).forecast)


@checked_call
def verify(
    run: Run | Path | str,
    *,
    plan: Plan | Path | str | None = None,
    rounds: int | str | None = None,
) -> Verdict:
    """Recompute what a run spent from its ledger alone, and compare it with the plan.

    Args:
        run: a run folder, or what ``load_run`` or ``simulate.train`` returned.
        plan: the plan that was approved; a run of another one is broken.
        rounds: how many are executed again where simulator and data are found: a
            number, ``all``, or as many as fit into 10 s when left out.

    >>> privplan.verify("run", rounds=0).outcome
    'kept'
    """
    from privplan.record import run_folder
    from privplan.verification.verify import approved_plan, judge, load_run

    loaded = load_run(run_folder(run))
    approved = () if plan is None else (approved_plan(plan, loaded.folder),)
    return judge(loaded, rounds, trusted=approved)


@checked_call
def replay(
    run: Run | Path | str,
    *,
    rounds: int | None = 5,
    data_dir: Path | str | None = None,
    seed: int | None = None,
) -> ReplayReport:
    """Execute rounds of a finished simulation again by a second implementation.

    ``outcome`` is passed, failed or not shown; ``replay.json`` in the run folder keeps
    it.

    Args:
        run: a run folder, or a run.
        rounds: how many are drawn at random; None for all.
        data_dir: folder with data sets; the usual one when None.
        seed: of the selection of rounds; fresh when None.

    >>> privplan.replay("run", rounds=1).outcome
    'passed'
    """
    from privplan.record import run_folder

    folder = run_folder(run)
    try:
        chapter = import_module("simulate.replay.replay")
    except ImportError as error:
        rule = "needs the simulator: pip install 'privplan[simulate]'"
        raise InputError.one("replay", rule, str(error)) from None
    again = chapter.Replay(folder, None if data_dir is None else Path(data_dir))
    report = cast("ReplayReport", again.run(rounds, seed, lambda done, total: None))
    report.save(folder)
    return report


def spec_of(source: Any) -> Spec:
    """The spec that is given as such, as data, as a file, or by a plan."""
    from privplan.planning.solver import given_spec

    return cast("Spec", getattr(source, "spec", None) or given_spec(source))
