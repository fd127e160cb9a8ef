"""``privplan attack``: what an attacker learns from the releases of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from privplan.cli.render import refuse_options
from simulate.cli.options import (
    FORMAT,
    SEED_OPTION,
    Decorator,
    data_options,
    refuse_unused_aggregation,
    request_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulate.attacks.membership import Membership
    from simulate.attacks.report import Case, Result
    from simulate.attacks.settings import PlanRound
    from simulate.data.dataset import Dataset
    from simulate.runs.request import Request

MEMBERSHIP = "membership"


def _count(name: str, default: int, help_: str, *, least: int = 1) -> Decorator:
    """An option with a whole number."""
    kind = click.IntRange(min=least)
    return click.option(name, type=kind, default=default, show_default=True, help=help_)


@in_section("run")
@click.command(
    "attack",
    short_help="Show what an attacker learns from the releases of a plan.",
    epilog="Example: privplan attack plan.json --attack closed --images 10 -o attacks",
)
@click.argument("source", metavar="PLAN", type=click.Path(path_type=Path))
@click.option(
    "--attack",
    "attacks",
    default="closed,ig",
    show_default=True,
    help="Names with commas between: closed, ig, membership.",
)
@click.option(
    "--algorithm", "algorithms", default="", help="Names with commas between."
)
@data_options
@_count("--images", 50, "Attacked records.")
@click.option(
    "--clients",
    default="1",
    show_default=True,
    help="Clients in a released sum, each with one record; several with commas between.",
)
@click.option(
    "--noise",
    default="1",
    show_default=True,
    help="Factors on the plan's noise multipliers, with commas between, such as 1,0.1,0.01, to see "
    "where an attack begins to succeed. Membership is compared with the plan's certificate, which "
    "less noise does not keep.",
)
@_count("--steps", 1000, "Steps of the attack ig.")
@_count("--shadows", 64, "Shadow runs of the membership attack.", least=64)
@_count(
    "--targets", 10, "Targets in each run of the membership attack, half of them in."
)
@_count("--jobs", 1, "Runs of the membership attack at a time.")
@SEED_OPTION
@FORMAT
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None)
def command(
    source: Path,
    attacks: str,
    algorithms: str,
    images: int,
    clients: str,
    noise: str,
    steps: int,
    shadows: int,
    targets: int,
    jobs: int,
    seed: int,
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Attack the releases of PLAN (a plan.json).

    Each client holds one record and takes one local step, the setting in which a release says most
    about a record; clipping and noise are those of the plan. Every row has null rows: what an
    attacker reaches who sees nothing.

    With -o, the folder holds a table, a JSON file and a contact sheet; an interrupted membership
    attack resumes with the same command.
    """
    from privplan.cli import render
    from privplan.errors import InputError
    from simulate.attacks import report
    from simulate.attacks.membership import membership
    from simulate.attacks.view import Options

    names = _attack_names(attacks)
    if source.is_dir():
        rule = "must be a plan: its attacks have the setting in which most is released"
        raise InputError.one("plan", rule, str(source))
    if MEMBERSHIP not in names:
        options_ = ("shadows", "targets", "jobs", "partition")
        refuse_options(click.get_current_context(), options_, "is only for membership")
    sums, factors = _positive("clients", clients, whole=True), _positive("noise", noise)
    reconstructing = [name for name in names if name != MEMBERSHIP]
    cases: list[Case] = []
    members: list[Membership] = []
    request, methods, data = _of_plan(source, algorithms, options)
    for method in methods:
        if reconstructing:
            rounds = _rounds_of_plan(request, method, data, images, sums, factors, seed)
            cases += [
                report.Case(name, one) for one in rounds for name in reconstructing
            ]
        if MEMBERSHIP in names:
            members += _members(request, method, data, shadows, targets, factors, seed)
    for count in map(int, sums if reconstructing else ()):
        if rest := images % count:
            render.warn(
                f"images: {images} is not a multiple of {count} clients per release; "
                f"{images - rest} images are attacked"
            )
    results: list[Result] = []
    if cases:
        with render.progress(f"{len(cases)} attacks") as progress:
            results = report.sweep(cases, Options(steps, seed), progress)
    lines = [report.summary(result, seed) for result in results]
    found = []
    for attack in members:
        with render.progress(
            f"membership, {attack.algorithm}, {attack.runs} runs"
        ) as progress:
            found.append(membership(attack, output, progress, jobs))
    title = f"Attacks on {source.name}"
    if cases:
        experiment = cases[0].attacked.experiment
        title += f": {experiment.data.name}, {experiment.model.name}"
        title += ", one record per client"
    settings = {
        "images": images,
        "clients": sums,
        "noise": factors,
        "seed": seed,
        "steps": steps,
    }
    header = {"settings": settings, "membership": found}
    if form == "json":
        render.text(report.to_json({**header, "title": title, "rows": lines}).rstrip())
    else:
        if found:
            render.table(*report.membership_table(found), words=True)
        if lines:
            rows, caption = report.table_rows(lines), report.caption(lines)
            render.table(title, report.COLUMNS, rows, caption, words=True)
    if output is not None:
        written = report.write(output, title, header, lines, results)
        if form == "table":
            render.text(f"written to {output}: {', '.join(written)}")


