"""How updates leave the clients: the only module that draws privacy noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from privplan.accounting.release import SamplingLaw
from privplan.discrete_gaussian import discrete_gaussian, scale_for
from privplan.errors import InputError
from privplan.record import GroupShare, ReleaseRecord
from privplan.secure_stream import SecureStream
from privplan.streams import fingerprint
from simulate.components import ClientUpdate, GroupSum, Mechanism, Noise, Released

# Steps of a grid up to which sums of floating-point numbers are exact.
EXACT = 2.0**53

# --- Gaussian noise on secure sums: one sum per group, or one joint sum of all groups.
# The noise is drawn on the sum, with the planned standard deviation whatever the
# cohort's realised size: clients who each add a share of variance C^2 sigma^2 / r would
# add up to it only when exactly r of them report. The stream is named by the run's
# seed, so that a run can be repeated and replayed: two runs with one seed share their
# noise, and whoever knows the seed knows the noise. With a secret key
# (``privplan.streams``) the stream is that of the key. Sums on a grid get discrete
# Gaussian noise (``privplan.discrete_gaussian``), whose exact sampling leaves nothing
# to find in the last digits.


def share(group_sum: GroupSum, weights: Mapping[str, float]) -> GroupShare:
    """The evidence of a group's sum.

    Args:
        group_sum: the sum.
        weights: the factor on each group's sum, by name of the group.
    """
    return GroupShare(
        group=group_sum.group.name,
        clients=group_sum.group.clients,
        sampling=group_sum.sampling,
        sampling_ratio=group_sum.ratio,
        cohort=len(group_sum.participants),
        participants=group_sum.participants,
        clip_bound=group_sum.bound,
        largest_norm=group_sum.largest_norm,
        clipped=group_sum.clipped,
        excluded=group_sum.excluded,
        factor=weights[group_sum.group.name],
        canaries=group_sum.canaries or None,
    )


def gaussian_per_group() -> Mechanism:
    """One noisy sum per group.

    Its standard deviation is sigma_m times the bound on the group's updates.
    """

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        return tuple(
            _released(round_, [group_sum], group_sum.total, weights, noise(index))
            for index, group_sum in enumerate(sums)
        )

    return Mechanism("secure sum per group, Gaussian", True, False, release)


def gaussian_joint() -> Mechanism:
    """One noisy sum of all groups, with noise enough for each of them.

    Its standard deviation is the largest noise multiplier times bound of any group.
    """

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        total = torch.stack([group_sum.total for group_sum in sums]).sum(0)
        return (_released(round_, sums, total, weights, noise(0)),)

    return Mechanism("joint secure sum, Gaussian", True, True, release)


def _released(
    round_: int,
    sums: Sequence[GroupSum],
    total: Tensor,
    weights: Mapping[str, float],
    generator: np.random.Generator,
) -> Released:
    """A total [k] with noise, whose standard deviation suffices for all its sums.

    Args:
        round_: from 1.
        sums: what is in the total.
        total: the sum of them.
        weights: the factor on each group's sum, by name of the group.
        generator: of the noise.
    """
    std = 0.0
    for group_sum in sums:
        if group_sum.bound is None:
            raise InputError.one(
                "mechanism", "needs updates with a proven bound", group_sum.group.name
            )
        std = max(std, group_sum.group.noise_multiplier * group_sum.bound)

    # The state before the draw is what a replay begins with.
    state = fingerprint(generator)
    grid = sums[0].grid
    if grid is None:
        family = "gaussian"
        drawn = generator.standard_normal(total.numel()) * std
    else:
        family = "discrete_gaussian"
        scale = scale_for(std)
        drawn = _on_grid(total, sums, grid, scale, generator)
        std = scale * grid

    record = ReleaseRecord(
        round=round_,
        family=family,
        noise_std=std,
        grid=grid,
        dimension=total.numel(),
        noise_sum_squares=float(np.square(drawn).sum()),
        noise_state=state,
        shares=tuple(share(group_sum, weights) for group_sum in sums),
    )
    vector = (total + torch.from_numpy(drawn).to(total.device)).float()
    return Released(vector, record, tuple(group_sum.group for group_sum in sums))


def _on_grid(
    total: Tensor,
    sums: Sequence[GroupSum],
    grid: float,
    scale: float,
    generator: object,
) -> np.ndarray:
    """Discrete Gaussian noise [k] for a sum, whose addition must be exact on its grid.

    Args:
        total: the sum [k].
        sums: what is in it.
        grid: the step of all of them.
        scale: of the noise, in steps.
        generator: must be secure.
    """
    if not isinstance(generator, SecureStream):
        raise InputError.one(
            "noise", "must be secure to be discrete", type(generator).__name__
        )
    drawn = discrete_gaussian(generator, scale, total.numel())
    steps = total / grid
    is_on_grid = bool((steps == steps.trunc()).all())
    if any(group_sum.grid != grid for group_sum in sums) or not is_on_grid:
        raise InputError.one("mechanism", "needs sums on one grid", grid)
    largest = 0.0
    if len(drawn):
        largest = float(total.abs().max()) / grid + float(np.abs(drawn).max())
    if largest >= EXACT:
        rule = f"must have sums below {EXACT:g} steps of the grid"
        raise InputError.one("mechanism", rule, largest)
    return drawn * grid


# --- Clients who send for themselves: what each sends is a release of its own. --------


def exposed_by_client() -> Mechanism:
    """Each client sends its update as it is.

    Epsilon is infinite, and the ledger says so.
    """

    def alone(round_: int, update: ClientUpdate, weight: float) -> Released:
        sent = _share(update, weight, SamplingLaw.FULL, 1.0)
        record = _without_noise(round_, "none", (sent,))
        return Released(update.vector, record, (update.group,), update.client)

    return Mechanism("clients send in the clear", False, False, _no_sums, alone)


def noised_by_client() -> Mechanism:
    """Each client sends what its DP-SGD made.

    The ledger books a release per noisy step.
    """

    def alone(round_: int, update: ClientUpdate, weight: float) -> Released:
        evidence = update.noise_evidence
        if evidence is None:
            rule = "must follow a local rule that draws noise on every step, such as dp_sgd"
            raise InputError.one("algorithm.mechanism", rule, update.group.name)

        # What is sampled, clipped and protected are the records within a client.
        ratio = update.group.record_sampling_ratio
        law = SamplingLaw.POISSON.of_person(update.group.contributions, "record")
        sent = _share(update, weight, law, 1.0 if ratio is None else ratio)
        of_records = {
            "cohort": int(evidence.batch_records[0]),
            "records": int(evidence.records[0]),
            "clip_bound": float(evidence.bound[0]),
            "largest_norm": float(evidence.largest_norm[0]),
            "clipped": int(evidence.clipped[0]),
            "excluded": int(evidence.excluded[0]) + sent.excluded,
        }
        record = ReleaseRecord(
            round=round_,
            unit="record",
            family="gaussian",
            steps=int(evidence.steps[0]),
            noise_std=float(evidence.noise_std[0]),
            dimension=int(evidence.drawn[0]),
            noise_sum_squares=float(evidence.noise_sum_squares[0]),
            noise_state=evidence.noise_state[0],
            shares=(sent.model_copy(update=of_records),),
        )
        return Released(update.vector, record, (update.group,), update.client)

    return Mechanism("clients send what DP-SGD made", True, False, _no_sums, alone)


def _no_sums(*arguments: object) -> tuple[Released, ...]:
    return ()


def _share(
    update: ClientUpdate, weight: float, law: SamplingLaw, ratio: float
) -> GroupShare:
    """The evidence of one client's update."""
    return GroupShare(
        group=update.group.name,
        clients=update.group.clients,
        sampling=law,
        sampling_ratio=ratio,
        cohort=1,
        participants=(update.position,),
        clip_bound=None,
        largest_norm=update.norm,
        clipped=0,
        excluded=int(update.excluded),
        factor=weight,
    )


