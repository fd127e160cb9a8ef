"""What the papers say of a server: a second implementation, by hand and in float64.

FedAvgM: Hsu, Qi, Brown, 2019. Adaptive server optimisers: Reddi et al., ICLR 2021,
    Algorithm 2.
Clipping by a quantile: Andrew et al., NeurIPS 2021. Laplacian smoothing: Osher et al.,
    2022.
Top-k: GDPFed+, Algorithm 3. PFA: Liu et al., VLDB 2022.
"""

import math

import numpy as np

from privplan.spec.training import BETA1, BETA2

SECOND_MOMENTS = {
    "adagrad": lambda v, new: v + new,
    "adam": lambda v, new: BETA2 * v + (1 - BETA2) * new,
    "yogi": lambda v, new: v - (1 - BETA2) * new * np.sign(v - new),
}
"""(second moment, squares of the mean update) to the second moment, by optimiser."""


class Server:
    """A server by hand: ``move`` takes the releases of a round.

    Args:
        plan: the executed plan.
        theta: the first model [d].
        factors: on each release, by round and release; None where ``weigh`` finds them.
        coordinates: (round) to the released coordinates [k], sorted.
        top_k: whether each release keeps its group's largest coordinates.
        weigh: (releases) to their weights, for releases of single clients.
        project: (releases) to the releases that are used.
        smoothing: strength of Laplacian smoothing; 0 for none.
        known_share: share of the last step that clients subtract (DP-FedPGN).
        mixture: (round) to the factors on the last sums.
    """

    def __init__(self, plan, theta, factors, coordinates, **options):
        self.plan = plan
        self.theta = np.asarray(theta, np.float64)
        self.factors = factors
        self.coordinates = coordinates
        self.top_k = options.get("top_k", False)
        self.weigh = options.get("weigh")
        self.project = options.get("project")
        self.smoothing = options.get("smoothing", 0.0)
        self.known_share = options.get("known_share", 0.0)
        self.mixture = options.get("mixture", lambda round_: (1.0,))
        nothing = np.zeros_like(self.theta)
        self.norm = plan.spec.clipping_norm
        self.last_step = nothing
        self.solved = [nothing] * (len(self.mixture(1)) - 1)
        self.velocity = nothing
        self.mean = nothing
        epsilon = plan.spec.server.epsilon or 0.0 if plan.spec.server else 0.0
        self.squares = nothing + epsilon**2
        self.average = self.theta

    def move(self, round_, releases):
        """The model after a round."""
        vectors = [np.asarray(release, np.float64) for release in releases]
        factors = self.factors if self.weigh is None else self.weigh(vectors)
        counts = None
        if self.plan.clipping is not None:
            # The last coordinate counts the updates within the norm.
            counts = [vector[-1] for vector in vectors]
            vectors = [vector[:-1] for vector in vectors]
        step = weighted_sum(factors, self._used(vectors))
        if counts is not None:
            step = step * self.norm
            self._adapt(weighted_sum(factors, counts), factors)
        full_step = np.zeros_like(self.theta)
        full_step[self.coordinates(round_)] = step
        solved = self._solved(round_, full_step + self.known_share * self.last_step)
        if self.smoothing:
            solved = smoothed(solved, self.smoothing)
        self.last_step = solved
        self.theta = self.theta + self._optimised(solved)
        self._average(round_)
        return self.theta

    def _used(self, vectors):
        """The releases as they are combined."""
        if self.project is not None:
            vectors = self.project(vectors)
        if self.top_k:
            vectors = [
                with_largest(vector, group.kept_fraction)
                for vector, group in zip(vectors, self.plan.groups, strict=True)
            ]
        return vectors

    def _solved(self, round_, mixed):
        """The sum of a round, from its mixture with those before."""
        factor, *past_factors = self.mixture(round_)
        solved = (mixed - weighted_sum(past_factors, self.solved)) / factor
        self.solved = [solved, *self.solved][: len(self.solved)]
        return solved

    def _adapt(self, count, factors):
        """The clipping norm follows the noisy share of updates within it."""
        clipping = self.plan.clipping
        groups = self.plan.groups
        counted = (
            count * clipping.count_noise_multiplier / clipping.update_noise_multiplier
        )
        of_release = [groups]
        if len(factors) == len(groups):
            of_release = [[group] for group in groups]
        expected = 0.0
        for factor, summed_groups in zip(factors, of_release, strict=True):
            for group in summed_groups:
                scale = group.scale * self.plan.clip_factor(group)
                expected += factor * scale * group.expected_cohort
        share = 0.5 + counted / expected
        self.norm *= math.exp(-clipping.learning_rate * (share - clipping.quantile))

    def _optimised(self, step):
        """What the spec's server optimiser moves the model by."""
        options = self.plan.spec.server
        if options is None:
            return step
        if options.optimizer == "sgd":
            return options.learning_rate * step
        if options.optimizer == "momentum":
            self.velocity = options.momentum * self.velocity + step
            return options.learning_rate * self.velocity
        self.mean = BETA1 * self.mean + (1 - BETA1) * step
        self.squares = SECOND_MOMENTS[options.optimizer](self.squares, step**2)
        scaled = self.mean / (np.sqrt(self.squares) + options.epsilon)
        return options.learning_rate * scaled

    def _average(self, round_):
        """The published average of the models."""
        averaging = self.plan.spec.averaging
        rounds = self.plan.spec.rounds
        if averaging is None:
            self.average = self.theta
            return
        if averaging.method == "ema":
            weight = 1 / sum((averaging.decay or 0.0) ** age for age in range(round_))
        else:
            tail = max(1, math.ceil((averaging.fraction or 1.0) * rounds - 1e-9))
            weight = 1 / max(1, round_ - (rounds - tail))
        self.average = (1 - weight) * self.average + weight * self.theta


def weighted_sum(factors, vectors):
    return sum((f * v for f, v in zip(factors, vectors, strict=True)), 0.0)


def with_largest(vector, fraction):
    """A vector with its largest coordinates in absolute value."""
    number = max(1, round(fraction * len(vector)))
    result = np.zeros_like(vector)
    largest = np.argsort(-np.abs(vector), kind="stable")[:number]
    result[largest] = vector[largest]
    return result


def smoothed(step, strength):
    """The solution x of (I - s L) x = step, L the periodic Laplacian in a row."""
    kernel = np.zeros_like(step)
    kernel[0] = 1 + 2 * strength
    kernel[[1, -1]] = -strength
    return np.fft.ifft(np.fft.fft(step) / np.fft.fft(kernel)).real


def shares(weights, vectors):
    """Weights that add up to 1, of vectors that are not zero."""
    is_sent = np.array([vector.any() for vector in vectors])
    used = np.where(is_sent, weights, 0.0)
    return used / (used.sum() or 1.0)


def by_norm(vectors):
    """Weights by the inverse squared norm."""
    squares = [max(float(vector @ vector), 1e-300) for vector in vectors]
    return shares([1 / square for square in squares], vectors)


def projector(epsilons):
    """(releases of the groups) to those of PFA with one direction."""

    is_public = [epsilon == max(epsilons) for epsilon in epsilons]
    is_strict = [epsilon == min(epsilons) < max(epsilons) for epsilon in epsilons]

    def project(vectors):
        public = vectors[is_public.index(True)]
        unit = public / np.linalg.norm(public)
        projections = [(vector @ unit) * unit for vector in vectors]
        return [
            projection if strict else vector
            for vector, projection, strict in zip(
                vectors, projections, is_strict, strict=True
            )
        ]

    return project
