"""Residual networks with group normalisation, for colour images of 32 x 32 pixels.

He et al. 2016, "Deep residual learning for image recognition", with the batch
normalisation replaced by groups of channels (Wu and He 2018, "Group normalization"),
since statistics over a mini-batch would mix records. `resnet-10` (DP-FedPGN),
`resnet-18` (GDPFed+, DP-FedPGN) and `resnet-34` begin with a 3x3 convolution, as is
usual for small images; `resnet-18-imagenet` (DP2-FedSAM, Robust-HDP) and
`resnet-34-imagenet` (Robust-HDP) begin with the original 7x7 convolution and pooling,
both with stride two. Table 6 of Robust-HDP counts 17,024 parameters fewer for the
latter: the scales and shifts of the normalisation.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from simulate.models.modular import WIDE, Modular
from simulate.models.registry import MODELS

GROUPS = 32  # groups of channels of every normalisation, the default of Wu and He
WIDTHS = (64, 128, 256, 512)  # channels of the four stages


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut; the stride is that of the first one."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                nn.GroupNorm(GROUPS, outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, inputs, H, W] to [B, outputs, H / stride, W / stride]."""
        if self.conv1.out_channels >= WIDE:
            x = x.contiguous()
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y)).add_(self.shortcut(x))
        return functional.relu(y, inplace=True)


class ResNet(nn.Module):
    """A residual network with ``blocks`` in each of four stages."""

    def __init__(
        self, blocks: tuple[int, ...], channels: int, classes: int, imagenet: bool
    ) -> None:
        super().__init__()
        inputs = WIDTHS[0]
        if imagenet:
            self.conv = nn.Conv2d(channels, inputs, 7, 2, 3, bias=False)
        else:
            self.conv = nn.Conv2d(channels, inputs, 3, 1, 1, bias=False)
        self.norm = nn.GroupNorm(GROUPS, inputs)
        self.pool = nn.MaxPool2d(3, 2, 1) if imagenet else nn.Identity()
        stages = []
        for outputs, count in zip(WIDTHS, blocks, strict=True):
            for index in range(count):
                # Each stage but the first begins with half the sides.
                is_halved = index == 0 and outputs != WIDTHS[0]
                stages.append(Block(inputs, outputs, 2 if is_halved else 1))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, channels, H, W] to logits [B, classes]."""
        x = self.pool(functional.relu(self.norm(self.conv(x)), inplace=True))
        logits: Tensor = self.head(self.stages(x).mean((2, 3)))
        return logits


def resnet(
    name: str,
    *,
    shape: tuple[int, ...] = (3, 32, 32),
    classes: int = 10,
    blocks: tuple[int, ...],
    imagenet: bool = False,
) -> Modular:
    """A residual network."""
    return Modular(
        name, shape, classes, partial(ResNet, blocks, shape[0], classes, imagenet)
    )


_RESNET_18 = (2, 2, 2, 2)
_RESNET_34 = (3, 4, 6, 3)
MODELS.register("resnet-10", partial(resnet, blocks=(1, 1, 1, 1)))
MODELS.register("resnet-18", partial(resnet, blocks=_RESNET_18))
MODELS.register("resnet-34", partial(resnet, blocks=_RESNET_34))
MODELS.register("resnet-18-imagenet", partial(resnet, blocks=_RESNET_18, imagenet=True))
MODELS.register("resnet-34-imagenet", partial(resnet, blocks=_RESNET_34, imagenet=True))