# --- The noise of DP-SGD: a client draws it at each step, on the sum of its records. --


@dataclass
class RecordNoise:
    """One client's source of noise in a round, and the evidence of what it drew.

    Attributes:
        generator: of the noise.
        std: per coordinate, on the sum of clipped gradients of records.
        sent: coordinates that may leave the client; None for all. Only the noise on
            these is evidence.
        state: hash of the generator's state before the first draw.
        squares: sum of squares of the noise so far.
        drawn: number of coordinates so far.
    """

    generator: np.random.Generator
    std: float
    sent: np.ndarray | None = None
    state: str = field(init=False)
    squares: float = 0.0
    drawn: int = 0

    def __post_init__(self) -> None:
        self.state = fingerprint(self.generator)

    def like(self, sums: Tensor) -> Tensor:
        """Fresh noise for one step [d], as float32 on the device of the sums."""
        noise = self.generator.standard_normal(len(sums)) * self.std
        of_sent = noise if self.sent is None else noise[self.sent]
        self.squares += float(np.square(of_sent).sum())
        self.drawn += len(of_sent)
        return torch.from_numpy(noise).to(sums.device).float()


# --- Without noise: a clear sum (epsilon infinite), or nothing (epsilon 0). ----------


def _without_noise(
    round_: int, family: str, shares: tuple[GroupShare, ...]
) -> ReleaseRecord:
    return ReleaseRecord(
        round=round_,
        family=family,
        noise_std=0.0,
        dimension=0,
        noise_sum_squares=0.0,
        shares=shares,
    )


