"""``privplan attack``: what an attacker learns from the releases of a plan."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from privplan.cli import in_section, render
from privplan.cli.folders import FolderPath
from privplan.cli.render import refuse_options
from privplan.errors import InputError, MissingDataError
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

    from simulate.attacks.decoder import Decoder
    from simulate.attacks.lpips import Lpips
    from simulate.attacks.membership import Membership
    from simulate.attacks.settings import PlanRound
    from simulate.attacks.sweep import Case, Result
    from simulate.data.dataset import Dataset
    from simulate.runs.request import Request

MEMBERSHIP = "membership"
ROG = "rog"
LARGEST_NUMBER = 1e9  # above any number of clients and any factor; refuses infinity


def _count(name: str, default: int, help_: str, *, low: int = 1) -> Decorator:
    """An option with a whole number of at least ``low``."""
    kind = click.IntRange(min=low)
    return click.option(name, type=kind, default=default, show_default=True, help=help_)


@in_section("run")
@click.command(
    "attack",
    short_help="Show what an attacker learns from the releases of a plan.",
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
    "--algorithm", "algorithms", default="", help="Names with commas between."
)
@data_options
@click.option(
    "--images",
    type=click.IntRange(min=1),
    help="Attacked records.  [50, ig-paper 4]",
)
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
    help="Factors on the plan's noise multipliers, with commas between, such as "
    "1,0.1,0.01, to see where an attack begins to succeed. Membership is compared with "
    "the plan's certificate, which less noise does not keep.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    help="Steps of iterative attacks.  [ig 1000, ig-paper 10000, rog 300, tailored 2000]",
)
@click.option(
    "--decoder-data",
    metavar="NAME",
    help="Data set whose test records train the decoder of rog, such as the attacked one.",
)
@click.option(
    "--lpips",
    "network",
    type=click.Choice(["alex", "vgg"]),
    help="Measure LPIPS, too, by a network whose weights are on disk or --download.",
)
@_count("--shadows", 64, "Shadow runs of the membership attack.", low=64)
@_count(
    "--targets", 10, "Targets in each run of the membership attack, half of them in."
)
@_count("--jobs", 1, "Runs of the membership attack at a time.")
@SEED_OPTION
@FORMAT
@click.option("-o", "--output", type=FolderPath(), default=None)
def command(
    source: Path,
    attacks: str,
    algorithms: str,
    images: int | None,
    clients: str,
    noise: str,
    steps: int | None,
    decoder_data: str | None,
    network: str | None,
    shadows: int,
    targets: int,
    jobs: int,
    seed: int,
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Attack the releases of PLAN (a plan.json), or those of a finished RUN.

    Each client holds one record and takes one local step, the setting in which a
    release says most about a record; clipping and noise are those of the plan. Every
    row has null rows: what an attacker reaches who sees nothing.

    Of a RUN the stored releases are attacked, --images / 10 of them, ten images of
    each; its folder keeps the results, and privplan report prints them. It must be of
    registered public data.

    With -o, the folder holds a table, a JSON file and a contact sheet; interrupted
    attacks resume with the same command.
    """
    from simulate.attacks import report

    names = _attack_names(attacks)
    if MEMBERSHIP not in names:
        only_for_membership = ("shadows", "targets", "jobs", "partition")
        refuse_options(
            click.get_current_context(), only_for_membership, "is only for membership"
        )
    sums = _positive("clients", clients, is_whole=True)
    factors = _positive("noise", noise)
    memberships: list[Membership] = []
    if source.is_dir():
        cases = _cases_of_run(source, names, images, options)
    else:
        target = _of_plan(source, algorithms, factors, seed, options)
        cases = target.cases(names, images, sums)
        if MEMBERSHIP in names:
            memberships = target.memberships(shadows, targets)
        _warn_of_left_images(cases, sums)
    lpips = _lpips(network, options)
    decoder = _decoder(cases, decoder_data, seed, output, options)
    results = _reconstructed(cases, steps or 0, seed, output, decoder)
    title = _title(source, cases)
    header = {
        "settings": {
            "images": images,
            "clients": sums,
            "noise": factors,
            "seed": seed,
            "steps": steps,
            "decoder": None if decoder is None else decoder.identity,
            "lpips": None if lpips is None else network,
        },
        "membership": _tested(memberships, output, jobs),
    }
    lines = [report.summary(result, seed, lpips) for result in results]
    _show(form, title, header, lines)
    if source.is_dir():
        report.attacks_on_run(lines).save(source)
    if output is not None:
        written = report.write(output, title, header, lines, results)
        if form == "table":
            render.text(f"written to {output}: {', '.join(written)}")


