"""Faults of who takes part, how often, and what it weighs."""

from dataclasses import replace

import numpy as np

from privplan.accounting.release import SamplingLaw
from simulate.components import Released
from simulate.engine.experiment import Experiment
from simulate.samplers import by_law
from tests.sabotage.fault import Fault, released, with_components


def drawn(change):
    """Change who is drawn; the ledger still says that the planned law was executed."""

    def breaks(experiment):
        sampler = experiment.algorithm.sampler
        return with_components(
            experiment, sampler=replace(sampler, draw=change(sampler.draw))
        )

    return breaks


def _always_the_first(honest):
    return lambda source, clients, ratio, round_: np.union1d(
        honest(source, clients, ratio, round_), [0]
    )


def _never_again(honest):
    """The generator is made anew in each round, from one seed."""
    return lambda source, clients, ratio, round_: honest(
        np.random.default_rng(clients), clients, ratio, round_
    )


def _with_replacement(honest):
    return lambda source, clients, ratio, round_: np.sort(
        source.integers(clients, size=source.binomial(clients, ratio))
    )


def _those_at_hand(honest):
    """Only half of the clients ever answer, and they make up for the others."""
    return lambda source, clients, ratio, round_: (
        2 * honest(source, clients // 2, min(1.0, 2 * ratio), round_)
    )


def more_often(factor):
    """Each client is drawn with a multiple of the ratio that is booked."""
    return lambda honest: (
        lambda source, clients, ratio, round_: honest(
            source, clients, min(1.0, factor * ratio), round_
        )
    )


class _Longer(Experiment):
    """A setting whose loop does not stop where the plan does."""

    @property
    def rounds(self):
        return super().rounds + 4


def _longer(experiment):
    return _Longer(
        **{name: getattr(experiment, name) for name in experiment.__dataclass_fields__}
    )


def repeated(change):
    """Release the sums once for each set of weights, with fresh noise each time."""

    def release(honest, round_, sums, weights, noise):
        releases: list[Released] = []
        for factors in change(round_, sums, weights):
            shift = len(releases)
            releases += honest.release(
                round_, sums, factors, lambda i, s=shift: noise(i + s)
            )
        return tuple(releases)

    return released(release)


def _over_who_came(round_, sums, weights):
    realised = {
        group_sum.group.name: group_sum.group.expected_cohort
        / max(1, len(group_sum.participants))
        for group_sum in sums
    }
    return [{name: factor * realised[name] for name, factor in weights.items()}]


def _shuffled(round_, sums, weights):
    return [
        dict(zip(weights, [weights[name] for name in reversed(weights)], strict=True))
    ]


COHORTS = (
    Fault(
        "fixed-size cohort booked as Poisson",
        "Cohorts of one size are drawn, and the ledger says Poisson.",
        check="sampling law",
        words="unlike Poisson",
        breaks=drawn(lambda honest: by_law(SamplingLaw.FIXED_SIZE).draw),
    ),
    Fault(
        "one client always sampled",
        "The first client of each group takes part in every round.",
        check="participation",
        words="client 0 took part in 20 of 20 rounds",
        breaks=drawn(_always_the_first),
    ),
    Fault(
        "one cohort for all rounds",
        "The cohort's generator starts from the same seed in each round.",
        check="participation",
        words="took part in",
        breaks=drawn(_never_again),
    ),
    Fault(
        "half of the clients sampled twice as often",
        "Only every second client answers, with twice the planned ratio.",
        check="participation",
        words="unlike Poisson",
        breaks=drawn(_those_at_hand),
    ),
    Fault(
        "clients drawn with replacement",
        "A client may be in a sum twice.",
        check="cohorts",
        words="is in the sum",
        breaks=drawn(_with_replacement),
    ),
    Fault(
        "twice the sampling ratio",
        "Each client is drawn with twice the ratio that is booked.",
        check="sampling law",
        words="participations where about",
        breaks=drawn(more_often(2)),
    ),
    Fault(
        "extra rounds",
        "Training goes on for four rounds after the plan's last.",
        check="rounds",
        words="24 releases where 20 rounds were planned",
        breaks=_longer,
    ),
    Fault(
        "a round released twice",
        "The sums of round 3 leave a second time with fresh noise, as after a lost reply.",
        check="rounds",
        words="21 releases where 20 rounds were planned",
        breaks=repeated(
            lambda round_, sums, weights: [weights] * (2 if round_ == 3 else 1)
        ),
    ),
    Fault(
        "weights of the realised cohort",
        "The step divides by the number of clients who came, which is private.",
        check="weights",
        words="planned",
        breaks=repeated(_over_who_came),
    ),
    Fault(
        "weights of another group",
        "The groups' weights are dealt in reverse order.",
        check="weights",
        words="planned",
        weakens=False,
        breaks=repeated(_shuffled),
    ),
)
