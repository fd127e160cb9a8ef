"""Plans of the guard's tests, and a plain training loop on them."""

import numpy as np

from privplan.ledger import read_ledger
from privplan.spec.spec import Spec
from tests.planning.problems import given_plan

SIZE = 40


def plan_of(
    groups, rounds, *, sampling="poisson", release="joint", delta=0.0001, signers=()
):
    """A certified plan.

    ``groups`` map a name to clients, epsilon, ratio and noise multiplier.
    """
    fields = {
        "name": "guarded",
        "rounds": rounds,
        "sampling": sampling,
        "delta": delta,
        "groups": [],
        "cohort": 0,
        "clipping_norm": 0.5,
        "model": {"name": "cnn-digits", "parameters": SIZE},
    }
    for name, (clients, epsilon, ratio, _) in groups.items():
        group = {"name": name, "clients": clients, "epsilon": epsilon}
        fields["groups"].append(group)
        fields["cohort"] += clients * ratio
    if signers:
        fields["signers"] = list(signers)
    draws = {name: row[2:] for name, row in groups.items()}
    return given_plan(Spec.parse(fields), draws, release)


def two_groups(rounds=12, **changes):
    """A strict and a loose group, 12 rounds."""
    groups = {"strict": (60, 2.0, 0.1, 2.0), "loose": (40, 4.0, 0.2, 1.5)}
    return plan_of(groups, rounds, **changes)


def update(group, client, round_, model):
    """A client's update [d]: towards a point of its own."""
    rng = np.random.default_rng([client, round_, len(group)])
    return rng.normal(0.2, 1.0, model.size) - 0.1 * model


def train(guard, rounds=None):
    """A plain loop from what the guard has on, for so many rounds or to the end."""
    model = np.zeros(SIZE)
    if guard.model is not None:
        model = guard.model["model"]
    interrupted = guard.interrupted
    if interrupted is not None:
        model = model + interrupted.mean
        guard.record(interrupted.round, model)
    for done, round_ in enumerate(guard.rounds()):
        if done == rounds:
            break
        cohort = guard.draw(round_)
        for group, client in cohort.members:
            guard.add(round_, group, client, update(group, client, round_, model))
        nobody = None if len(cohort) else {guard.plan.groups[0].name: np.zeros(SIZE)}
        model = model + guard.release(round_, nobody).mean
        guard.record(round_, model)
    return model


def files(folder):
    """Names of the guard's files, sorted."""
    return sorted(path.name for path in (folder / "guard").iterdir())


def ledger_of(folder, plan):
    """All releases of a folder, whose chain holds."""
    ledger = read_ledger(folder, plan.digest)
    assert ledger.fault is None
    return list(ledger.records)
