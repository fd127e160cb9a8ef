"""Faults of sensitivity for the kit: the sabotage bench's, and of other outputs."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from simulate.components import Transform
from simulate.engine import loop
from simulate.engine.evaluation import measure
from tests.sabotage import FAULTS
from tests.sabotage.contributions import clipped_by
from tests.sabotage.fault import Fault, with_components


def _overflowing(experiment):
    """Clipping by a norm in single precision, skipped where it is not finite."""
    bound = experiment.algorithm.plan.spec.clipping_norm

    def change(honest, updates, context):
        norms = updates.norm(dim=1)
        factors = torch.where(norms.isfinite(), (bound / norms).clamp(max=1), 1.0)
        return updates * factors[:, None], norms > bound

    return clipped_by(change)(experiment)


def _rescaled(statistic, when):
    """A cohort's updates are divided by a statistic of their finite norms.

    The statistic is in units of the clipping norm.
    """

    def breaks(experiment):
        bound = experiment.algorithm.plan.spec.clipping_norm

        def apply(updates, context):
            norms = updates.norm(dim=1)
            finite = norms[norms.isfinite()]
            scale = statistic(finite / bound) if len(finite) else torch.tensor(1.0)
            return updates / scale.clamp(min=1e-3), None

        part = Transform("rescale", apply, lambda before, group: before)
        honest = experiment.algorithm.transforms
        parts = (part, *honest) if when == "before" else (*honest, part)
        return with_components(experiment, transforms=parts)

    return breaks


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum": lambda norms: norms.max(),
    "minimum": lambda norms: norms.min(),
    "median": lambda norms: norms.median(),
    "mean": lambda norms: norms.mean(),
    "deviation": lambda norms: norms.std(correction=0),
    "root mean square": lambda norms: norms.square().mean().sqrt(),
    "number": lambda norms: norms.new_tensor(len(norms) / 6),
}
"""Statistics of a cohort's norms, by name; the number is in expected cohorts."""
RESCALED = tuple(
    Fault(
        f"rescaled by the cohort's {name} {when} clipping",
        f"Updates are divided by the {name} of the cohort's norms {when} they are clipped.",
        "sensitivity",
        breaks=_rescaled(statistic, when),
    )
    for (name, statistic), when in product(STATISTICS.items(), ("before", "after"))
    if (name, when) != ("minimum", "before")
)
"""Divided by their minimum before clipping, all updates have the bound's norm in any cohort."""


def _trained(change):
    """Change the result of local training."""

    def breaks(experiment):
        local = experiment.algorithm.local
        changed = replace(local, train=lambda batch: change(batch, local.train(batch)))
        return with_components(experiment, local=changed)

    return breaks


def _mixed_heads(batch, result):
    """Each client's personal vector moves a tenth of the way to the chunk's mean."""
    if result.personal is None:
        return result
    mean = result.personal.mean(0)
    return replace(result, personal=result.personal + 0.1 * (mean - result.personal))


def _mixed_updates(batch, result):
    """Clients who send for themselves send a part of the chunk's mean."""
    return replace(result, updates=result.updates + 0.01 * result.updates.mean(0))


def _beside_the_releases(experiment):
    """The mean pixel of a round's last batches is written into a model parameter."""
    seen: list[Tensor] = []
    local = experiment.algorithm.local
    server = experiment.algorithm.server

    def train(batch):
        seen[:] = [batch.x.mean()]
        return local.train(batch)

    def step(theta, move, state):
        after, state = server.step(theta, move, state)
        after[0] = seen[0]
        return after, state

    changed = {
        "local": replace(local, train=train),
        "server": replace(server, step=step),
    }
    return with_components(experiment, **changed)


def _by_realised_cohort(experiment):
    """The step is divided by the number of participants, which is private."""
    aggregator = experiment.algorithm.aggregator
    mechanism = experiment.algorithm.mechanism
    cohort = [0]

    def release(round_, sums, *context):
        cohort[0] = sum(len(part.participants) for part in sums)
        return mechanism.release(round_, sums, *context)

    def combine(releases, theta, state):
        step, state = aggregator.combine(releases, theta, state)
        return step / max(cohort[0], 1), state

    return with_components(
        experiment,
        mechanism=replace(mechanism, release=release),
        aggregator=replace(aggregator, combine=combine),
    )


def _on_private_data(model, theta, data, workers=1, rows=None, *options):
    """Accuracy on the records of the clients."""
    private = replace(data, test_x=data.train_x, test_y=data.train_y)
    return measure(model, theta, private, workers, rows, *options)


NEW_FAULTS = (
    Fault("clipping skipped for non-finite norms",
          "The norm overflows single precision, and such an update is not clipped.",
          "sensitivity", breaks=_overflowing),
    Fault("personal state mixed between clients",
          "Each client's head moves towards the mean head of the cohort.",
          "personal state", breaks=_trained(_mixed_heads), algorithm="CENTAUR"),
    Fault("updates mixed between clients who send for themselves",
          "A client sends a part of the other clients' updates.",
          "other releases", breaks=_trained(_mixed_updates), algorithm="DPFedAvg"),
    Fault("statistics of batches in the model",
          "A mean over private records is written into the model beside the releases.",
          "model", breaks=_beside_the_releases),
    Fault("step divided by the realised cohort",
          "The ledger's weights are the plan's; the step uses the number of participants.",
          "model", breaks=_by_realised_cohort),
    Fault("accuracy on private records",
          "The metrics of a round are measured on the clients' training records.",
          "metrics", patches=((loop, "measure", _on_private_data),)),
)  # fmt: skip
RULES = {
    "scaled after clipping": "sensitivity",
    "updates added twice": "sensitivity",
    "updates added five times": "sensitivity",
    "weighted by size inside the sum": "sensitivity",
    "rescaled by a private median": "sensitivity",
    "centred by the cohort mean": "sensitivity",
    "one update added ten times": "sensitivity",
    "clipped by layers": "sensitivity",
    "coordinates clipped": "sensitivity",
    "clipped by the mean norm": "sensitivity",
    "clipped at twice the bound": "sensitivity",
    "clipping skipped for one client": "sensitivity",
    "clipping skipped for one group": "sensitivity",
    "median clip not booked": "sensitivity",
    "learning-rate-weighted after clipping": "sensitivity",
    "sum divided by the realised cohort": "sensitivity",
    "personal parameters released": "coordinates",
    "data-dependent mask booked as public": "coordinates",
    "noise halved": "noise",
    "no noise on the head's bias": "noise",
    "weights of the realised cohort": "ledger",
    "model steps by unnoised sums": "model",
    "head sent in clear": "model",
    "records' noise drawn and not added": "sensitivity",
    "records not clipped": "sensitivity",
}
"""Faults of the sabotage bench, and the claim that the kit must find broken."""
BY_NAME = {fault.name: fault for fault in FAULTS}
PLANTED = (
    *((BY_NAME[name], rule) for name, rule in RULES.items()),
    *((fault, fault.check) for fault in (*NEW_FAULTS, *RESCALED)),
)
