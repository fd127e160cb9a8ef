"""Executions of a round of an experiment, and comparisons of releases with claims."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from privplan.accounting.release import GAUSSIAN
from simulate.algorithms.registry import ALGORITHMS
from simulate.contrib.sensitivity.neighbours import (
    Findings,
    Outputs,
    SensitivityReport,
    check_coordinates,
    execute,
    with_noise,
)
from simulate.engine.experiment import Experiment
from simulate.engine.loop import initial_state

# Tolerance of a difference relative to its bound: clients whose updates are trained in
# batches of another size differ by the rounding of float32 kernels.
RELATIVE = 1e-4
# Relative rounding error of a released coordinate, with a factor of 4.
SINGLE = 2.0**-22


class Bench:
    """Executions of one round of an experiment on neighbouring data sets.

    Args:
        experiment: the run; its first round is executed once, without noise, so that
            clients and server have states.
    """

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = with_noise(replace(experiment, workers=1), 0.0)
        self.findings = Findings()
        self.executions = 0
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
        """Record sums without the recorded Gaussian noise on a claimed coordinate."""
        quiet = self.run(self.experiment)
        noisy = self.run(with_noise(self.plain, 1.0))
        check_coordinates(self.findings, "no change", self.experiment, quiet)
        for left, right in zip(quiet.releases, noisy.releases, strict=False):
            record = left.record
            _, slack = distance(left.vector, right.vector)
            # Noise that does not come from the given generator is not silenced.
            expected = record.noise_std**2 * record.dimension
            drawn_otherwise = (record.noise_sum_squares or 0.0) > RELATIVE * expected
            if record.family != GAUSSIAN or drawn_otherwise or record.unit != "client":
                continue
            response = right.vector.double() - left.vector.double()
            if len(response):
                smallest = float(response.min())
            else:
                smallest = record.noise_std
            fault = (
                f"a coordinate has noise {smallest:.6g}, recorded "
                f"{record.noise_std:.6g}"
            )
            is_enough = smallest >= (1 - RELATIVE) * record.noise_std - slack
            self.findings.equal("noise", "no change", is_enough, fault)

    def compare(
        self, case: str, group: str, left: Outputs, right: Outputs, clients: int = 1
    ) -> None:
        """Compare the difference of the sums' releases with their claimed bound."""
        for release, changed in zip(left.releases, right.releases, strict=False):
            shares = release.record.shares
            bounds = [share.clip_bound for share in shares if share.group == group]
            difference, slack = distance(release.vector, changed.vector)
            if not bounds:
                where = ", ".join(share.group for share in shares)
                fault = f"the release of {where} differs by {difference:.3g}"
                is_same = difference <= slack + RELATIVE
                self.findings.equal("other releases", case, is_same, fault)
            elif bounds[0] is not None and release.record.noise.noisy:
                bound = clients * bounds[0]
                slack += RELATIVE * bound
                self.findings.bounded(case, difference, bound, slack)

    def report(self, plan: str) -> SensitivityReport:
        """The result."""
        algorithm = self.experiment.algorithm
        unit = "client"
        if algorithm.name in ALGORITHMS:
            unit = ALGORITHMS.get(algorithm.name).unit_under(algorithm.plan)
        return SensitivityReport(
            algorithm=algorithm.name,
            plan=plan,
            unit=unit,
            executions=self.executions,
            compared=self.findings.compared,
            largest_ratio=self.findings.largest_ratio,
            violations=self.findings.violations,
        )


def distance(first: Tensor, second: Tensor) -> tuple[float, float]:
    """Norm of the difference of two released vectors, and its rounding error."""
    if first.shape != second.shape:
        return float("inf"), 0.0
    left = first.double()
    right = second.double()
    return float((left - right).norm()), SINGLE * float(left.norm() + right.norm())


def check_other_releases(
    bench: Bench, case: str, left: Outputs, right: Outputs, client: int
) -> None:
    """Record differences of what other clients send."""
    for release, changed in zip(left.releases, right.releases, strict=False):
        if release.client != client:
            difference, slack = distance(release.vector, changed.vector)
            fault = f"what client {release.client} sends differs by {difference:.3g}"
            bench.findings.equal("other releases", case, difference <= slack, fault)
