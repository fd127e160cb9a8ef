"""Algorithms: eight components with neutral defaults, checked when composed."""

from __future__ import annotations

from dataclasses import dataclass

from privplan.errors import InputError
from privplan.guidance import checked_call
from privplan.plan import GroupPlan, Plan
from privplan.record import Executed, Mask
from privplan.streams import Purpose, stream
from simulate.aggregators import mean
from simulate.components import (
    Aggregator,
    LocalRule,
    Mechanism,
    Personalisation,
    Sampler,
    Server,
    Split,
    Transform,
)
from simulate.local.sgd import plain_sgd
from simulate.mechanisms import unprotected
from simulate.models.network import Model
from simulate.personalisations import shared
from simulate.samplers import by_law
from simulate.server import add
from simulate.signatures import require_types, typed
from simulate.splits import whole


@dataclass(frozen=True)
class Algorithm:
    """A plan and the components that execute it. Made by ``compose``.

    Raises:
        InputError: when a component is not of its kind, or components do not fit: a
            noisy sum without a bound on each update, for example.
    """

    name: str  # as in the registry
    plan: Plan  # the executed plan, as saved in the run folder
    sampler: Sampler  # selects the participants of a round
    split: Split  # divides the parameters into global and personal ones
    local: LocalRule  # trains clients on their own records
    transforms: tuple[Transform, ...]  # change each client's update, in order
    mechanism: Mechanism  # releases sums or single updates
    aggregator: Aggregator  # combines releases into one step
    server: Server  # applies the step to the global vector
    personalisation: Personalisation  # makes the models that clients use after training

    def sampler_of(self, group: GroupPlan) -> Sampler:
        """The sampler of a group: of its own law where it has one."""
        if self.sampler.law is None or group.sampling is None:
            return self.sampler
        return by_law(group.sampling)

    def __post_init__(self) -> None:
        if not self.local.poisson and self.sampler.law != self.plan.spec.sampling:
            rule = f"must draw by the plan's law, {self.plan.spec.sampling}"
            raise InputError.one("algorithm.sampler", rule, str(self.sampler.law))
        self._check_bounds()
        factors = set(weights(self).values())
        if self.mechanism.joint and len(factors) > 1:
            rule = "must give all groups of a joint sum the same weight"
            raise InputError.one("algorithm.aggregator", rule, sorted(factors))

    def _check_bounds(self) -> None:
        """A noisy sum of updates needs a bound on each, at the plan's clipping norm."""
        if not self.mechanism.noisy or self.mechanism.release_client is not None:
            return
        names = [transform.name for transform in self.transforms]
        bounds = [sensitivity_bound(self, group) for group in self.plan.groups]
        if None in bounds:
            rule = "must follow a transform that bounds each update, such as clip"
            raise InputError.one("algorithm.mechanism", rule, names)
        if self.plan.clipping is not None and not extra_coordinates(self):
            rule = (
                "must have plan_clip where the plan's clipping norm follows a quantile"
            )
            raise InputError.one("algorithm.transforms", rule, names)


@checked_call
@typed("algorithm.")
def compose(
    name: str,
    plan: Plan,
    *,
    sampler: Sampler | None = None,
    split: Split | None = None,
    local: LocalRule | None = None,
    transforms: tuple[Transform, ...] = (),
    mechanism: Mechanism | None = None,
    aggregator: Aggregator | None = None,
    server: Server | None = None,
    personalisation: Personalisation | None = None,
) -> Algorithm:
    """An algorithm from the given components, and neutral defaults for the others.

    The defaults are those of FedAvg: the plan's sampling law, plain SGD, no noise, and
    the mean over the expected cohort.

    Raises:
        InputError: as ``Algorithm``.
    """
    return Algorithm(
        name=name,
        plan=plan,
        sampler=sampler or by_law(plan.spec.sampling),
        split=split or whole(),
        local=local or plain_sgd(),
        transforms=transforms,
        mechanism=mechanism or unprotected(),
        aggregator=aggregator or mean(),
        server=server or add(),
        personalisation=personalisation or shared(),
    )


def sensitivity_bound(algorithm: Algorithm, group: GroupPlan) -> float | None:
    """The proven L2 sensitivity of a sum to one client; None without a proof."""
    bound: float | None = None
    for transform in algorithm.transforms:
        bound = transform.bound(bound, group)
    return bound


def extra_coordinates(algorithm: Algorithm) -> int:
    """Number of coordinates that the transforms append to each update."""
    return sum(transform.extra for transform in algorithm.transforms)


def declaration(algorithm: Algorithm, model: Model, seed: int) -> Executed:
    """What the algorithm declares of a model's run before it has access to any data."""
    dimension = algorithm.split.dimension(model)
    shared = algorithm.split.shared(model)
    extra = extra_coordinates(algorithm)
    masks = []
    for index, transform in enumerate(algorithm.transforms):
        if transform.public_mask is not None:
            generator = stream(seed, Purpose.SUPPORT, 1, index)
            size = len(transform.public_mask(generator, dimension))
            masks.append(Mask(index=index, name=transform.name, size=size))
    shared_coordinates = dimension if shared is None else len(shared)
    return Executed(
        aggregator=algorithm.aggregator.name,
        coordinates=dimension + extra,
        shared=shared_coordinates + extra,
        masks=tuple(masks),
        appended=extra if masks else 0,
    )


def groups_in_round(algorithm: Algorithm, round_: int) -> tuple[GroupPlan, ...]:
    """The groups with the sampling ratio and noise multiplier of a round, from 1."""
    plan = algorithm.plan
    return tuple(
        group if group.segments is None else _in_round(plan, group, round_)
        for group in plan.groups
    )


def _in_round(plan: Plan, group: GroupPlan, round_: int) -> GroupPlan:
    ratio, noise_multiplier = plan.at_round(group, round_)
    changes = {
        "sampling_ratio": ratio,
        "expected_cohort": ratio * group.clients,
        "noise_multiplier": noise_multiplier,
    }
    return group.model_copy(update=changes)


def weights(algorithm: Algorithm, round_: int = 1) -> dict[str, float]:
    """The factor on the sum of each group in a round, by name of the group.

    Raises:
        InputError: for a factor that is no number.
    """
    factors = {
        group.name: algorithm.aggregator.weight(group, algorithm.plan)
        for group in groups_in_round(algorithm, round_)
    }
    hints = dict.fromkeys(factors, float)
    require_types(factors, hints, "aggregator.weight of group ", "return")
    return factors
