"""Tables of plans, certificates, sweeps and frontiers: title, column heads, rows, caption."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from privplan.accounting.accountant import at_most, outwards
from privplan.accounting.calibrate import PLD
from privplan.accounting.certificate import CertificateRow
from privplan.accounting.release import SHORT, named_law
from privplan.accounting.tradeoff import LEVELS
from privplan.book.entry import BookedRun
from privplan.book.remaining import Remaining
from privplan.book.spending import Spending, full_name
from privplan.plan import Plan, book_lines
from privplan.planning.objectives import objective_of
from privplan.planning.recipe import recipe_lines, relative_noise
from privplan.planning.sweep import CHANCES, DECIDED
from privplan.proven import cell as proven_cell
from privplan.record import ACCURACY
from privplan.spec.planning import FIXED_RATIOS
from privplan.verification.verdict import Verdict

if TYPE_CHECKING:
    from privplan.planning.alternatives import Alternative
    from privplan.planning.frontier import FrontierPoint
    from privplan.planning.risks import GroupRisk
    from privplan.proof import Finding

    Findings = Mapping[str, Finding]

_PUBLISHED = "bound (Theorem 3's movable terms, in units of L d C^2)"
_RECORDS = "noise variance of the mean update over p eta^2, and the least by weights"
Table = tuple[str, list[str], list[list[str]], str]  # title, columns, rows, caption
Cell = Callable[[Any], object]


def _table(
    title: str, rows: Iterable[Any], cells: Mapping[str, Cell], caption: str = ""
) -> Table:
    """A table with one row for each item, and a column for each function of an item."""
    body = [[str(cell(row)) for cell in cells.values()] for row in rows]
    return title, [*cells], body, caption


def answer(plan: Plan, others: Sequence[Alternative] = ()) -> tuple[list[str], Table]:
    """A plan in two sentences and a table of 80 columns: what each group spends and counts."""
    upper = {one.group: one.epsilon_upper for one in plan.certificate if one.guarantee}
    near = max(plan.groups, key=lambda group: upper[group.name] / group.epsilon)
    spent = f"epsilon at most {at_most(upper[near.name])} of {at_most(near.epsilon)}"
    whom = "person" if near.contributions > 1 else plan.unit
    lines = [
        f"every budget holds; nearest to its own is a {whom} of {near.name}: {spent}"
    ]
    if any(upper[group.name] > group.epsilon for group in plan.groups):
        lines = [f"a budget does not hold: a {whom} of {near.name} spends {spent}"]
    of_clients, clients = plan.unit == "client", plan.spec.population
    if of_clients:
        strict = min(range(len(plan.groups)), key=lambda at: plan.groups[at].epsilon)
        compared = [
            f"{one.name} {one.noise:.4g}, with {plan.groups[strict].name} counting "
            f"{one.counts[strict]:.0%}"
            for one in others
            if one.name != "this plan"
        ]
        beside = f" ({'; '.join(compared)})" * bool(compared)
        what = "of a round's mean update"
        if (rounds := len(plan.spec.mixture)) > 1:
            what = f"correlated over {rounds} rounds, in the last model as much as independent"
        noise = f"{relative_noise(plan):.4g} clipping norms{beside}"
        lines.append(f"noise {what}: {noise}")
    deltas = sorted({f"{group.delta:.3g}" for group in plan.groups})
    cells: dict[str, Cell] = {
        "group": lambda one: one.name,
        f"{plan.unit}s": lambda one: f"{one.clients if of_clients else one.records:,}",
        "budget": lambda one: f"{one.epsilon:g}",
        "at most": lambda one: at_most(upper[one.name]),
    }
    if len(deltas) > 1:
        cells["delta"] = lambda one: f"{one.delta:.3g}"
    if of_clients:
        cells["ratio"] = lambda one: f"{one.sampling_ratio:.2%}"
        caps = {
            g: plan.law_of(g).law.cap(g.clients, g.sampling_ratio) for g in plan.groups
        }
        if any(caps.values()):
            cells["cap"] = lambda one: f"{caps[one]:,}" if caps[one] else "-"
    cells["multiplier"] = lambda one: f"{one.noise_multiplier:.4g}"
    cells["counts"] = lambda one: f"{one.weight * clients / one.clients:.0%}"
    caption = (
        f"epsilon at delta{f' {deltas[0]}' * (len(deltas) == 1)}, {plan.spec.laws} sampling, "
        f"by {plan.guarantee}; {plan.identity}; multiplier: of the noise; counts: weight over the "
        f"share of the clients{'; cap: largest cohort' * ('cap' in cells)}"
    )
    title = f"Plan {plan.spec.name}, {plan.spec.rounds} rounds"
    return lines, _table(title, plan.groups, cells, caption)


def promise_line(plan: Plan) -> str:
    """What a plan promises, that nothing ran, and what to do, one line."""
    rows = [row for row in plan.certificate if row.guarantee]
    spent = ", ".join(
        f"{row.group} at most {at_most(row.epsilon_upper)} at delta {row.delta:.3g}"
        for row in rows
    )
    return (
        f"unverified: nothing ran; plan {plan.spec.name} promises epsilon {spent}; "
        f"{plan.spec.laws} sampling, by {plan.guarantee}; {plan.identity}; "
        f"next: privplan simulate PLAN --algorithm planned{plan.spec.model.options} -o run; "
        "privplan verify run"
    )


def plan_table(plan: Plan) -> Table:
    """Parameters of each group."""
    spec, of_records = plan.spec, plan.unit == "record"
    cells: dict[str, Cell] = {
        "group": lambda g: g.name,
        "clients": lambda g: f"{g.clients:,}",
    }
    if of_records:
        cells["records"] = lambda g: f"{g.records:,}"
    cells |= {
        "epsilon": lambda g: f"{g.epsilon:g}",
        "delta": lambda g: f"{g.delta:.3g}",
    }
    if of_records:
        cells |= {
            "q": lambda g: f"{g.record_sampling_ratio:.4%}",
            "steps": lambda g: f"{g.releases:,}",
            "sigma": lambda g: f"{g.noise_multiplier:.5g}",
        }
    else:
        cells |= {
            "q": lambda g: f"{g.sampling_ratio:.4%}",
            "cohort": lambda g: f"{g.expected_cohort:.4g}",
            "sigma": lambda g: f"{g.noise_multiplier:.5g}",
            "sent": lambda g: f"{g.kept_fraction:.4g}",
        }
    cells["weight"] = lambda g: f"{g.weight:.4f}"
    if not of_records and plan.release == "joint":
        cells["scale"] = lambda g: f"{g.scale:.4f}"
    if any(group.clipping_norm is not None for group in plan.groups):
        cells["clip"] = lambda g: f"{plan.clip_bound(g):.4f}"
    if any(group.segments is not None for group in plan.groups):
        cells["rounds x q"] = lambda g: ", ".join(
            f"{part.rounds} x {part.sampling_ratio:.4%}" for part in g.segments or ()
        )
    law = f"{named_law(spec.laws, plan.unit)} sampling"
    chosen = ""
    if plan.guarantee != PLD:
        chosen = f" for one run, budgets by {plan.guarantee} for the best"
    sums = {
        "joint": "one noisy sum of all groups",
        "per_group": "a noisy sum per group",
    }
    words = (
        "sent: part of the model's parameters; scale: factor on updates in the sum; "
    )
    caption = (
        f"budgets: epsilon at delta, {law}; {plan.identity}; q: sampling ratio; sigma: noise "
        f"multiplier, by {spec.planning.accountant}{chosen}; {words * (not of_records)}"
        f"weight: in the model's step; {spec.rounds} rounds, "
        f"clipping norm {spec.clipping_norm:g}, {sums[plan.release]} a round"
    )
    return _table(f"Plan {spec.name}", plan.groups, cells, caption)


def about(row: CertificateRow) -> str:
    """Said before the epsilon of a row that is no bound."""
    return "about " if row.kind.startswith("approximation") else ""


def certificate_table(
    rows: Sequence[CertificateRow], identity: str = "", findings: Findings | None = None
) -> Table:
    """Bounds on epsilon by every accountant, one row per group and accountant.

    Findings of proofs, by group, stand in a column of their own.
    """
    cells: dict[str, Cell] = {
        "group": lambda row: row.group,
        "accountant": lambda row: row.accountant,
        "at least": lambda r: (
            "-" if about(r) or not r.epsilon_lower else six(r.epsilon_lower, False)
        ),
        "at most": lambda row: f"{about(row)}{six(row.epsilon_upper)}",
        "delta": lambda row: f"{row.delta:.3g}",
        "law": lambda row: row.law,
        "relation": lambda row: row.relation,
        "role": lambda row: "guarantee" if row.guarantee else row.kind,
    }
    if findings:
        proofs = findings
        cells["proven"] = lambda row: (
            proven_cell(proofs[row.group]) if row.guarantee else "-"
        )
    versions = ", ".join(sorted({row.version for row in rows}))
    caption = f"{identity}; {versions}" if identity else versions
    return _table("Certificate: epsilon over all rounds", rows, cells, caption)


def _rate(place: int, risk: GroupRisk) -> str:
    return f"{math.ceil(1e4 * risk.curve.true_positives[place]) / 1e4:.4f}"


def risk_table(risks: Sequence[GroupRisk], plan: Plan) -> Table:
    """Upper bounds on every attack on one unit's data under a plan, one row per group."""
    cells: dict[str, Cell] = {"group": lambda one: one.group}
    if any(one.stated_risk is not None for one in risks):
        cells["asked"] = lambda one: one.stated_risk or "-"
    cells["advantage"] = lambda one: f"{math.ceil(1e4 * one.curve.advantage) / 1e4:.4f}"
    cells |= {
        f"TPR at FPR {level:g}": partial(_rate, at) for at, level in enumerate(LEVELS)
    }
    cells["mu down to delta"] = lambda r: (
        "-" if math.isinf(r.curve.mu) else f"{r.curve.mu:.4g}"
    )
    caption = (
        f"{plan.identity}; upper bounds by pld; TPR at FPR x is also the chance to reconstruct "
        "what was guessed with chance x before; mu is read at points of the curve and no guarantee "
        "between them"
    )
    return _table("Risks: no attack exceeds", risks, cells, caption)


