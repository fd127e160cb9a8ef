"""Budgets over time: reserve a run, spend before each release, return the rest.

An account holds one budget: of a group, or a ceiling over the groups of a site or of a
population. A run reserves its whole cost first; a reservation that does not fit into
every account is refused, so that concurrent runs never overspend. Each release is spent
before it is made; after its expiry a reservation cannot be spent, so that what is left
of it returns. Costs are those of a filter (``filters``), in whole units, so that sums
are exact; every operation is one transaction.

A run of the book counts in the account of its group as well, by the same filter: what
was spent without a reservation is spent.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeVar, get_args

from sqlalchemy import Connection, Row, insert, inspect, select, update

from privplan.accounting.release import History, Relation
from privplan.book import account_rows as rows
from privplan.book import filters
from privplan.book.account_rows import (
    ACCOUNTS,
    CHARGES,
    METADATA,
    RESERVATIONS,
    UNUSED_COLUMNS,
    State,
)
from privplan.book.composition import Composition
from privplan.book.database import address_of, engine_of, refusing, repeated, shown
from privplan.book.entry import BookedRun, Share
from privplan.book.filters import Filter
from privplan.book.run_rows import VERSIONS, booked_runs
from privplan.book.spending import full_name
from privplan.errors import Fault, InfeasibleError, InputError, UnsupportedError
from privplan.names import name_faults, refuse_look_alike

DAY = 86_400.0  # seconds
_USABLE = "must be a budget book that can be read and written"
_log = logging.getLogger(__name__)

T = TypeVar("T")


class _Cost(NamedTuple):
    """What a run costs an account."""

    account: Row[Any]
    units_below: dict[str, int]  # by the account below it, or itself, that is charged


def has_accounts(address: str | None) -> bool:
    """Whether a book that exists has budget accounts; nothing is written."""
    url = address_of(address)
    with refusing(url, _USABLE):
        return inspect(engine_of(url, write=False)).has_table(ACCOUNTS.name)


class Budgets:
    """The budget accounts of a book.

    Args:
        address: a file, or an SQLAlchemy address; by default that in ``PRIVPLAN_BOOK``,
            or ``book.sqlite``.
        clock: the time in seconds since 1970.
        existing: whether it must have accounts already; else the first transaction
            makes tables.

    Raises:
        InputError: when it must have accounts, and has none.
    """

    def __init__(
        self,
        address: str | None = None,
        clock: Callable[[], float] = time.time,
        *,
        existing: bool = False,
    ) -> None:
        self._url = address_of(address)
        self._clock = clock
        if existing and not has_accounts(address):
            rule = "must be a book with budget accounts (privplan book open makes them)"
            raise InputError.one("book", rule, shown(self._url))
        self._engine = engine_of(self._url, write=True)
        self._has_tables = False

    def open(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        rule: Filter = "renyi",
        relation: Relation | str = Relation.ADD_REMOVE,
        ceilings: Sequence[str] = (),
        typical: History | None = None,
    ) -> None:
        """Open an account; nothing is spent.

        Args:
            name: such as ``population/group``.
            epsilon: the budget over all runs.
            delta: its failure probability.
            rule: the filter.
            relation: neighbouring relation.
            ceilings: accounts that bound the sum of this and other accounts' clients:
                each reservation is charged to them as well, by the largest of its
                accounts.
            typical: releases of a typical run, for which the order of the Rényi filter
                is chosen.

        Raises:
            InputError: when a value is out of range, the account exists or looks like
                one that does, or a ceiling has ceilings.
        """
        faults = []
        if rule not in get_args(Filter):
            names = ", ".join(get_args(Filter))
            faults.append(Fault("rule", f"must be one of {names}", rule))
        faults += name_faults("account", name)
        if faults:
            raise InputError(faults)
        order = filters.order_of(epsilon, delta, typical, Relation(relation))
        row = {
            "name": name,
            "rule": rule,
            "relation": str(Relation(relation)),
            "epsilon": epsilon,
            "delta": delta,
            "order": order,
            "capacity": filters.capacity(rule, epsilon, delta, order),
            "spent": 0,
            "reserved": 0,
            "started": self._clock(),
            "ceilings": json.dumps(list(ceilings)),
            **UNUSED_COLUMNS,
        }

        def work(connection: Connection) -> None:
            if rows.find_account(connection, name):
                raise InputError.one("account", "must not exist already", name)
            names = connection.execute(select(ACCOUNTS.c.name)).scalars().all()
            refuse_look_alike("account", name, names)
            for ceiling in ceilings:
                if _ceilings_of(self._account(connection, ceiling)):
                    raise InputError.one("ceiling", "must be a plain account", ceiling)
            connection.execute(insert(ACCOUNTS).values(**row))

        self._run(work)

    def state(self, name: str) -> State:
        """The account now, after expiries."""

        def work(connection: Connection) -> State:
            row = self._account(connection, name)
            run_units = _run_units(connection, row, self._runs(connection))
            return rows.state_of(row, run_units)

        return self._run(work)

    def states(self) -> list[State]:
        """All accounts, by name, without those of a kind that was removed."""

        def work(connection: Connection) -> list[State]:
            by_name = select(ACCOUNTS).order_by(ACCOUNTS.c.name)
            runs = self._runs(connection)
            states = []
            for row in connection.execute(by_name).all():
                try:
                    rows.require_supported(row)
                    run_units = _run_units(connection, row, runs)
                    states.append(rows.state_of(row, run_units))
                except InputError as error:
                    _log.warning("%s", error)
            return states

        return self._run(work)

    def limits(self, name: str, runs: Sequence[BookedRun] = ()) -> list[Composition]:
        """What an account and its ceilings leave to a next run; empty without one.

        Args:
            name: of the account.
            runs: runs of the book that count beside reservations.
        """

        def work(connection: Connection) -> list[Composition]:
            return self.limits_within(connection, name, runs)

        return self._run(work)

    def limits_within(
        self, connection: Connection, name: str, runs: Sequence[BookedRun]
    ) -> list[Composition]:
        """``limits`` in an open transaction, with what some runs of the book cost."""
        if not inspect(connection).has_table(ACCOUNTS.name):
            return []
        self._end_expired(connection)
        if not rows.find_account(connection, name):
            return []
        limits = []
        for account in (name, *_ceilings_of(self._account(connection, name))):
            row = self._account(connection, account)
            limits.append(_limit_of(row, _run_units(connection, row, runs)))
        return limits

    def reserve(
        self,
        run: str,
        charges: Mapping[str, History],
        *,
        expires_in: float = 30 * DAY,
        reservation: str | None = None,
    ) -> str:
        """Reserve the releases of a run in all accounts, or in none.

        Args:
            run: its name.
            charges: account to the releases that its clients see.
            expires_in: seconds after which nothing can be spent and the rest returns.
            reservation: the reservation's name; a new one by default. Repeating a call
                with the name of an open reservation changes nothing.

        Returns:
            The reservation's name.

        Raises:
            InfeasibleError: when an account has too little left.
            InputError: when there is no such account, or the name is in use.
        """
        name = reservation or uuid.uuid4().hex
        if not charges:
            raise InputError.one("charges", "must name an account", dict(charges))
        if not isinstance(expires_in, Real) or not 0 < expires_in < math.inf:
            raise InputError.one("expires_in", "must be positive seconds", expires_in)

        def work(connection: Connection) -> str:
            chosen = select(RESERVATIONS).where(RESERVATIONS.c.id == name)
            existing = connection.execute(chosen).first()
            if existing is not None:
                if existing.status != "open" or existing.run != run:
                    rule = f"must be new, not {existing.status}"
                    raise InputError.one("reservation", rule, name)
                return name
            row = {
                "id": name,
                "run": run,
                "status": "open",
                "step": -1,  # before the first one
                "expires": self._clock() + expires_in,
            }
            connection.execute(insert(RESERVATIONS).values(**row))
            runs = self._runs(connection)
            for account, units_below in self._costs(connection, charges):
                units = max(units_below.values())
                run_units = _run_units(connection, account, runs)
                committed_units = account.spent + account.reserved + run_units
                if account.capacity - committed_units < units:
                    raise InfeasibleError(rows.refusal(account, run_units, units))
                rows.change(connection, account.id, reserved=units)
                charge = {
                    "reservation": name,
                    "account": account.id,
                    "reserved": units,
                    "spent": 0,
                    "detail": "{}",
                }
                connection.execute(insert(CHARGES).values(**charge))
            return name

        return self._run(work)

    def spend(
        self,
        reservation: str,
        charges: Mapping[str, History],
        *,
        step: int | None = None,
    ) -> None:
        """Spend releases of a reservation; call this before a release is made.

        Args:
            reservation: its name.
            charges: account to releases, within what is reserved.
            step: a growing number; a call with a step that was spent already, and the
                same releases, changes nothing, so that it can be repeated after a
                crash.

        Raises:
            InfeasibleError: when more is spent than was reserved, or an account has too
                little left, since a run was added to the book.
            InputError: when the reservation is unknown, closed or expired, or the step
                was spent with other releases.
        """

        def work(connection: Connection) -> None:
            row = rows.open_reservation(connection, reservation)
            if step is not None and rows.is_repeated(connection, row, step, charges):
                return
            runs = self._runs(connection)
            for account, units in self._spend(connection, reservation, charges):
                run_units = _run_units(connection, account, runs)
                if account.spent + run_units + units > account.capacity:
                    # These units are among those with reservations.
                    raise InfeasibleError(rows.refusal(account, run_units, 0))
            if step is not None:
                chosen = update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
                connection.execute(chosen.values(step=step))

        self._run(work)

    def close(self, reservation: str) -> None:
        """End a run: what it did not spend returns to the accounts."""
        self.commit(reservation, {})

    def commit(
        self, reservation: str, charges: Mapping[str, History] | None = None
    ) -> None:
        """Spend and close at once.

        Args:
            reservation: its name.
            charges: account to releases; everything that is reserved by default.

        Raises:
            InfeasibleError: when more is spent than was reserved.
            InputError: when the reservation is unknown, closed or expired.
        """

        def work(connection: Connection) -> None:
            rows.open_reservation(connection, reservation)
            if charges is None:
                _spend_all(connection, reservation)
            else:
                self._spend(connection, reservation, charges)
            rows.end_reservation(connection, reservation, "closed")

        self._run(work)

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Do the work in one transaction, after what expired has returned."""

        def after_expiries(connection: Connection) -> T:
            self._end_expired(connection)
            return work(connection)

        with refusing(self._url, _USABLE):
            if not self._has_tables:
                repeated(self._engine, METADATA.create_all)
                self._has_tables = True
            return repeated(self._engine, after_expiries)

    def _end_expired(self, connection: Connection) -> None:
        """End reservations past their expiry, whose rest returns."""
        is_open = RESERVATIONS.c.status == "open"
        is_late = RESERVATIONS.c.expires <= self._clock()
        expired = select(RESERVATIONS.c.id).where(is_open, is_late)
        for name in connection.execute(expired).scalars().all():
            rows.end_reservation(connection, name, "expired")

    def _account(self, connection: Connection, name: str) -> Row[Any]:
        """The row of an account that must be there."""
        row = rows.find_account(connection, name)
        if row is None:
            rule = f"must be in the book {shown(self._url)}"
            raise InputError.one("account", rule, name)
        return rows.require_supported(row)

    def _runs(self, connection: Connection) -> tuple[BookedRun, ...]:
        """The runs of the book; a book of accounts need not have a table of runs."""
        if not inspect(connection).has_table(VERSIONS.name):
            return ()
        return booked_runs(self._url, connection)

    def _costs(
        self, connection: Connection, charges: Mapping[str, History]
    ) -> list[_Cost]:
        """What releases cost the accounts that are charged, and their ceilings.

        A ceiling is charged the largest cost of the accounts below it, not their sum: a
        client is in one of them only. Accounts are sorted, so that concurrent
        transactions lock them in the same order.
        """
        histories: dict[str, dict[str, History]] = {}
        for name, history in charges.items():
            for target in (name, *_ceilings_of(self._account(connection, name))):
                histories.setdefault(target, {})[name] = history
        costs = []
        for target in sorted(histories):
            row = self._account(connection, target)
            relation = Relation(row.relation)
            units_below = {
                name: filters.cost(row.rule, history, relation, row.order)
                for name, history in histories[target].items()
            }
            costs.append(_Cost(row, units_below))
        return costs

    def _spend(
        self, connection: Connection, reservation: str, charges: Mapping[str, History]
    ) -> list[tuple[Row[Any], int]]:
        """Move what releases cost from reserved to spent, in all accounts.

        Returns:
            The accounts as they were, and the units that each spent.
        """
        spent = []
        for account, units_below in self._costs(connection, charges):
            of_reservation = CHARGES.c.reservation == reservation
            where = (of_reservation, CHARGES.c.account == account.id)
            charge = connection.execute(select(CHARGES).where(*where)).first()
            if charge is None:
                rule = "must be one that the run reserved"
                raise InputError.one("account", rule, account.name)

            spent_below = json.loads(charge.detail)
            for name, units in units_below.items():
                spent_below[name] = spent_below.get(name, 0) + units
            total = max(spent_below.values())
            if total > charge.reserved:
                raise InfeasibleError(
                    f"{account.name}: the run would spend more than it reserved "
                    f"({total} of {charge.reserved} units)"
                )
            units = total - charge.spent
            rows.change(connection, account.id, reserved=-units, spent=units)
            changed = {"spent": total, "detail": json.dumps(spent_below)}
            connection.execute(update(CHARGES).where(*where).values(**changed))
            spent.append((account, units))
        return spent


