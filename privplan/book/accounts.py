"""Budgets over time: reserve at the start of a run, spend before each release, return the rest.

An account holds one budget: of a group, or a ceiling over the groups of a site or of a population.
A run reserves its whole cost first; a reservation that does not fit into every account is refused,
so that concurrent runs never overspend. Each release is spent before it is made; after its expiry a
reservation cannot be spent, so that what is left of it returns. Costs are those of a filter
(``spending``), in whole units, so that sums are exact; every operation is one transaction.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from privplan.accounting.accountant import at_most
from privplan.accounting.release import History, Relation
from privplan.book import spending as filters
from privplan.book.spending import Composition, Filter
from privplan.book.store import address_of, engine_of, refusing, repeated, shown
from privplan.errors import Fault, InfeasibleError, InputError
from privplan.names import name_faults, refuse_look_alike

METADATA = sa.MetaData()

ACCOUNTS = sa.Table(
    "privplan_budget_accounts",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(400), nullable=False, unique=True),
    sa.Column("rule", sa.String(16), nullable=False),
    sa.Column("relation", sa.String(16), nullable=False),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("order", sa.Integer, nullable=False),
    sa.Column("capacity", sa.BigInteger, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.Column("reserved", sa.BigInteger, nullable=False),
    sa.Column("members", sa.BigInteger, nullable=False),
    sa.Column("period", sa.Double),
    sa.Column("started", sa.Double, nullable=False),
    sa.Column("refills", sa.BigInteger, nullable=False),
    sa.Column("sealed", sa.Boolean, nullable=False),
    sa.Column("ceilings", sa.Text, nullable=False),
)
"""Books of earlier versions may have accounts with members, a period or declared runs (rule
``exact``), which are refused."""

RESERVATIONS = sa.Table(
    "privplan_budget_reservations",
    METADATA,
    sa.Column("id", sa.String(40), primary_key=True),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
    sa.Column("status", sa.String(16), nullable=False, index=True),
    sa.Column("step", sa.BigInteger, nullable=False),
)

CHARGES = sa.Table(
    "privplan_budget_charges",
    METADATA,
    sa.Column("reservation", sa.ForeignKey(RESERVATIONS.c.id), primary_key=True),
    sa.Column(
        "account", sa.ForeignKey(ACCOUNTS.c.id), primary_key=True, autoincrement=False
    ),
    sa.Column("reserved", sa.BigInteger, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
"""What a reservation holds of an account; ``detail`` is what was spent by each account below."""

STEPS = sa.Table(
    "privplan_budget_steps",
    METADATA,
    sa.Column("reservation", sa.ForeignKey(RESERVATIONS.c.id), primary_key=True),
    sa.Column("step", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("releases", sa.String(64), nullable=False),
)
"""Hash of what each step of an open reservation spent."""

DAY = 86_400.0
_USABLE = "must be a budget book that can be read and written"
_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """An account at one moment."""

    name: str
    rule: str
    relation: str
    epsilon: float  # the budget
    delta: float
    spent: float  # upper bound on the epsilon of what was spent, chosen adaptively
    committed: float  # the same for what was spent and what is reserved
    capacity: int  # the budget in units of the rule
    spent_units: int  # spent, in units
    reserved_units: int  # reserved, in units


def has_accounts(address: str | None) -> bool:
    """Whether a book that exists has budget accounts; nothing is written."""
    url = address_of(address)
    with refusing(url, _USABLE):
        return sa.inspect(engine_of(url, write=False)).has_table(ACCOUNTS.name)


class Budgets:
    """The budget accounts of a book, by default of ``PRIVPLAN_BOOK`` or ``book.sqlite``.

    ``existing``: whether it must have accounts already; else the first transaction makes tables.
    """

    def __init__(
        self,
        address: str | None = None,
        clock: Callable[[], float] = time.time,
        *,
        existing: bool = False,
    ) -> None:
        self._url, self._clock = address_of(address), clock
        if existing and not has_accounts(address):
            rule = "must be a book with budget accounts (privplan book open makes them)"
            raise InputError.one("book", rule, shown(self._url))
        self._engine, self._tables = engine_of(self._url, write=True), False

    # -- accounts --------------------------------------------------------------------------

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
        """Open an account; nothing is spent."""
        faults = []
        if rule not in get_args(Filter):
            faults.append(
                Fault("rule", f"must be one of {', '.join(get_args(Filter))}", rule)
            )
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
            "started": self._clock(),
            "ceilings": json.dumps(list(ceilings)),
            **{"spent": 0, "reserved": 0, "members": 0, "refills": 0, "sealed": False},
        }

        def work(connection: Connection) -> None:
            if _found(connection, name):
                raise InputError.one("account", "must not exist already", name)
            names = connection.execute(sa.select(ACCOUNTS.c.name)).scalars().all()
            refuse_look_alike("account", name, names)
            for ceiling in ceilings:
                if json.loads(self._account(connection, ceiling).ceilings):
                    raise InputError.one("ceiling", "must be a plain account", ceiling)
            connection.execute(sa.insert(ACCOUNTS).values(**row))

        self._run(work)

    def state(self, name: str) -> State:
        """The account now, after expiries."""
        return self._run(lambda connection: _state(self._account(connection, name)))

    def states(self) -> list[State]:
        """All accounts, by name, without those of a kind that was removed."""

        def work(connection: Connection) -> list[State]:
            states = []
            for row in connection.execute(
                sa.select(ACCOUNTS).order_by(ACCOUNTS.c.name)
            ).all():
                try:
                    states.append(_state(_supported(row)))
                except InputError as error:
                    _log.warning("%s", error)
            return states

        return self._run(work)

    def limits(self, name: str) -> list[Composition]:
        """What an account and its ceilings leave to a next run; empty without such an account."""

        def work(connection: Connection) -> list[Composition]:
            if not _found(connection, name):
                return []
            above = json.loads(self._account(connection, name).ceilings)
            rows = [self._account(connection, one) for one in (name, *above)]
            return [
                Composition(
                    row.name,
                    row.rule,
                    Relation(row.relation),
                    row.epsilon,
                    row.delta,
                    row.order,
                    units=row.spent + row.reserved,
                )
                for row in rows
            ]

        return self._run(work)

    # -- reservations ----------------------------------------------------------------------

    def reserve(
        self,
        run: str,
        charges: Mapping[str, History],
        *,
        expires_in: float = 30 * DAY,
        reservation: str | None = None,
    ) -> str:
        """Reserve the releases of a run in all accounts, or in none."""
        name = reservation or uuid.uuid4().hex
        if not charges:
            raise InputError.one("charges", "must name an account", dict(charges))
        if not 0 < expires_in < math.inf:
            raise InputError.one("expires", "must be positive", expires_in)

        def work(connection: Connection) -> str:
            chosen = sa.select(RESERVATIONS).where(RESERVATIONS.c.id == name)
            known = connection.execute(chosen).first()
            if known is not None:
                if known.status != "open" or known.run != run:
                    raise InputError.one(
                        "reservation", f"must be new, not {known.status}", name
                    )
                return name
            row = {"id": name, "run": run, "status": "open", "step": -1}
            expires = self._clock() + expires_in
            connection.execute(sa.insert(RESERVATIONS).values(**row, expires=expires))
            for account, costs in self._costs(connection, charges):
                units = max(costs.values())
                if account.capacity - account.spent - account.reserved < units:
                    raise InfeasibleError(_refusal(account, units))
                _change(connection, account.id, reserved=units)
                charge = {"reservation": name, "account": account.id, "reserved": units}
                connection.execute(
                    sa.insert(CHARGES).values(**charge, spent=0, detail="{}")
                )
            return name

        return self._run(work)

    def spend(
        self,
        reservation: str,
        charges: Mapping[str, History],
        *,
        step: int | None = None,
    ) -> None:
        """Spend releases of a reservation before they are made; a repeated step is spent once."""

        def work(connection: Connection) -> None:
            held = _open(connection, reservation)
            if step is not None and _spent_before(connection, held, step, charges):
                return
            self._spend(connection, reservation, charges)
            if step is not None:
                one = sa.update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
                connection.execute(one.values(step=step))

        self._run(work)

    def close(self, reservation: str) -> None:
        """End a run: what it did not spend returns to the accounts."""
        self.commit(reservation, {})

    def commit(
        self, reservation: str, charges: Mapping[str, History] | None = None
    ) -> None:
        """Spend and close at once; everything that is reserved when no charges are given."""

        def work(connection: Connection) -> None:
            _open(connection, reservation)
            if charges is None:
                for charge in _charges(connection, reservation):
                    chosen = sa.select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)
                    _supported(connection.execute(chosen).one())
                    left = charge.reserved - charge.spent
                    _change(connection, charge.account, reserved=-left, spent=left)
                spent_all = sa.update(CHARGES).where(
                    CHARGES.c.reservation == reservation
                )
                connection.execute(spent_all.values(spent=CHARGES.c.reserved))
            else:
                self._spend(connection, reservation, charges)
            _return(connection, reservation, "closed")

        self._run(work)

    # -- in a transaction ------------------------------------------------------------------

    def _run(self, work: Callable[[Connection], T]) -> T:
        """Do the work in one transaction, after what expired has returned."""

        def after_expiries(connection: Connection) -> T:
            late = (
                RESERVATIONS.c.status == "open",
                RESERVATIONS.c.expires <= self._clock(),
            )
            chosen = sa.select(RESERVATIONS.c.id).where(*late)
            for name in connection.execute(chosen).scalars().all():
                _return(connection, name, "expired")
            return work(connection)

        with refusing(self._url, _USABLE):
            if not self._tables:
                repeated(self._engine, METADATA.create_all)
                self._tables = True
            return repeated(self._engine, after_expiries)

    def _account(self, connection: Connection, name: str) -> sa.Row[Any]:
        row = _found(connection, name)
        if row is None:
            raise InputError.one(
                "account", f"must be in the book {shown(self._url)}", name
            )
        return _supported(row)

    def _costs(
        self, connection: Connection, charges: Mapping[str, History]
    ) -> list[tuple[sa.Row[Any], dict[str, int]]]:
        """Accounts and ceilings, sorted, with costs of those below: a client is in one only."""
        below: dict[str, dict[str, History]] = {}
        for name, history in charges.items():
            for target in (name, *json.loads(self._account(connection, name).ceilings)):
                below.setdefault(target, {})[name] = history
        found = []
        for target in sorted(below):
            row = self._account(connection, target)
            relation = Relation(row.relation)
            costs = {
                name: filters.cost(row.rule, history, relation, row.order)
                for name, history in below[target].items()
            }
            found.append((row, costs))
        return found

    def _spend(
        self, connection: Connection, reservation: str, charges: Mapping[str, History]
    ) -> None:
        for row, costs in self._costs(connection, charges):
            where = (CHARGES.c.reservation == reservation, CHARGES.c.account == row.id)
            charge = connection.execute(sa.select(CHARGES).where(*where)).first()
            if charge is None:
                raise InputError.one(
                    "account", "must be one that the run reserved", row.name
                )
            by_account = json.loads(charge.detail)
            for name, units in costs.items():
                by_account[name] = by_account.get(name, 0) + units
            total = max(by_account.values())
            if total > charge.reserved:
                raise InfeasibleError(
                    f"{row.name}: the run would spend more than it reserved "
                    f"({total} of {charge.reserved} units)"
                )
            used = total - charge.spent
            _change(connection, row.id, reserved=-used, spent=used)
            changed = sa.update(CHARGES).where(*where)
            connection.execute(
                changed.values(spent=total, detail=json.dumps(by_account))
            )


def _found(connection: Connection, name: str) -> sa.Row[Any] | None:
    return connection.execute(
        sa.select(ACCOUNTS).where(ACCOUNTS.c.name == name)
    ).first()


def _supported(row: sa.Row[Any]) -> sa.Row[Any]:
    """The row of an account, if it is of a kind that is still there."""
    if row.members or row.period is not None:
        rule = (
            "with members or a refill period was removed in 0.2; use accounts of groups"
        )
        raise InputError.one("account", rule, row.name)
    if row.rule not in get_args(Filter):
        rule = (
            "of declared runs (exact) was removed in 0.2; use one with the rule renyi"
        )
        raise InputError.one("account", rule, row.name)
    return row


def _state(row: sa.Row[Any]) -> State:
    spent, committed = (
        filters.spent_epsilon(row.rule, units, row.delta, row.order)
        for units in (row.spent, row.spent + row.reserved)
    )
    budget = (row.name, row.rule, row.relation, row.epsilon, row.delta)
    return State(*budget, spent, committed, row.capacity, row.spent, row.reserved)


def _refusal(row: sa.Row[Any], units: int) -> str:
    """Why units do not fit into an account."""
    spent, committed, after = (
        filters.spent_epsilon(row.rule, one, row.delta, row.order)
        for one in (
            row.spent,
            row.spent + row.reserved,
            row.spent + row.reserved + units,
        )
    )
    return (
        f"{row.name}: of epsilon {row.epsilon:g} at delta {row.delta:.4g} ({row.rule} filter), "
        f"{at_most(spent, 6)} is spent and {at_most(committed, 6)} with reservations; with "
        f"this run it would be {at_most(after, 6)}"
    )


def _change(
    connection: Connection, account: int, *, reserved: int = 0, spent: int = 0
) -> None:
    values = {
        "reserved": ACCOUNTS.c.reserved + reserved,
        "spent": ACCOUNTS.c.spent + spent,
    }
    connection.execute(
        sa.update(ACCOUNTS).where(ACCOUNTS.c.id == account).values(**values)
    )


def _open(connection: Connection, reservation: str) -> sa.Row[Any]:
    held = connection.execute(
        sa.select(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
    ).first()
    if held is None or held.status != "open":
        found = "unknown" if held is None else held.status
        raise InputError.one("reservation", f"must be open, not {found}", reservation)
    return held


def _charges(connection: Connection, reservation: str) -> Sequence[sa.Row[Any]]:
    chosen = sa.select(CHARGES).where(CHARGES.c.reservation == reservation)
    return connection.execute(chosen.order_by(CHARGES.c.account)).all()


def _return(connection: Connection, reservation: str, status: str) -> None:
    """End a reservation; what it did not spend returns."""
    for charge in _charges(connection, reservation):
        row = connection.execute(
            sa.select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)
        ).one()
        if not row.members:
            _change(connection, row.id, reserved=charge.spent - charge.reserved)
    connection.execute(sa.delete(STEPS).where(STEPS.c.reservation == reservation))
    held = sa.update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
    connection.execute(held.values(status=status))


def _spent_before(
    connection: Connection, held: sa.Row[Any], step: int, charges: Mapping[str, History]
) -> bool:
    """Whether a step of a reservation was spent already; a new one is noted with its releases."""
    plain = {}
    for name in sorted(charges):
        rows = []
        for one, count in charges[name]:
            noise = "inf" if math.isinf(one.noise_multiplier) else one.noise_multiplier
            rows.append(
                [noise, one.sampling_ratio, str(one.sampling), one.family, count]
            )
        plain[name] = json.dumps(rows, allow_nan=False)
    releases = hashlib.sha256(json.dumps(plain).encode()).hexdigest()
    if step > held.step:
        row = {"reservation": held.id, "step": step, "releases": releases}
        connection.execute(sa.insert(STEPS).values(**row))
        return False
    where = (STEPS.c.reservation == held.id, STEPS.c.step == step)
    known = connection.execute(sa.select(STEPS.c.releases).where(*where)).scalar()
    if known is None:
        rule = f"must be larger than {held.step}, the last one that was spent, or one of those"
        raise InputError.one("step", rule, step)
    if known != releases:
        rule = "was spent with other releases; it must be repeated with the same, or be a new one"
        raise InputError.one("step", rule, step)
    return True
