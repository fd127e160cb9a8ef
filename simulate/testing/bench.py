"""Executions of one round of an experiment, and the comparison of its releases with the claims."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from privplan.accounting.release import GAUSSIAN
from simulate.algorithms.registry import ALGORITHMS
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state
from simulate.testing.neighbours import with_noise
from simulate.testing.outputs import Outputs, check_coordinates, execute
from simulate.testing.report import Findings, SensitivityReport

RELATIVE = 1e-4
"""Tolerance of a difference relative to its bound: clients whose updates are trained in batches of
another size differ by the rounding of float32 kernels."""
SINGLE = 2.0**-22
"""Relative rounding error of a released coordinate, with a factor of 4."""


class Bench:
    """Executions of one round of an experiment on neighbouring data sets.

    Args:
        experiment: the run; its first round is executed once, without noise, so that clients and
            server have states.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = with_noise(replace(experiment, workers=1), 0.0)
        self.found, self.executions = Findings(), 0
        self.plain = replace(experiment, workers=1)
        self.before = initial_state(self.experiment)
        self.before = self.run(self.experiment).progress

    @property
    def round(self) -> int:
        """The executed round."""
        return self.before.round + 1

    def run(self, experiment: Experiment, *, evaluate: bool = False) -> Outputs:
        """Outputs of the round."""
        self.executions += 1
        return execute(experiment, self.before, evaluate=evaluate)

    def check_noise(self) -> None:
        """Record sums that do not have the recorded Gaussian noise on each claimed coordinate."""
        quiet, noisy = self.run(self.experiment), self.run(with_noise(self.plain, 1.0))
        check_coordinates(self.found, "no change", self.experiment, quiet)
        for one, other in zip(quiet.releases, noisy.releases, strict=False):
            record, (_, slack) = one.record, distance(one.vector, other.vector)
            expected = record.noise_std**2 * record.dimension
            drawn_otherwise = (record.noise_sum_squares or 0.0) > RELATIVE * expected
            if record.family != GAUSSIAN or drawn_otherwise or record.unit != "client":
                continue
            response = other.vector.double() - one.vector.double()
            least = float(response.min()) if len(response) else record.noise_std
            rule = f"a coordinate has noise {least:.6g}, recorded {record.noise_std:.6g}"
            enough = least >= (1 - RELATIVE) * record.noise_std - slack
            self.found.equal("noise", "no change", enough, rule)

    def compare(
        self, case: str, group: str, left: Outputs, right: Outputs, clients: int = 1
    ) -> None:
        """Compare the difference of the sums' releases with their claimed bound.

        Args:
            case: the neighbouring data sets.
            group: group of the client that differs.
            left: outputs of one execution.
            right: outputs of the other.
            clients: number of clients by which they differ; 2 where one is replaced.
        """
        for one, other in zip(left.releases, right.releases, strict=False):
            bounds = [share.clip_bound for share in one.record.shares if share.group == group]
            difference, slack = distance(one.vector, other.vector)
            if not bounds:
                where = ", ".join(share.group for share in one.record.shares)
                rule = f"the release of {where} differs by {difference:.3g}"
                self.found.equal("other releases", case, difference <= slack + RELATIVE, rule)
            elif bounds[0] is not None and one.record.noise.noisy:
                bound = clients * bounds[0]
                self.found.bounded(case, difference, bound, slack + RELATIVE * bound)

    def report(self, plan: str) -> SensitivityReport:
        """The result."""
        algorithm = self.experiment.algorithm
        known = ALGORITHMS.get(algorithm.name) if algorithm.name in ALGORITHMS else None
        unit = "client" if known is None else known.unit_under(algorithm.plan)
        found = self.found
        return SensitivityReport(
            algorithm.name, plan, unit, self.executions, found.compared, found.largest_ratio,
            found.violations,
        )  # fmt: skip


def distance(one: Tensor, other: Tensor) -> tuple[float, float]:
    """Norm of the difference of two released vectors, and its rounding error."""
    if one.shape != other.shape:
        return float("inf"), 0.0
    left, right = one.double(), other.double()
    return float((left - right).norm()), SINGLE * float(left.norm() + right.norm())
