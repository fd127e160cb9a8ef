"""A run folder with signed statements, as honest servers and clients write them."""

from itertools import chain, groupby

from privplan.contrib.attestation import Attestor, client_statement, new_key
from privplan.evidence.rounds import read_evidence
from privplan.ledger import read_ledger
from tests.verification import honest_run


def keys(folder, *names):
    """New keys by name of the party."""
    return {name: new_key(folder / f"{name}.pem") for name in names}


def signed_plan(server, **clients):
    """The honest plan with signers."""
    signers = [{"name": "server", "key": server.public}]
    signers += [
        {"name": k, "role": "client", "key": v.public} for k, v in clients.items()
    ]
    return honest_run.plan(honest_run.spec(signers=signers))


def cohort_of(records):
    """Participants by group of one round's lines."""
    shares = chain.from_iterable(record.shares for record in records)
    return {share.group: share.participants for share in shares}


def attest(folder, plan, server, reveal=True, commitment="", **clients):
    """Sign the ledger of a run folder after the fact, round by round, as a run does."""
    ledger = read_ledger(folder, plan.digest)
    evidence = read_evidence(folder, plan.digest)
    attestor = Attestor(folder, plan, server)
    attestor.start(commitment)
    num_signed = 0
    for round_, lines in groupby(ledger.records, lambda record: record.round):
        # The cohort is committed, clients state their updates, then all is released.
        records = list(lines)
        head = attestor.cohort(round_, cohort_of(records), model="0" * 64)
        for key in clients.values():
            attestor.add(client_statement(plan, key, round_, head, b"an update"))
        num_signed += len(records)
        link = ledger.link(num_signed)
        digests = evidence.rounds[round_].releases
        attestor.release(round_, digests, link, reveal_cohort=reveal)
    attestor.end(ledger.chain)
    return attestor
