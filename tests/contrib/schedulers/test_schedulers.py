"""Sweeps on a local Dask cluster and on local jobs of submitit."""

import importlib
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from privplan import clusters, processes
from privplan.contrib.schedulers import slurm
from privplan.errors import InputError
from privplan.processes import LostWorkerError, in_jobs
from privplan.record import RunRecord
from privplan.sweeps import finish
from tests.command import answer
from tests.contrib.schedulers.work import killed, killed_once, squared

ROOT = Path(__file__).parents[3]
GROUP = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
ITEMS = {str(number): number for number in range(5)}


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    """The kinds of this checkout, whatever is installed, and a folder of its own."""
    for name, value in GROUP["privplan.clusters"].items():
        module, _, function = value.partition(":")
        kind = getattr(importlib.import_module(module), function)
        clusters.CLUSTERS.register(name, kind)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    monkeypatch.chdir(tmp_path)


@contextmanager
def dask_address():
    distributed = pytest.importorskip("distributed", reason="privplan[dask]")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
    ) as local:
        yield local.scheduler_address.replace("tcp", "dask")


@contextmanager
def slurm_address():
    pytest.importorskip("submitit", reason="privplan[slurm]")
    yield "slurm:cluster=local,timeout_min=5"


ADDRESSES = {"dask": dask_address, "slurm": slurm_address}
pytestmark = pytest.mark.filterwarnings("default")  # of the libraries


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow) for kind in ("dask", "slurm")]
)
def test_results_errors_and_dead_workers(kind):
    with ADDRESSES[kind]() as address, clusters.spread_on(address):
        results = finish(ITEMS, squared, spread=in_jobs(1))
        assert results == {key: number**2 for key, number in ITEMS.items()}
        with pytest.raises(InputError, match="number: must be 0 or more, found -1"):
            list(in_jobs(1)(squared, [3, -1]))
        with pytest.raises(InputError, match="jobs: must be left out with --on"):
            in_jobs(2)
        if kind == "dask":
            # Dask gives the work of a dead worker to the next.
            assert list(in_jobs(1)(killed_once, ["once"])) == ["begun"]
        else:
            with pytest.raises(LostWorkerError, match="the same command resumes"):
                list(in_jobs(1)(killed, ["always"]))
            Path("always").touch()
            assert list(in_jobs(1)(killed, ["always"])) == ["always"]
    assert in_jobs(1).__module__ == processes.__name__


@pytest.mark.slow
@pytest.mark.parametrize("kind", ADDRESSES)
def test_a_comparison_on_a_cluster_has_the_ledgers_of_one_machine(kind, tmp_path):
    answer("init", "--preset", "digits-planned", "-o", "spec.yaml")
    text = Path("spec.yaml").read_text()
    lines = [
        "rounds: 2" if line.startswith("rounds:") else line
        for line in text.splitlines()
    ]
    Path("spec.yaml").write_text("\n".join(lines))
    answer("solve", "spec.yaml", "-o", "plan.json")
    words = ["compare", "plan.json", "--algorithms", "planned,FedAvg", "--seeds", "1"]
    words += ["--dataset", "digits", "--device", "cpu"]
    answer(*words, "-o", "here")
    with ADDRESSES[kind]() as address:
        answer(*words, "-o", "there", "--on", address)
        began = time.monotonic()
        answer(*words, "-o", "there", "--on", address)
        assert time.monotonic() - began < 60
    for name in ("planned", "FedAvg"):
        records = [
            RunRecord.load(Path(place, name, "seed-0")) for place in ("here", "there")
        ]
        assert records[0].chain == records[1].chain
        assert records[0].accuracy == records[1].accuracy


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("cloud:here", "on: must begin with one of"),
        ("dask://127.0.0.1:9", "must be the address of a Dask scheduler"),
        ("slurm:cluster=local,wall=5", "must be slurm:NAME=VALUE,... of submitit"),
        ("slurm:60", "Parameter '60' need to be prefixed"),
        ("slurm:timeout_min=6h", 'Parameter "timeout_min" expected type'),
    ],
)
def test_a_wrong_address_is_one_line(address, words, monkeypatch):
    pytest.importorskip("distributed")
    pytest.importorskip("submitit")
    module = importlib.import_module("privplan.contrib.schedulers.dask")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 1)
    with pytest.raises(InputError, match=words), clusters.spread_on(address):
        pass


class Ended:
    """A job that has failed, and whose future is cancelled while it is asked."""

    future = None

    def done(self):
        return True

    def cancel(self):
        pass

    def result(self):
        self.future.cancel()
        raise RuntimeError("the worker died")


def test_a_future_that_is_cancelled_while_its_job_fails_ends_no_watch():
    jobs = [Ended(), Ended()]
    waiting = iter(jobs)
    executor = slurm.JobExecutor(SimpleNamespace(submit=lambda work: next(waiting)))
    executor.shutdown()  # no watcher: the test looks itself
    for job in jobs:
        job.future = executor.submit(None)
    executor._look()
    assert [job.future.cancelled() for job in jobs] == [True, True]
    assert executor._open == []
