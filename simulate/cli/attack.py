"""``privplan attack``: what an attacker learns from the releases of a plan or a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privplan.cli import in_section
from privplan.cli.render import refuse_options
from privplan.sweeps import sweeps_in
from simulate.cli.options import (
    FORMAT,
    SEED_OPTION,
    Decorator,
    data_options,
    hyperparameters_of,
    refuse_unused_aggregation,
    request_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simulate.attacks.evaluate import Case
    from simulate.attacks.targets import Settings, Targets


def _count(name: str, default: int, help_: str, *, least: int = 1) -> Decorator:
    """An option with a whole number."""
    kind = click.IntRange(min=least)
    return click.option(name, type=kind, default=default, show_default=True, help=help_)


@in_section("run")
@click.command(
    "attack",
    short_help="Show what an attacker learns from the releases of a plan or run.",
    epilog="Example: privplan attack plan.json --attack closed --images 10 -o attacks",
)
@click.argument("source", metavar="PLAN|RUN", type=click.Path(path_type=Path))
@click.option(
    "--attack",
    "attacks",
    default="closed,ig",
    show_default=True,
    help="Names with commas between: closed, ig, ig-paper, rog, tailored, membership.",
)
@click.option(
    "--algorithm",
    "algorithms",
    default="",
    help="Names with commas between; for a plan only, a run has its own.",
)
@data_options
@_count("--images", 50, "Attacked records.")
@click.option(
    "--clients",
    default="1",
    show_default=True,
    help="Clients in a released sum, each with one record; several with commas between.",
)
@_count("--local-steps", 1, "Local steps of a client on its record.")
@click.option(
    "--noise",
    default="1",
    show_default=True,
    help="Factors on the plan's noise multipliers, with commas between. Membership is compared "
    "with the plan's certificate, which less noise does not keep.",
)
@click.option(
    "--sweep",
    is_flag=True,
    help="Lower the noise until an attack succeeds, and draw its scores over epsilon.",
)
@_count("--steps", 1000, "Steps of iterative attacks.")
@_count("--restarts", 1, "Starts, of which the one with the smallest objective is used.")
@_count("--records", 10, "Most records that are reconstructed from one release.")
@click.option(
    "--rog-network",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Network of the attack rog, written by torch.export.save.",
)
@_count("--round", 1, "Attacked round of a run.")
@_count("--shadows", 64, "Shadow runs of the membership attack.", least=64)
@_count("--targets", 10, "Targets in each run of the membership attack, half of them in.")
@_count("--jobs", 1, "Runs of the membership attack at a time.")
@SEED_OPTION
@FORMAT
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None)
@sweeps_in(lambda options: options["output"])
def command(
    source: Path,
    attacks: str,
    algorithms: str,
    images: int,
    clients: str,
    local_steps: int,
    noise: str,
    sweep: bool,
    steps: int,
    restarts: int,
    records: int,
    rog_network: Path | None,
    round: int,  # the option's name
    shadows: int,
    targets: int,
    jobs: int,
    seed: int,
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Attack the releases of PLAN (a plan.json) or RUN (a run folder).

    Under a plan each client holds one record and takes one local step, the setting in which a
    release says most about a record; clipping and noise are those of the plan. A run's round is
    replayed by its seed. Every row stands beside null rows: what an attacker reaches who sees
    nothing of the record.

    With -o, the folder holds a table, a JSON file and a contact sheet; an interrupted attack
    resumes with the same command.
    """
    from privplan.cli import render
    from simulate.attacks import evaluate as noise_sweep
    from simulate.attacks import report
    from simulate.attacks.evaluate import summary, to_json
    from simulate.attacks.evaluate import sweep as attack_all
    from simulate.attacks.membership import membership
    from simulate.attacks.targets import Settings, attack_names, positive_numbers
    from simulate.attacks.view import Options

    names = attack_names(attacks)
    _refuse_unused(source, names)
    settings = Settings(
        attacks=names,
        images=images,
        clients=positive_numbers("clients", clients, whole=True),
        noise=positive_numbers("noise", noise),
        local_steps=local_steps,
        round=round,
        shadows=shadows,
        targets=targets,
        seed=seed,
    )
    own = Options(steps, restarts, records, seed, _network(rog_network))
    if sweep:
        _check_sweep(source, settings)
    found = _targets(source, algorithms, settings, options)
    _warn_of_rest(found.cases)
    lines: list[dict[str, Any]] = []
    results, breaks = [], []
    if found.cases:
        with render.progress(f"{len(found.cases)} attacks") as progress:
            if sweep:
                swept = noise_sweep.noise_sweep(found.cases, own, seed, output, progress)
                results, lines, breaks = swept.results, swept.lines, swept.breaks
            else:
                results = attack_all(found.cases, own, output, progress)
                lines = [summary(result, seed) for result in results]
    lines += found.missing
    members = []
    for attack in found.members:
        with render.progress(f"membership, {attack.algorithm}, {attack.runs} runs") as progress:
            members.append(membership(attack, output, progress, jobs))
    title = _title(source, found.cases)
    header = {
        "settings": {
            "images": images,
            "clients": settings.clients,
            "noise": settings.noise,
            "local_steps": local_steps,
            "seed": seed,
            "steps": steps,
            "restarts": restarts,
        },
        "membership": members,
        "sweep": breaks,
    }
    if form == "json":
        render.text(to_json({**header, "title": title, "rows": lines}).rstrip())
    else:
        if members:
            render.table(*report.membership_table(members), words=True)
        if lines:
            render.table(
                title, report.COLUMNS, report.table_rows(lines), report.caption(lines), words=True
            )
        for line in breaks:
            render.text(noise_sweep.sentence(line))
    if output is not None:
        written = report.write(output, title, header, lines, results)
        if form == "table":
            render.text(f"written to {output}: {', '.join(written)}")


