"""What a plan or a run folder offers to attacks: scenes to reconstruct from, runs to tell members.

Names and numbers of the command line become the values that the attacks take, and every fault is
found before anything is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privplan.errors import InputError
from privplan.plan import Plan
from privplan.record import PLAN, RunRecord
from simulate.algorithms.registry import ALGORITHMS, Hyperparameters
from simulate.attacks.evaluate import Case
from simulate.attacks.membership import Membership
from simulate.attacks.settings import PlanScene, run_scene
from simulate.attacks.view import ATTACKS
from simulate.data.dataset import Dataset
from simulate.data.registry import load
from simulate.parallel import SINGLE_PROCESS, device_of
from simulate.runs.request import Request

MEMBERSHIP = "membership"
NOT_BUILT = ("CENTAUR", "PPSGD")
"""Algorithms of HyperFL's tables that may have no record-level form."""


@dataclass(frozen=True)
class Settings:
    """What attacks are run on.

    Attributes:
        attacks: names, as ``attack_names`` returns them.
        images: most attacked records.
        clients: numbers of clients per released sum, for plans.
        noise: factors on the planned noise multipliers, for plans.
        local_steps: local steps of a client on its record, for plans.
        round: attacked round, for runs.
        shadows: shadow runs of the membership attack.
        targets: targets of the membership attack in each run.
        seed: seed of the records, the models and the noise; a run has its own.
    """

    attacks: tuple[str, ...]
    images: int
    clients: tuple[float, ...]
    noise: tuple[float, ...]
    local_steps: int
    round: int
    shadows: int
    targets: int
    seed: int


@dataclass(frozen=True)
class Targets:
    """Attacks that are ready to run.

    Attributes:
        cases: reconstruction attacks.
        members: membership attacks.
        missing: rows of the report for algorithms without a form that suits the plan.
    """

    cases: tuple[Case, ...]
    members: tuple[Membership, ...]
    missing: tuple[dict[str, Any], ...] = ()


def attack_names(text: str) -> tuple[str, ...]:
    """Registered names of the chosen attacks, and ``membership``."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = [*ATTACKS.names(), MEMBERSHIP]
    found = []
    for word in words or [""]:
        if word.lower() == MEMBERSHIP:
            found.append(MEMBERSHIP)
        elif word in ATTACKS:
            found.append(ATTACKS.name_of(word))
        else:
            raise InputError.one("attack", f"must be one of {', '.join(known)}", word)
    return tuple(dict.fromkeys(found))


def positive_numbers(field: str, text: str, *, whole: bool = False) -> tuple[float, ...]:
    """Numbers above 0 from text with commas between."""
    found = []
    for word in text.split(","):
        try:
            value = float(word)
        except ValueError:
            value = 0.0
        if not 0 < value < 1e9 or (whole and not value.is_integer()):
            kind = "whole numbers" if whole else "numbers"
            raise InputError.one(field, f"must be {kind} above 0 with commas between", word)
        found.append(value)
    return tuple(found)


def of_plan(request: Request, algorithms: Sequence[str], settings: Settings) -> Targets:
    """Attacks on algorithms under a plan."""
    if not algorithms:
        raise InputError.one("algorithm", "must be given for a plan, such as FedAvg", "nothing")
    entries = [ALGORITHMS.get(name) for name in dict.fromkeys(map(ALGORITHMS.name_of, algorithms))]
    plan = request.plan
    plan.spec.sampling.law.require("attacks", "plan.spec.sampling")
    data = load(request.dataset, request.data_dir, request.download)
    found = Targets((), ())
    for entry in entries:
        if entry.name in NOT_BUILT and entry.unmet_requirement(plan) is not None:
            rows = [
                {"algorithm": entry.name, "attack": name, "verdict": "not built"}
                for name in settings.attacks
            ]
            found = replace(found, missing=(*found.missing, *rows))
            continue
        cases = _cases_of_plan(request, entry.name, data, settings)
        members: list[Membership] = []
        if MEMBERSHIP in settings.attacks:
            members = [
                Membership(
                    plan,
                    entry.name,
                    data,
                    shadows=settings.shadows,
                    targets=settings.targets,
                    seed=settings.seed,
                    hyperparameters=request.hyperparameters,
                    partition=request.partition,
                    noise_factor=factor,
                )
                for factor in settings.noise
            ]
            for member in members:
                member.check()
        found = replace(found, cases=(*found.cases, *cases), members=(*found.members, *members))
    return found


def _cases_of_plan(
    request: Request, algorithm: str, data: Dataset, settings: Settings
) -> list[Case]:
    names = [name for name in settings.attacks if name != MEMBERSHIP]
    cases: list[Case] = []
    for factor in settings.noise if names else ():
        for clients in settings.clients:
            scene = PlanScene(
                request.plan,
                algorithm,
                data,
                images=settings.images,
                clients=int(clients),
                steps=settings.local_steps,
                seed=settings.seed,
                hyperparameters=request.hyperparameters,
                device=device_of(request.device, SINGLE_PROCESS),
                noise_factor=factor,
            )
            scene.experiment  # noqa: B018  # raises before any attack starts
            cases += [Case(name, scene) for name in names]
    return cases


def of_run(
    folder: Path,
    dataset: Callable[[str], Dataset],
    device: str,
    settings: Settings,
) -> Targets:
    """Attacks on a run: reconstruction from one round, membership by runs like it.

    The shadow runs have the run's executed plan, data, partition and hyperparameters, and seeds
    of their own. The run itself is not among them, for all of its clients were in.
    """
    if (folder / PLAN).is_file():
        executed = Plan.load(folder / PLAN)
        executed.spec.sampling.law.require("attacks", "plan.spec.sampling")
    names = [name for name in settings.attacks if name != MEMBERSHIP]
    if names and settings.noise != (1.0,):
        rule = "must be left out for a run, which is replayed as it was"
        raise InputError.one("noise", rule, ",".join(f"{one:g}" for one in settings.noise))
    chosen = device_of(device, SINGLE_PROCESS)
    scene = run_scene(folder, dataset, settings.round, settings.images, chosen) if names else None
    cases = () if scene is None else tuple(Case(name, scene) for name in names)
    members: tuple[Membership, ...] = ()
    if MEMBERSHIP in settings.attacks:
        members = tuple(
            replace(_members_of_run(folder, dataset, settings), noise_factor=factor)
            for factor in settings.noise
        )
        members[0].check()
    return Targets(cases, members)


def _members_of_run(
    folder: Path, dataset: Callable[[str], Dataset], settings: Settings
) -> Membership:
    record, plan = RunRecord.load(folder), Plan.load(folder / PLAN)
    if plan.digest != record.plan_digest:
        raise InputError.one("run", "must hold the plan that it executed", str(folder / PLAN))
    data = dataset(record.dataset)
    if data.digest != record.configuration.get("data"):
        raise InputError.one("dataset", f"must be the one of {folder}", data.name)
    values = record.configuration.get("numbers", {})
    return Membership(
        plan,
        record.algorithm,
        data,
        shadows=settings.shadows,
        targets=settings.targets,
        seed=record.simulation_seed,
        hyperparameters=Hyperparameters(record.configuration.get("aggregation", "paper"), values),
        partition=record.partition,
        planned=True,
    )
