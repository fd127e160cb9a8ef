"""The public report of a plan or run, with the fields of deployment registries.

The fields follow the registry of deployments of differential privacy by OpenDP and
NIST: what is protected (unit and relation), by which mechanism and law, at which
budget, who sees what, and what is not covered. A value that neither plan nor run holds
is stated as not stated, never assumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from privplan.accounting.release import named_law
from privplan.errors import InputError
from privplan.plan import Plan
from privplan.report.numbers import lower, upper
from privplan.report.page import not_covered
from privplan.verification.run import Run
from privplan.verification.verdict import Verdict
from privplan.verification.verify import judge, load_run
from privplan.visible import in_markdown

FORMAT = "privplan.registry/1"
_NOT_STATED = "not stated"
_RELATIONS = {
    "add_remove": "one unit more or less",
    "replace_one": "one unit's data replaced",
    "zero_out": "one unit's contribution replaced by zero",
}


def registry_report(
    path: Path | str, judged: Callable[[Run], Verdict] = judge
) -> dict[str, Any]:
    """The report of a plan file or a run folder, as plain data for strict JSON."""
    where = Path(path)
    if not where.exists():
        raise InputError.one(
            "report", "must be a plan file or a run folder that exists", str(path)
        )
    if not where.is_dir():
        return _report(Plan.load(where), None)
    run = load_run(where)
    return _report(run.plan, judged(run), run)


def _report(
    plan: Plan, verdict: Verdict | None, run: Run | None = None
) -> dict[str, Any]:
    spec = plan.spec
    realised = (
        {} if verdict is None else {group.group: group for group in verdict.groups}
    )
    groups = []
    for group in plan.groups:
        row = next(r for r in plan.certificate if r.guarantee and r.group == group.name)
        bounds = None
        if group.name in realised:
            of_run = realised[group.name]
            bounds = [of_run.realised_lower, of_run.realised_upper]
        groups.append(
            {
                "group": group.name,
                "units": group.clients,
                "epsilon_budget": group.epsilon,
                "delta": group.delta,
                "epsilon_planned": [row.epsilon_lower, row.epsilon_upper],
                "epsilon_realised": bounds,
                "sampling_ratio": group.sampling_ratio,
                "noise_multiplier": group.noise_multiplier,
                "clipping_norm": plan.clip_bound(group),
                "accountant": f"{row.accountant} ({row.version})",
            }
        )
    return {
        "format": FORMAT,
        "status": "plan, not executed" if verdict is None
        else f"run, verdict {verdict.outcome}",
        "deployment": {
            "name": _NOT_STATED,
            "curator": _NOT_STATED,
            "intended_use": _NOT_STATED,
            "data": _NOT_STATED if verdict is None else verdict.dataset or _NOT_STATED,
            "algorithm": _NOT_STATED if verdict is None else verdict.algorithm,
        },
        "guarantee": {
            "flavour": "approximate differential privacy (epsilon, delta)",
            "unit": plan.unit,
            "relation": str(spec.relation),
            "neighbours": _RELATIONS[str(spec.relation)],
            "period": f"all {spec.rounds} rounds of this run",
            "groups": groups,
        },
        "mechanism": {
            **_mechanism(plan, run),
            "law": named_law(spec.laws, plan.unit),
            "clipping": "fixed norm" if plan.clipping is None
            else "follows a quantile, which is released with noise and paid for",
            "weights": {group.name: group.weight for group in plan.groups},
        },
        "adversary": {
            "protected_from": "everyone who sees the released models and any number of rounds",
            "trusted": "whoever adds the noise and sees the sum before it",
            "noise_source": _NOT_STATED if verdict is None else verdict.noise,
        },
        "adaptivity": "rounds may depend on the releases of earlier rounds; sampling ratios and "
        "noise are fixed in advance. A later run that is chosen after this one composes by a "
        "privacy filter, not by exact composition",
        "evidence": None if verdict is None else {
            "levels": list(verdict.evidence),
            "failed": [check.name for check in verdict.failed],
            "not_shown": [c.name for c in verdict.checks if c.outcome == "not shown"],
        },
        "not_covered": [
            *not_covered(None if run is None else run.record),
            *(["the noise is seeded: whoever has the seed draws it again (simulation only)"]
              if verdict is not None and verdict.simulation_only else []),
        ],
        "plan_digest": plan.digest,
    }  # fmt: skip


_RELEASED = {
    "joint": "one noisy sum of all groups per round",
    "per_group": "one noisy sum per group and round",
    "record": "each participant's own update in each of its rounds",
}


def _mechanism(plan: Plan, run: Run | None) -> dict[str, str]:
    """Noise and releases: those that a run's ledger states, else those of the plan."""
    # Kind of release, family of noise, and whether there is any.
    kind = "record" if plan.unit == "record" else str(plan.release)
    releases = [(kind, "gaussian", True)]
    if run is not None:
        releases = []
        for line in run.ledger.records:
            kind = "joint" if len(line.shares) > 1 else "per_group"
            if line.unit == "record":
                kind = "record"
            releases.append((kind, line.family, line.noise.noisy))

    noises = []
    for kind, family, is_noisy in releases:
        where = "the sum of clipped updates"
        if kind == "record":
            where = "each step's sum of clipped gradients of records, at the client"
        noise = f"{family.capitalize().replace('_', ' ')}, on {where}"
        noises.append(noise if is_noisy else "none")
    kinds = dict.fromkeys(_RELEASED[kind] for kind, _, _ in releases)
    return {
        "noise": "; ".join(dict.fromkeys(noises)) + _correlated(plan),
        "release": "; ".join(kinds),
    }