def _ceilings_of(account: Row[Any]) -> list[str]:
    """Names of the ceilings above an account."""
    ceilings: list[str] = json.loads(account.ceilings)
    return ceilings


def _run_units(
    connection: Connection, account: Row[Any], runs: Sequence[BookedRun]
) -> int:
    """What the runs of the book cost an account, in its units.

    A ceiling is charged each run's largest cost of a group below it, as it is for
    reservations.
    """
    names = {account.name, *_names_below(connection, account.name)}
    units = 0
    for run in runs:
        costs = [
            _cost_of_share(account, run, share)
            for share in run.shares
            if full_name(run.population, share.group) in names
        ]
        units += max(costs, default=0)
    return min(units, filters.MOST_UNITS)


def _names_below(connection: Connection, ceiling: str) -> list[str]:
    """Names of the accounts that charge a ceiling."""
    accounts = connection.execute(select(ACCOUNTS)).all()
    return [account.name for account in accounts if ceiling in _ceilings_of(account)]


def _cost_of_share(account: Row[Any], run: BookedRun, share: Share) -> int:
    """What a group's part in a run of the book costs an account, in its units.

    A run that protects records costs more than any budget, since a client has several;
    and so does one that the account's filter does not cover.
    """
    if share.unit != "client":
        return filters.MOST_UNITS
    relation = Relation(account.relation)
    try:
        return filters.cost(account.rule, run.history(share), relation, account.order)
    except UnsupportedError:
        return filters.MOST_UNITS


def _limit_of(account: Row[Any], run_units: int) -> Composition:
    """What is spent and reserved of an account, to be composed with a next run.

    Args:
        account: its row.
        run_units: what runs of the book cost it beside that.
    """
    return Composition(
        where=account.name,
        rule=account.rule,
        relation=Relation(account.relation),
        budget=account.epsilon,
        delta=account.delta,
        order=account.order,
        units=account.spent + account.reserved + run_units,
    )


def _spend_all(connection: Connection, reservation: str) -> None:
    """Spend everything that a reservation holds."""
    for charge in rows.charges_of(connection, reservation):
        rows.require_supported(rows.account_by_id(connection, charge.account))
        units = charge.reserved - charge.spent
        rows.change(connection, charge.account, reserved=-units, spent=units)
    of_reservation = CHARGES.c.reservation == reservation
    spent_all = update(CHARGES).where(of_reservation)
    connection.execute(spent_all.values(spent=CHARGES.c.reserved))