def _title(source: Path, cases: list[Case]) -> str:
    """What is attacked."""
    title = f"Attacks on {source.name}"
    if cases:
        title += f": {cases[0].attacked.title}"
    return title


def _warn_of_left_images(cases: Sequence[Case], sums: Sequence[float]) -> None:
    """Say how many images are attacked where a sum has several clients."""
    numbers = sorted({case.attacked.identity["images"] for case in cases})
    for images, count in product(numbers, map(int, sums)):
        remainder = images % count
        if remainder:
            render.warn(
                f"images: {images} is not a multiple of {count} clients per release; "
                f"{images - remainder} images are attacked"
            )


def _decoder(
    cases: list[Case],
    name: str | None,
    seed: int,
    output: Path | None,
    options: dict[str, Any],
) -> Decoder | None:
    """The decoder of the attack rog, trained or read; None where nothing needs one."""
    import torch

    from simulate.attacks.decoder import FIELD, DecoderData, decoder
    from simulate.attacks.view import require_images, white
    from simulate.data.registry import load

    attacked = [case.attacked for case in cases if case.attack == ROG]
    if not attacked:
        refuse_options(
            click.get_current_context(), ("decoder_data",), "is only for rog"
        )
        return None
    if name is None:
        rule = "must name public data for the attack rog"
        raise InputError.one(FIELD, rule, "nothing")
    data = load(name, options["data_dir"], options["download"])
    require_images(data)
    images = data.test_x.float() / white(data)
    public = DecoderData(data.name, data.digest, images)
    for releases in attacked:
        truths = [releases.truth(index).images for index in range(len(releases))]
        public.require_apart_from(torch.cat(truths))
    with render.progress("decoder of rog") as progress:
        return decoder(public, seed, output, progress)


def _lpips(network: str | None, options: dict[str, Any]) -> Lpips | None:
    """The measure LPIPS; None, with a word where it is asked for, if it is missing."""
    from simulate.attacks.lpips import lpips

    if network is None:
        return None
    try:
        return lpips(network, options["data_dir"], options["download"])
    except MissingDataError as error:
        render.warn(str(error))
        return None


def _reconstructed(
    cases: list[Case],
    steps: int,
    seed: int,
    output: Path | None,
    decoder: Decoder | None,
) -> list[Result]:
    """The results of the attacks that reconstruct records."""
    from simulate.attacks.sweep import sweep
    from simulate.attacks.view import Options

    if not cases:
        return []
    options = Options(steps, seed, decode=decoder)
    setting = {"decoder": None if decoder is None else decoder.identity}
    with render.progress(f"{len(cases)} attacks") as progress:
        return sweep(cases, options, progress, output, setting)


def _tested(
    memberships: list[Membership], output: Path | None, jobs: int
) -> list[dict[str, Any]]:
    """The results of the membership attacks."""
    from simulate.attacks.membership import membership

    results = []
    for attack in memberships:
        title = f"membership, {attack.algorithm}, {attack.runs} runs"
        with render.progress(title) as progress:
            results.append(membership(attack, output, progress, jobs))
    return results


def _show(
    form: str, title: str, header: dict[str, Any], lines: list[dict[str, Any]]
) -> None:
    """Print the results of all attacks."""
    from simulate.attacks import report

    if form == "json":
        render.text(report.to_json({**header, "title": title, "rows": lines}).rstrip())
        return
    if header["membership"]:
        render.table(*report.membership_table(header["membership"]), words=True)
    if lines:
        rows = report.table_rows(lines)
        heads = report.columns(lines)
        render.table(title, heads, rows, report.caption(lines), words=True)


def _attack_names(text: str) -> tuple[str, ...]:
    """Registered names of the chosen attacks, and ``membership``."""
    from simulate.attacks.view import ATTACKS

    words = [word.strip() for word in text.split(",") if word.strip()]
    names = []
    for word in words or [""]:
        if word.lower() == MEMBERSHIP:
            names.append(MEMBERSHIP)
        elif word in ATTACKS:
            names.append(ATTACKS.name_of(word))
        else:
            choices = ", ".join([*ATTACKS.names(), MEMBERSHIP])
            raise InputError.one("attack", f"must be one of {choices}", word)
    return tuple(dict.fromkeys(names))


def _positive(field: str, text: str, *, is_whole: bool = False) -> tuple[float, ...]:
    """Numbers above 0 from text with commas between."""
    numbers = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0 < value < LARGEST_NUMBER or (is_whole and not value.is_integer()):
            kind = "numbers"
            if is_whole:
                kind = "whole numbers"
            rule = f"must be {kind} above 0 with commas between"
            raise InputError.one(field, rule, word)
        numbers.append(value)
    return tuple(numbers)


