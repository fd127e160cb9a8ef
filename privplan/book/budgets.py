"""Budgets over time: reserve at the start of a run, spend before each release, return the rest.

An account holds one budget: of a group, of every member of a population, or a ceiling over the
groups of a site or of a population. A run reserves its whole cost first; a reservation that does
not fit into every account is refused, so that concurrent runs never overspend. Each release is
spent before it is made; after its expiry a reservation cannot be spent, so that what is left of it
returns. Sums of costs are exact (``filters``), and every operation is one transaction.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import insert, select, update
from sqlalchemy.engine import Connection

from privplan.accounting.accountant import accountant
from privplan.accounting.release import History, Relation
from privplan.book import filters, members
from privplan.book.budget_rows import Rows
from privplan.book.budget_state import (
    State,
    commitment_of,
    declared,
    history_of_text,
    limit_of,
    refusal,
    spent_before,
    state_of,
    text_of,
    use_declared,
    within_declared,
)
from privplan.book.budget_tables import ACCOUNTS, CHARGES, DECLARED, RESERVATIONS
from privplan.book.rules import RULES, Composition, Rule
from privplan.errors import Fault, InfeasibleError, InputError

DAY = 86_400.0


class Budgets(Rows):
    """The budget accounts of a book.

    Args:
        address: a file or SQLAlchemy address; ``PRIVPLAN_BOOK``, or ``book.sqlite``, by default.
        clock: the time in seconds; for expiry and refills.
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
        members_count: int = 0,
        period: float | None = None,
        ceilings: Sequence[str] = (),
        typical: History | None = None,
    ) -> None:
        """Open an account; nothing is spent.

        Args:
            name: such as ``population/group``.
            epsilon: the budget over all runs, per period.
            delta: its failure probability.
            rule: the filter; ``exact`` for runs that are all declared before the first.
            relation: neighbouring relation.
            members_count: number of members, each with this budget; 0 for one budget.
            period: seconds after which what was spent is returned; None for never.
            ceilings: accounts that bound the sum of this and other accounts' clients: each
                reservation is charged to them as well, by the largest of its accounts.
            typical: releases of a typical run, for which the order of the Rényi filter is chosen.

        Raises:
            InputError: when a value is out of range, or the account exists.
        """
        faults = []
        if rule not in RULES:
            faults.append(Fault("rule", f"must be one of {', '.join(RULES)}", rule))
        if not 0 < len(name) <= 400 or not name.isprintable():
            faults.append(Fault("account", "must be a name of 1 to 400 letters", name))
        if period is not None and not 0 < period < math.inf:
            faults.append(Fault("period", "must be positive", period))
        if members_count < 0:
            faults.append(Fault("members", "must be 0 or more", members_count))
        if rule == "exact" and (members_count or period or ceilings):
            faults.append(Fault("rule", "exact takes no members, period or ceilings", rule))
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
            "members": members_count,
            "period": period,
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
                if above.rule == "exact" or above.members or json.loads(above.ceilings):
                    raise InputError.one("ceiling", "must be a plain account", ceiling)
            key = connection.execute(insert(ACCOUNTS).values(**row)).inserted_primary_key
            if members_count and key is not None:
                members.create(connection, int(key[0]), members_count)

        self._run(work)

    def declare(self, name: str, run: str, history: History) -> str:
        """The commitment of an ``exact`` account in which the run is declared; ``declare_run``."""
        return self.declare_run(run, {name: history})[name]

    def declare_run(self, run: str, charges: Mapping[str, History]) -> dict[str, str]:
        """Declare a run in all its ``exact`` accounts, or in none, before their first result.

        Returns:
            The commitment by account: a hash of all declared runs, to be published before the
            first result.

        Raises:
            InfeasibleError: when the declared runs, composed exactly, exceed the budget.
            InputError: when a run was reserved already: what comes now may depend on its result.
        """

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
        """The account now, after expiries and refills."""

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
        """All accounts, by name."""

        def work(connection: Connection) -> list[State]:
            self._expire(connection)
            names = connection.execute(select(ACCOUNTS.c.name).order_by(ACCOUNTS.c.name))
            rows = [self._account(connection, name) for name in names.scalars().all()]
            return [state_of(connection, row) for row in rows]

        return self._run(work)

    # -- reservations ----------------------------------------------------------------------

    def reserve(
        self,
        run: str,
        charges: Mapping[str, History],
        *,
        expires_in: float = 30 * DAY,
        chosen: Mapping[str, Sequence[int] | np.ndarray] | None = None,
        reservation: str | None = None,
    ) -> str:
        """Reserve the releases of a run in all accounts, or in none.

        Args:
            run: its name; of a declared run for ``exact`` accounts.
            charges: account to the releases that its clients see.
            expires_in: seconds after which nothing can be spent and the rest returns.
            chosen: account to the members that may take part; all by default.
            reservation: the reservation's name; a new one by default. Repeating a call with the
                name of an open reservation changes nothing.

        Returns:
            The reservation's name.

        Raises:
            InfeasibleError: when an account or a member has too little left.
            InputError: when there is no such account or declared run.
        """
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
                self._reserve(connection, name, run, account, parts, chosen or {})
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
        chosen: Mapping[str, Sequence[int] | np.ndarray],
    ) -> None:
        row = self._account(connection, name)
        bits, detail = None, "{}"
        if row.rule == "exact":
            units, detail = use_declared(connection, row, run, parts[name]), "[]"
        else:
            units = max(self._cost(row, history) for history in parts.values())
        if row.members:
            mask = members.mask_of(row.members, chosen.get(name))
            members.change(connection, row.id, mask, reserved=units, capacity=row.capacity)
            bits = members.packed(mask)
        elif row.capacity - row.spent - row.reserved < units:
            raise InfeasibleError(refusal(row, units))
        else:
            self._change(connection, row, reserved=units)
        values = {"reservation": reservation, "account": row.id, "reserved": units, "spent": 0}
        connection.execute(insert(CHARGES).values(**values, detail=detail, bits=bits))

    def spend(
        self, reservation: str, charges: Mapping[str, History], *, step: int | None = None
    ) -> None:
        """Spend releases of a reservation; call this before a release is made.

        Args:
            reservation: its name.
            charges: account to releases, within what is reserved.
            step: a growing number; a call with a step that was spent already, and the same
                releases, changes nothing, so that it can be repeated after a crash.

        Raises:
            InfeasibleError: when more is spent than was reserved.
            InputError: when the reservation is unknown, closed or expired, or the step was spent
                with other releases.
        """

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
        self._move(connection, row, charge.bits, reserved=-used, spent=used)
        connection.execute(update(CHARGES).where(*where).values(spent=total, detail=detail))

    def close(self, reservation: str) -> None:
        """End a run: what it did not spend returns to the accounts.

        Raises:
            InputError: when the reservation is unknown or not open.
        """

        def work(connection: Connection) -> None:
            self._expire(connection)
            self._open(connection, reservation)
            self._return(connection, reservation, "closed")

        self._run(work)

    def commit(self, reservation: str, charges: Mapping[str, History] | None = None) -> None:
        """Spend and close at once.

        Args:
            reservation: its name.
            charges: account to releases that were made; by default all that was reserved.
        """

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
            row = connection.execute(select(ACCOUNTS).where(ACCOUNTS.c.id == charge.account)).one()
            left = charge.reserved - charge.spent
            self._move(connection, row, charge.bits, reserved=-left, spent=left)
            values: dict[str, Any] = {"spent": charge.reserved}
            if row.rule == "exact":
                run = self._open(connection, reservation).run
                values["detail"] = text_of(declared(connection, row.id)[run])
            where = (CHARGES.c.reservation == reservation, CHARGES.c.account == charge.account)
            connection.execute(update(CHARGES).where(*where).values(**values))