def unprotected() -> Mechanism:
    """No noise."""

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        shares = tuple(share(group_sum, weights) for group_sum in sums)
        record = _without_noise(round_, "none", shares)
        groups = tuple(group_sum.group for group_sum in sums)
        total = torch.stack([group_sum.total for group_sum in sums]).sum(0)
        return (Released(total.float(), record, groups),)

    return Mechanism("secure sum, no noise", False, True, release)


def silent() -> Mechanism:
    """No release; for splits that share no parameter."""

    def release(
        round_: int,
        sums: Sequence[GroupSum],
        weights: Mapping[str, float],
        noise: Noise,
    ) -> tuple[Released, ...]:
        sent = sum(group_sum.total.numel() for group_sum in sums)
        if sent:
            rule = "must not be silent where a split shares parameters"
            raise InputError.one("algorithm.mechanism", rule, sent)
        shares = tuple(share(group_sum, weights) for group_sum in sums)
        record = _without_noise(round_, "silent", shares)
        groups = tuple(group_sum.group for group_sum in sums)
        return (Released(sums[0].total.float(), record, groups),)

    return Mechanism("silent", False, True, release)


# --- Mixing of a round's sums with earlier ones: correlated noise at the server. ------
# See ``privplan.laws.correlated``. The trusted aggregator keeps the last B - 1 sums of
# each group; what it adds noise to is the mixture, and ``simulate.aggregators`` solves
# for the sums again.


def mixed_sums(
    inner: Mechanism, mixture: Callable[[int], tuple[float, ...]]
) -> Mechanism:
    """The mechanism, applied to c_0 x_t + ... + c_{B-1} x_{t-B+1} for each group.

    The factors on one sum, in the mixtures of B rounds, must have norm 1 at most, so
    that a client who is in one of B consecutive sums moves the releases by no more than
    its bound in all.

    Args:
        inner: releases the mixtures.
        mixture: a round, from 1, to the factors c_0, ..., c_{B-1}.
    """

    def mix(
        round_: int, sums: Sequence[GroupSum], past: Tensor
    ) -> tuple[GroupSum, ...]:
        current = torch.stack([group_sum.total for group_sum in sums])
        factors = mixture(round_)
        past_factors = torch.tensor(
            factors[1:], dtype=current.dtype, device=current.device
        )
        # b: rounds back, g: group, d: coordinate.
        of_past = torch.einsum("b,gbd->gd", past_factors, past.to(current))
        totals = factors[0] * current + of_past
        return tuple(
            replace(group_sum, total=row)
            for group_sum, row in zip(sums, totals, strict=True)
        )

    return replace(inner, name=f"{inner.name}, correlated over rounds", mix=mix)
