"""Convolutional networks and perceptrons, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from privplan.errors import InputError
from simulate.models.chain import Chain
from simulate.models.layers import (
    Conv,
    Layer,
    Linear,
    Pool,
    Relu,
    features,
    input_shapes,
)
from simulate.models.registry import MODELS

# Shapes of records.
GREY = (1, 28, 28)
COLOUR = (3, 32, 32)
DIGITS = (1, 8, 8)
LEAK = 0.01  # negative slope of HyperFL's activations, PyTorch's default


@dataclass(frozen=True)
class ConvNet:
    """Convolutions, each with pooling and then a rectifier, and dense layers.

    Attributes:
        shape: default shape of one record.
        convolutions: output channels, kernel side and padding of each.
        hidden: widths of the dense layers before the last, with rectifiers.
        leak: negative slope of the rectifiers.
    """

    shape: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int], ...] = ()
    hidden: tuple[int, ...] = ()
    leak: float = 0.0

    def __call__(
        self, name: str, *, shape: tuple[int, ...] | None = None, classes: int = 10
    ) -> Chain:
        """The network for records of a shape."""
        shape = shape or self.shape
        layers: list[Layer] = []
        channels = shape[0]
        for outputs, size, padding in self.convolutions:
            layers += [Conv(channels, outputs, size, padding), Pool(), Relu(self.leak)]
            channels = outputs
        width = features(tuple(layers), shape)
        if min(map(min, input_shapes((*layers, Relu()), shape))) < 1:
            rule = f"must have records large enough for {name}"
            raise InputError.one("model.name", rule, shape)
        for units in self.hidden:
            layers += [Linear(width, units), Relu(self.leak)]
            width = units
        return Chain(name, shape, classes, (*layers, Linear(width, classes)))


NETWORKS: Mapping[str, ConvNet] = MappingProxyType(
    {
        # Robust-HDP, Table 5, for MNIST and Fashion-MNIST.
        "cnn-2": ConvNet(GREY, ((16, 5, 2), (32, 5, 2))),
        # Its accuracy without privacy is nearest to that published for GDPFed+.
        "cnn-2-valid": ConvNet(GREY, ((16, 5, 0), (32, 5, 0))),
        # 2-layer and 3-layer CNNs of GDPFed+, which states neither widths nor
        # parameters.
        "cnn-2-wide": ConvNet(GREY, ((32, 5, 0), (64, 5, 0))),
        "cnn-3": ConvNet(COLOUR, ((32, 3, 1), (16, 3, 1), (48, 3, 1)), (64,)),
        # DP2-FedSAM, Section 5.1, for CIFAR-10.
        "cnn-dp2-fedsam": ConvNet(
            COLOUR, ((64, 3, 0), (128, 3, 0), (256, 3, 0)), (256, 128)
        ),
        # HyperFL's appendix states channels, dense layers and activation; kernels and
        # padding are those of the work that it follows (Xu, Tong and Huang 2023).
        "cnn-hyperfl-2": ConvNet(GREY, ((16, 5, 0), (32, 5, 1)), (128,), LEAK),
        "cnn-hyperfl-3": ConvNet(
            COLOUR, ((16, 5, 0), (32, 5, 1), (64, 3, 1)), (128,), LEAK
        ),
        # Small enough to train on scikit-learn's digits in seconds.
        "cnn-digits": ConvNet(DIGITS, ((16, 3, 1),)),
        "mlp-digits": ConvNet(DIGITS, hidden=(32,)),
    }
)
for _name, _network in NETWORKS.items():
    MODELS.register(_name, _network)
