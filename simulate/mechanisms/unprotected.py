"""Mechanisms without noise: a sum in the clear (epsilon infinite), or nothing (epsilon 0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from privplan.errors import InputError
from privplan.record import ReleaseRecord
from simulate.components import GroupSum, Mechanism, Noise, Released
from simulate.mechanisms.gaussian import share


def unprotected() -> Mechanism:
    """No noise."""

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        record = ReleaseRecord(
            round=round_,
            family="none",
            noise_std=0.0,
            dimension=0,
            noise_sum_squares=0.0,
            shares=tuple(share(part, weights) for part in sums),
        )
        total = torch.stack([part.total for part in sums]).sum(0)
        return (Released(total.float(), record, tuple(part.group for part in sums)),)

    return Mechanism("secure sum, no noise", False, True, release)


def silent() -> Mechanism:
    """No release; for splits that share no parameter."""

    def release(
        round_: int, sums: Sequence[GroupSum], weights: Mapping[str, float], noise: Noise
    ) -> tuple[Released, ...]:
        sent = sum(part.total.numel() for part in sums)
        if sent:
            rule = "must not be silent where a split shares parameters"
            raise InputError.one("algorithm.mechanism", rule, sent)
        record = ReleaseRecord(
            round=round_,
            family="silent",
            noise_std=0.0,
            dimension=0,
            noise_sum_squares=0.0,
            shares=tuple(share(part, weights) for part in sums),
        )
        return (Released(torch.empty(0), record, tuple(part.group for part in sums)),)

    return Mechanism("silent", False, True, release)
