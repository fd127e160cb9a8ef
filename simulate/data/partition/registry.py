"""How training records are spread over clients: one scheme a file, one table.

Who is in which privacy group is drawn first and independently of the data, unless the scheme is
``by-class`` or ends in ``+correlated:RHO``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from privplan.errors import InputError
from privplan.plan import GroupPlan
from simulate.data.partition import correlated
from simulate.data.partition.clients import ClientPartition, shared
from simulate.data.partition.correlated import BY_CLASS
from simulate.data.partition.dominant import DOMINANT
from simulate.data.partition.iid import IID, NATURAL
from simulate.data.partition.label_skew import DIRICHLET, PATHOLOGICAL, SHARDS
from simulate.data.partition.scheme import Assignment, PartitionRequest, SchemeKind
from simulate.engine.seeds import Purpose, stream

SCHEMES: MappingProxyType[str, SchemeKind] = MappingProxyType(
    {
        "iid": IID,
        "dirichlet": DIRICHLET,
        "by-class": BY_CLASS,
        "shards": SHARDS,
        "pathological": PATHOLOGICAL,
        "dominant": DOMINANT,
        "natural": NATURAL,
    }
)
FORMS = MappingProxyType(
    {kind.form: kind.meaning for kind in SCHEMES.values()} | {correlated.FORM: correlated.MEANING}
)
"""Every way to write a scheme, with its meaning; for messages and help."""
RULE = f"must be {', '.join(FORMS)}"


@dataclass(frozen=True)
class Scheme:
    """A partition as a person names it, made by ``scheme``.

    Attributes:
        text: what was written; part of a run's identity.
        deal: the function that deals the records.
        correlation: how strongly privacy groups follow labels, from 0 to 1.
    """

    text: str
    deal: Assignment
    correlation: float = 0.0

    @property
    def draws(self) -> bool:
        """Whether clients draw their own records, and so may share them."""
        return self.text.startswith("iid:")


def scheme(text: str) -> Scheme:
    """Parse ``iid``, ``dirichlet:0.3``, ``shards:2+correlated:0.5`` and so on.

    Raises:
        InputError: when the text is none of the table.
    """
    base, mark, rho = text.partition(correlated.MARK)
    name, colon, rest = base.partition(":")
    try:
        if name in SCHEMES and bool(colon) == bool(rest) and not (mark and name == "by-class"):
            correlation = correlated.strength(rho) if mark else 0.0
            return Scheme(text, SCHEMES[name].read(rest), correlation)
    except ValueError:
        pass
    raise InputError.one("partition", RULE, text)


def partition(
    chosen: Scheme,
    labels: np.ndarray,
    groups: Sequence[GroupPlan],
    seed: int,
    people: np.ndarray | None = None,
) -> ClientPartition:
    """Spread records over the clients of a plan.

    Args:
        chosen: the scheme.
        labels: label of each training record [n].
        groups: the plan's groups; clients are numbered 0..sum of their sizes - 1.
        seed: the run's seed.
        people: the person that each training record is from [n]; None when nobody knows.

    Returns:
        Who holds which records: at least one record at each client, and each record at one
        client at most unless clients draw their own.

    Raises:
        InputError: when the data set does not suffice for the clients, or the scheme names a
            group or label that does not exist.
    """
    clients = sum(group.clients for group in groups)
    shuffled = stream(seed, Purpose.GROUPS).permutation(clients)
    cuts = np.cumsum([group.clients for group in groups])[:-1]
    members = tuple(np.sort(part) for part in np.split(shuffled, cuts))
    names = tuple(group.name for group in groups)
    problem = PartitionRequest(labels, names, members, seed, people)
    held = chosen.deal(problem)
    if not chosen.correlation:
        return held
    return replace(held, members=correlated.members(problem, held, chosen.correlation))


def require_unshared(name: str, chosen: Scheme, held: ClientPartition, total: int) -> None:
    """Refuse clients that share records, for methods in which each spends a budget on its own.

    Args:
        name: of the method, for the message.
        chosen: the scheme, likewise.
        held: who holds which records.
        total: training records of the data set (n).

    Raises:
        InputError: when a record is at more than one client.
    """
    record = shared(held, total)
    if record is not None:
        rule = (
            f"must leave each record with one client for {name}, which protects records; "
            f"several hold record {record}, and each would spend a whole budget on it"
        )
        raise InputError.one("partition", rule, chosen.text)