def alternatives_table(found: Sequence[Alternative], plan: Plan) -> Table:
    """What each group counts, the noise, and forecasts if any, under plans side by side."""
    rows = []
    for m, group in enumerate(plan.groups):
        cells = [f"{one.counts[m]:.0%}" for one in found]
        for place, one in enumerate(found):
            if one.forecast is not None:
                expected = one.forecast.groups[m]
                shown = f"{expected.accuracy:.1%} [{expected.lower:.1%}, {expected.upper:.1%}]"
                cells[place] += f", accuracy {shown}"
        rows.append([group.name, *cells])
    rows.append(["noise of the mean", *(f"{one.noise:.4g}" for one in found)])
    epsilon = min(one.epsilon for one in plan.groups)
    delta = min(one.delta for one in plan.groups)
    caption = (
        "what a group's clients count, in percent of their number; noise in norm over the clipping "
        f"norm; groups alike: planning.least_share 0; strictest for all: epsilon {epsilon:g} "
        f"at delta {delta:.3g}, {plan.spec.laws} sampling, {plan.spec.relation}, by "
        f"{plan.spec.planning.accountant}"
    )
    columns = ["group", *(one.name for one in found)]
    return "Who counts how much, beside other plans", columns, rows, caption


def explanation(plan: Plan) -> list[str]:
    """A plan in sentences: what each group pays and gains, what was decided, and forecasts."""
    from privplan.forecast.target import forecast_lines
    from privplan.planning.reasons import reasons

    lines = reasons(plan) if plan.guarantee == PLD else []  # these are of a single run
    free = [line for line in plan.warnings if line.startswith("planning.free: ")]
    known = forecast_lines(plan) if plan.forecast is not None else []
    several = (
        "make one client of a person"
        if plan.unit == "client"
        else "plan with unit: client"
    )
    persons = [
        f", in {one.name} each person with up to {one.contributions} {plan.unit}s"
        for one in plan.groups
        if one.contributions > 1
    ]
    whom = (
        f"protected: each {plan.unit}{''.join(persons)}; for k {plan.unit}s of one person only k "
        f"epsilon holds, at a larger delta (state a group's contributions, or {several})"
    )
    return [whom, *lines, *free, *recipe_lines(plan), *known, *book_lines(plan.book)]