_OF_PLANS = (
    "algorithms",
    "clients",
    "noise",
    "shadows",
    "targets",
    "jobs",
    "dataset",
    "partition",
    "aggregation",
    "hyperparameters",
)  # options of attacks on plans alone


def _cases_of_run(
    folder: Path, names: Sequence[str], images: int | None, options: dict[str, Any]
) -> list[Case]:
    """Reconstructions from the stored releases of a run."""
    from simulate.attacks.matching import MAX_RECORDS
    from simulate.attacks.run_round import public_run, run_rounds
    from simulate.attacks.sweep import Case
    from simulate.attacks.view import IMAGES
    from simulate.data.registry import load

    refuse_options(click.get_current_context(), _OF_PLANS, "must be left out for a run")
    if MEMBERSHIP in names:
        rule = "must be closed, ig, ig-paper, rog or tailored for a run"
        raise InputError.one("attack", rule, MEMBERSHIP)
    record = public_run(folder)
    data = load(record.dataset, options["data_dir"], options["download"])
    releases = max(1, (images or IMAGES) // MAX_RECORDS)
    rounds = run_rounds(folder, data, record, releases)
    return [Case(name, rounds) for name in names]


def _of_plan(
    source: Path,
    algorithms: str,
    factors: Sequence[float],
    seed: int,
    options: dict[str, Any],
) -> _Target:
    """Plan and choices of the command line, names of the algorithms, and the data."""
    from simulate.algorithms.registry import ALGORITHMS
    from simulate.data.registry import load

    request = request_of(source, "", Path("attack"), options)
    names = [word.strip() for word in algorithms.split(",") if word.strip()]
    if not names:
        rule = "must be given for a plan, such as FedAvg"
        raise InputError.one("algorithm", rule, "nothing")
    refuse_unused_aggregation(request.plan, names)
    request.plan.spec.require("attacks", "plan.spec.sampling")
    methods = list(dict.fromkeys(map(ALGORITHMS.name_of, names)))
    data = load(request.dataset, request.data_dir, request.download)
    return _Target(request, methods, data, factors, seed)


class _Target(NamedTuple):
    """What is attacked: a plan under several methods, with factors on its noise."""

    request: Request
    methods: Sequence[str]
    data: Dataset
    factors: Sequence[float]
    seed: int

    def cases(
        self, attacks: Sequence[str], images: int | None, sums: Sequence[float]
    ) -> list[Case]:
        """Reconstructions from a round of each method, factor and number of clients.

        Args:
            attacks: their names.
            images: attacked records; the number of each attack when None.
            sums: clients in a released sum.
        """
        from simulate.attacks.sweep import Case
        from simulate.attacks.view import ATTACKS

        cases: list[Case] = []
        for method, factor, clients in product(self.methods, self.factors, sums):
            # Attacks on as many images share a round.
            rounds: dict[int, PlanRound] = {}
            for name in attacks:
                if name == MEMBERSHIP:
                    continue
                number = images or max(ATTACKS.get(name).images, int(clients))
                if number not in rounds:
                    rounds[number] = self._round(method, factor, int(clients), number)
                cases.append(Case(name, rounds[number]))
        return cases

    def _round(
        self, method: str, factor: float, clients: int, images: int
    ) -> PlanRound:
        """A round of a method, which the plan can run."""
        from simulate.attacks.settings import PlanRound
        from simulate.parallel import SINGLE_PROCESS, device_of

        attacked = PlanRound(
            self.request.plan,
            method,
            self.data,
            images=images,
            clients=clients,
            seed=self.seed,
            hyperparameters=self.request.hyperparameters,
            device=device_of(self.request.device, SINGLE_PROCESS),
            noise_factor=factor,
        )
        attacked.experiment  # noqa: B018  # raises before any attack starts
        return attacked

    def memberships(self, shadows: int, targets: int) -> list[Membership]:
        """A membership attack on each method for each factor."""
        from simulate.attacks.membership import Membership

        attacks = []
        for method, factor in product(self.methods, self.factors):
            attack = Membership(
                self.request.plan,
                method,
                self.data,
                shadows=shadows,
                targets=targets,
                seed=self.seed,
                hyperparameters=self.request.hyperparameters,
                partition=self.request.partition,
                noise_factor=factor,
            )
            attack.experiment(0)  # raises before any run
            attacks.append(attack)
        return attacks
