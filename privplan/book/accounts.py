"""Budgets over time: reserve at the start of a run, spend before each release, return the rest.

An account holds one budget: of a group, or a ceiling over the groups of a site or of a population.
A run reserves its whole cost first; a reservation that does not fit into every account is refused,
so that concurrent runs never overspend. Each release is spent before it is made; after its expiry a
reservation cannot be spent, so that what is left of it returns. Sums of costs are exact
(``filters``), and every operation is one transaction.
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
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    UniqueConstraint,
    delete,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import Connection

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation, Release, SamplingLaw
from privplan.book import spending as filters
from privplan.book.spending import RULES, Composition
from privplan.book.spending import BookRule as Rule
from privplan.book.store import address_of, engine_of, refusing, repeated, shown
from privplan.errors import Fault, InfeasibleError, InputError

# --- Tables of budgets over time: accounts, reservations and charges. ----------------------------

METADATA = MetaData()

ACCOUNTS = Table(
    "privplan_budget_accounts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", String(400), nullable=False, unique=True),
    Column("rule", String(16), nullable=False),
    Column("relation", String(16), nullable=False),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("order", Integer, nullable=False),
    Column("capacity", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("members", BigInteger, nullable=False),
    Column("period", Double),
    Column("started", Double, nullable=False),
    Column("refills", BigInteger, nullable=False),
    Column("sealed", Boolean, nullable=False),
    Column("ceilings", Text, nullable=False),
)
"""Books of 0.1 may have accounts with members or a period, which are refused."""

RESERVATIONS = Table(
    "privplan_budget_reservations",
    METADATA,
    Column("id", String(40), primary_key=True),
    Column("run", Text, nullable=False),
    Column("expires", Double, nullable=False),
    Column("status", String(16), nullable=False, index=True),
    Column("step", BigInteger, nullable=False),
)

CHARGES = Table(
    "privplan_budget_charges",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("account", ForeignKey(ACCOUNTS.c.id), primary_key=True, autoincrement=False),
    Column("reserved", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
)

STEPS = Table(
    "privplan_budget_steps",
    METADATA,
    Column("reservation", ForeignKey(RESERVATIONS.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True, autoincrement=False),
    Column("releases", String(64), nullable=False),
)
"""Hash of what each step of an open reservation spent."""

DECLARED = Table(
    "privplan_budget_declared",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("account", ForeignKey(ACCOUNTS.c.id), nullable=False),
    Column("run", String(400), nullable=False),
    Column("history", Text, nullable=False),
    Column("commitment", String(64), nullable=False),
    Column("used", Boolean, nullable=False),
    UniqueConstraint("account", "run"),
)


# --- The state of budget accounts: what was spent, and the runs that were declared in advance. ---


@dataclass(frozen=True)
class State:
    """An account at one moment.

    Attributes:
        epsilon: the budget.
        spent: upper bound on the epsilon of what was spent, chosen adaptively unless the rule is
            ``exact``.
        committed: the same for what was spent and what is reserved.
        capacity: the budget in units of the rule.
        spent_units: spent, in units.
        reserved_units: reserved, in units.
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
    commitment: str


def state_of(connection: Connection, row: Row[Any]) -> State:
    """The state of an account's row."""
    spent, reserved = row.spent, row.reserved
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
                 row.capacity, spent, reserved,
                 commitment_of(row.name, runs) if runs else "")  # fmt: skip


def limit_of(connection: Connection, row: Row[Any]) -> Composition:
    """What is spent and reserved of an account, composed by its rule with a next run."""
    known = (row.name, row.rule, Relation(row.relation), row.epsilon, row.delta, row.order)
    if row.rule != "exact":
        return Composition(*known, units=row.spent + row.reserved)
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
    """Whether a step of a reservation was spent already; a new one is noted with its releases."""
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


# --- Rows of budget accounts and reservations, and the changes that keep them consistent. --------

_USABLE = "must be a budget book that can be read and written"

T = TypeVar("T")


def has_accounts(address: str | None) -> bool:
    """Whether a book that exists has budget accounts; nothing is written."""
    url = address_of(address)
    with refusing(url, _USABLE):
        return inspect(engine_of(url, write=False)).has_table(ACCOUNTS.name)


