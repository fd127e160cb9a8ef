"""Initial parameters from a file: what is loaded, what is drawn, and files that do not fit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from privplan.planning.choices import recipe_lines
from privplan.spec.training import Initial
from simulate.algorithms.registry import algorithm
from simulate.models.network import save, started
from simulate.models.registry import model
from tests.simulate.small import plan, setting

NET = model("mlp-digits")
VALUES = torch.arange(NET.parameters, dtype=torch.float32) / 100


@pytest.fixture
def file(tmp_path):
    save(tmp_path / "start.npy", VALUES)
    return tmp_path / "start.npy"


def source(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pretrained(path: Path, source: str) -> Initial:
    return of(path, path.read_bytes()).model_copy(update={"source": source, "head": "drawn"})


def of(path: Path, content: bytes) -> Initial:
    path.write_bytes(content)
    return Initial(file=str(path), sha256=hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("name", ["mlp-digits", "cnn-2-valid"])
def test_a_drawn_head_is_the_models_own(tmp_path, name):
    net = model(name)
    values = torch.full((net.parameters,), 0.5)
    save(tmp_path / "start.npy", values)
    begun = started(net, pretrained(tmp_path / "start.npy", "mnist")).initial(source())
    own = torch.zeros(net.parameters, dtype=torch.bool)
    own[net.head] = True
    assert torch.equal(begun[own], net.initial(source())[own])
    assert bool((begun[~own] == 0.5).all())


def test_every_method_starts_from_them(file):
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
