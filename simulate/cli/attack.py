"""``privplan attack``: what an attacker reconstructs from the releases of a plan or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simulate.cli.options import SEED, data_options, hyperparameters_of, request_of

if TYPE_CHECKING:
    from simulate.attacks.evaluate import Case

MEMBERSHIP = "membership"


@click.command(
    "attack", short_help="Show what an attacker reconstructs from the releases of a plan or run."
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
@click.option("--images", type=click.IntRange(min=1), default=50, show_default=True)
@click.option(
    "--clients",
    default="1",
    show_default=True,
    help="Clients in a released sum, each with one record; several with commas between.",
)
@click.option(
    "--local-steps",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Local steps of a client on its record.",
)
@click.option(
    "--noise",
    default="1",
    show_default=True,
    help="Factors on the plan's noise multipliers, for a sweep; with commas between.",
)
@click.option("--steps", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--restarts", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--records",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Most records that are reconstructed from one release.",
)
@click.option(
    "--round",
    "round_",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Attacked round of a run.",
)
@click.option(
    "--shadows",
    type=click.IntRange(min=64),
    default=64,
    show_default=True,
    help="Shadow runs of the membership attack.",
)
@click.option(
    "--targets",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Targets in each run of the membership attack, half of them in.",
)
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at a time."
)
@click.option("--seed", type=SEED, default=0, show_default=True)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None)
def command(
    source: Path,
    attacks: str,
    algorithms: str,
    images: int,
    clients: str,
    local_steps: int,
    noise: str,
    steps: int,
    restarts: int,
    records: int,
    round_: int,
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
    from simulate.attacks import report
    from simulate.attacks.evaluate import summary, sweep, to_json
    from simulate.attacks.registry import Options

    names = _names(attacks)
    settings = Options(steps=steps, restarts=restarts, records=records, seed=seed)
    numbers = _numbers("clients", clients), _numbers("noise", noise)
    scenes = {
        "images": images,
        "clients": numbers[0],
        "noise": numbers[1],
        "local_steps": local_steps,
        "seed": seed,
    }
    lines: list[dict[str, Any]] = []
    if source.is_dir():
        cases = _of_run(source, names, algorithms, round_, scenes, options)
    else:
        cases, lines = _of_plan(source, names, algorithms, scenes, options)
    results = []
    if cases:
        with render.progress(f"{len(cases)} attacks") as progress:
            results = sweep(cases, settings, output, progress)
    lines = [*(summary(result, seed) for result in results), *lines]
    title = _title(source, cases)
    found = []
    if MEMBERSHIP in names:
        found = _membership(source, algorithms, shadows, targets, jobs, seed, output, options)
    header = {"settings": {**scenes, "steps": steps, "restarts": restarts}, "membership": found}
    if form == "json":
        render.text(to_json({**header, "title": title, "rows": lines}).rstrip())
    else:
        if MEMBERSHIP in names:
            render.table(*report.membership_table(found), words=True)
        if lines:
            render.table(title, report.COLUMNS, report.table_rows(lines), _caption(), words=True)
    if output is not None:
        written = report.write(output, title, header, lines, results)
        if form == "table":
            render.text(f"written to {output}: {', '.join(written)}")


def _names(attacks: str) -> list[str]:
    """Registered names of the chosen attacks, and ``membership``.

    Raises:
        InputError: for an unknown name, or none.
    """
    from privplan.errors import InputError
    from simulate.attacks.registry import ATTACKS

    words = [word.strip() for word in attacks.split(",") if word.strip()]
    known = [*ATTACKS.names(), MEMBERSHIP]
    found = []
    for word in words or [""]:
        if word.lower() == MEMBERSHIP:
            found.append(MEMBERSHIP)
        elif word in ATTACKS:
            found.append(ATTACKS.name_of(word))
        else:
            raise InputError.one("attack", f"must be one of {', '.join(known)}", word)
    return list(dict.fromkeys(found))


def _numbers(field: str, text: str) -> list[float]:
    """Positive numbers from text with commas between.

    Raises:
        InputError: naming the first word that is none.
    """
    from privplan.errors import InputError

    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        whole = field != "clients" or value.is_integer()
        if not 0 < value < 1e9 or not whole:
            rule = "must be whole numbers" if field == "clients" else "must be numbers"
            raise InputError.one(field, f"{rule} above 0 with commas between", word)
        found.append(value)
    return found


def _of_plan(
    source: Path,
    names: Sequence[str],
    algorithms: str,
    scenes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[list[Case], list[dict[str, Any]]]:
    """Cases of a plan, and lines for algorithms without a form that suits it."""
    from privplan.errors import InputError
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.attacks.evaluate import Case
    from simulate.attacks.scenes import PlanScene
    from simulate.data.registry import load
    from simulate.parallel.distributed import SINGLE_PROCESS, device_of

    request = request_of(source, "", Path("attack"), options)
    chosen = [word.strip() for word in algorithms.split(",") if word.strip()]
    if not chosen:
        raise InputError.one("algorithm", "must be given for a plan, such as FedAvg", "nothing")
    entries = [ALGORITHMS.get(word) for word in chosen]
    attacks = [name for name in names if name != MEMBERSHIP]
    device = device_of(request.device, SINGLE_PROCESS)
    data = load(request.dataset, request.data_dir, request.download)
    cases: list[Case] = []
    lines: list[dict[str, Any]] = []
    for entry in entries:
        if request.plan.unit == "record" and entry.name in NOT_BUILT:
            lines += [
                {"algorithm": entry.name, "attack": name, "verdict": "not built"}
                for name in attacks
            ]
            continue
        for factor in scenes["noise"]:
            for clients in scenes["clients"]:
                scene = PlanScene(
                    request.plan,
                    entry.name,
                    data,
                    images=scenes["images"],
                    clients=int(clients),
                    steps=scenes["local_steps"],
                    seed=scenes["seed"],
                    hyperparameters=request.hyperparameters,
                    device=device,
                    noise_factor=factor,
                )
                scene.experiment  # noqa: B018  # raises before any attack starts
                cases += [Case(name, scene) for name in attacks]
    return cases, lines


NOT_BUILT = ("CENTAUR", "PPSGD")
"""Algorithms of HyperFL's tables whose record-level form is not built."""


