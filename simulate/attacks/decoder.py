"""ROG's decoder: a network that enlarges small images to twice their side, with detail.

It is trained once, on public records, and kept in one file with the name and digest of
the data and the seed. Its input is an image that was shrunk to half the side, with the
noise of an inexact inversion; its output is the image: the bicubic enlargement and what
three convolutions of the small image add to it (W. Shi et al., Real-Time Single Image
Super-Resolution Using an Efficient Sub-Pixel Convolutional Network, CVPR 2016).

The training records are the test records of the named data set: attacked are training
records only, and a record that is in both is refused.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from privplan.errors import InputError
from privplan.files import write_bytes
from privplan.streams import Purpose, stream
from privplan.values import digest

DECODER = "decoder.pt"
FIELD = "decoder-data"
STEPS = 400
BATCH = 64
RATE = 3e-3  # first learning rate of Adam; it falls as half a cosine
CHANNELS = 32  # of both hidden layers
KERNEL = 3  # side of each convolution
FACTOR = 2  # of an image's side to that of the small image
# Largest standard deviation of the noise on small pixels; each image has its own.
NOISE = 0.1
_STREAM = 32  # names the stream of a decoder's initial numbers, batches and noise


def small_side(side: int) -> int:
    """Half of an image's side, rounded up."""
    return math.ceil(side / FACTOR)


def shrunk(images: Tensor) -> Tensor:
    """Images [n, channels, height, width] of half the side, by means over areas."""
    height, width = images.shape[-2:]
    size = (small_side(height), small_side(width))
    return functional.interpolate(images, size, mode="area")


@dataclass(frozen=True)
class DecoderData:
    """The public records on which a decoder is trained.

    Attributes:
        name: of the data set.
        digest: of the data set.
        images: pixels in [0, 1], shape [n, channels, height, width].
    """

    name: str
    digest: str
    images: Tensor

    def require_apart_from(self, attacked: Tensor) -> None:
        """Raise unless the records have the shape of attacked ones and are others.

        Args:
            attacked: pixels of the attacked records [m, channels, height, width].
        """
        shape = list(attacked.shape[1:])
        if list(self.images.shape[1:]) != shape:
            rule = f"must hold images of the attacked shape {shape}"
            raise InputError.one(FIELD, rule, f"{list(self.images.shape[1:])}")
        public = {image.numpy().tobytes() for image in self.images}
        shared = sum(image.numpy().tobytes() in public for image in attacked)
        if shared:
            rule = "must hold none of the attacked records"
            raise InputError.one(FIELD, rule, f"{shared} of them in {self.name}")


@dataclass(frozen=True)
class Decoder:
    """A trained decoder.

    Attributes:
        network: the trained network.
        identity: name and digest of its data, seed, steps and digest of its weights.
    """

    network: nn.Module
    identity: dict[str, Any]

    def __call__(self, small: Tensor) -> Tensor:
        """Pixels [..., channels, height, width] of small images, not limited."""
        network = self.network.to(small.device)
        wide: Tensor = network(small.flatten(0, -4))
        return wide.view(*small.shape[:-2], *wide.shape[-2:])


def decoder(
    data: DecoderData,
    seed: int,
    folder: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Decoder:
    """The decoder in a folder's file, or a new one that is stored there.

    Args:
        data: on which it is trained.
        seed: of its initial numbers, batches and noise.
        folder: of the file; None stores nothing.
        progress: told of completed steps.

    Raises:
        InputError: where the folder has a decoder of other data or another seed.
    """
    identity = {
        "data": data.name,
        "digest": data.digest,
        "records": len(data.images),
        "seed": seed,
        "steps": STEPS,
    }
    network = _Network(data.images.shape)
    path = None
    if folder is not None:
        path = folder / DECODER
    if path is not None and path.is_file():
        _load(network, path, identity)
    else:
        _train(network, data.images, seed, progress)
        if path is not None:
            content = io.BytesIO()
            torch.save({"identity": identity, "weights": network.state_dict()}, content)
            write_bytes(path, content.getvalue())
    network.requires_grad_(False)
    numbers = torch.cat([values.flatten() for values in network.state_dict().values()])
    weights_digest = digest([f"{number:.6g}" for number in numbers.tolist()])
    return Decoder(network, {**identity, "weights": weights_digest})


class _Network(nn.Module):
    """The bicubic enlargement of small images, and what convolutions add to it."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        _, channels, height, width = shape
        self._size = (height, width)
        padding = KERNEL // 2
        # Each small pixel gives FACTOR x FACTOR pixels of each channel.
        pixels = channels * FACTOR**2
        self.added = nn.Sequential(
            nn.Conv2d(channels, CHANNELS, KERNEL, padding=padding),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, CHANNELS, KERNEL, padding=padding),
            nn.ReLU(),
            nn.Conv2d(CHANNELS, pixels, KERNEL, padding=padding),
            nn.PixelShuffle(FACTOR),
        )

    def forward(self, small: Tensor) -> Tensor:
        """Pixels, not limited to [0, 1]."""
        height, width = self._size
        wide = functional.interpolate(
            small, (height, width), mode="bicubic", align_corners=False
        )
        # Where a side is odd, the last row or column of the detail is not in the image.
        detail: Tensor = self.added(small)[..., :height, :width]
        return wide + detail


def _load(network: nn.Module, path: Path, identity: dict[str, Any]) -> None:
    """Set a network to the one in a file, which must be of this identity."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = torch.load(path, map_location="cpu", weights_only=True)
        stored_identity = stored["identity"]
        network.load_state_dict(stored["weights"])
    except Exception:  # readers of a damaged file can fail in any way
        rule = "must hold a decoder as it was written"
        raise InputError.one("output", rule, str(path)) from None
    if stored_identity != identity:
        rule = f"must hold no decoder of other {FIELD} or seed; choose another folder"
        raise InputError.one("output", rule, str(path))


def _train(
    network: nn.Module, images: Tensor, seed: int, progress: Callable[[int, int], None]
) -> None:
    """Minimise the squared error of restored images by Adam."""
    drawn = stream(seed, Purpose.OWN_TEST, _STREAM).integers(2**62)
    generator = torch.Generator().manual_seed(int(drawn))
    with torch.no_grad():
        for values in network.parameters():
            # PyTorch's default for weights [outputs, inputs, rows, columns]; no bias.
            if values.dim() > 1:
                bound = 1 / math.sqrt(values[0].numel())
            else:
                bound = 0.0
            values.uniform_(-bound, bound, generator=generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    for step in range(STEPS):
        rows = torch.randint(len(images), (BATCH,), generator=generator)
        batch = images[rows]
        spread = NOISE * torch.rand(BATCH, 1, 1, 1, generator=generator)
        small = shrunk(batch)
        noise = spread * torch.randn(small.shape, generator=generator)
        noisy = (small + noise).clamp(0, 1)
        share = step / STEPS
        rate = RATE * (1 + math.cos(math.pi * share)) / 2
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        torch.autograd.backward(functional.mse_loss(network(noisy), batch))
        optimiser.step()
        progress(step + 1, STEPS)
