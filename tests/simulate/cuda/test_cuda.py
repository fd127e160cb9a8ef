"""Training on a GPU against the same training on a CPU; skipped where there is none."""

import pytest
import torch

import privplan
from privplan.ledger import read_ledger
from simulate.engine.experiment import exact_products
from simulate.engine.loop import train
from simulate.local.dp_sgd import clipped_sums
from simulate.local.sgd import local_sgd
from simulate.models.registry import model
from simulate.runs.ledger_writer import MemoryLedger
from simulate.runs.request import Request, prepare
from simulate.runs.run import execute

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device"
)


def _theta(request):
    """The last model of a run of the request, trained in memory."""
    experiment = prepare(request)
    return train(experiment, MemoryLedger(experiment.algorithm.plan.digest)).theta.cpu()


@pytest.mark.parametrize("algorithm", ["planned", "GDPFed+", "DP-FedAvg"])
def test_a_run_on_a_gpu_is_the_run_on_a_cpu(algorithm, short_plan, tmp_path):
    for device in ("cpu", "cuda"):
        execute(Request(short_plan, algorithm, "digits", tmp_path / device, 1, device))
    cpu, gpu = (
        _theta(Request(short_plan, algorithm, "digits", tmp_path, 1, device))
        for device in ("cpu", "cuda")
    )
    assert float((gpu - cpu).norm() / cpu.norm()) < 1e-3
    folders = (tmp_path / device for device in ("cpu", "cuda"))
    ledgers = [read_ledger(folder, short_plan.digest).records for folder in folders]
    for on_cpu, on_gpu in zip(*ledgers, strict=True):
        assert [share.participants for share in on_cpu.shares] == [
            share.participants for share in on_gpu.shares
        ]
        for share in on_gpu.shares:
            assert share.largest_norm <= share.clip_bound
    assert privplan.judge(privplan.load_run(tmp_path / "cuda"), 0).outcome == "kept"


def test_the_same_seed_gives_the_same_bits(short_plan, tmp_path):
    request = Request(short_plan, "planned", "digits", tmp_path, 1, "cuda")
    assert torch.equal(_theta(request), _theta(request))


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("name", ["cnn-2", "mlp-digits", "resnet-18"])
def test_local_training_gives_the_same_bits_and_waits_for_the_device_at_no_point(name):
    network = model(name)
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(3, 2, 4, *network.input_shape, generator=draw).cuda()
    y = torch.randint(0, network.classes, (3, 2, 4), generator=draw).cuda()
    theta = network.initial(torch.Generator().manual_seed(0)).cuda()
    with exact_products():
        # The first training prepares kernels, which may wait.
        expected = local_sgd(network, theta, x, y, learning_rate=0.1, workers=1)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            updates = local_sgd(network, theta, x, y, learning_rate=0.1, workers=1)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(updates, expected)


def test_clipped_sums_of_records_are_those_of_a_cpu():
    network = model("cnn-2")
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(2, 8, *network.input_shape, generator=draw)
    y = torch.randint(0, 10, (2, 8), generator=draw)
    thetas = network.initial(torch.Generator().manual_seed(0)).repeat(2, 1)
    cpu = clipped_sums(network, thetas, x, y, clipping_norm=1.0, workers=1).total
    cuda = (value.cuda() for value in (thetas, x, y))
    with exact_products():
        gpu = clipped_sums(network, *cuda, clipping_norm=1.0, workers=1).total.cpu()
    assert float((gpu - cpu).norm() / cpu.norm()) < 1e-3
    assert float(gpu.norm(dim=1).max()) <= 8 * (1 + 1e-5)
