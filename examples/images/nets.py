"""A sequential network, which is compiled into the fast kernels."""

from torch import nn


class Net(nn.Sequential):
    """One convolution and a dense layer over images of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 4, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(36, 2),
        )
