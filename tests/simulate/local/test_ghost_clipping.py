"""Ghost clipping of a chain's records beside gradients of single records by vmap."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from privplan.planning.solver import solve
from simulate.local import dp_sgd
from simulate.models import chain
from simulate.models.registry import model
from simulate.norms import ROUNDING
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.local.test_local import ODD, cohort
from tests.simulate.replay.runs import replayed
from tests.simulate.replay.test_coverage import plan

NETWORKS = [*map(model, ["cnn-digits", "mlp-digits", "cnn-hyperfl-2"]), ODD]


def by_vmap(network, thetas, x, y, bound):
    """Sums and norms from a gradient of each record."""
    return dp_sgd.sums_by_vmap(network, thetas, x, y, bound)


def bound_of(network, batch):
    """A norm that half of the records exceed."""
    norms = by_vmap(network, *batch, 1.0)[1]
    return float(norms[norms > 0].median() * (1 + 1e-3))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
@pytest.mark.parametrize("rows", [2, 100])
def test_sums_and_norms_are_those_of_vmap_within_rounding(network, rows):
    """All clients at once, in blocks of rows; rows without a record add nothing."""
    batch = cohort(network, 9)
    bound = bound_of(network, batch)
    expected, expected_norms = by_vmap(network, *batch, bound)
    values = rows * len(batch[0]) * network.values_per_record
    total, norms = network.clipped_sums(*batch, bound, values)
    largest = float(expected.norm(dim=1).max())
    assert float((total - expected).norm(dim=1).max()) <= 2e-6 * largest
    assert_close(norms, expected_norms, rtol=5e-6, atol=0)
    assert not total[2].any()


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_a_record_adds_its_gradient_shortened_to_the_norm(network):
    thetas, x, y = (value[:1] for value in cohort(network, 4))
    bound = bound_of(network, (thetas, x, y))
    for row in range(4):
        single = (thetas, x[:, [row]], y[:, [row]])
        total, norms = network.clipped_sums(*single, bound, chain.SUM_VALUES)
        added = float(total.double().norm())
        assert added <= bound
        expected = min(float(norms), bound)
        assert added == pytest.approx(expected, rel=4 * ROUNDING)


def test_several_clients_of_a_small_model_share_a_chunk(monkeypatch):
    """Chunks follow from sizes alone, and a larger one gives the same sums."""
    network = model("mlp-digits")
    batch = cohort(network, 9)
    together = dp_sgd.clipped_sums(network, *batch, clipping_norm=0.1, workers=1)
    monkeypatch.setattr(dp_sgd, "SUM_VALUES", 1)
    alone = dp_sgd.clipped_sums(network, *batch, clipping_norm=0.1, workers=1)
    assert_close(together.total, alone.total, rtol=1e-4, atol=1e-6)
    assert torch.equal(together.clipped, alone.clipped)


def test_a_run_by_gradients_of_records_is_executed_again(monkeypatch, tmp_path):
    """Both paths give the same run up to rounding, and replay passes for each."""
    short_plan = solve(plan("poisson", "record").spec.replace(rounds=1))
    requests = [
        Request(short_plan, "DPFedAvg", "digits", tmp_path / name, seed=3)
        for name in ("ghosts", "vmap")
    ]
    ghosts = execute(requests[0])

    def of_records(network, thetas, x, y, bound, workers):
        sums, norms = by_vmap(network, thetas, dp_sgd.pixels(x), y, bound)
        return dp_sgd._with_evidence(sums, norms, bound)

    with monkeypatch.context() as patch:
        patch.setattr(dp_sgd, "_sums_of_chain", of_records)
        vmap = execute(requests[1])
    assert not np.array_equal(ghosts.end.theta, vmap.end.theta)
    assert_allclose(ghosts.end.theta, vmap.end.theta, rtol=1e-3, atol=1e-5)
    for request in requests:
        assert replayed(request.folder).outcome == "passed"