def plan_lines(plan: Plan) -> list[str]:
    """Objective, bound, status and recipe, one line each."""
    norm = plan.mean_noise_std * math.sqrt(plan.spec.model.parameters)
    terms = ", ".join(f"{name} {value:.6g}" for name, value in plan.bound.items())
    if plan.unit == "record":
        unit = _RECORDS
    elif (
        plan.objective.name in FIXED_RATIOS
        or plan.objective.name != plan.spec.planning.ratios
    ):
        unit = _PUBLISHED
    else:
        unit = objective_of(plan.spec).unit
    return [
        f"objective {plan.objective.name}, less is better: {plan.objective.value:.8g}",
        f"{unit}: {terms}",
        f"noise of the mean update: {plan.mean_noise_std:.4g} a parameter, {norm:.4g} in norm",
        f"status: {plan.status}",
        *recipe_lines(plan),
    ]


def sweep_table(rows: Sequence[dict[str, Any]], paths: Sequence[str]) -> Table:
    """What each group spends and counts, and the noise, one row per point and group of a what-if.

    With what the plan of each point decided, where ``planning.free`` lets it decide more.
    """
    free = [
        name
        for name in DECIDED
        if name not in paths and any(name in row for row in rows)
    ]
    chances = [name for name in CHANCES if any(name in row for row in rows)]
    last: list[str] | None = None
    cells = []
    for row in rows:
        point = [f"{row[path]:g}" for path in paths]
        point += ["" if row.get(name) is None else f"{row[name]:.5g}" for name in free]
        if "error" in row:
            cells.append([*point, row["error"], *[""] * (6 + len(chances))])
            continue
        ratio = row.get("record_sampling_ratio") or row["sampling_ratio"]
        each = [row["group"], at_most(row["epsilon_upper"]), f"{ratio:.2%}"]
        each += [f"{row['noise_multiplier']:.4g}", f"{row['counts']:.0%}"]
        each += [
            "unknown" if row[one] is None else at_most(row[one]) for one in chances
        ]
        whole = [f"{row['noise_norm']:.4g}", f"{row['value']:.4g}"]
        again = point == last  # what is the same for all groups is said once
        blank = [""] * len(point)
        cells.append([*blank, *each, "", ""] if again else [*point, *each, *whole])
        last = point
    names = [one.removeprefix("groups.").replace(".", " ") for one in paths]
    names += [name.replace("_", " ") for name in free]
    columns = [*names, "group", "epsilon", "ratio", "multiplier", "counts"]
    columns += ["advantage", "TPR at 1%"][: len(chances)]
    return "What if", [*columns, "noise", "objective"], cells, sweep_caption(rows)


