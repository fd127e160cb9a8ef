"""Aggregators: from the releases of a round to one step of the global model.

Means divide by a constant, the expected cohort, never by the realised cohort size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.functional import softshrink

from privplan.plan import Clipping, GroupPlan, Plan
from privplan.planning import factors
from simulate.components import Aggregator, Received, State
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork
from simulate.server import pseudo_gradient_step
from simulate.transforms import NORM, count_scale, keep_largest

# --- Aggregators of sums: weighted sums of the releases, and post-processing of them. ------------
# The weights are the plain mean over the expected cohort, those of GDPFed+'s Algorithm 1 (as its
# Appendix B.2 prints them), the weighted mean of the groups' mean updates, or proportional to
# epsilon. Top-k (Algorithm 3 of GDPFed+), the shift of DP-FedPGN and the update of an adaptive
# clipping norm are post-processing, so they have no privacy cost.


def weighted_sum(
    releases: Sequence[Received], theta: Tensor, state: State
) -> tuple[Tensor, State]:
    """The sum of the releases [k], each times its planned factor."""
    parts = [part.factor * part.vector for part in releases]
    return torch.stack(parts).sum(0), state


def mean() -> Aggregator:
    """Every sum times 1 / sum_m s_m r_m, one factor for all groups of scales s_m."""
    return Aggregator("mean", factors.mean, weighted_sum)


def literal() -> Aggregator:
    """Each group's sum times w_m / (q n), with w_m summing to 1 and q n the expected cohort.

    The factors on a client's mean update add up to sum_m w_m r_m / (q n), which is below 1
    (1/3 for three equal groups): the server's step is that much shorter than a mean.
    """
    return Aggregator("literal", factors.literal, weighted_sum)


def normalised() -> Aggregator:
    """Each group's sum times w_m / r_m: the weights on mean updates add up to 1."""
    return Aggregator("normalised", factors.normalised, weighted_sum)


def by_epsilon() -> Aggregator:
    """Each sum times epsilon_m / sum_j epsilon_j r_j, with r the expected cohorts."""

    def weight(group: GroupPlan, plan: Plan) -> float:
        return group.epsilon / sum(
            other.epsilon * other.expected_cohort for other in plan.groups
        )

    return Aggregator("by epsilon", weight, weighted_sum)


def top_k(inner: Aggregator) -> Aggregator:
    """Sparsify each group's released sum by the group's ``kept_fraction``, then combine."""

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        sparse = [
            replace(
                part, vector=keep_largest(part.vector, part.groups[0].kept_fraction)
            )
            for part in releases
        ]
        return inner.combine(sparse, theta, state)

    return Aggregator(f"top-k, {inner.name}", inner.weight, combine, inner.start)


def add_shift(inner: Aggregator, share: float, decay: float) -> Aggregator:
    """Combine the releases, then add the vector that ``shift`` subtracted (DP-FedPGN, line 14)."""

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        step, after = inner.combine(releases, theta, state)
        return step + share * pseudo_gradient_step(state, decay), after

    return Aggregator(f"unshifted {inner.name}", inner.weight, combine, inner.start)


def at_plan_norm(inner: Aggregator, plan: Plan) -> Aggregator:
    """The aggregator of sums that ``plan_clip`` bounded."""
    return (
        inner
        if plan.clipping is None
        else adaptive_clipping(inner, plan, plan.clipping)
    )


def adaptive_clipping(inner: Aggregator, plan: Plan, clipping: Clipping) -> Aggregator:
    """Multiply the inner step by the clipping norm C, and update C by the noisy counts.

    C becomes C exp(-learning_rate (b - quantile)), with b the noisy share of the expected cohort,
    weighted as its updates are, whose updates have norm at most C (Andrew et al., Section 2.1).
    The counts, the last coordinate of each release, do not enter ``inner``.
    """
    scale_of_count = count_scale(clipping)

    def start(theta: Tensor) -> State:
        first = torch.tensor(
            plan.spec.clipping_norm, dtype=torch.float64, device=theta.device
        )
        return {NORM: first, **inner.start(theta)}

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        counting = [replace(one, vector=one.vector[-1:]) for one in releases]
        counts, _ = weighted_sum(counting, theta, state)
        sums = [replace(one, vector=one.vector[:-1]) for one in releases]
        step, state = inner.combine(sums, theta, state)
        share = 0.5 + counts[0].double() / scale_of_count / _expected_weight(
            plan, releases
        )
        moved = torch.exp(-clipping.learning_rate * (share - clipping.quantile))
        norm = state[NORM]
        return step * norm.to(step.dtype), {**state, NORM: norm * moved}

    return Aggregator(f"following clip, {inner.name}", inner.weight, combine, start)


