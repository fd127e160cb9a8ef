"""The state of budget accounts: what was spent, and the runs that were declared in advance."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy.engine import Connection

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import filters, members
from privplan.book.budget_tables import ACCOUNTS, CHARGES, DECLARED, STEPS
from privplan.book.rules import Composition
from privplan.errors import InfeasibleError, InputError


@dataclass(frozen=True)
class State:
    """An account at one moment.

    Attributes:
        epsilon: the budget, per period where the account has one.
        spent: upper bound on the epsilon of what was spent, chosen adaptively unless the rule is
            ``exact``; of the member that has spent most where the account has members.
        committed: the same for what was spent and what is reserved.
        capacity: the budget in units of the rule.
        spent_units: spent, in units.
        reserved_units: reserved, in units (of the member with most).
        refills: number of periods that have ended; the guarantee holds per period.
    """

    name: str
    rule: str
    relation: str
    epsilon: float
    delta: float
    spent: float
    committed: float
    capacity: int
    spent_units: int
    reserved_units: int
    members: int
    refills: int
    commitment: str


def state_of(connection: Connection, row: Row[Any]) -> State:
    """The state of an account's row."""
    spent, reserved = row.spent, row.reserved
    if row.members:
        spent, both = members.totals(connection, row.id)
        reserved = both - spent
    runs = declared(connection, row.id)
    if row.rule == "exact":
        rows = connection.execute(select(CHARGES.c.detail).where(CHARGES.c.account == row.id))
        done = sum((history_of_text(text) for text in rows.scalars().all()), History())
        used, all_runs = (
            accountant("pld").epsilon(one, row.delta, Relation(row.relation)).upper
            for one in (done, sum(runs.values(), History()))
        )
    else:
        used, all_runs = (
            filters.spent_epsilon(row.rule, units, row.delta, row.order)
            for units in (spent, spent + reserved)
        )
    return State(row.name, row.rule, row.relation, row.epsilon, row.delta, used, all_runs,
                 row.capacity, spent, reserved, row.members, row.refills,
                 commitment_of(row.name, runs) if runs else "")  # fmt: skip


def limit_of(connection: Connection, row: Row[Any]) -> Composition:
    """What is spent and reserved of an account, composed by its rule with a next run.

    Raises:
        InputError: when no run can be declared any more.
    """
    known = (row.name, row.rule, Relation(row.relation), row.epsilon, row.delta, row.order)
    if row.rule != "exact":
        units = row.spent + row.reserved
        if row.members:
            units = members.totals(connection, row.id)[1]
        return Composition(*known, units=units)
    if row.sealed:
        rule = "must be declared before the first run of the account is reserved"
        raise InputError.one("run", f"{rule}; {row.name} has the rule exact", "a later run")
    return Composition(*known, past=sum(declared(connection, row.id).values(), History()))


def refusal(row: Row[Any], units: int) -> str:
    """Why units do not fit into an account."""
    spent, committed, after = (
        filters.spent_epsilon(row.rule, one, row.delta, row.order)
        for one in (row.spent, row.spent + row.reserved, row.spent + row.reserved + units)
    )
    return (
        f"{row.name}: of epsilon {row.epsilon:g} at delta {row.delta:.4g} ({row.rule} filter), "
        f"{spent:.6g} is spent and {committed:.6g} with reservations; with this run it would "
        f"be {after:.6g}"
    )


def declared(connection: Connection, account: int) -> dict[str, History]:
    """The declared runs of an account, in order."""
    chosen = select(DECLARED).where(DECLARED.c.account == account).order_by(DECLARED.c.id)
    return {one.run: history_of_text(one.history) for one in connection.execute(chosen).all()}


def use_declared(connection: Connection, row: Row[Any], run: str, history: History) -> int:
    """Mark a declared run as used and seal the account; returns its number of releases."""
    where = (DECLARED.c.account == row.id, DECLARED.c.run == run)
    known = connection.execute(select(DECLARED).where(*where)).first()
    if known is None or known.used:
        rule = "must be declared before the first result, and reserved once"
        raise InputError.one("run", rule, run)
    if history != history_of_text(known.history):
        raise InputError.one("run", "must have the releases that were declared", run)
    connection.execute(update(DECLARED).where(*where).values(used=True))
    connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == row.id).values(sealed=True))
    return history.rounds


def within_declared(connection: Connection, row: Row[Any], run: str, done: History) -> None:
    """Refuse releases that a run did not declare."""
    allowed = dict(declared(connection, row.id)[run])
    for release, count in done:
        if count > allowed.get(release, 0):
            raise InfeasibleError(f"{row.name}: {run} did not declare {count} times {release}")


def spent_before(
    connection: Connection, held: Row[Any], step: int, charges: Mapping[str, History]
) -> bool:
    """Whether a step of a reservation was spent already; a new one is noted with its releases.

    Args:
        connection: an open transaction.
        held: the reservation.
        step: the step, larger than those before it unless it is repeated.
        charges: account to releases.

    Raises:
        InputError: when the step was spent with other releases, or never and later ones were.
    """
    plain = json.dumps({name: text_of(charges[name]) for name in sorted(charges)})
    releases = hashlib.sha256(plain.encode()).hexdigest()
    if step > held.step:
        row = {"reservation": held.id, "step": step, "releases": releases}
        connection.execute(insert(STEPS).values(**row))
        return False
    where = (STEPS.c.reservation == held.id, STEPS.c.step == step)
    known = connection.execute(select(STEPS.c.releases).where(*where)).scalar()
    if known is None:
        rule = f"must be larger than {held.step}, the last one that was spent, or one of those"
        raise InputError.one("step", rule, step)
    if known != releases:
        rule = "was spent with other releases; it must be repeated with the same, or be a new one"
        raise InputError.one("step", rule, step)
    return True


def text_of(history: History) -> str:
    """A history as JSON text."""
    rows = [[*_fields(release), count] for release, count in history]
    return json.dumps(rows, allow_nan=False)


def _fields(release: Release) -> list[Any]:
    noise = "inf" if math.isinf(release.noise_multiplier) else release.noise_multiplier
    return [noise, release.sampling_ratio, str(release.sampling), release.family]


def history_of_text(text: str) -> History:
    """The history of a JSON text."""
    counts = []
    for noise, ratio, law, family, count in json.loads(text):
        counts.append((Release(float(noise), ratio, SamplingLaw(law), family), count))
    return History(counts)


def commitment_of(name: str, runs: Mapping[str, History]) -> str:
    """The hash of an account's declared runs."""
    plain = json.dumps([name, [[run, text_of(history)] for run, history in runs.items()]])
    return hashlib.sha256(plain.encode()).hexdigest()