def sweep_caption(rows: Sequence[dict[str, Any]]) -> str:
    """Under which law, relation, delta and accountant the numbers of a what-if hold."""
    solved = [row for row in rows if "error" not in row]
    if not solved:
        return ""
    named = ("delta", "sampling", "relation", "unit", "accountant", "objective")
    found = ([row[name] for row in solved] for name in named)
    law = [
        " or ".join(
            dict.fromkeys(one if isinstance(one, str) else f"{one:.3g}" for one in each)
        )
        for each in found
    ]
    caption = (
        f"epsilon: at most, at delta {law[0]}, {law[1]} sampling, {law[2]}, unit {law[3]}, by "
        f"{law[4]}; counts: weight over the share of the clients; noise: of the mean update, in "
        f"norm (solve says it over the clipping norm); objective: {law[5]}, less is better"
    )
    if CHANCES[0] in solved[0]:
        caption += "; advantage and TPR at 1% FPR: no attack exceeds them"
    return caption


def frontier_table(name: str, points: Sequence[FrontierPoint]) -> Table:
    """Noise of the mean update and its change, one row per point of a frontier."""
    cells: dict[str, Cell] = {
        "question": lambda point: point.question,
        "what": lambda point: point.what,
        "noise": lambda point: f"{point.noise:.4g}" if point.noise is not None else "-",
        "change": lambda point: (
            f"{point.change:+.2%}" if point.change is not None else "-"
        ),
        "note": lambda point: point.note,
    }
    return _table(
        f"Frontier of {name}: noise of the mean update, in norm", points, cells
    )