def _expected_weight(plan: Plan, releases: Sequence[Received]) -> float:
    """Sum of the factors on clipped updates over the expected cohorts; 1 where it is a mean."""
    return sum(
        part.factor
        * sum(
            one.scale * plan.clip_factor(one) * one.expected_cohort
            for one in part.groups
        )
        for part in releases
    )


# --- Principal component pursuit: a matrix as a low-rank one plus a sparse one. ------------------
# E. J. Candes, X. Li, Y. Ma, J. Wright, Robust Principal Component Analysis?, J. ACM 2011;
# Algorithm 3 of Robust-HDP. The alternating directions are the same, but the penalty mu grows (Z.
# Lin, M. Chen, Y. Ma, The Augmented Lagrange Multiplier Method, 2010): some 60 steps reach what a
# fixed mu reaches in about a thousand.

TOLERANCE = 1e-7
ITERATIONS = 1000
GROWTH = 1.2  # factor on mu after each step


def pursuit(
    matrix: Tensor, *, tolerance: float = TOLERANCE, iterations: int = ITERATIONS
) -> tuple[Tensor, Tensor]:
    """Minimise |L|_* + lambda |S|_1 with L + S = M; lambda by Candes et al., mu by Lin et al."""
    m = matrix.double()
    if m.shape[0] < m.shape[1]:
        low, sparse = pursuit(m.T, tolerance=tolerance, iterations=iterations)
        return low.T, sparse.T
    norms = torch.linalg.matrix_norm(m, 2), torch.linalg.matrix_norm(m)
    largest, size = torch.stack(norms).tolist()
    sparse, dual = torch.zeros_like(m), torch.zeros_like(m)
    if largest == 0:
        return sparse, sparse.clone()
    mu, price = 1.25 / largest, 1 / math.sqrt(max(m.shape))
    goal, low, residual = tolerance * size, sparse, m
    for _ in range(iterations):
        # Soft-thresholds the singular values, from the smaller Gram matrix of a tall matrix. One
        # copy from the device says whether the step before has converged, and the rank.
        values = m - sparse + dual / mu
        squares, right = torch.linalg.eigh(values.T @ values)
        singular = squares.clamp(min=0).sqrt()
        found = (singular > 1 / mu).sum(), torch.linalg.matrix_norm(residual)
        rank, distance = torch.stack([one.double() for one in found]).tolist()
        if distance <= goal:
            break
        above = slice(len(singular) - int(rank), None)  # eigh sorts upwards
        basis = right[:, above].contiguous()
        low = (
            (values @ basis) * ((singular[above] - 1 / mu) / singular[above]) @ basis.T
        )
        sparse = softshrink(m - low + dual / mu, price / mu)
        residual = m - low - sparse
        dual = dual + mu * residual
        mu *= GROWTH
    return low, sparse


# --- Aggregators of releases by single clients: weighted means and the update of a hypernetwork. --

BLOCK_CLIENTS = (
    200  # most clients in a decomposition: its time grows with the cube of their number
)
WEIGHT_TOLERANCE = 1e-4  # accuracy of a decomposition: weights need no more

Weights = Callable[[Tensor, Sequence[Received]], Tensor]
"""(updates [K, k], releases) to the unnormalised weight of each client's update [K]."""


WEIGHT = (
    "weight of "  # with a group's name, keys of the sums of its weights over the rounds
)


def client_mean(name: str, weights: Weights) -> Aggregator:
    """A weighted mean of clients' updates; a zero update was not finite and has weight 0.

    Weights that follow from the updates, and so are in no plan, are summed in the state.
    """

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        if not releases:
            return torch.zeros_like(theta), state
        updates = torch.stack([release.vector for release in releases])
        counts = torch.where(
            updates.any(1), weights(updates, releases).to(updates.device), 0.0
        )
        if not counts.any():
            return torch.zeros_like(updates[0]), state
        counts = counts.double() / counts.max()
        shares, sums = counts / counts.sum(), dict(state)
        for release, one in zip(
            () if weights is as_planned else releases, shares, strict=False
        ):
            key = WEIGHT + release.groups[0].name
            sums[key] = sums.get(key, 0.0) + one
        return shares.to(updates) @ updates, sums

    return Aggregator(name, planned_weight, combine)


