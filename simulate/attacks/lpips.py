"""LPIPS: the distance of two images in the features of a trained network.

R. Zhang, P. Isola, A. Efros, E. Shechtman, O. Wang, The Unreasonable Effectiveness of
Deep Features as a Perceptual Metric, CVPR 2018, Eq. 1: features after chosen layers are
divided by their norm over channels; their squared differences are weighted by channel
and averaged over positions. Lower is nearer.

The networks are AlexNet and VGG-16 with torchvision's weights for ImageNet. Their file
is looked for where PyTorch keeps downloads, then below the data folder. The weights of
the channels come with torchmetrics.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import InputError, MissingDataError
from simulate.data.locations import data_folder

LEAST_SIDE = 64  # pixels to which smaller images are enlarged; AlexNet needs as many
_BATCH = 50  # images whose features are held at a time
_TINY_SQUARE = 1e-8  # added to squared norms of features, as in torchmetrics
# Means and deviations of the channels of ImageNet's images in [-1, 1] (Zhang et al.).
_MEANS = (-0.030, -0.088, -0.188)
_DEVIATIONS = (0.458, 0.448, 0.450)
_ADDRESS = "https://download.pytorch.org/models/"
_FOLDER = "lpips"  # below the data folder


class _Convolution(NamedTuple):
    """A convolution with the ReLU after it."""

    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1
    is_compared: bool = False


class _Pool(NamedTuple):
    """Maximum pooling with stride 2."""

    kernel: int


class _Network(NamedTuple):
    """File of the weights, the start of its SHA-256 sum, and layers."""

    file: str
    checksum: str
    layers: tuple[_Convolution | _Pool, ...]


def _vgg_block(channels: int, convolutions: int) -> tuple[_Convolution, ...]:
    """Convolutions of VGG between two pools; the last is compared."""
    compared = _Convolution(channels, is_compared=True)
    return (*[_Convolution(channels)] * (convolutions - 1), compared)


NETWORKS = {
    "alex": _Network(
        "alexnet-owt-7be5be79.pth",
        "7be5be79",
        (
            _Convolution(64, 11, 4, 2, is_compared=True),
            _Pool(3),
            _Convolution(192, 5, 1, 2, is_compared=True),
            _Pool(3),
            _Convolution(384, is_compared=True),
            _Convolution(256, is_compared=True),
            _Convolution(256, is_compared=True),
        ),
    ),
    "vgg": _Network(
        "vgg16-397923af.pth",
        "397923af",
        (
            *_vgg_block(64, 2),
            _Pool(2),
            *_vgg_block(128, 2),
            _Pool(2),
            *_vgg_block(256, 3),
            _Pool(2),
            *_vgg_block(512, 3),
            _Pool(2),
            *_vgg_block(512, 3),
        ),
    ),
}


@dataclass(frozen=True)
class Lpips:
    """The measure.

    Attributes:
        stages: of the network, each up to the next compared layer.
        weights: of the channels of each compared layer [1, channels, 1, 1].
    """

    stages: tuple[nn.Module, ...]
    weights: tuple[Tensor, ...]

    @torch.no_grad()
    def __call__(self, images: Tensor, originals: Tensor) -> np.ndarray:
        """Distances [n] of pixels in [0, 1], shape [n, 1 or 3, height, width]."""
        batches = (torch.split(images, _BATCH), torch.split(originals, _BATCH))
        pairs = zip(*batches, strict=True)
        return torch.cat([self._distances(*pair) for pair in pairs]).double().numpy()

    def _distances(self, images: Tensor, originals: Tensor) -> Tensor:
        """Distances of a batch."""
        distances = torch.zeros(len(images))
        features = (_inputs(images), _inputs(originals))
        for stage, weights in zip(self.stages, self.weights, strict=True):
            features = (stage(features[0]), stage(features[1]))
            units = [values / _norm(values) for values in features]
            squares = (units[0] - units[1]).square()
            distances += (weights * squares).sum(1).mean((1, 2))
        return distances


def _inputs(images: Tensor) -> Tensor:
    """Three channels of at least ``LEAST_SIDE`` pixels, scaled for the network."""
    three = images.float().expand(-1, 3, -1, -1) * 2 - 1
    means = torch.tensor(_MEANS).view(3, 1, 1)
    deviations = torch.tensor(_DEVIATIONS).view(3, 1, 1)
    size = [max(length, LEAST_SIDE) for length in images.shape[-2:]]
    return functional.interpolate((three - means) / deviations, size, mode="bilinear")


def _norm(features: Tensor) -> Tensor:
    """Norms over channels [n, 1, height, width]."""
    squares = features.square().sum(1, keepdim=True)
    return (squares + _TINY_SQUARE).sqrt()


def lpips(name: str, data_dir: Path | None, download: bool) -> Lpips:
    """The measure with a network's weights from a file.

    Args:
        name: of the network, of ``NETWORKS``.
        data_dir: the data folder; its usual place when None.
        download: whether a missing file may be downloaded.

    Raises:
        MissingDataError: where torchmetrics or the file is missing.
        InputError: for a file that holds something else.
    """
    package = importlib.util.find_spec("torchmetrics")
    if package is None or package.origin is None:
        message = "lpips: needs torchmetrics; pip install 'privplan[metrics]'"
        raise MissingDataError(message)
    folder = Path(package.origin).parent / "functional/image/lpips_models"
    network = NETWORKS[name]
    path = _file_of(network, data_dir, download)
    try:
        stages = _stages(network, _read(path))
    except Exception:  # readers of a damaged file can fail in any way
        rule = "must hold weights as torchvision writes them"
        raise InputError.one("lpips", rule, str(path)) from None
    linear = _read(folder / f"{name}.pth")
    weights = [linear[f"lin{index}.model.1.weight"] for index in range(len(stages))]
    return Lpips(stages, tuple(weights))


def _file_of(network: _Network, data_dir: Path | None, download: bool) -> Path:
    """The file with a network's weights, downloaded if allowed."""
    of_torch = Path(torch.hub.get_dir()) / "checkpoints" / network.file
    path = data_folder(data_dir) / _FOLDER / network.file
    if of_torch.is_file():
        return of_torch
    if path.is_file():
        return path
    address = _ADDRESS + network.file
    remedy = f"put {address} there or pass --download"
    if not download:
        raise MissingDataError(f"lpips: {path} and {of_torch} are missing; {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(
            address, str(path), network.checksum, progress=False
        )
    except (OSError, RuntimeError) as error:
        message = f"lpips: could not fetch {address} ({error})"
        raise MissingDataError(message) from None
    return path


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of weights by name."""
    tensors: dict[str, Tensor] = torch.load(path, "cpu", weights_only=True)
    return tensors


def _stages(network: _Network, tensors: dict[str, Tensor]) -> tuple[nn.Module, ...]:
    """A network up to its last compared layer, with weights as torchvision has them."""
    stages: list[nn.Module] = []
    stage: list[nn.Module] = []
    channels = 3
    number = 0  # of the layer in the file, where each ReLU is a layer, too
    for layer in network.layers:
        if isinstance(layer, _Pool):
            stage.append(nn.MaxPool2d(layer.kernel, stride=2))
            number += 1
            continue
        convolution = nn.Conv2d(
            channels, layer.channels, layer.kernel, layer.stride, layer.padding
        )
        convolution.load_state_dict(
            {
                parameter: tensors[f"features.{number}.{parameter}"]
                for parameter in ("weight", "bias")
            }
        )
        stage += [convolution, nn.ReLU()]
        channels = layer.channels
        number += 2
        if layer.is_compared:
            stages.append(nn.Sequential(*stage))
            stage = []
    return tuple(stages)
