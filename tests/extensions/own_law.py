"""A sampling law of another distribution with a behaviour of its own, in this one file.

``one_of_four``: each client takes part in exactly one of every four rounds. Which one
is public and drawn anew for each four rounds, so nothing is amplified: four rounds are
one Gaussian release.
"""

from collections import Counter

import numpy as np

from privplan.errors import Fault
from privplan.laws.law import LAWS, Law

CYCLE_ROUNDS = 4


class OneOfFour(Law):
    """Each client in one of every four rounds, by a public schedule; the ratio is 1."""

    name = "one_of_four"
    title = "one of four rounds"
    whole_cohorts = True

    @property
    def single(self):
        return "full"

    def excludes(self, spec):
        under = f"under {self.name} sampling"
        if spec.rounds % CYCLE_ROUNDS:
            yield Fault(
                "rounds", f"must be a multiple of {CYCLE_ROUNDS} {under}", spec.rounds
            )
        if spec.planning.ratios != "uniform":
            yield Fault(
                "planning.ratios", f"must be uniform {under}", spec.planning.ratios
            )
        for group in spec.groups:
            if group.clients % CYCLE_ROUNDS:
                where = f"groups.{group.name}.clients"
                yield Fault(
                    where,
                    f"must be a multiple of {CYCLE_ROUNDS} {under}",
                    group.clients,
                )
        if spec.cohort != self.drawable(spec.population):
            yield Fault(
                "cohort", f"must be a quarter of the clients {under}", spec.cohort
            )

    def excludes_use(self, use):
        return (
            f"must be left out under {self.name} sampling"
            if use == "canaries"
            else None
        )

    def places(self, round_, clients):
        block, turn = divmod(round_ - 1, CYCLE_ROUNDS)
        order = np.random.default_rng([block, clients]).permutation(clients)
        return tuple(sorted(order[turn::CYCLE_ROUNDS].tolist()))

    def drawable(self, clients):
        return clients / CYCLE_ROUNDS

    def rounds_of_client(self, rounds):
        return -(-rounds // CYCLE_ROUNDS)

    def rounds_for(self, participations):
        return participations * CYCLE_ROUNDS

    def most_of_client(self, rounds):
        blocks: dict[int, int] = {}
        for round_, count in Counter(rounds).items():
            block = (round_ - 1) // CYCLE_ROUNDS
            blocks[block] = max(count, blocks.get(block, 0))
        return sum(blocks.values())

    def dominating_pairs(self, relation, shift, ratio):
        return LAWS.get("full").dominating_pairs(relation, shift, 1.0)

    def renyi(self, relation, noise_multiplier, ratio):
        return LAWS.get("full").renyi(relation, noise_multiplier, 1.0)

    def draw(self, generator, clients, ratio, round_):
        return np.array(self.places(round_, clients))

    def cohort_faults(self, counts, clients, ratio, level):
        for count in counts:
            if count != clients // CYCLE_ROUNDS:
                yield f"a cohort of {count} where a quarter is {clients // CYCLE_ROUNDS}"

    def participations(self, rounds):
        times = self.rounds_of_client(sum(rounds.values()))
        return np.eye(1 + times)[times]