def _correlated(plan: Plan) -> str:
    """What else is trusted and public with correlated noise; empty elsewhere."""
    rounds = len(plan.spec.mixture)
    if rounds == 1:
        return ""
    return (
        f", correlated over {rounds} rounds: whoever adds it keeps the sums of the last "
        f"{rounds - 1} rounds, and in which rounds a client may take part is public"
    )


def page(report: dict[str, Any]) -> str:
    """The report as one Markdown page."""
    lines = [
        "# Differential privacy: deployment report",
        "",
        f"Status: {in_markdown(report['status'])}.",
        "",
        "| group | units | epsilon budget | delta | planned | realised | ratio | noise |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in report["guarantee"]["groups"]:
        cells = [
            in_markdown(group["group"]),
            str(group["units"]),
            f"{group['epsilon_budget']:g}",
            f"{group['delta']:.4g}",
            _interval(group["epsilon_planned"]),
            _interval(group["epsilon_realised"]),
            f"{group['sampling_ratio']:.4g}",
            f"{group['noise_multiplier']:.4g}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for name in ("deployment", "guarantee", "mechanism", "adversary"):
        lines += [f"## {name.capitalize()}", ""]
        for key, value in report[name].items():
            if key != "groups":
                if isinstance(value, dict):
                    shown = json.dumps(value)
                else:
                    shown = str(value)
                lines.append(f"- {key.replace('_', ' ')}: {in_markdown(shown)}")
        lines.append("")
    lines += ["## Adaptivity", "", report["adaptivity"] + ".", ""]
    if report["evidence"] is not None:
        lines += ["## Evidence", ""]
        for key, value in report["evidence"].items():
            lines.append(
                f"- {key.replace('_', ' ')}: {in_markdown(', '.join(value)) or 'none'}"
            )
        lines.append("")
    lines += ["## Not covered", ""]
    lines += [f"- {limit}" for limit in report["not_covered"]]
    lines.append("")
    lines += [f"Plan {report['plan_digest']}, format {report['format']}.", ""]
    return "\n".join(lines)


def _interval(bounds: list[float | None] | None) -> str:
    if bounds is None:
        return "not executed"
    return f"{lower(bounds[0])} to {upper(bounds[1])}"
