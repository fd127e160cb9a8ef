"""``privplan proxy tuning-cost``: the cost of choosing the best run on private data."""

from __future__ import annotations

import click


@click.command(
    "tuning-cost",
    help="Say what tuning on private data costs, and what budgets are left for a run of "
    "SPEC.\n\nK and the recipes must be drawn independently of the data, the score that "
    "selects must be a function of the run's releases or of public data, and only the "
    "best run may be shown. The spec of a run has the epsilons that are left.",
    epilog="Example: privplan proxy tuning-cost spec.yaml --runs 20 --law geometric",
)
@click.argument("spec", type=click.Path())
@click.option("--runs", type=float, required=True, help="Mean number K of all runs.")
@click.option(
    "--law",
    type=click.Choice(["poisson", "geometric", "truncated_negative_binomial"]),
    default="poisson",
    help="Law of K; poisson by default.",
)
@click.option(
    "--shape", type=float, help="Shape of the truncated negative binomial law; 0.5."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(spec: str, runs: float, law: str, shape: float | None, form: str) -> None:
    """Say what tuning on private data costs."""
    from privplan.cli import render
    from privplan.contrib.private_tuning.cost import PrivateTuning, costs
    from privplan.report.numbers import lower, upper
    from privplan.spec.spec import Spec
    from privplan.values import parse

    tuning = parse(PrivateTuning, {"runs": runs, "law": law, "shape": shape})
    group_costs = costs(Spec.load(spec), tuning)
    if form == "json":
        render.data([vars(cost) for cost in group_costs])
        return
    rows = [
        [
            cost.group,
            f"{cost.budget:g}",
            lower(cost.left),
            upper(cost.best),
            upper(cost.whole),
            f"{cost.delta:.3g}",
        ]
        for cost in group_costs
    ]
    columns = [
        "group",
        "budget",
        "left for a run",
        "best of all",
        "without it",
        "delta",
    ]
    caption = (
        "epsilon; without it: of the best of all runs that spend the whole budget each"
    )
    render.table(f"Best of K runs, K {law} with mean {runs:g}", columns, rows, caption)