# --- Tables and text lines of a verdict. ---------------------------------------------------------


def lower(value: float | None) -> str:
    """A lower bound on epsilon as text, rounded down; None means infinite."""
    return "inf" if value is None else _four(outwards(value, False))


def upper(value: float | None) -> str:
    """An upper bound on epsilon as text, rounded up; None means infinite."""
    return "inf" if value is None else _four(outwards(value, True))


def _four(value: float) -> str:
    text = f"{value:.4f}"
    return text if float(text) == value else f"{value:.12g}"


def percent(value: float | None) -> str:
    """An accuracy as text; empty for None."""
    return "" if value is None else f"{100 * value:.1f}%"


def score(metric: str, value: float | None) -> str:
    """A score as text: accuracies in percent, others as numbers; empty for None."""
    if metric == ACCURACY or value is None:
        return percent(value)
    return f"{value:.4g}"


def no_score(verdict: Verdict) -> str:
    """Why a verdict has no score."""
    return "not finite" if verdict.not_finite else "not measured"


def check_table(verdict: Verdict) -> Table:
    """One row per check."""
    cells: dict[str, Cell] = {
        "check": lambda one: one.name,
        "result": lambda one: "FAILED" if one.outcome == "failed" else one.outcome,
        "what was found": lambda one: one.reason,
    }
    return _table("checks", verdict.checks, cells, verdict.identity)