def planned_weight(group: GroupPlan, plan: Plan) -> float:
    """Planned weight of a group divided by its number of clients."""
    return group.weight / group.clients


def as_planned(updates: Tensor, releases: Sequence[Received]) -> Tensor:
    """The planned weights."""
    return torch.tensor([release.factor for release in releases])


def by_noise(rows: int, matrices: int = 1) -> Weights:
    """Weights 1 / sigma_i^2, noise estimated from the updates only (Robust-HDP, Algorithm 1)."""

    def weights(updates: Tensor, releases: Sequence[Received]) -> Tensor:
        return 1 / noise_estimates(updates, rows, matrices)

    return weights


def by_norm(updates: Tensor, releases: Sequence[Received]) -> Tensor:
    """Weights by the inverse of the squared norm of each update, without Robust PCA."""
    return 1 / updates.double().square().sum(1).clamp(
        min=torch.finfo(torch.float64).tiny
    )


def noise_estimates(updates: Tensor, rows: int, matrices: int = 1) -> Tensor:
    """Estimates of sigma_i^2 of each update up to a common factor [K], float64.

    Robust PCA splits sub-matrices of random rows, and of at most ``BLOCK_CLIENTS`` random clients,
    into a low-rank part, the common signal, and the rest, the noise. The share of a client's
    squared norm that is noise, times its squared norm over all rows, is the estimate: the norm is
    exact, and only the share has the error of a sample.
    """
    clients, size = updates.shape
    width = min(rows, size)
    source = torch.Generator().manual_seed(size)  # public, the same in every run
    order = (
        torch.randperm(size, generator=source) if width < size else torch.arange(size)
    )
    parts = torch.split(order, width)[: min(matrices, size // width)]
    drawn = torch.randperm(clients, generator=source)
    blocks = torch.split(drawn, -(-clients // -(-clients // BLOCK_CLIENTS)))
    noise = torch.zeros(clients, dtype=torch.float64, device=updates.device)
    total = torch.zeros_like(noise)
    for part in parts:
        chosen = updates[:, part.to(updates.device)]
        total += chosen.double().square().sum(1)
        for block in blocks:
            members = block.to(updates.device)
            _, sparse = pursuit(chosen[members].T, tolerance=WEIGHT_TOLERANCE)
            noise[members] += sparse.square().sum(0)
    smallest = torch.finfo(torch.float64).tiny
    share = noise / total.clamp(min=smallest)
    return (share * updates.double().square().sum(1)).clamp(min=smallest)


def through_hypernetwork(population: int, hidden: int, rate: float) -> Aggregator:
    """The chain rule of pFedHN (its Algorithm 1), for releases by single clients.

    The hypernetwork moves by ``rate`` times the mean, over the expected cohort, of the product of
    each client's change with the derivative of its model by the hypernetwork; the embedding of
    each participant moves by ``rate`` times the product with the derivative by the embedding.
    """

    def weight(group: GroupPlan, plan: Plan) -> float:
        return 1.0 / sum(group.expected_cohort for group in plan.groups)

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        step = torch.zeros_like(theta)
        if not releases:
            return step, state
        changes = torch.stack([release.vector for release in releases])
        clients = torch.tensor(
            [release.client for release in releases], device=theta.device
        )
        factor = releases[0].factor * rate
        network = Hypernetwork(changes.shape[1], hidden)
        end = network.parameters + population * EMBEDDING
        embeddings = theta[network.parameters : end].view(population, -1)[None, clients]
        weights, to_weights = (
            theta[None, : network.parameters],
            step[None, : network.parameters],
        )
        slopes = network.pull_back(
            weights, embeddings, changes[None], to_weights, factor
        )[0]
        personal = step[network.parameters : end].view(population, -1)
        personal.index_add_(0, clients, slopes, alpha=rate)
        return step, state

    return Aggregator("through the hypernetwork", weight, combine)


# --- Projections of PFA, and aggregators that apply them to sums or to clients' updates. ---------
# The sums (or updates) of the strictest privacy preferences are projected onto a subspace that the
# least strict ones span. Projection is post-processing of releases.

PUBLIC = "public"  # key of the public sums [directions, k], latest first, in the server's state


def project(vector: Tensor, rows: Tensor) -> Tensor:
    """The orthogonal projection of a vector onto the span of some rows, in double precision."""
    wide = rows.double()
    gram = torch.linalg.pinv(wide @ wide.T, hermitian=True)
    projection: Tensor = (gram @ (wide @ vector.double())) @ wide
    return projection.to(vector.dtype)


def projected(inner: Aggregator, directions: int) -> Aggregator:
    """Project the sums of the groups with the smallest epsilon, then combine.

    The groups with the largest epsilon are public; their last noisy sums, including this round's,
    span the subspace. Other groups are not projected, and no group is if all have one epsilon.
    """

    def start(theta: Tensor) -> State:
        return {PUBLIC: theta.new_zeros(directions, len(theta)), **inner.start(theta)}

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        epsilons = [part.groups[0].epsilon for part in releases]
        fresh = [
            part.vector
            for part, epsilon in zip(releases, epsilons, strict=True)
            if epsilon == max(epsilons)
        ]
        public = torch.cat([torch.stack(fresh), state[PUBLIC]])[:directions]
        parts = [
            replace(part, vector=project(part.vector, public))
            if min(epsilons) == epsilon < max(epsilons)
            else part
            for part, epsilon in zip(releases, epsilons, strict=True)
        ]
        return inner.combine(parts, theta, {**state, PUBLIC: public})

    return Aggregator(f"projected, {inner.name}", inner.weight, combine, start)


def projected_clients(directions: int) -> Aggregator:
    """The weighted mean of updates, those of strict clients projected as in the original PFA."""

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        projected = _projected(releases, directions)
        return client_mean("by epsilon", as_planned).combine(projected, theta, state)

    return Aggregator("projected, by epsilon", planned_weight, combine)


def _projected(releases: Sequence[Received], directions: int) -> list[Received]:
    if not releases:
        return []
    epsilons = [release.groups[0].epsilon for release in releases]
    least = public_from(epsilons)
    public = [
        release.vector.double()
        for release, epsilon in zip(releases, epsilons, strict=True)
        if epsilon >= least
    ]
    _, _, basis = torch.linalg.svd(torch.stack(public), full_matrices=False)
    basis = basis[:directions]
    return [
        release
        if epsilon >= least
        else replace(
            release, vector=((basis @ release.vector.double()) @ basis).float()
        )
        for release, epsilon in zip(releases, epsilons, strict=True)
    ]


def public_from(epsilons: Sequence[float]) -> float:
    """The least epsilon of a public client: that of the upper of two clusters of budgets.

    The clusters are the two intervals with the least sum of squared deviations from their means,
    which is the optimum of 2-means on a line. Liu et al. cluster the clients by their privacy
    preferences; with budgets that all differ, the largest one alone would leave a single noisy
    update as the public subspace.
    """
    ordered = sorted(epsilons)

    def spread(part: Sequence[float]) -> float:
        middle = fmean(part)
        return sum((value - middle) ** 2 for value in part)

    cuts = [cut for cut in range(1, len(ordered)) if ordered[cut - 1] < ordered[cut]]
    best = min(
        cuts, key=lambda cut: spread(ordered[:cut]) + spread(ordered[cut:]), default=0
    )
    return ordered[best]


# --- The server's side of correlated noise: solves mixtures of sums for the sums of each round. --

STEPS = "last_steps"  # key of the last steps [B - 1, d] in the server's state, the latest first


def unmixed(
    inner: Aggregator, mixture: Callable[[int], tuple[float, ...]]
) -> Aggregator:
    """Combine the releases into y_t, then solve y_t = c_0 u_t + ... + c_{B-1} u_{t-B+1} for u_t."""

    def start(theta: Tensor) -> State:
        past = theta.new_zeros(len(mixture(1)) - 1, len(theta), dtype=torch.float64)
        return {**inner.start(theta), STEPS: past}

    def combine(
        releases: Sequence[Received], theta: Tensor, state: State
    ) -> tuple[Tensor, State]:
        step, after = inner.combine(releases, theta, state)
        past, factors = state[STEPS], mixture(releases[0].round)
        weights = torch.tensor(factors[1:], dtype=past.dtype, device=past.device)
        solved = (step.to(past) - weights @ past) / factors[0]
        return solved.to(step), {**after, STEPS: torch.cat([solved[None], past[:-1]])}

    return Aggregator(f"unmixed, {inner.name}", inner.weight, combine, start)
