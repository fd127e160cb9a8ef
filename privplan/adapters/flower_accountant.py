"""An accountant of Flower's protocol on privplan's two-sided bounds, for one group of clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privplan.accounting.curve import PrivacyCurve
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.errors import InputError

try:
    from flwr.supercore.privacy_accounting import (
        GaussianPrivacyEvent,
        PrivacyConfig,
        PrivacySpent,
    )
except ImportError as error:
    raise ImportError("privplan.adapters.flower_accountant needs flwr 1.41 or 1.42") from error


class GroupAccountant:
    """Flower's ``PrivacyAccountant`` for the clients of one group.

    The sampling law and the relation are those given here, not those of Flower's configuration. Its
    label is wrong for what Flower does: the strategies draw a cohort of fixed size, whose guarantee
    under adding or removing a client ``PrivacyConfig`` cannot name. The fixed-clipping strategies
    demand the label ``no-amplification``, whose epsilon holds but is far too high for a drawn
    cohort; under the other two labels it is too low. Give the configuration that the strategy
    demands, and read epsilon here.

    Args:
        config: Flower's configuration; delta, population and the limit on epsilon are used.
        sampling: the law that is executed.
        relation: which populations are neighbours.
    """

    def __init__(
        self,
        config: PrivacyConfig,
        sampling: SamplingLaw | str = SamplingLaw.FIXED_SIZE,
        relation: Relation | str = Relation.ADD_REMOVE,
    ) -> None:
        self._config, self._sampling = config, SamplingLaw(sampling)
        self._relation = Relation(relation)
        self.curve = PrivacyCurve(self._relation, tolerance=1e-4)

    @property
    def config(self) -> PrivacyConfig:
        """Flower's configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """Number of releases so far."""
        return self.curve.rounds

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Add releases.

        Raises:
            InputError: when the population is not that of the configuration.
        """
        self.curve.step(self._release(event), _positive(count))

    def get_epsilon(self, delta: float) -> float:
        """Upper bound on epsilon."""
        return self.curve.epsilon(delta).upper

    def get_delta(self, epsilon: float) -> float:
        """Upper bound on delta."""
        return self.curve.delta(epsilon).upper

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """The upper bound on epsilon, by default at the configuration's delta."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(at), at, self.num_releases, "pld")

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Whether the releases would exceed a limit on epsilon, by default the configuration's.

        Raises:
            InputError: when there is no limit.
        """
        limit = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if limit is None or not limit > 0:
            raise InputError.one("max_epsilon", "must be positive", limit)
        after = PrivacyCurve(self._relation, tolerance=1e-4).step(self.curve.history)
        after.step(self._release(event), _positive(count))
        return after.epsilon(self._config.target_delta).upper > limit

    def state_dict(self) -> dict[str, object]:
        """The releases so far, as plain data for JSON."""
        return self.curve.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the releases by those of a state; unchanged when it has a fault.

        Raises:
            InputError: when it is not a state of this accountant, or of another relation.
        """
        loaded = PrivacyCurve(self._relation)
        loaded.load_state_dict(state)
        if loaded.relation != self._relation:
            raise InputError.one("relation", f"must be {self._relation}", str(loaded.relation))
        self.curve = loaded

    def _release(self, event: GaussianPrivacyEvent) -> Release:
        population = self._config.population_size
        if event.population_size != population:
            rule = f"must be {population}, as in the configuration"
            raise InputError.one("population_size", rule, event.population_size)
        full = self._sampling.law.everyone
        ratio = 1.0 if full else event.sample_size / population
        return Release(event.noise_multiplier, ratio, self._sampling)


def _positive(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError.one("count", "must be a whole number, 1 or more", count)
    return count
