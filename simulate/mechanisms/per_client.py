"""Clients who send for themselves: what each sends is a release of its own."""

from __future__ import annotations

from privplan.accounting.release import SamplingLaw
from privplan.errors import InputError
from privplan.record import GroupShare, ReleaseRecord
from simulate.components import ClientUpdate, Mechanism, RecordNoiseEvidence, Released


def exposed_by_client() -> Mechanism:
    """Each client sends its update as it is: epsilon is infinite, and the ledger says so."""

    def alone(round_: int, update: ClientUpdate, weight: float) -> Released:
        record = ReleaseRecord(
            round=round_,
            family="none",
            noise_std=0.0,
            dimension=0,
            noise_sum_squares=0.0,
            shares=(_share(update, weight, SamplingLaw.FULL, 1.0),),
        )
        return Released(update.vector, record, (update.group,), update.client)

    return Mechanism("clients send in the clear", False, False, _no_sums, alone)


def noised_by_client() -> Mechanism:
    """Each client sends what DP-SGD on its own records made: a release that protects records.

    The noise was drawn at each local step by ``record_noise``; the ledger books as many releases
    as there were steps.
    """

    def alone(round_: int, update: ClientUpdate, weight: float) -> Released:
        spent = update.noise_evidence
        if spent is None:
            rule = "must follow a local rule that draws noise on every step, such as dp_sgd"
            raise InputError.one("algorithm.mechanism", rule, update.group.name)
        record = ReleaseRecord(
            round=round_,
            unit="record",
            family="gaussian",
            steps=int(spent.steps[0]),
            noise_std=float(spent.noise_std[0]),
            dimension=int(spent.drawn[0]),
            noise_sum_squares=float(spent.noise_sum_squares[0]),
            noise_state=spent.noise_state[0],
            shares=(_private_share(update, spent, weight),),
        )
        return Released(update.vector, record, (update.group,), update.client)

    return Mechanism("clients send what DP-SGD made", True, False, _no_sums, alone)


def _no_sums(*arguments: object) -> tuple[Released, ...]:
    return ()


def _share(update: ClientUpdate, weight: float, law: SamplingLaw, ratio: float) -> GroupShare:
    return GroupShare(
        group=update.group.name,
        clients=update.group.clients,
        sampling=law,
        sampling_ratio=ratio,
        cohort=1,
        participants=(update.position,),
        clip_bound=None,
        largest_norm=float(update.vector.double().norm()),
        clipped=0,
        excluded=int(update.excluded),
        weight=weight,
    )


def _private_share(update: ClientUpdate, spent: RecordNoiseEvidence, weight: float) -> GroupShare:
    ratio = update.group.record_sampling_ratio
    plain = _share(update, weight, SamplingLaw.POISSON, 1.0 if ratio is None else ratio)
    changes = {
        "cohort": int(spent.taken[0]),
        "records": int(spent.records[0]),
        "clip_bound": float(spent.bound[0]),
        "largest_norm": float(spent.largest_norm[0]),
        "clipped": int(spent.clipped[0]),
        "excluded": int(spent.excluded[0]) + plain.excluded,
    }
    return plain.model_copy(update=changes)