def _attack_names(text: str) -> tuple[str, ...]:
    """Registered names of the chosen attacks, and ``membership``."""
    from privplan.errors import InputError
    from simulate.attacks.view import ATTACKS

    words = [word.strip() for word in text.split(",") if word.strip()]
    found = []
    for word in words or [""]:
        if word.lower() == MEMBERSHIP:
            found.append(MEMBERSHIP)
        elif word in ATTACKS:
            found.append(ATTACKS.name_of(word))
        else:
            known = ", ".join([*ATTACKS.names(), MEMBERSHIP])
            raise InputError.one("attack", f"must be one of {known}", word)
    return tuple(dict.fromkeys(found))


def _positive(field: str, text: str, *, whole: bool = False) -> tuple[float, ...]:
    """Numbers above 0 from text with commas between."""
    from privplan.errors import InputError

    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9 or (whole and not value.is_integer()):
            kind = "whole numbers" if whole else "numbers"
            raise InputError.one(
                field, f"must be {kind} above 0 with commas between", word
            )
        found.append(value)
    return tuple(found)


def _of_plan(
    source: Path, algorithms: str, options: dict[str, Any]
) -> tuple[Request, list[str], Dataset]:
    """Plan and choices of the command line, names of the algorithms, and the data."""
    from privplan.errors import InputError
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.data.registry import load

    request = request_of(source, "", Path("attack"), options)
    names = [word.strip() for word in algorithms.split(",") if word.strip()]
    if not names:
        raise InputError.one(
            "algorithm", "must be given for a plan, such as FedAvg", "nothing"
        )
    refuse_unused_aggregation(request.plan, names)
    request.plan.spec.require("attacks", "plan.spec.sampling")
    found = list(dict.fromkeys(map(ALGORITHMS.name_of, names)))
    return request, found, load(request.dataset, request.data_dir, request.download)


def _rounds_of_plan(
    request: Request,
    algorithm: str,
    data: Dataset,
    images: int,
    sums: Sequence[float],
    factors: Sequence[float],
    seed: int,
) -> list[PlanRound]:
    """The rounds to attack: one for each factor on the noise and number of clients in a sum."""
    from simulate.attacks.settings import PlanRound
    from simulate.parallel import SINGLE_PROCESS, device_of

    found = []
    for factor in factors:
        for clients in map(int, sums):
            one = PlanRound(
                request.plan, algorithm, data, images=images, clients=clients, seed=seed,
                hyperparameters=request.hyperparameters,
                device=device_of(request.device, SINGLE_PROCESS), noise_factor=factor,
            )  # fmt: skip
            one.experiment  # noqa: B018  # raises before any attack starts
            found.append(one)
    return found


def _members(
    request: Request,
    algorithm: str,
    data: Dataset,
    shadows: int,
    targets: int,
    factors: Sequence[float],
    seed: int,
) -> list[Membership]:
    """Membership attacks on an algorithm, one for each factor on the noise."""
    from simulate.attacks.membership import Membership

    found = [
        Membership(
            request.plan,
            algorithm,
            data,
            shadows=shadows,
            targets=targets,
            seed=seed,
            hyperparameters=request.hyperparameters,
            partition=request.partition,
            noise_factor=factor,
        )
        for factor in factors
    ]
    for one in found:
        one.experiment(0)  # raises before any run
    return found
