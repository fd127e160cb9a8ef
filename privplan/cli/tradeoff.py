"""``privplan tradeoff``: what the best attacker can achieve, as numbers and as a curve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from privplan.cli.account import checked, evaluated, mechanism_options, population_options

if TYPE_CHECKING:
    from privplan.accounting.tradeoff import TradeOff


def _named(found: TradeOff) -> dict[str, Any]:
    """Readings by name, for JSON; an infinite mu is the string ``inf``."""
    from privplan.accounting.tradeoff import LEVELS

    rates = zip(LEVELS, found.true_positives, strict=True)
    return {
        "gdp_mu": "inf" if math.isinf(found.mu) else found.mu,
        "advantage": found.advantage,
        **{f"tpr_at_fpr_{level:g}": rate for level, rate in rates},
    }


@click.command(name="tradeoff", help="What the best attacker can achieve, as a curve.")
@mechanism_options
@population_options
@click.option("-o", "--output", metavar="PICTURE", help="Draw the curve (.png, .svg or .pdf).")
def command(
    noise_multiplier: float,
    sampling_ratio: float | None,
    rounds: int,
    delta: float | None,
    sampling: str,
    relation: str,
    clients: int | None,
    form: str,
    output: str | None,
) -> None:
    """Upper bounds on every attack that tells two neighbouring data sets apart."""
    from privplan.accounting.tradeoff import profile_of, tradeoff
    from privplan.cli import render

    if output is not None:
        from privplan.report.plots import picture_name

        kind = picture_name(output)
    mechanism = checked(
        noise_multiplier, sampling_ratio, rounds, delta, sampling, relation, clients
    )
    rows, _, warnings = evaluated(mechanism, ["pld"])
    row = rows[0]
    profile = profile_of(mechanism.history, mechanism.relation)
    found = tradeoff(profile, mechanism.delta, row.epsilon_upper)
    named = _named(found)
    if output is not None:
        from privplan.io.files import write_bytes
        from privplan.report.plots import tradeoff_picture

        write_bytes(output, tradeoff_picture(found, mechanism.title, kind))
    if form == "json":
        render.data([{**row.model_dump(mode="json"), **named}])
    else:
        cells = [
            [label, value if isinstance(value, str) else f"{value:.6g}"]
            for label, value in (
                ("epsilon, at least", row.epsilon_lower),
                ("epsilon, at most", row.epsilon_upper),
                (f"mu of Gaussian DP down to delta {mechanism.delta:.3g}", named["gdp_mu"]),
                ("advantage, at most", found.advantage),
                *(
                    (f"true positives at {level.removeprefix('tpr_at_fpr_')} false positives", rate)
                    for level, rate in named.items()
                    if level.startswith("tpr")
                ),
            )
        ]
        render.text(f"{mechanism.title}, accountant pld")
        render.table("", ["no attack exceeds", "value"], cells)
        if output is not None:
            render.text(f"wrote {output}")
    for warning in warnings:
        render.warn(warning)