def group_table(
    verdict: Verdict, *, scores: bool = True, findings: Findings | None = None
) -> Table:
    """One row per group, with its score if ``scores`` is true.

    Findings of proofs, by group, stand in a column of their own.

    Where the budget is that of the best of several runs, no independent bound stands beside it;
    those of the one run are named so.
    """
    first = verdict.groups[0]
    single = first.one_run is None
    missing = no_score(verdict) if verdict.not_finite else ""
    within = {"broken": "not shown"}.get(verdict.outcome, verdict.outcome)
    cells: dict[str, Cell] = {
        "group": lambda group: group.group,
        "clients": lambda group: group.clients,
        "budget": lambda group: f"{group.budget:g}",
        "planned": lambda group: upper(group.planned),
        "realised lower": lambda group: lower(group.realised_lower) if single else "-",
        "realised upper": lambda group: upper(group.realised_upper),
        "rdp upper" if single else "one run, pld": lambda group: (
            "-"  # rdp does not cover the law
            if single
            and group.realised_rdp is None
            and group.realised_upper is not None
            else upper(group.realised_rdp if single else group.one_run.upper)
        ),
        "headroom": lambda group: (
            "none" if group.headroom is None else lower(group.headroom)
        ),
        "delta": lambda group: f"{group.delta:.3g}",
        verdict.metric: lambda group: score(verdict.metric, group.accuracy) or missing,
        "verdict": lambda group: (
            within
            if group.kept
            else ("not bounded" if group.realised_upper is None else "EXCEEDED")
        ),
    }
    if not scores:
        del cells[verdict.metric]
    if findings:
        proofs = findings
        cells["proven"] = lambda group: proven_cell(proofs[group.group])
    caption = (
        f"epsilon at delta, {named_law(verdict.laws, verdict.unit)} sampling; "
        f"{verdict.identity}; planned: at most, by the plan; realised by {first.accountant} from "
        "the ledger alone; headroom: budget less realised upper"
    )
    if not single:
        caption += ", for the best of the runs of tuning; one run, pld: this run alone"
    return _table(run_name(verdict), verdict.groups, cells, caption)


def audit_table(verdict: Verdict) -> Table:
    """One row per group and view: realised upper bound and empirical epsilons, marked by kind."""
    marks = {"bound": "", "bound if Gaussian": " (if Gaussian)"}
    first = verdict.groups[0]
    named = {one.method: f"{one.method}{marks[one.kind]}" for one in first.audit}
    rows = []
    for group in verdict.groups:
        for view in dict.fromkeys(one.view for one in group.audit):
            audits = [one for one in group.audit if one.view == view]
            values = [lower(one.epsilon) for one in audits]
            bound = upper(group.realised_upper)
            rows.append([group.group, view, f"{audits[0].canaries}", bound, *values])
    caption = (
        f"lower bounds on epsilon at delta, each with confidence "
        f"{100 * first.audit[0].confidence:g}%; {verdict.laws} sampling; "
        f"{verdict.identity}; realised upper by {first.accountant}"
    )
    columns = ["group", "observer sees", "canaries", "realised upper", *named.values()]
    return "what canaries say", columns, rows, caption


def headline(verdict: Verdict) -> str:
    """The answer: whether the plan was kept, and how strongly that was checked."""
    if verdict.level == "broken":
        first, *others = verdict.failed
        also = (
            f"; failed, too: {', '.join(one.name for one in others)}" if others else ""
        )
        return f"NOT kept: {first.name}: {first.reason}{also}"
    if verdict.level == "unverified":
        names = ", ".join(one.name for one in verdict.not_shown)
        lacks = ", ".join(verdict.not_shown[0].missing)
        return f"unverified, not shown: {names} (missing: {lacks})"
    if verdict.level == "rehearsal":
        return (
            "a rehearsal: nothing here protected anybody, since whoever has the seed removes the "
            "noise; run it with secure noise for records of people"
        )
    if verdict.level == "recorded":
        why = f": {verdict.not_executed}" if verdict.not_executed else ""
        found = f"kept as recorded (not executed again for this verdict{why})"
        if verdict.earlier:
            claim = f"{verdict.earlier} of {verdict.rounds} rounds were"
            found += f"; replay.json claims that {claim}, which does not count"
        # The name of another metric is free text of the run.
        score_name = verdict.metric if verdict.metric == ACCURACY else "score"
        found += f"; its {score_name} is only claimed" * (verdict.accuracy is not None)
    elif verdict.executed == verdict.rounds:
        found = f"kept, executed again (all {verdict.rounds} rounds)"
    else:
        found = (
            f"kept, executed again ({verdict.executed} of {verdict.rounds} rounds; a fault in one "
            f"of five rounds would have been seen with probability "
            f"{math.floor(100 * verdict.chance_of_detection) / 100:.2f})"
        )
    if verdict.level == "executed" and verdict.claimed:
        found += f"; {verdict.claimed}"
    away = [
        one for one in verdict.fell_away if not one.missing[0].startswith("the key of")
    ]
    if (
        len(away) < len(verdict.fell_away)
        and not verdict.executed
        and "key" not in found
    ):
        found += (
            "; cohorts and noise were not drawn again without the key (--noise-key)"
        )
    if away:
        listed = "; ".join(f"{one.name} ({', '.join(one.missing)})" for one in away)
        found += f"; not checked here: {listed}"
    return found


