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
    """A server by hand: ``move`` takes the releases of a round and returns the next model.

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

    def __init__(
        self,
        plan,
        theta,
        factors,
        coordinates,
        *,
        top_k=False,
        weigh=None,
        project=None,
        smoothing=0.0,
        known_share=0.0,
        mixture=lambda round_: (1.0,),
    ):
        self.plan, self.theta = plan, np.asarray(theta, np.float64)
        self.factors, self.coordinates = factors, coordinates
        self.top_k, self.weigh, self.project = top_k, weigh, project
        self.smoothing, self.known_share, self.mixture = smoothing, known_share, mixture
        nothing = np.zeros_like(self.theta)
        self.norm = plan.spec.clipping_norm
        self.last_step, self.solved = nothing, [nothing] * (len(mixture(1)) - 1)
        self.velocity, self.mean = nothing, nothing
        options = plan.spec.server
        self.squares = nothing + ((options.epsilon or 0.0) ** 2 if options else 0.0)
        self.average = self.theta

    def move(self, round_, releases):
        """The model after a round."""
        vectors = [np.asarray(one, np.float64) for one in releases]
        factors = self.factors if self.weigh is None else self.weigh(vectors)
        counts = []
        if self.plan.clipping is not None:
            counts, vectors = (
                [one[-1] for one in vectors],
                [one[:-1] for one in vectors],
            )
        if self.project is not None:
            vectors = self.project(vectors)
        if self.top_k:
            vectors = [
                kept(one, group.kept_fraction)
                for one, group in zip(vectors, self.plan.groups, strict=True)
            ]
        step = sum(f * one for f, one in zip(factors, vectors, strict=True))
        if self.plan.clipping is not None:
            step = step * self.norm
            self._adapt(
                sum(f * one for f, one in zip(factors, counts, strict=True)), factors
            )
        whole = np.zeros_like(self.theta)
        whole[self.coordinates(round_)] = step
        whole = whole + self.known_share * self.last_step
        first, *others = self.mixture(round_)
        rest = sum((c * u for c, u in zip(others, self.solved, strict=True)), 0.0)
        solved = (whole - rest) / first
        self.solved = [solved, *self.solved][: len(self.solved)]
        if self.smoothing:
            solved = smoothed(solved, self.smoothing)
        self.last_step = solved
        self.theta = self.theta + self._optimised(solved)
        self._average(round_)
        return self.theta

    def _adapt(self, count, factors):
        """The clipping norm follows the noisy share of updates within it."""
        rule, groups = self.plan.clipping, self.plan.groups
        counted = count * rule.count_noise_multiplier / rule.update_noise_multiplier
        of_release = (
            [[group] for group in groups] if len(factors) == len(groups) else [groups]
        )
        expected = sum(
            f * group.scale * self.plan.clip_factor(group) * group.expected_cohort
            for f, held in zip(factors, of_release, strict=True)
            for group in held
        )
        share = 0.5 + counted / expected
        self.norm *= math.exp(-rule.learning_rate * (share - rule.quantile))

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
        return (
            options.learning_rate
            * self.mean
            / (np.sqrt(self.squares) + options.epsilon)
        )

    def _average(self, round_):
        """The published average of the models."""
        averaging, total = self.plan.spec.averaging, self.plan.spec.rounds
        if averaging is None:
            self.average = self.theta
            return
        if averaging.method == "ema":
            weight = 1 / sum((averaging.decay or 0.0) ** age for age in range(round_))
        else:
            number = max(1, math.ceil((averaging.fraction or 1.0) * total - 1e-9))
            weight = (
                1.0 if round_ <= total - number else 1 / (round_ - (total - number))
            )
        self.average = (1 - weight) * self.average + weight * self.theta


def kept(vector, fraction):
    """A vector with its largest coordinates in absolute value."""
    number = max(1, round(fraction * len(vector)))
    result = np.zeros_like(vector)
    largest = np.argsort(-np.abs(vector), kind="stable")[:number]
    result[largest] = vector[largest]
    return result


def smoothed(step, strength):
    """The solution x of (I - s L) x = step, L the periodic Laplacian in one dimension."""
    kernel = np.zeros_like(step)
    kernel[0], kernel[1], kernel[-1] = 1 + 2 * strength, -strength, -strength
    return np.fft.ifft(np.fft.fft(step) / np.fft.fft(kernel)).real


def shares(weights, vectors):
    """Weights that add up to 1, of vectors that are not zero."""
    used = np.array(
        [w * bool(one.any()) for w, one in zip(weights, vectors, strict=True)]
    )
    return used / (used.sum() or 1.0)


def by_norm(vectors):
    """Weights by the inverse squared norm."""
    return shares([1 / max(float(one @ one), 1e-300) for one in vectors], vectors)


def projector(epsilons):
    """(releases of the groups) to those of PFA with one direction."""

    def project(vectors):
        public = next(
            one
            for one, eps in zip(vectors, epsilons, strict=True)
            if eps == max(epsilons)
        )
        unit = public / np.linalg.norm(public)
        return [
            (one @ unit) * unit if eps == min(epsilons) < max(epsilons) else one
            for one, eps in zip(vectors, epsilons, strict=True)
        ]

    return project
