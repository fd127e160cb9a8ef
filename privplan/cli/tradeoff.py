"""``privplan tradeoff``: upper bounds on any attacker's success, as numbers and as a curve."""

from __future__ import annotations

from typing import Any

import click

from privplan.cli.account import mechanism_options, population_options


@click.command(name="tradeoff", help="What the best attacker can achieve, as a curve.")
@mechanism_options
@population_options
@click.option("-o", "--output", metavar="PICTURE", help="Draw the curve (.png, .svg or .pdf).")
def command(form: str, output: str | None, **releases: Any) -> None:
    """Print upper bounds on every attack that distinguishes two neighbouring data sets."""
    from privplan.accounting.composition import composition
    from privplan.cli import render

    if output is not None:
        from privplan.report.plots import picture_name

        kind = picture_name(output)
    composed = composition(**releases)
    row, curve, warnings = composed.tradeoff()
    named = curve.to_dict()
    if output is not None:
        from privplan.io.files import write_bytes
        from privplan.report.plots import tradeoff_picture

        write_bytes(output, tradeoff_picture(curve, composed.title, kind))
    if form == "json":
        render.data([{**row.model_dump(mode="json"), **named}])
    else:
        cells = [
            [label, value if isinstance(value, str) else f"{value:.6g}"]
            for label, value in (
                ("epsilon, at least", row.epsilon_lower),
                ("epsilon, at most", row.epsilon_upper),
                (
                    f"mu at points down to delta {composed.delta:.3g}",
                    named["gdp_mu"],
                ),
                ("advantage, at most", curve.advantage),
                *(
                    (f"true positives at {level.removeprefix('tpr_at_fpr_')} false positives", rate)
                    for level, rate in named.items()
                    if level.startswith("tpr")
                ),
            )
        ]
        render.text(f"{composed.title}, accountant pld")
        render.table("", ["no attack exceeds", "value"], cells)
        if output is not None:
            render.text(f"wrote {output}")
    for warning in warnings:
        render.warn(warning)