def _refuse_unused(source: Path, attacks: Sequence[str]) -> None:
    """Raises for each option of the command line that source and attacks leave without effect."""
    from simulate.attacks.targets import MEMBERSHIP

    context = click.get_current_context()
    if source.is_dir():
        rule = "must be left out for a run, which is replayed as it was"
        own = ("clients", "local_steps", "dataset", "partition", "aggregation", "hyperparameters")
        refuse_options(context, own, rule)
    elif source.is_file():
        refuse_options(context, ("round",), "must be left out for a plan, which has no rounds yet")
    if MEMBERSHIP not in attacks:
        names = ("shadows", "targets", "jobs", *(() if source.is_dir() else ("partition",)))
        refuse_options(context, names, "is only for membership")
    if "rog" not in attacks:
        refuse_options(context, ("rog_network",), "is only for the attack rog")


def _warn_of_rest(cases: Sequence[Case]) -> None:
    """Prints a warning for each number of clients that does not divide the images."""
    from privplan.cli import render
    from simulate.attacks.settings import PlanScene

    scenes = [case.scene for case in cases if isinstance(case.scene, PlanScene)]
    for images, clients in dict.fromkeys((scene.images, scene.clients) for scene in scenes):
        if images % clients:
            render.warn(
                f"images: {images} is not a multiple of {clients} clients per release; "
                f"{images - images % clients} images are attacked"
            )


def _network(path: Path | None) -> str:
    """The path of ROG's network; empty without."""
    from simulate.attacks.hyperfl import network

    if path is None:
        return ""
    network(path)
    return str(path)


def _check_sweep(source: Path, settings: Settings) -> None:
    """Raises when a sweep of the noise does not suit the other options."""
    from privplan.errors import InputError
    from simulate.attacks.targets import MEMBERSHIP

    if source.is_dir():
        raise InputError.one("sweep", "must be left out for a run", "--sweep")
    if settings.noise != (1.0,):
        raise InputError.one("sweep", "must be left out with --noise", "--sweep")
    if MEMBERSHIP in settings.attacks:
        raise InputError.one("sweep", "must be left out for membership", "--sweep")


def _targets(source: Path, algorithms: str, settings: Settings, options: dict[str, Any]) -> Targets:
    """The attacks on a plan or a run."""
    from privplan.errors import InputError
    from simulate.attacks.targets import of_plan, of_run
    from simulate.data.registry import load

    names = [word.strip() for word in algorithms.split(",") if word.strip()]
    if not source.is_dir():
        request = request_of(source, "", Path("attack"), options)
        if names:
            refuse_unused_aggregation(request.plan, names)
        return of_plan(request, names, settings)
    if names:
        raise InputError.one("algorithm", "must be left out for a run", algorithms)
    hyperparameters_of(options["hyperparameters"])
    return of_run(
        source,
        lambda name: load(name, options["data_dir"], options["download"]),
        options["device"],
        settings,
    )


def _title(source: Path, cases: Sequence[Case]) -> str:
    if not cases:
        return f"Attacks on {source.name}"
    scene = cases[0].scene
    data, network = scene.experiment.data.name, scene.experiment.model.name
    if source.is_dir():
        return f"Attacks on {source.name}: {data}, {network}"
    return f"Attacks on {source.name}: {data}, {network}, one record per client"
