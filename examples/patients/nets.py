"""A network over the four inputs age, sex=f, sex=m and pressure."""

from torch import nn


class Net(nn.Sequential):
    """Two dense layers and one output, the logit of a relapse."""

    def __init__(self, hidden: int = 10) -> None:
        super().__init__(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, 1))
