"""That plan, record and ledger belong together, and that the ledger is whole."""

from __future__ import annotations

from collections.abc import Iterator

from privplan.verification.checks.check import Check, Run, first


def same_plan(run: Run) -> Check:
    """The record was made under this very plan."""
    same = run.record.plan_digest == run.plan.digest
    reason = "the record names the plan's digest" if same else "the record is of another plan"
    return Check(name="plan", passed=same, reason=reason)


def unbroken(run: Run) -> Check:
    """The ledger's chain of hashes holds from the plan to the last line of the record."""
    fault = run.ledger.fault
    if fault is None and run.record.chain and run.record.chain != run.ledger.chain:
        fault = "the last line is not the one that the finished run wrote last"
    well = f"{len(run.ledger.records)} releases, the chain of hashes holds"
    return Check(name="ledger", passed=fault is None, reason=fault or well)


def groups(run: Run) -> Check:
    """Every release is of groups that the plan knows, with as many clients as it says."""

    def problems() -> Iterator[str]:
        known = {group.name: group.clients for group in run.plan.groups}
        for release in run.ledger.records:
            for share in release.shares:
                if share.group not in known:
                    yield f"round {release.round}: {share.group} is not a group of the plan"
                elif share.clients != known[share.group]:
                    yield (
                        f"{share.group}: {share.clients} clients where {known[share.group]} "
                        "were planned"
                    )

    return first(problems(), "groups", f"{len(run.plan.groups)} groups, as planned")
