"""A network over area and number of rooms, and the loss of its training."""

from torch import Tensor, nn


class Net(nn.Sequential):
    """Two dense layers and one output, the price."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Huber's loss with a threshold of one half, the mean over the records."""
    value: Tensor = nn.functional.huber_loss(outputs, targets, delta=0.5)
    return value
