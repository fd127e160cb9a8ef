"""LPIPS beside torchmetrics, with seeded weights in the layout of torchvision."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from privplan.errors import InputError, MissingDataError
from privplan.report.attacked import attacked_table
from simulate.attacks.lpips import NETWORKS, lpips
from simulate.attacks.measures import Candidates, better, null_scores, scores
from simulate.attacks.report import attacks_on_run
from tests.simulate.attacks.test_command import _command, call  # noqa: F401


def _alexnet():
    """The features of torchvision's AlexNet."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(256, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
    )


def _vgg():
    """The features of torchvision's VGG-16."""
    layers = []
    channels = 3
    for block in ([64] * 2, [128] * 2, [256] * 3, [512] * 3, [512] * 3):
        for width in block:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2, 2))
    return nn.Sequential(*layers)


FEATURES = {"alex": _alexnet, "vgg": _vgg}


def _stored(name, folder):
    """A network with seeded weights, and its file in a folder for downloads."""
    torch.manual_seed(5)
    features = FEATURES[name]()
    tensors = {f"features.{key}": value for key, value in features.state_dict().items()}
    folder.mkdir(parents=True)
    torch.save(tensors, folder / NETWORKS[name].file)
    return features


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Without the user's own downloads."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize("name", ["alex", "vgg"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 70, 66)])
def test_distances_are_those_of_torchmetrics(name, shape, alone, monkeypatch):
    # Imported here, since every worker loads each file.
    library = pytest.importorskip("torchmetrics.functional.image.lpips")
    features = _stored(name, alone / "home" / "hub" / "checkpoints")
    monkeypatch.setattr(library, "_get_tv_model_features", lambda *_: features)
    images = torch.rand(2, *shape)
    originals = torch.rand(2, *shape)
    height, width = (max(length, 64) for length in shape[1:])
    reference = library._LPIPS(net=name)
    wide = [
        functional.interpolate(
            batch.repeat(1, 3 // shape[0], 1, 1), (height, width), mode="bilinear"
        )
        for batch in (images, originals)
    ]
    with torch.no_grad():
        expected = reference(*wide, normalize=True).flatten()
    measured = lpips(name, None, False)
    assert measured(images, originals) == pytest.approx(expected.numpy(), rel=1e-4)
    assert measured(images, images) == pytest.approx(np.zeros(2), abs=1e-9)


def test_weights_below_the_data_folder_are_read_and_others_refused(alone):
    folder = alone / "data" / "lpips"
    _stored("alex", folder)
    assert len(lpips("alex", alone / "data", False).stages) == 5
    (folder / NETWORKS["alex"].file).write_bytes(b"nothing")
    with pytest.raises(InputError, match="lpips: must hold weights"):
        lpips("alex", alone / "data", False)
    with pytest.raises(MissingDataError, match=r"vgg16.* missing; put https://.*"):
        lpips("vgg", alone / "data", False)


def test_a_download_is_calls_for_and_checked(alone, monkeypatch):
    calls = []
    monkeypatch.setattr(
        torch.hub, "download_url_to_file", lambda *words, **_: calls.append(words)
    )
    with pytest.raises(InputError, match="must hold weights"):
        lpips("alex", alone, True)  # nothing came, and nothing can be read
    [(address, path, checksum)] = calls
    assert address.endswith(f"/models/alexnet-owt-{checksum}.pth")
    assert path == str(alone / "lpips" / NETWORKS["alex"].file)


def test_less_is_better_than_the_null_rows(alone):
    _stored("alex", alone / "lpips")
    measure = lpips("alex", alone, False)
    images = [torch.rand(1, 1, 28, 28) for _ in range(3)]
    among = Candidates(torch.rand(9, 1, 28, 28))
    near = [(image + 0.001).clamp(0, 1) for image in images]
    reached = scores(near, images, among, measure)
    nulls = null_scores(near, images, among, 0, measure)
    assert "lpips" in better(reached, nulls)
    assert "lpips" not in better(nulls["noise"], nulls)
    assert "lpips" not in better(scores(near, images, among), nulls)


def test_the_table_has_a_column_only_where_it_is_measured(short_path, alone):
    data = alone / "data"
    arguments = ["attack", short_path, "--algorithm", "FedAvg", "--attack", "closed"]
    arguments += ["--images", 4, "--lpips", "alex", "--data-dir", data]
    absent = call(*arguments, "-o", alone / "absent")
    assert absent.exit_code == 0, absent.stderr
    assert absent.stderr.count("are missing; put https://") == 1
    assert "LPIPS" not in (alone / "absent" / "attacks.md").read_text()
    _stored("alex", data / "lpips")
    done = call(*arguments, "-o", alone / "measured")
    assert done.exit_code == 0, done.stderr
    table = (alone / "measured" / "attacks.md").read_text()
    assert "| SSIM | LPIPS | re-identified |" in table
    assert "enlarged to at least 64 pixels" in table
    [row] = json.loads((alone / "measured" / "attacks.json").read_text())["rows"]
    distances = [null["lpips"][0] for null in row["nulls"].values()]
    assert row["scores"]["lpips"][0] < min(distances)
    attacks_on_run([row]).save(alone)
    report = attacked_table(alone)
    assert f"({min(distances):.3f})" in str(report)
