"""DP-FedPGN: a penalty on the global gradient norm for flat minima, client level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from privplan.contrib.reproduction.claims import (
    CONTRADICTED,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    Outcome,
    Result,
)
from privplan.contrib.reproduction.privacy import epsilons, noises
from privplan.contrib.reproduction.tables import (
    PAPERS,
    Computed,
    Method,
    Setting,
    at_rate,
    data_of,
    paper_of,
    printed_rows,
    table_of,
)

DATA = data_of("dp_fedpgn")
CLIENTS = 500
RATIO = 0.1
ROUNDS = 300
# Noise multiplier of Tables II and III.
NOISE = 0.8
EPSILONS = (4.0, 6.0, 8.0, 10.0)
ALPHAS = (0.1, 0.6)
RESNET_18 = {"name": "resnet-18", "parameters": 11173962}
# Of an update beta = 0.3 is left after the shift.
SHIFTED = {"clipping_norm": 0.1}
# A private median whose norm stays where it starts: by default DP-FedPGN's norm follows
# it.
FIXED = {"quantile": 0.5, "share": 1e-4, "learning_rate": 1e-9}
_OF_PGN = {**SHIFTED, "planning": {"ratios": "uniform", "clipping": FIXED}}
METHODS = {
    name: Method(name, changes=_OF_PGN if "PGN" in name else {})
    for name in printed_rows(DATA, "dp-fedpgn-table-2")
}
EQUAL_NOISE = {"DP-FedAvg, clipping norm 0.1": Method("DP-FedAvg", changes=SHIFTED)}
"""DP-FedAvg under the noise of DP-FedPGN, beside the paper's rows."""


def spec_of(epsilon: float | None = None, **changes: Any) -> dict[str, Any]:
    """The paper's setting, with its noise multiplier or a budget.

    The paper clips by the median norm of the round, which it does not pay for; here the
    clipping norm is fixed, and lower for the methods that clip what is left after a
    shift.
    """
    group: dict[str, Any] = {"name": "all", "clients": CLIENTS}
    group |= {"noise_multiplier": NOISE} if epsilon is None else {"epsilon": epsilon}
    return {
        "name": "dp-fedpgn-cifar10",
        "groups": [group],
        "delta": 1 / CLIENTS,
        "rounds": ROUNDS,
        "cohort": round(RATIO * CLIENTS),
        "clipping_norm": 0.3,
        "planning": {"ratios": "uniform"},
        "local": _local(50, 50),
        "model": {"name": "resnet-10", "parameters": 4903242},
        **changes,
    }


def _local(steps: int, batch: int) -> dict[str, Any]:
    rates = {"learning_rate": 0.1, "learning_rate_decay": 0.998}
    return {"steps": steps, "batch_size": batch, **rates}


def _small(**privacy: float) -> dict[str, Any]:
    """The reduced setting, with a noise multiplier or a budget."""
    return spec_of(
        groups=[{"name": "all", "clients": 200, **privacy}],
        delta=1 / 200,
        rounds=15,
        cohort=20,
        local=_local(10, 20),
        model={"name": "cnn-3", "parameters": 62346},
    )


def by_split(
    alphas: Sequence[float] = ALPHAS,
    *,
    resnet_18: bool = False,
    small: bool = False,
) -> list[Setting]:
    """Tables II and III; small: with DP-FedAvg at the norm of DP-FedPGN."""
    changes: dict[str, Any] = {"model": RESNET_18} if resnet_18 else {}
    spec = spec_of(**changes)
    methods = METHODS
    if small:
        spec = _small(noise_multiplier=NOISE)
        methods = methods | EQUAL_NOISE
    return [
        Setting(
            f"Dirichlet-{alpha:g}", spec, "cifar-10", methods, f"dirichlet:{alpha:g}"
        )
        for alpha in alphas
    ]


def by_budget(*, small: bool = False) -> list[Setting]:
    """Table IV; small: the least and the largest budget."""
    methods = {name: METHODS[name] for name in printed_rows(DATA, "dp-fedpgn-table-4")}
    return [
        Setting(
            f"epsilon = {epsilon:g}",
            _small(epsilon=epsilon) if small else spec_of(epsilon, model=RESNET_18),
            "cifar-10",
            methods,
            "dirichlet:0.1",
        )
        for epsilon in (EPSILONS[:: len(EPSILONS) - 1] if small else EPSILONS)
    ]


def at_ties(
    tables: Sequence[str], rates: Mapping[str, Mapping[str, Sequence[float]]]
) -> list[Setting]:
    """Rows of tables, by column, at learning rates nearly as good as the best."""
    settings = []
    for name in tables:
        for setting in table_of(name).trained["reduced"]():
            rates_by_row = rates[setting.column]
            for rate in sorted(set().union(*rates_by_row.values())):
                methods = {
                    row: at_rate(setting, row, rate)
                    for row, values in rates_by_row.items()
                    if rate in values
                }
                column = f"{setting.column}, rate {rate:g}"
                settings.append(replace(setting, column=column, methods=methods))
    return settings


def privacy() -> Computed:
    """Epsilon of the settings of Tables II and III, and noise of Table IV's budgets."""
    setting = (RATIO, ROUNDS, 1 / CLIENTS)
    for row, bound in epsilons(NOISE, *setting):
        yield f"epsilon, {row}", f"sigma = {NOISE}", bound.upper
        yield f"least epsilon, {row}", f"sigma = {NOISE}", bound.lower
    for epsilon in EPSILONS:
        for row, value in noises(epsilon, *setting):
            yield row, f"epsilon = {epsilon:g}", value


def formula(result: Result) -> Outcome:
    """Whether Eqs. 24 and 25, of Poisson sampling, cover cohorts of fixed size."""
    fixed = "epsilon, cohorts of fixed size"
    rows = [
        f"{row}, add/remove"
        for row in ("epsilon, Poisson sampling", fixed, f"least {fixed}")
    ]
    cells = [result.cell_at(row, f"sigma = {NOISE}") for row in rows]
    means = [cell.mean for cell in cells if cell]
    if len(means) < len(rows):
        return Outcome(NOT_RUN, "no such rows")
    poisson, fixed_upper, fixed_lower = means
    words = (
        f"add/remove: Poisson sampling at most {poisson:.2f}, cohorts of fixed size at "
        f"least {fixed_lower:.2f}"
    )
    if fixed_lower > poisson:
        return Outcome(CONTRADICTED, words)
    return Outcome(REPRODUCED if fixed_upper <= poisson else UNDECIDED, words)


PAPERS.register("dp-fedpgn", paper_of(DATA, globals()))