def _of_run(
    source: Path,
    names: Sequence[str],
    algorithms: str,
    round_: int,
    scenes: Mapping[str, Any],
    options: Mapping[str, Any],
) -> list[Case]:
    """Cases of a run folder."""
    from privplan.errors import InputError
    from simulate.attacks.evaluate import Case
    from simulate.attacks.scenes import run_scene
    from simulate.data.registry import load
    from simulate.parallel.distributed import SINGLE_PROCESS, device_of

    if algorithms:
        raise InputError.one("algorithm", "must be left out for a run", algorithms)
    if scenes["noise"] != [1.0] or scenes["clients"] != [1.0] or scenes["local_steps"] != 1:
        rule = "must be left out for a run, which is replayed as it was"
        raise InputError.one("clients, noise, local-steps", rule, "another value")
    hyperparameters_of(options["hyperparameters"])
    scene = run_scene(
        source,
        lambda name: load(name, options["data_dir"], options["download"]),
        round_,
        scenes["images"],
        device_of(options["device"], SINGLE_PROCESS),
    )
    return [Case(name, scene) for name in names if name != MEMBERSHIP]


def _membership(
    source: Path,
    algorithms: str,
    shadows: int,
    targets: int,
    jobs: int,
    seed: int,
    output: Path | None,
    options: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Results of the membership attack on each algorithm."""
    from privplan.cli import render
    from privplan.errors import InputError
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.attacks.membership import Membership, membership
    from simulate.data.registry import load

    if source.is_dir():
        rule = "must leave out membership for a run: its shadow runs need the plan"
        raise InputError.one("attack", rule, str(source))
    request = request_of(source, "", Path("attack"), options)
    data = load(request.dataset, request.data_dir, request.download)
    entries = [ALGORITHMS.get(word) for word in algorithms.split(",") if word.strip()]
    attacks = [
        Membership(
            request.plan,
            entry.name,
            data,
            shadows=shadows,
            targets=targets,
            seed=seed,
            hyperparameters=request.hyperparameters,
            partition=request.partition,
        )
        for entry in entries
        if request.plan.unit == "client" or entry.name not in NOT_BUILT
    ]
    found = []
    for attack in attacks:
        with render.progress(f"membership, {attack.algorithm}, {attack.runs} runs") as progress:
            found.append(membership(attack, output, progress, jobs))
    return found


def _title(source: Path, cases: Sequence[Case]) -> str:
    if not cases:
        return f"Attacks on {source.name}"
    scene = cases[0].scene
    data, network = scene.experiment.data.name, scene.experiment.model.name
    if source.is_dir():
        return f"Attacks on {source.name}: {data}, {network}"
    return f"Attacks on {source.name}: {data}, {network}, one record per client"


def _caption() -> str:
    return (
        "[low, high]: 95% intervals; leaks: better than every null row by the named measure; "
        "re-identified: the original is the nearest of 1,000 candidates (chance 0.001)"
    )