_OF_PERSON = " of one person)"  # in the name of a law that protects persons


def worst_line(verdict: Verdict) -> str:
    """Whom the plan protects, and the realised epsilon of the worst off, one line."""
    worst = verdict.worst
    who = f"any {verdict.unit}" if worst.client is None else f"client {worst.client}"
    if worst.client is not None and verdict.unit != "client":
        who = f"a {verdict.unit} of {who}"
    who = "any person" if _OF_PERSON in worst.sampling else who
    two_sided = verdict.groups[0].one_run is None
    beginning = f"between {lower(worst.realised_lower)} and" if two_sided else "at most"
    spent = f"{beginning} {upper(worst.realised_upper)}"
    return (
        f"worst off: {who} of {worst.group}, epsilon {spent.replace('between inf and', 'is')} of "
        f"a budget of {worst.budget:g} (planned {upper(worst.planned)}) at delta "
        f"{worst.delta:.3g}, {named_law(worst.sampling, verdict.unit)} sampling, "
        f"{worst.relation} neighbours, accountant {worst.accountant}"
    )


def class_line(verdict: Verdict) -> str:
    """Test accuracy of each class, one line."""
    classes = (
        f"{name} {percent(share)}" for name, share in verdict.accuracy_by_class.items()
    )
    return f"accuracy by class: {', '.join(classes) or 'not measured'}"


def closing_lines(verdict: Verdict, *, scores: bool = True) -> list[str]:
    """Which plan, the levels of evidence and the source of the noise, and the score if asked."""
    proofs = {
        "declared": "declared (what the run wrote)",
        "replayed": "replayed (rounds executed again)",
        "attested": "attested (releases signed before use)",
    }
    levels = ", ".join(proofs[level] for level in verdict.evidence)
    noise = "; noise drawn from a recorded seed: simulation only"
    approved = any("is the approved one" in one.reason for one in verdict.checks[:1])
    asked = (
        "the approved one" if approved else "compare it with the one that was approved"
    )
    several = (one.group for one in verdict.groups if _OF_PERSON in one.sampling)
    whom = verdict.unit + "".join(f", in {name} each person" for name in several)
    lines = [
        f"plan {verdict.plan_digest[:SHORT]}, protects each {whom}: {asked}",
        f"evidence: {levels}{noise if verdict.simulation_only else ''}",
        *_unchecked_lines(verdict),
    ]
    if scores:
        reached = score(verdict.metric, verdict.accuracy) or no_score(verdict)
        lines.append(f"test {verdict.metric} {reached} ({run_name(verdict)})")
    return lines


def _unchecked_lines(verdict: Verdict) -> list[str]:
    """What the epsilon of a run does not count and no check can see, one line each."""
    lines = []
    if verdict.own_model:
        lines.append(
            "own module: its initial values and buffers are declared public; nothing checks "
            "that they do not come from private records"
        )
    if verdict.tuned and verdict.own_data:
        lines.append(
            "tuned: numbers of this run were chosen by looking at members' records, which "
            "this epsilon does not count"
        )
    return lines


def run_name(verdict: Verdict) -> str:
    """Algorithm and data set of the run, one line; a deployment records no data set."""
    name = (
        f"{verdict.algorithm} on {verdict.dataset}"
        if verdict.dataset
        else verdict.algorithm
    )
    return " ".join(
        name.split()
    )  # a line break in a record must not begin a line of the verdict


