"""A data set, a model and a partition of another package, used through the command line."""

import json

import numpy as np
import pytest
import torch
import yaml
from click.testing import CliRunner

from privplan.cli import main
from privplan.errors import InputError
from privplan.spec.presets import preset
from simulate.data.dataset import Dataset
from simulate.data.partition.schemes import PARTITIONS, SchemeKind, scheme
from simulate.data.registry import DATASETS, load
from simulate.models.fast import Chain
from simulate.models.layers import Linear, Relu
from simulate.models.registry import MODELS, model

CLASSES = ("dark", "bright")


def toy_dataset(data, download):
    """Images of 2x2 pixels; a bright image has pixels above 127."""
    draw = np.random.default_rng(0)
    parts = []
    for count in (400, 100):
        labels = np.arange(count) % 2
        pixels = draw.integers(0, 128, (count, 1, 2, 2)) + 128 * labels[:, None, None, None]
        parts += [torch.from_numpy(pixels.astype(np.uint8)), torch.from_numpy(labels)]
    return Dataset("toy", *parts, CLASSES, mean=128.0, std=64.0)


def toy_model(name, *, shape=(1, 2, 2), classes=2):
    """A perceptron with three hidden units."""
    width = int(np.prod(shape))
    return Chain(name, shape, classes, (Linear(width, 3), Relu(), Linear(3, classes)))


def toy_partition(request):
    """Records by their index modulo the number of clients."""
    clients = request.clients
    return request.stored([np.arange(one, len(request.labels), clients) for one in range(clients)])


def parse(rest):
    if rest:
        raise ValueError(rest)
    return toy_partition


COMPONENTS = {
    "toy": (DATASETS, toy_dataset),
    "toy-net": (MODELS, toy_model),
    "striped": (PARTITIONS, SchemeKind("striped", "records by index modulo clients", parse)),
}


@pytest.fixture(autouse=True)
def _registered():
    """The components, registered by a call."""
    kinds = [kind for kind, _ in COMPONENTS.values()]
    for kind in kinds:
        kind.names()
    before = [(dict(kind._components), dict(kind._points)) for kind in kinds]
    for name, (kind, component) in COMPONENTS.items():
        kind.register(name, component)
    yield
    for kind, (components, points) in zip(kinds, before, strict=True):
        vars(kind).update(_components=components, _points=points)


def test_components_of_another_package_are_trained_and_verified(tmp_path):
    spec = yaml.safe_load(preset("digits"))
    parameters = 4 * 3 + 3 + 3 * 2 + 2
    spec = {**spec, "rounds": 6, "model": {"name": "toy-net", "parameters": parameters}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    plan, run = tmp_path / "plan.json", tmp_path / "run"
    options = ("--algorithm", "FedAvg", "--dataset", "toy", "--partition", "striped")
    for words in (
        ("solve", tmp_path / "spec.yaml", "-o", plan),
        ("simulate", plan, *options, "-o", run),
    ):
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
    record = json.loads((run / "record.json").read_text())
    assert (record["dataset"], record["partition"]) == ("toy", "striped")
    assert record["accuracy"] > 0.9  # one half by chance
    shown = CliRunner().invoke(main, ["simulate", "--help"], terminal_width=10_000).output
    assert " toy." in shown
    assert " striped," in shown


def test_components_of_another_package_are_found_by_name(tmp_path):
    assert load("TOY", tmp_path).classes == CLASSES
    assert model("toy-net:1x3x3:5").parameters == 9 * 3 + 3 + 3 * 5 + 5
    assert model("toy-net").parameters == 23
    assert scheme("striped+correlated:0.5").correlation == 0.5
    with pytest.raises(InputError, match=r"must be by-class.*, striped, SCHEME\+correlated:RHO"):
        scheme("striped:2")
