"""Updates that are not finite: none enters a sum, and each is counted."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from simulate.components import LocalResult, LocalRule, Transform, TransformContext
from simulate.engine.cohort import client_updates
from simulate.engine.loop import initial_state, run_round
from simulate.mechanisms import exposed_by_client
from simulate.runs.ledger_writer import MemoryLedger
from simulate.transforms import clip, scale, sparsify
from tests.simulate import tiny
from tests.simulate.algorithms.references.records import context_of
from tests.simulate.engine.test_engine import build, one_round

FINITE = np.array([3.0, 4.0]) * (1 + 1 + 4) / 4
"""The mean without the second client, of pixels 1, 255, 1 and 4."""
HUGE = 3e38


def sending(vector):
    """A local rule: the client with pixel 255 sends this, others three and four."""

    def train(work):
        pixel = work.x.flatten(1)[:, :1].float()
        honest = pixel * torch.tensor([[3.0, 4.0]])
        return LocalResult(torch.where(pixel >= 255, torch.tensor([vector]), honest))

    return LocalRule("odd", train)


def stretched():
    """A transform that makes the largest single-precision numbers infinite."""

    def apply(updates, context):
        return updates * 4.0 / 2.0 / 2.0, None

    return Transform("stretched", apply, lambda before, group: before)


@pytest.mark.parametrize(
    "vector", [(np.nan, 1.0), (np.inf, 1.0), (-np.inf, np.inf), (1.0, np.nan)]
)
def test_none_enters_the_sum(vector):
    algorithm = replace(build("FedAvg"), local=sending(vector))
    step, records, _ = one_round(tiny.setting(algorithm, pixels=(1, 255, 1, 4)))
    assert_allclose(step, FINITE, rtol=1e-6)
    assert [(share.excluded, share.cohort) for share in records[0].shares] == [
        (1, 2),
        (0, 2),
    ]


@pytest.mark.parametrize("further", [(), (clip(5.0),), (sparsify(0.5),), (scale(),)])
def test_none_that_a_transform_makes_infinite_enters(further):
    further = (stretched(), *further)
    algorithm = replace(
        build("FedAvg"), local=sending((HUGE, HUGE)), transforms=further
    )
    _, records, end = one_round(tiny.setting(algorithm, pixels=(1, 255, 1, 1)))
    assert end.theta.isfinite().all()
    assert [share.excluded for share in records[0].shares] == [1, 0]
    assert records[0].shares[0].largest_norm <= 5 * (1 + 1e-6)


def test_a_scale_cannot_let_one_in():
    algorithm = build("planned", release="joint", scales=(4.0, 1.0))
    algorithm = replace(
        algorithm, local=sending((HUGE, HUGE)), transforms=(scale(), clip(5.0))
    )
    _, records, end = one_round(tiny.setting(algorithm, pixels=(1, 255, 1, 1)))
    assert end.theta.isfinite().all()
    assert [share.excluded for share in records[0].shares] == [1, 0]


@pytest.mark.parametrize("size", [1e30, 1e37, 1e38, HUGE])
@pytest.mark.parametrize("norm", [1e-6, 1e-3, 0.37, 1.0])
def test_clipping_keeps_its_bound_at_the_end_of_single_precision(size, norm):
    updates = size * (
        2 * torch.rand(200, 50, generator=torch.Generator().manual_seed(6)) - 1
    )
    context = TransformContext(1, torch.zeros(50), {}, tiny.plan().groups[0])
    clipped, is_clipped = clip(norm).apply(updates, context)
    assert is_clipped.all()
    assert (clipped.double().norm(dim=1) <= norm).all()


def test_clients_who_send_for_themselves_send_zero_and_are_counted():
    exposed = exposed_by_client()
    local = sending((np.nan, 1.0))
    algorithm = replace(build("FedAvg"), mechanism=exposed, local=local)
    world = tiny.setting(algorithm, pixels=(1, 255, 1, 4))
    updates, _ = client_updates(world, context_of(world))
    assert [update.excluded for update in updates] == [False, True, False, False]
    assert [update.vector.tolist() for update in updates][1] == [0.0, 0.0]
    ledger = MemoryLedger("")
    assert run_round(world, initial_state(world), ledger).theta.isfinite().all()
    assert [record.shares[0].excluded for record in ledger.records] == [0, 1, 0, 0]
