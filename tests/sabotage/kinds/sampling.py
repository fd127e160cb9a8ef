"""Faults of sampling: cohorts that depend on each other or on positions; ratios."""

from dataclasses import replace

import numpy as np

from privplan.streams import Purpose
from tests.sabotage.cohorts import drawn, more_often
from tests.sabotage.fault import EXTERNAL, Fault, released


def by_round(change):
    """Draw by a function of generator, clients, ratio, round and the last cohort.

    The groups have equal sizes, so that the order of the calls within a round names the
    group; a round that is drawn again gives the same cohort.
    """

    def broken(honest):
        cohorts: dict[tuple[int, str], np.ndarray] = {}
        calls: dict[int, dict[str, int]] = {}

        def draw(source, clients, ratio, round_):
            stream = str(source.bit_generator.state["state"]["key"].tolist())
            places = calls.setdefault(round_, {})
            place = places.setdefault(stream, len(places))
            key = (round_, str(place))
            if key not in cohorts:
                nobody = np.empty(0, np.int64)
                before = cohorts.get((round_ - 1, str(place)), nobody).tolist()
                cohort = change(source, clients, ratio, round_, before)
                cohorts[key] = np.sort(np.asarray(cohort))
            return cohorts[key]

        return draw

    return drawn(broken)


def _poisson(source, clients, ratio):
    return np.flatnonzero(source.random(clients) < ratio)


def _two_rounds(source, clients, ratio, round_, before):
    return before if round_ % 2 == 0 else _poisson(source, clients, ratio)


def _never_in_a_row(source, clients, ratio, round_, before):
    rested = np.setdiff1d(np.arange(clients), before)
    size = min(len(rested), int(source.binomial(clients, ratio)))
    return source.choice(rested, size, replace=False)


def _in_pairs(source, clients, ratio, round_, before):
    even_clients = 2 * _poisson(source, clients // 2, ratio)
    return np.concatenate([even_clients, even_clients + 1])


def _halves(source, clients, ratio, round_, before):
    return round_ % 2 * (clients // 2) + _poisson(source, clients // 2, 2 * ratio)


def _sticky(source, clients, ratio, round_, before):
    """Half of the clients of the round before come again."""
    if not before:
        return _poisson(source, clients, ratio)
    again = source.choice(before, len(before) // 2, replace=False)
    return np.union1d(again, _poisson(source, clients, ratio / 1.5))


def _another_seed(honest):
    return lambda source, clients, ratio, round_: honest(
        np.random.default_rng([round_, int(source.integers(2**31))]),
        clients,
        ratio,
        round_,
    )


def _preferred(honest):
    """In every third round the last client comes instead of the first who was drawn."""

    def draw(source, clients, ratio, round_):
        cohort = honest(source, clients, ratio, round_)
        return np.union1d(cohort[1:], [clients - 1]) if round_ % 3 == 0 else cohort

    return draw


def rebooked(change):
    """Change the ledger's participants: (experiment, round, group's index, sum)."""

    def breaks(experiment):
        def release(honest, round_, sums, weights, noise):
            changed = []
            for index, honest_release in enumerate(
                honest.release(round_, sums, weights, noise)
            ):
                who = change(experiment, round_, index, sums[index])
                [share] = honest_release.record.shares
                size = len(sums[index].participants) if who is None else len(who)
                share = share.model_copy(update={"participants": who, "cohort": size})
                record = honest_release.record.model_copy(update={"shares": (share,)})
                changed.append(replace(honest_release, record=record))
            return tuple(changed)

        return released(release)(experiment)

    return breaks


def _honest_names(experiment, round_, index, group_sum):
    law = experiment.algorithm.plan.spec.sampling.law
    group = group_sum.group
    source = experiment.private_stream(
        Purpose.SAMPLING, round_, index, group=group.name
    )
    names = law.draw(source, group.clients, group.sampling_ratio, round_)
    return tuple(int(name) for name in names)


def _more_than_named(experiment):
    return rebooked(_honest_names)(drawn(more_often(1.5))(experiment))


INDEPENDENCE = "cohort independence"
SEED = "cohorts regenerated"
ANOTHER_COHORT = "the seed draws another cohort"

FAULTS = (
    Fault(
        "one cohort for two rounds",
        "Every second round has the cohort of the round before.",
        check=INDEPENDENCE,
        words="in common",
        breaks=by_round(_two_rounds),
        author=EXTERNAL,
    ),
    Fault(
        "never twice in a row",
        "Clients of a round are left out in the next one.",
        check=INDEPENDENCE,
        words="0 clients in common",
        breaks=by_round(_never_in_a_row),
        author=EXTERNAL,
    ),
    Fault(
        "clients drawn in pairs",
        "Neighbouring clients are in the same cohorts.",
        check=INDEPENDENCE,
        words="clients 1 apart",
        breaks=by_round(_in_pairs),
        author=EXTERNAL,
    ),
    Fault(
        "alternating halves",
        "Odd rounds draw from one half of the clients and even rounds from the other.",
        check=INDEPENDENCE,
        words="strict",
        breaks=by_round(_halves),
        author=EXTERNAL,
    ),
    Fault(
        "half of a cohort comes again",
        "Half of the clients of a round come again in the next one.",
        check=INDEPENDENCE,
        words="in common",
        breaks=by_round(_sticky),
    ),
    Fault(
        "a ratio 3% too high",
        "Each client is drawn with 1.03 times the ratio that is booked.",
        check=SEED,
        words=ANOTHER_COHORT,
        breaks=drawn(more_often(1.03)),
        author=EXTERNAL,
    ),
    Fault(
        "a ratio 10% too high",
        "Each client is drawn with 1.1 times the ratio that is booked.",
        check=SEED,
        words=ANOTHER_COHORT,
        breaks=drawn(more_often(1.1)),
        author=EXTERNAL,
    ),
    Fault(
        "cohorts of another generator",
        "Cohorts have the right law, from a generator that is not the seed's.",
        check=SEED,
        words=ANOTHER_COHORT,
        breaks=drawn(_another_seed),
    ),
    Fault(
        "one client in another's place",
        "In every third round a chosen client comes in the place of one who was drawn.",
        check=SEED,
        words=ANOTHER_COHORT,
        breaks=drawn(_preferred),
    ),
    Fault(
        "participants not recorded",
        "The ledger does not name the participants.",
        check=SEED,
        words="missing: participants",
        weakens=False,
        breaks=rebooked(lambda experiment, round_, index, part: None),
        author=EXTERNAL,
        level="not shown",
        why="nothing in the ledger contradicts the plan; the checks say that evidence is missing",
    ),
    Fault(
        "more clients than the ledger names",
        "Cohorts of 1.5 times the ratio take part, and the ledger names honest ones.",
        breaks=_more_than_named,
        check="ledger",
        words="clipped: must be at most the cohort",
    ),
)
