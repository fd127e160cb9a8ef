"""A step of the server's hypernetwork and embeddings along what clients did to their models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from privplan.plan import GroupPlan, Plan
from simulate.components import Aggregator, Released, State
from simulate.models.hypernetwork import EMBEDDING, Hypernetwork, pull_back


def through_hypernetwork(population: int, hidden: int, rate: float) -> Aggregator:
    """The chain rule of pFedHN (its Algorithm 1), for clients who sent alone.

    The hypernetwork moves by ``rate`` times the mean, over the expected cohort, of the product of
    each client's change with the derivative of its model by the hypernetwork; the embedding of
    each client who sent moves by ``rate`` times the product with the derivative by it.

    Args:
        population: clients in all groups.
        hidden: units of the hypernetwork's hidden layer.
        rate: the server's learning rate.
    """

    def weight(group: GroupPlan, plan: Plan) -> float:
        return 1.0 / sum(one.expected_cohort for one in plan.groups)

    def combine(releases: Sequence[Released], theta: Tensor, state: State) -> tuple[Tensor, State]:
        step = torch.zeros_like(theta)
        if not releases:
            return step, state
        changes = torch.stack([one.vector for one in releases])
        clients = torch.tensor([one.client for one in releases], device=theta.device)
        factor = releases[0].record.shares[0].weight * rate
        its = Hypernetwork(changes.shape[1], hidden)
        end = its.parameters + population * EMBEDDING
        embeddings = theta[its.parameters : end].view(population, -1)[None, clients]
        weights, to_weights = theta[None, : its.parameters], step[None, : its.parameters]
        found = pull_back(its, weights, embeddings, changes[None], to_weights, factor)[0]
        step[its.parameters : end].view(population, -1).index_add_(0, clients, found, alpha=rate)
        return step, state

    return Aggregator("through the hypernetwork", weight, combine)
