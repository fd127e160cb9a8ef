"""Initial parameters from a file: what is loaded, what is drawn, and files that do not fit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from privplan.errors import InputError
from privplan.planning.choices import recipe_lines
from privplan.spec.training import Initial
from simulate.algorithms.registry import algorithm
from simulate.models.network import save, started
from simulate.models.registry import model
from tests.simulate.small import plan, setting

NET = model("mlp-digits")
VALUES = torch.arange(NET.parameters, dtype=torch.float32) / 100


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save(tmp_path / "start.npy", VALUES)
    return tmp_path / "start.npy"


def source(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pretrained(path: Path, source: str) -> Initial:
    return of(path, path.read_bytes()).model_copy(update={"source": source, "head": "drawn"})


def of(path: Path, content: bytes) -> Initial:
    path.write_bytes(content)
    return Initial(file=str(path), sha256=hashlib.sha256(content).hexdigest())


def test_all_parameters_are_loaded(file: Path) -> None:
    initial = pretrained(file, "digits").model_copy(update={"head": "loaded"})
    assert torch.equal(started(NET, initial).initial(source()), VALUES)


@pytest.mark.parametrize("name", ["mlp-digits", "cnn-2-valid"])
def test_a_drawn_head_is_the_models_own(tmp_path: Path, name: str) -> None:
    net = model(name)
    values = torch.full((net.parameters,), 0.5)
    save(tmp_path / "start.npy", values)
    begun = started(net, pretrained(tmp_path / "start.npy", "mnist")).initial(source())
    own = torch.zeros(net.parameters, dtype=torch.bool)
    own[net.head] = True
    assert torch.equal(begun[own], net.initial(source())[own])
    assert bool((begun[~own] == 0.5).all())


def test_every_method_starts_from_them(file: Path) -> None:
    spec = plan().spec
    initial = pretrained(file, "digits").model_copy(update={"head": "loaded"})
    planned = plan().model_copy(
        update={
            "spec": spec.model_copy(
                update={"model": spec.model.model_copy(update={"initial": initial})}
            )
        }
    )
    for name in ("planned", "FedAvg", "GDPFed"):
        run = setting(algorithm(name, planned))
        assert torch.equal(run.start, VALUES)
    [line] = [line for line in recipe_lines(planned) if line.startswith("initial parameters")]
    assert "trained on digits" in line
    assert "no budget counts them" in line
    assert planned.digest != plan().digest


def test_files_that_do_not_fit_are_one_line(tmp_path: Path, file: Path) -> None:
    good = pretrained(file, "digits")
    short, broken = tmp_path / "short.npy", tmp_path / "broken.npy"
    np.save(short, np.zeros(7))
    integers = tmp_path / "integers.npy"
    np.save(integers, np.zeros(NET.parameters, dtype=int))
    infinite = tmp_path / "infinite.npy"
    np.save(infinite, np.full(NET.parameters, 1e300))
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{}] * 3, dtype=object), allow_pickle=True)
    cases = {
        "file: must be a file that can be read": good.model_copy(update={"file": "none.npy"}),
        "sha256: must be that of": good.model_copy(update={"sha256": "0" * 64}),
        f"must have one array of the {NET.parameters} parameters": of(short, short.read_bytes()),
        "must be a .npy file": of(broken, b"not an array"),
        "must be a .npy file with floating-point": of(integers, integers.read_bytes()),
        "must have numbers that are finite": of(infinite, infinite.read_bytes()),
        "file: must be a .npy file with": of(pickled, pickled.read_bytes()),
    }
    for said, initial in cases.items():
        with pytest.raises(InputError, match=said) as caught:
            started(NET, initial)
        assert len(caught.value.faults) == 1


def test_solving_warns_of_a_file_that_runs_will_refuse(tmp_path: Path, file: Path) -> None:
    good = pretrained(file, "digits")
    assert good.warnings() == []
    assert Initial(file=good.file, sha256=good.sha256.upper()) == good.model_copy(
        update={"head": "loaded", "source": None}
    )
    file.write_bytes(b"other")
    [line] = good.warnings()
    assert line.startswith("runs of this plan are refused until model.initial.sha256: must be")
