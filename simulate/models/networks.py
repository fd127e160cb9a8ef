"""`cnn-2`: two padded 5x5 convolutions and a dense layer, 28,938 parameters, for 28x28 images.

`cnn-2-valid`: `cnn-2` without padding, 18,378 parameters, for 28x28 images.

`cnn-2-wide`: 32 and 64 channels without padding, 62,346 parameters, for 28x28 images.

`cnn-3`: three padded 3x3 convolutions, two dense layers, 62,346 parameters, for 32x32 images.

`cnn-digits`: one 3x3 convolution and a dense layer, 2,730 parameters, for 8x8 images.

`cnn-dp2-fedsam`: three convolutions, three dense layers, 667,402 parameters, 32x32 images.

`cnn-hyperfl-2`, `cnn-hyperfl-3`: the target networks of HyperFL, 117,066 and 107,690 parameters.

The paper gives channels, dense layers and activation (appendix on experimental settings); sizes
and padding of the convolutions are those of the work that it follows (Xu, Tong and Huang 2023).

`mlp-digits`: one hidden layer of 32, 2,410 parameters, for 8x8 images.
"""

from __future__ import annotations

from simulate.models.chain import Chain, classifier
from simulate.models.layers import Conv, Pool, Relu


def cnn_2(name: str = "cnn-2", shape: tuple[int, ...] = (1, 28, 28), classes: int = 10) -> Chain:
    """The network of the MNIST and Fashion-MNIST experiments (Robust-HDP, Table 5).

    The positive part comes after the pooling: the same function as before it, on a quarter of
    the values.
    """
    body = (
        Conv(shape[0], 16, size=5, padding=2),
        Pool(),
        Relu(),
        Conv(16, 32, size=5, padding=2),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body)


def cnn_2_valid(
    name: str = "cnn-2-valid", shape: tuple[int, ...] = (1, 28, 28), classes: int = 10
) -> Chain:
    """The network whose accuracy without privacy is nearest to the published one."""
    body = (
        Conv(shape[0], 16, size=5, padding=0),
        Pool(),
        Relu(),
        Conv(16, 32, size=5, padding=0),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body)


def cnn_2_wide(
    name: str = "cnn-2-wide", shape: tuple[int, ...] = (1, 28, 28), classes: int = 10
) -> Chain:
    """A 2-layer CNN of the usual widths; GDPFed+ has one and says neither widths nor count."""
    body = (
        Conv(shape[0], 32, size=5, padding=0),
        Pool(),
        Relu(),
        Conv(32, 64, size=5, padding=0),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body)


def cnn_3(name: str = "cnn-3", shape: tuple[int, ...] = (3, 32, 32), classes: int = 10) -> Chain:
    """A 3-layer CNN for SVHN; GDPFed+ has one and says neither its widths nor its count."""
    body = (
        Conv(shape[0], 32, size=3, padding=1),
        Pool(),
        Relu(),
        Conv(32, 16, size=3, padding=1),
        Pool(),
        Relu(),
        Conv(16, 48, size=3, padding=1),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body, hidden=(64,))


def cnn_digits(
    name: str = "cnn-digits", shape: tuple[int, ...] = (1, 8, 8), classes: int = 10
) -> Chain:
    """A network small enough to train on scikit-learn's digits in seconds."""
    body = (
        Conv(shape[0], 16, size=3, padding=1),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body)


def cnn_dp2_fedsam(
    name: str = "cnn-dp2-fedsam", shape: tuple[int, ...] = (3, 32, 32), classes: int = 10
) -> Chain:
    """The network of the CIFAR-10 experiments of DP2-FedSAM (Section 5.1), without padding."""
    body = (
        Conv(shape[0], 64, size=3, padding=0),
        Pool(),
        Relu(),
        Conv(64, 128, size=3, padding=0),
        Pool(),
        Relu(),
        Conv(128, 256, size=3, padding=0),
        Pool(),
        Relu(),
    )
    return classifier(name, shape, classes, body, hidden=(256, 128))


LEAK = 0.01
"""Share of the negative part that the activations keep, PyTorch's default."""


def cnn_hyperfl_2(
    name: str = "cnn-hyperfl-2", shape: tuple[int, ...] = (1, 28, 28), classes: int = 10
) -> Chain:
    """Two convolutions and two dense layers, for EMNIST and Fashion-MNIST."""
    body = (
        Conv(shape[0], 16, size=5, padding=0),
        Pool(),
        Relu(LEAK),
        Conv(16, 32, size=5, padding=1),
        Pool(),
        Relu(LEAK),
    )
    return classifier(name, shape, classes, body, hidden=(128,), leak=LEAK)


def cnn_hyperfl_3(
    name: str = "cnn-hyperfl-3", shape: tuple[int, ...] = (3, 32, 32), classes: int = 10
) -> Chain:
    """Three convolutions and two dense layers, for CIFAR-10 and CINIC-10."""
    body = (
        Conv(shape[0], 16, size=5, padding=0),
        Pool(),
        Relu(LEAK),
        Conv(16, 32, size=5, padding=1),
        Pool(),
        Relu(LEAK),
        Conv(32, 64, size=3, padding=1),
        Pool(),
        Relu(LEAK),
    )
    return classifier(name, shape, classes, body, hidden=(128,), leak=LEAK)


def mlp_digits(
    name: str = "mlp-digits", shape: tuple[int, ...] = (1, 8, 8), classes: int = 10
) -> Chain:
    """The smallest network of the table; it needs no convolution."""
    return classifier(name, shape, classes, (), hidden=(32,))
