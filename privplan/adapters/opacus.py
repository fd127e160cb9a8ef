"""An accountant for Opacus, with two-sided bounds; importing this module registers it.

::

    import privplan.adapters.opacus
    engine = opacus.PrivacyEngine(accountant="privplan")

Opacus' accountants are of Poisson sampling under add/remove, and so is this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from privplan.accounting.accountant import Interval
from privplan.accounting.curve import PrivacyCurve
from privplan.accounting.curve_input import checked_rounds
from privplan.accounting.release import Relation, Release, SamplingLaw
from privplan.errors import InputError

try:
    from opacus.accountants import IAccountant, register_accountant
except ImportError as error:
    raise ImportError(
        "privplan.adapters.opacus needs opacus: pip install 'privplan[simulate]'"
    ) from error

_TOLERANCE = 1e-4
_ABSOLUTE = 2e-3

Segment = tuple[float, float, int]
"""Noise multiplier, sampling ratio and number of steps, as Opacus keeps them."""


class PrivplanAccountant(IAccountant):  # type: ignore[misc]
    """Accountant of Opacus that answers with an upper bound on epsilon.

    Attributes:
        history: segments of equal steps, as in Opacus' own accountants.
    """

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Segment]
        self._curve = PrivacyCurve(Relation.ADD_REMOVE, tolerance=_TOLERANCE)
        self._counted: Counter[Release] = Counter()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Add one step.

        Args:
            noise_multiplier: noise standard deviation over the clipping norm.
            sample_rate: sampling ratio, in [0, 1].

        Raises:
            InputError: when a value is out of range.
        """
        Release(noise_multiplier, sample_rate, SamplingLaw.POISSON)
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def curve(self) -> PrivacyCurve:
        """The composed steps, to be read at any delta or epsilon.

        Raises:
            InputError: when ``history`` was set to something out of range.
        """
        counted: Counter[Release] = Counter()
        for noise, rate, steps in self.history:
            counted[Release(noise, rate, SamplingLaw.POISSON)] += checked_rounds(steps)
        if any(count > counted[release] for release, count in self._counted.items()):
            self._curve = PrivacyCurve(Relation.ADD_REMOVE, tolerance=_TOLERANCE)
            self._counted = Counter()
        for release, count in counted.items():
            if count > self._counted[release]:
                self._curve.step(release, count - self._counted[release])
        self._counted = counted
        return self._curve

    def bounds(self, delta: float, *, tolerance: float | None = None) -> Interval:
        """Lower and upper bound on epsilon at ``delta``.

        Without a tolerance, the bounds are within 1e-4 of each other and within 2e-3 in all,
        since Opacus' search for a noise multiplier stops at an absolute 0.01.
        """
        curve = self.curve()
        found = curve.epsilon(delta, tolerance=tolerance)
        if tolerance is None and _ABSOLUTE / _TOLERANCE < found.upper < 1e3:
            found = curve.epsilon(delta, tolerance=_ABSOLUTE / found.upper)
        return found

    def get_epsilon(self, delta: float, *, tolerance: float | None = None, **_: Any) -> float:
        """Upper bound on epsilon at ``delta``.

        Args:
            delta: failure probability, in (0, 1).
            tolerance: relative gap to the lower bound to aim at.

        Further options are ignored: Opacus passes those of other parts of its engine.
        """
        return self.bounds(delta, tolerance=tolerance).upper

    def __len__(self) -> int:
        """Number of steps so far."""
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows the accountant."""
        return "privplan"

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace the history by that of a state; unchanged when the state has a fault.

        Raises:
            ValueError: when it is not a state of this accountant.
            InputError: when a segment is out of range.
        """
        before = self.history
        super().load_state_dict(state_dict)
        try:
            self.history = [(float(n), float(q), checked_rounds(t)) for n, q, t in self.history]
            for noise, rate, _ in self.history:
                Release(noise, rate, SamplingLaw.POISSON)
        except InputError:
            self.history = before
            raise
        except (TypeError, ValueError):
            self.history = before
            rule = "must be a list of (noise multiplier, sampling ratio, steps)"
            raise InputError.one("history", rule, state_dict["history"]) from None


register_accountant(PrivplanAccountant.mechanism(), PrivplanAccountant, force=True)
