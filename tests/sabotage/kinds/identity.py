"""Faults of identity: whose data a client holds, and in which group it is."""

from dataclasses import replace

import numpy as np

from tests.sabotage.fault import EXTERNAL, Fault

WHY = "the ledger names clients by their position; it does not say whose data they hold"


def members(change):
    """Change which client numbers, and thereby which data, each group has."""

    def breaks(experiment):
        changed = change(
            [np.array(numbers) for numbers in experiment.partition.members]
        )
        partition = replace(experiment.partition, members=tuple(changed))  # type: ignore[type-var]
        return replace(experiment, partition=partition)

    return breaks


def _one_person(clients):
    clients[2][:60] = clients[2][0]
    return clients


def _in_two_groups(clients):
    clients[1][:10] = clients[0][:10]
    return clients


def _moved(clients):
    clients[0][:20], clients[2][:20] = clients[2][:20].copy(), clients[0][:20].copy()
    return clients


FAULTS = (
    Fault(
        "one person's data under 60 clients",
        "Sixty clients of the loose group hold the records of one person.",
        check="groups",
        words="different clients hold records",
        breaks=members(_one_person),
        author=EXTERNAL,
    ),
    Fault(
        "clients in two groups",
        "Ten clients of the strict group are in the medium group too.",
        check="groups",
        words="different clients hold records",
        breaks=members(_in_two_groups),
        author=EXTERNAL,
    ),
    Fault(
        "groups exchanged",
        "The strict group's clients are treated as the loose group's, and the reverse.",
        breaks=members(lambda clients: [clients[2], clients[1], clients[0]]),
        author=EXTERNAL,
        level="replayed",
        why=WHY,
    ),
    Fault(
        "strict clients moved to the loose group",
        "Twenty clients of the strict group change places with clients of the loose group.",
        breaks=members(_moved),
        level="replayed",
        why=WHY,
    ),
)
