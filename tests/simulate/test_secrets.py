"""No clear sum, personal vector or record is in a byte of a folder or bundle."""

import numpy as np
import pytest

from privplan.planning.solver import solve
from privplan.publishing import publish
from privplan.record import CHECKPOINT, VERDICT
from privplan.spec.spec import Spec
from simulate.runs import run
from simulate.runs.request import Request
from simulate.runs.run import execute
from tests.simulate.conftest import interrupt
from tests.simulate.secrets import traces, watched, window_of

ROUNDS = 6
GROUPS = [("strict", 2.0), ("loose", 6.0)]


def _plan(law, unit="client"):
    record = {"records": 20} if unit == "record" else {}
    groups = [
        {"name": name, "clients": 12, "epsilon": epsilon} for name, epsilon in GROUPS
    ]
    data = {
        "name": "tiny",
        "groups": [{**group, **record} for group in groups],
        "rounds": ROUNDS,
        "sampling": law,
        "clipping_norm": 0.3,
        "unit": unit,
        "model": {"name": "mlp-digits", "parameters": 2410},
        "delta": 1e-3,
        "local": {"steps": 3, "batch_size": 8, "momentum": 0.5},
    }
    if not law.startswith(
        ("banded_separation", "cyclic_allocation", "random_allocation")
    ):
        data["cohort"] = 24 if law == "full" else 6
    return solve(Spec.parse(data))


CASES = [
    ("planned", "poisson", "client"),
    ("planned", "fixed_size", "client"),
    ("planned", "full", "client"),
    ("planned", "cyclic_poisson:3", "client"),
    ("planned", "banded_separation:3", "client"),
    ("planned", "cyclic_allocation:2:3", "client"),
    ("planned", "random_allocation:3", "client"),
    ("planned", "capped_poisson:2", "client"),
    ("GDPFed+", "poisson", "client"),
    ("DP2-FedSAM", "poisson", "client"),
    ("CENTAUR", "poisson", "client"),
    ("PPSGD", "poisson", "client"),
    ("CENTAUR", "poisson", "record"),
    ("DPFedAvg", "poisson", "record"),
]
QUICK = {CASES[0], CASES[4], CASES[8]}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in QUICK else pytest.mark.slow)
        for case in CASES
    ],
)
def test_no_secret_is_left(case, tmp_path, monkeypatch):
    name, law, unit = case
    folder = tmp_path / "run"
    bundle = tmp_path / "bundle"
    request = Request(_plan(law, unit), name, "digits", folder, seed=3, noise="secure")
    monkeypatch.setattr(run, "SAVE_SECONDS", 0.0)  # a checkpoint after every round
    with watched() as secrets:
        interrupt(request, 3)
        assert secrets.records
        assert secrets.sums or unit == "record"

        # What the next round needs is in the checkpoint, which only its owner may read.
        traces_left = traces(folder, secrets)
        assert set(traces_left) <= {CHECKPOINT}, traces_left
        assert (folder / CHECKPOINT).stat().st_mode & 0o777 == 0o600

        execute(request)
    assert traces(folder, secrets) == {}
    publish(folder, bundle)
    assert traces(bundle, secrets) == {}


def test_a_secret_is_found_wherever_it_is_written(tmp_path):
    folder = tmp_path / "run"
    with watched() as secrets:
        execute(Request(_plan("poisson"), "DP2-FedSAM", "digits", folder, seed=3))
    assert traces(folder, secrets) == {}
    for kind in ("sums", "personal", "records"):
        vectors = [row for row in getattr(secrets, kind) if window_of(row) is not None]
        (folder / VERDICT).write_bytes(b"odd" + vectors[0].astype("<f8").tobytes())
        assert traces(folder, secrets) == {VERDICT: {kind}}
        np.savez_compressed(folder / "sums.npz", a=vectors[-1].astype("<f4"))
        assert kind in traces(folder, secrets)["sums.npz"]
        (folder / "sums.npz").unlink()
