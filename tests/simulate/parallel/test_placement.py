"""On which GPU each of several jobs runs; the GPUs are pretended."""

import itertools

import pytest
import torch

from privplan.errors import InputError
from simulate import parallel
from simulate.parallel import Ranks, device_of, device_of_job
from simulate.runs import compare
from simulate.runs.request import Request
from tests.command import refused


@pytest.fixture
def four_gpus(monkeypatch):
    """Four GPUs that no tensor may be put on; the GPU that was chosen last."""
    chosen = []
    monkeypatch.setattr(parallel, "gpu_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


def test_jobs_take_the_gpus_in_turn(four_gpus):
    devices = [device_of_job("auto", job) for job in range(6)]
    assert devices == ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"]


@pytest.mark.parametrize("name", ["cpu", "cuda:2"])
def test_a_device_that_was_asked_for_stays(name, four_gpus):
    assert device_of_job(name, 3) == name


def test_one_gpu_or_none_is_not_spread(monkeypatch):
    for count in (0, 1):
        monkeypatch.setattr(parallel, "gpu_count", lambda count=count: count)
        assert device_of_job("auto", 5) == "auto"


def test_a_gpu_by_number(four_gpus):
    assert device_of("cuda:3") == torch.device("cuda", 3)
    assert four_gpus == [3]
    assert device_of("cuda") == torch.device("cuda")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("cuda:4", "must be one of 4 GPUs, cuda:0 to cuda:3"),
        ("cuda:-1", "must be auto, cpu, cuda or cuda:N"),
        ("cuda:", "must be auto, cpu, cuda or cuda:N"),
        ("cpu:0", "must be auto, cpu, cuda or cuda:N"),
        ("tpu", "must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_a_device_that_is_not_there_is_refused(name, rule, four_gpus):
    with pytest.raises(InputError, match=rule):
        device_of(name)


def test_processes_of_one_run_have_a_gpu_each(four_gpus):
    second = Ranks(size=2, rank=1, local=1)
    assert device_of("cuda", second) == torch.device("cuda", 1)
    with pytest.raises(InputError, match="each process has a GPU of its own"):
        device_of("cuda:1", second)


def test_a_comparison_over_jobs_uses_every_gpu(
    four_gpus, short_plan, tmp_path, monkeypatch
):
    requests = []

    def only_noted(items, work, *, spread):
        requests.extend(items.values())
        raise InputError.one("stop", "noted", "all")

    monkeypatch.setattr(compare, "_check", lambda bases, seeds: None)
    monkeypatch.setattr(compare, "finish", only_noted)
    base = Request(short_plan, "", "digits", tmp_path / "all")
    with pytest.raises(InputError, match="noted"):
        compare.compare(
            base, ["planned", "FedAvg"], range(3), 4, lambda done, total: None
        )
    expected = itertools.islice(itertools.cycle(range(4)), 6)
    assert [request.device for request in requests] == [
        f"cuda:{gpu}" for gpu in expected
    ]


def test_the_command_refuses_a_gpu_that_is_not_there(short_plan, tmp_path):
    plan = tmp_path / "plan.json"
    short_plan.save(plan)
    words = ("simulate", plan, "--algorithm", "planned", "-o", tmp_path / "run")
    line = refused(*words, "--device", "cuda:7")
    assert "device: must be cpu or auto where no GPU is found" in line
