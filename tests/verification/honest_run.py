"""A run folder made by numpy alone: what an honest simulation would have written."""

import numpy as np

from privplan import record
from privplan.evidence.clients import CLIENTS, clients_digest
from privplan.evidence.rounds import (
    EVIDENCE,
    VECTORS,
    EvidenceHeader,
    RoundEvidence,
    vector_digest,
)
from privplan.ledger import chained, read_ledger
from privplan.planning.factors import RULES
from privplan.record import LETTERS
from privplan.spec.spec import Spec
from privplan.values import digest
from tests.planning.problems import given_plan

DIMENSION = 400
NORM = 0.5
GROUPS = {"strict": (800, 1.0, 0.02, 1.6), "loose": (700, 3.0, 0.05, 1.1)}


def spec(**changes):
    """Two groups, thirty rounds."""
    groups = [{"name": k, "clients": v[0], "epsilon": v[1]} for k, v in GROUPS.items()]
    data = {
        "name": "two",
        "groups": groups,
        "rounds": 30,
        "cohort": 51,
        "delta": 1e-4,
        "clipping_norm": NORM,
        "model": {"name": "cnn-digits", "parameters": DIMENSION},
    }
    return Spec.parse({**data, **changes})


def plan(the_spec=None):
    """A plan with the numbers of ``GROUPS``, certified."""
    return given_plan(
        the_spec or spec(), {name: row[2:] for name, row in GROUPS.items()}
    )


def releases(the_plan, seed=1):
    """One release per round and group, drawn as planned, and once in a process."""
    key = (the_plan.digest, seed)
    if key not in _DRAWN:
        _DRAWN[key] = _drawn(the_plan, seed)
    return list(_DRAWN[key])


_DRAWN: dict[tuple[str, int], list[record.ReleaseRecord]] = {}


def _drawn(the_plan, seed):
    generator = np.random.default_rng(seed)
    release_records = []
    for number in range(1, the_plan.spec.rounds + 1):
        for group in the_plan.groups:
            std = group.noise_multiplier * NORM
            drawn = generator.random(group.clients) < group.sampling_ratio
            share = record.GroupShare(
                group=group.name,
                clients=group.clients,
                sampling=the_plan.spec.sampling,
                sampling_ratio=group.sampling_ratio,
                cohort=int(drawn.sum()),
                participants=tuple(np.flatnonzero(drawn).tolist()),
                clip_bound=NORM,
                largest_norm=NORM,
                clipped=3,
                factor=RULES["mean"](group, the_plan),
            )
            noise = generator.normal(0, std, DIMENSION)
            squares = float((noise**2).sum())
            release_records.append(
                record.ReleaseRecord(
                    round=number,
                    family="gaussian",
                    noise_std=std,
                    dimension=DIMENSION,
                    noise_sum_squares=squares,
                    noise_state=digest([seed, number, group.name])[:LETTERS],
                    shares=(share,),
                    residual=record.Residual(sum_squares=squares, along_sum=noise[0]),
                )
            )
    return release_records


def write_ledger(folder, the_plan, release_records):
    """Write the ledger of these releases, chained from the plan.

    Returns the hash of its last line.
    """
    lines = []
    chain = the_plan.digest
    for release in release_records:
        line, chain = chained(release, chain)
        lines.append(line)
    (folder / record.LEDGER).write_text("".join(lines))
    return chain


def write_evidence(folder, the_plan):
    """The assignment of clients, one record each, and releases of the ledger: zeros."""
    sizes = [group.clients for group in the_plan.groups]
    clients = {
        "group": np.repeat(np.arange(len(sizes)), sizes),
        "starts": np.arange(sum(sizes) + 1),
        "records": np.arange(sum(sizes)),
    }
    np.savez(folder / CLIENTS, **clients)  # type: ignore[arg-type]
    header = EvidenceHeader(
        data="0" * 64,
        clients=clients_digest(clients),
        parameters=DIMENSION,
        model=vector_digest(np.zeros(DIMENSION)),
        stored=True,
        settings=digest({"aggregation": "paper", "numbers": {}}),
    )
    text, chain = chained(header, the_plan.digest, "evidence")
    ledger = read_ledger(folder, the_plan.digest)
    order = [line.round for line in ledger.records]
    zeros = np.zeros(ledger.records[0].dimension if order else 0)
    done = 0
    for number in range(1, the_plan.spec.rounds + 1):
        count = order.count(number)
        done += count
        evidence = RoundEvidence(
            round=number,
            releases=[vector_digest(zeros)] * count,
            length=len(zeros),
            ledger=ledger.link(done) if done else the_plan.digest,
        )
        line, chain = chained(evidence, chain, "evidence")
        text += line
    (folder / EVIDENCE).write_text(text)
    (folder / VECTORS).write_bytes(bytes(4 * (DIMENSION + done * len(zeros))))


def write_run(folder, release_records=None, the_plan=None):
    """A whole run folder; returns the plan."""
    the_plan = the_plan or plan()
    folder.mkdir(parents=True, exist_ok=True)
    the_plan.save(folder / record.PLAN)
    chain = write_ledger(
        folder,
        the_plan,
        releases(the_plan) if release_records is None else release_records,
    )
    write_evidence(folder, the_plan)
    rounds = the_plan.spec.rounds
    configuration = {
        "aggregation": "paper",
        "numbers": {},
        "data": "0" * 64,
        "rounds": rounds,
        "canaries": 0,
        "clients": the_plan.spec.population,
        "processes": 1,
    }
    record.RunRecord(
        plan_digest=the_plan.digest,
        algorithm="GDPFed",
        dataset="svhn",
        partition="iid",
        model="cnn-digits",
        seed=1,
        device="cpu",
        configuration=configuration,
        versions={},
        status="complete",
        rounds_done=rounds,
        metrics=(record.RoundMetrics(round=rounds, accuracy=0.9, loss=0.4),),
        accuracy=0.9,
        accuracy_by_class={"0": 0.9},
        accuracy_by_group={"strict": 0.9, "loose": 0.9},
        wall_seconds=1.0,
        chain=chain,
        executed=record.Executed(
            aggregator="mean", coordinates=DIMENSION, shared=DIMENSION
        ),
    ).save(folder)
    return the_plan