def kept(row: Row[Any]) -> Row[Any]:
    """The row of an account, if it is of a kind that is still there."""
    if row.members or row.period is not None:
        rule = "with members or a refill period was removed in 0.2; use accounts of groups"
        raise InputError.one("account", rule, row.name)
    return row


class Rows:
    """Transactions on the tables of budgets.

    Args:
        address: a file or SQLAlchemy address; ``PRIVPLAN_BOOK``, or ``book.sqlite``, by default.
        clock: the time in seconds; for expiry.
        existing: whether the book must have accounts already; otherwise the first transaction
            makes their tables.

    Raises:
        InputError: when the book must exist and does not, or cannot be used.
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
        self._tables = False

    def _run(self, work: Callable[[Connection], T]) -> T:
        with refusing(self._url, _USABLE):
            if not self._tables:
                repeated(self._engine, METADATA.create_all)
                self._tables = True
            return repeated(self._engine, work)

    def _account(self, connection: Connection, name: str) -> Row[Any]:
        row = connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.name == name)).first()
        if row is None:
            raise InputError.one("account", f"must be in the book {shown(self._url)}", name)
        return kept(row)

    def _open(self, connection: Connection, reservation: str) -> Row[Any]:
        held = connection.execute(
            select(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
        ).first()
        if held is None or held.status != "open":
            found = "unknown" if held is None else held.status
            raise InputError.one("reservation", f"must be open, not {found}", reservation)
        return held

    def _charges(self, connection: Connection, reservation: str) -> Sequence[Row[Any]]:
        chosen = select(CHARGES).where(CHARGES.c.reservation == reservation)
        return connection.execute(chosen.order_by(CHARGES.c.account)).all()

    def _cost(self, row: Row[Any], history: History) -> int:
        return filters.cost(row.rule, history, Relation(row.relation), row.order)

    def _change(
        self, connection: Connection, row: Row[Any], *, reserved: int = 0, spent: int = 0
    ) -> None:
        values = {
            "reserved": ACCOUNTS.c.reserved + reserved,
            "spent": ACCOUNTS.c.spent + spent,
        }
        connection.execute(update(ACCOUNTS).where(ACCOUNTS.c.id == row.id).values(**values))

    def _return(self, connection: Connection, reservation: str, status: str) -> None:
        for charge in self._charges(connection, reservation):
            row = connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)).one()
            left = charge.reserved - charge.spent
            if left and not row.members:
                self._change(connection, row, reserved=-left)
        connection.execute(delete(STEPS).where(STEPS.c.reservation == reservation))
        held = update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
        connection.execute(held.values(status=status))

    def _expire(self, connection: Connection) -> None:
        """Return what expired reservations did not spend."""
        late = (RESERVATIONS.c.status == "open", RESERVATIONS.c.expires <= self._clock())
        for name in connection.execute(select(RESERVATIONS.c.id).where(*late)).scalars().all():
            self._return(connection, name, "expired")


# -------------------------------------------------------------------------------------------------
# Budgets over time: reserve at the start of a run, spend before each release, return the rest.

DAY = 86_400.0
_log = logging.getLogger(__name__)


class Budgets(Rows):
    """The budget accounts of a book.

    Args:
        address: a file or SQLAlchemy address; ``PRIVPLAN_BOOK``, or ``book.sqlite``, by default.
        clock: the time in seconds; for expiry.
        existing: whether the book must have accounts already; otherwise the first transaction
            makes their tables.
    """

    # -- accounts --------------------------------------------------------------------------

    def open(
        self,
        name: str,
        epsilon: float,
        delta: float,
        *,
        rule: Rule = "renyi",
        relation: Relation | str = Relation.ADD_REMOVE,
        ceilings: Sequence[str] = (),
        typical: History | None = None,
    ) -> None:
        """Open an account; nothing is spent."""
        faults = []
        if rule not in RULES:
            faults.append(Fault("rule", f"must be one of {', '.join(RULES)}", rule))
        if not 0 < len(name) <= 400 or not name.isprintable():
            faults.append(Fault("account", "must be a name of 1 to 400 letters", name))
        if rule == "exact" and ceilings:
            faults.append(Fault("rule", "exact takes no ceilings", rule))
        if faults:
            raise InputError(faults)
        kind: filters.Rule = "gaussian" if rule == "gaussian" else "renyi"
        order = filters.order_of(epsilon, delta, typical, Relation(relation))
        capacity = filters.capacity(kind, epsilon, delta, order)
        row = {
            "name": name,
            "rule": rule,
            "relation": str(Relation(relation)),
            "epsilon": epsilon,
            "delta": delta,
            "order": order,
            "capacity": filters.MOST_UNITS if rule == "exact" else capacity,
            "spent": 0,
            "reserved": 0,
            "members": 0,
            "period": None,
            "started": self._clock(),
            "refills": 0,
            "sealed": False,
            "ceilings": json.dumps(list(ceilings)),
        }

        def work(connection: Connection) -> None:
            if connection.execute(select(ACCOUNTS.c.id).where(ACCOUNTS.c.name == name)).first():
                raise InputError.one("account", "must not exist already", name)
            for ceiling in ceilings:
                above = self._account(connection, ceiling)
                if above.rule == "exact" or json.loads(above.ceilings):
                    raise InputError.one("ceiling", "must be a plain account", ceiling)
            connection.execute(insert(ACCOUNTS).values(**row))

        self._run(work)

    def declare(self, name: str, run: str, history: History) -> str:
        """The commitment of an ``exact`` account in which the run is declared; ``declare_run``."""
        return self.declare_run(run, {name: history})[name]

    def declare_run(self, run: str, charges: Mapping[str, History]) -> dict[str, str]:
        """Declare a run in all its ``exact`` accounts, or in none, before their first result."""

        def work(connection: Connection) -> dict[str, str]:
            return {
                name: self._declare(connection, name, run, history)
                for name, history in charges.items()
            }

        return self._run(work)

    def _declare(self, connection: Connection, name: str, run: str, history: History) -> str:
        row = self._account(connection, name)
        if row.rule != "exact":
            raise InputError.one("account", "must have the rule exact", name)
        if row.sealed:
            rule = "must have been declared before the first run of the account was reserved"
            raise InputError.one("run", rule, run)
        runs = declared(connection, row.id)
        if run in runs:
            raise InputError.one("run", "must not be declared twice", run)
        total = sum(runs.values(), History()) + history
        found = accountant("pld").epsilon(total, row.delta, Relation(row.relation)).upper
        if not found <= row.epsilon:
            raise InfeasibleError(
                f"{name}: the declared runs come to epsilon {found:.6g} of {row.epsilon:g}"
            )
        commitment = commitment_of(name, {**runs, run: history})
        values = {"account": row.id, "run": run, "history": text_of(history), "used": False}
        connection.execute(insert(DECLARED).values(**values, commitment=commitment))
        return commitment

    def state(self, name: str) -> State:
        """The account now, after expiries."""

        def work(connection: Connection) -> State:
            self._expire(connection)
            return state_of(connection, self._account(connection, name))

        return self._run(work)

    def limits(self, name: str) -> list[Composition]:
        """What an account and its ceilings leave to a next run; empty without such an account."""

        def work(connection: Connection) -> list[Composition]:
            self._expire(connection)
            if not connection.execute(select(ACCOUNTS.c.id).where(ACCOUNTS.c.name == name)).first():
                return []
            above = json.loads(self._account(connection, name).ceilings)
            rows = [self._account(connection, one) for one in (name, *above)]
            return [limit_of(connection, row) for row in rows]

        return self._run(work)

    def states(self) -> list[State]:
        """All accounts, by name, without those of a kind that was removed."""

        def work(connection: Connection) -> list[State]:
            self._expire(connection)
            states = []
            for row in connection.execute(select(ACCOUNTS).order_by(ACCOUNTS.c.name)).all():
                try:
                    states.append(state_of(connection, kept(row)))
                except InputError as error:
                    _log.warning("%s", error)
            return states

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
            self._expire(connection)
            known = connection.execute(
                select(RESERVATIONS).where(RESERVATIONS.c.id == name)
            ).first()
            if known is not None:
                if known.status != "open" or known.run != run:
                    raise InputError.one("reservation", f"must be new, not {known.status}", name)
                return name
            row = {"id": name, "run": run, "status": "open", "step": -1}
            expires = self._clock() + expires_in
            connection.execute(insert(RESERVATIONS).values(**row, expires=expires))
            for account, parts in self._charged(connection, charges).items():
                self._reserve(connection, name, run, account, parts)
            return name

        return self._run(work)

    def _charged(
        self, connection: Connection, charges: Mapping[str, History]
    ) -> dict[str, dict[str, History]]:
        """Accounts and ceilings with the releases of each account under them, sorted."""
        found: dict[str, dict[str, History]] = {}
        for name, history in charges.items():
            for target in (name, *json.loads(self._account(connection, name).ceilings)):
                found.setdefault(target, {})[name] = history
        return {name: found[name] for name in sorted(found)}

    def _reserve(
        self,
        connection: Connection,
        reservation: str,
        run: str,
        name: str,
        parts: Mapping[str, History],
    ) -> None:
        row, detail = self._account(connection, name), "{}"
        if row.rule == "exact":
            units, detail = use_declared(connection, row, run, parts[name]), "[]"
        else:
            units = max(self._cost(row, history) for history in parts.values())
        if row.capacity - row.spent - row.reserved < units:
            raise InfeasibleError(refusal(row, units))
        self._change(connection, row, reserved=units)
        values = {"reservation": reservation, "account": row.id, "reserved": units, "spent": 0}
        connection.execute(insert(CHARGES).values(**values, detail=detail))

    def spend(
        self, reservation: str, charges: Mapping[str, History], *, step: int | None = None
    ) -> None:
        """Spend releases of a reservation; call this before a release is made."""

        def work(connection: Connection) -> None:
            self._expire(connection)
            held = self._open(connection, reservation)
            if step is not None and spent_before(connection, held, step, charges):
                return
            for account, parts in self._charged(connection, charges).items():
                self._spend(connection, reservation, account, parts)
            if step is not None:
                one = update(RESERVATIONS).where(RESERVATIONS.c.id == reservation)
                connection.execute(one.values(step=step))

        self._run(work)

    def _spend(
        self, connection: Connection, reservation: str, name: str, parts: Mapping[str, History]
    ) -> None:
        row = self._account(connection, name)
        where = (CHARGES.c.reservation == reservation, CHARGES.c.account == row.id)
        charge = connection.execute(select(CHARGES).where(*where)).first()
        if charge is None:
            raise InputError.one("account", "must be one that the run reserved", name)
        if row.rule == "exact":
            done = history_of_text(charge.detail) + parts[name]
            within_declared(connection, row, self._open(connection, reservation).run, done)
            total, detail = done.rounds, text_of(done)
        else:
            by_account = json.loads(charge.detail)
            for account, history in parts.items():
                by_account[account] = by_account.get(account, 0) + self._cost(row, history)
            total, detail = max(by_account.values()), json.dumps(by_account)
        if total > charge.reserved:
            raise InfeasibleError(
                f"{name}: the run would spend more than it reserved "
                f"({total} of {charge.reserved} units)"
            )
        used = total - charge.spent
        self._change(connection, row, reserved=-used, spent=used)
        connection.execute(update(CHARGES).where(*where).values(spent=total, detail=detail))

    def close(self, reservation: str) -> None:
        """End a run: what it did not spend returns to the accounts."""

        def work(connection: Connection) -> None:
            self._expire(connection)
            self._open(connection, reservation)
            self._return(connection, reservation, "closed")

        self._run(work)

    def commit(self, reservation: str, charges: Mapping[str, History] | None = None) -> None:
        """Spend and close at once."""

        def work(connection: Connection) -> None:
            self._expire(connection)
            self._open(connection, reservation)
            if charges is None:
                self._spend_all(connection, reservation)
            else:
                for account, parts in self._charged(connection, charges).items():
                    self._spend(connection, reservation, account, parts)
            self._return(connection, reservation, "closed")

        self._run(work)

    def _spend_all(self, connection: Connection, reservation: str) -> None:
        for charge in self._charges(connection, reservation):
            chosen = select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)
            row = kept(connection.execute(chosen).one())
            left = charge.reserved - charge.spent
            self._change(connection, row, reserved=-left, spent=left)
            values: dict[str, Any] = {"spent": charge.reserved}
            if row.rule == "exact":
                run = self._open(connection, reservation).run
                values["detail"] = text_of(declared(connection, row.id)[run])
            where = (CHARGES.c.reservation == reservation, CHARGES.c.account == charge.account)
            connection.execute(update(CHARGES).where(*where).values(**values))