# --- Tables and text lines of a budget book. -----------------------------------------------------


def six(value: float | None, up: bool = True) -> str:
    """A bound with six digits, rounded outwards; None means infinite."""
    return "inf" if value is None else f"{outwards(value, up, 6):.6g}"


def spending_table(
    spent: Sequence[Spending], findings: Findings | None = None
) -> Table:
    """What each group has spent, one row per group; findings of proofs by full name."""
    cells: dict[str, Cell] = {
        "group": lambda one: full_name(one.population, one.group),
        "runs": lambda one: one.runs,
        "kept": lambda one: one.kept,
        "releases": lambda one: one.releases,
        "at least": lambda one: six(one.epsilon_lower, False),
        "at most": lambda one: six(one.epsilon_upper),
        "naive sum": lambda one: six(one.epsilon_naive),
        "rdp": lambda one: "-" if one.epsilon_rdp is None else six(one.epsilon_rdp),
        "delta": lambda one: f"{one.delta:.4g}",
        "protects": lambda one: one.unit,
        "law": lambda one: one.sampling,
        "relation": lambda one: one.relation,
        "accountant": lambda one: one.accountant,
        "plans": lambda one: ", ".join(name[:SHORT] for name in one.plans),
    }
    if findings:
        proofs = findings
        cells["proven"] = lambda one: proven_cell(
            proofs[full_name(one.population, one.group)]
        )
    caption = (
        "epsilon of all releases of all runs, composed at once (at least, at most); naive sum: the "
        "runs' own epsilons at delta / runs, added; rdp: an upper bound for runs chosen by what "
        "earlier ones showed; kept: runs whose verdict is kept"
    )
    # Groups of the same runs have one text, so that it is said once.
    by_text: dict[str, list[str]] = {}
    for one in spent:
        names = by_text.setdefault(counted_levels(one.levels), [])
        names.append(full_name(one.population, one.group))
    parts = [f"{', '.join(names)}: {text}" for text, names in by_text.items()]
    caption += f"; runs of {'; of '.join(parts)}"
    return _table("Budget book", spent, cells, caption)


def counted_levels(levels: Mapping[str, int]) -> str:
    """Numbers of runs by how strongly they were checked, as text."""
    return ", ".join(f"{count} {level}" for level, count in levels.items())


def cost_line(run: BookedRun) -> str:
    """The verdict on a run that is not kept, and how its releases are booked."""
    how = {
        "recorded": "as recorded",
        "full participation": "as if every client took part in every round",
        "infinite": "at infinite epsilon",
    }
    return f"the verdict on {run.source} is {run.verdict}: its releases are booked {how[run.cost]}"


def remaining_lines(remaining: Remaining) -> list[str]:
    """The remaining budget as lines of text."""
    where = full_name(remaining.population, remaining.group)
    lines = [
        f"{where}: budget epsilon {remaining.budget:g} at delta {remaining.delta:.4g} over all "
        f"runs ({remaining.sampling} sampling, {remaining.relation}, "
        f"accountant {remaining.accountant}, for each {remaining.unit})",
        f"spent: at least {six(remaining.spent_lower, False)}, "
        f"at most {six(remaining.spent_upper)}",
        f"runs: {counted_levels(remaining.levels)}",
        f"spent under the rule for further runs ({remaining.rule}): {six(remaining.spent)}",
        f"headroom: {six(remaining.headroom, False)}",
    ]
    shape = (
        f"a next run at sampling ratio {remaining.next_ratio:.6g} ({remaining.next_sampling}), "
        f"{remaining.next_rounds} rounds"
    )
    if remaining.noise_multiplier is None:
        return [*lines, f"{shape}: does not fit, whatever its noise"]
    lines.append(
        f"{shape}: noise multiplier {remaining.noise_multiplier:.6g} or more; then "
        f"{six(remaining.total)} with the book"
    )
    return lines
