"""Convolutions of many small models at once, each as one Triton kernel.

A grouped convolution of PyTorch whose groups are clients starts one cuDNN kernel per
client. Here the client is a dimension of the grid, and a convolution is a product of
matrices whose patches are read where they are needed: the forward pass, the gradient by
the input and that by the weight. Every output has one program that adds up its terms in
one order, so the same bits come each time, without atomics.

No run uses this module: a card has to show first that it is worth it
(``benchmarks/gpu_steps.py --only convolutions``). It needs Triton; with
``TRITON_INTERPRET=1`` it runs on a CPU, slowly.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language import tensor

# Tiles of the products: output positions, and terms that are added at a time.
POSITIONS = tl.constexpr(64)
TERMS = tl.constexpr(32)
# Parts of the sum over positions in the gradient by the weight, which fill a GPU. Their
# number is fixed, since the order of the sum depends on it.
PARTS = tl.constexpr(4)
# The least side of a tile that Triton multiplies, and the most channels in one.
LEAST_SIDE = 16
MOST_CHANNELS = 64

Shape = tuple[int, ...]
"""Channels, heights and widths that a kernel is compiled for, at these places."""
INPUTS = tl.constexpr(0)
OUTPUTS = tl.constexpr(1)
HEIGHT = tl.constexpr(2)
WIDTH = tl.constexpr(3)
ROWS = tl.constexpr(4)
COLUMNS = tl.constexpr(5)
SIZE = tl.constexpr(6)
STRIDE = tl.constexpr(7)
PADDING = tl.constexpr(8)
IMAGES = tl.constexpr(9)


@triton.jit  # type: ignore[untyped-decorator]
def _patches(
    source: tensor,
    image: tensor,
    position: tensor,
    term: tensor,
    is_read: tensor,
    SHAPE: tl.constexpr,
    IS_GRADIENT: tl.constexpr,
) -> tensor:
    """What each position reads of its image [positions, terms], 0 outside of it.

    A term is a channel of the image and a place in the kernel. An input pixel reads the
    slopes of those outputs that have read it: their row, times the stride, is its own
    row minus that in the kernel; columns likewise.
    """
    row = (position // SHAPE[COLUMNS] % SHAPE[ROWS])[:, None]
    column = (position % SHAPE[COLUMNS])[:, None]
    down = (term // SHAPE[SIZE] % SHAPE[SIZE])[None, :]
    right = (term % SHAPE[SIZE])[None, :]
    if IS_GRADIENT:
        row = row + SHAPE[PADDING] - down
        column = column + SHAPE[PADDING] - right
        is_read = is_read & (row >= 0) & (row % SHAPE[STRIDE] == 0)
        is_read = is_read & (column >= 0) & (column % SHAPE[STRIDE] == 0)
        row = row // SHAPE[STRIDE]
        column = column // SHAPE[STRIDE]
    else:
        row = row * SHAPE[STRIDE] - SHAPE[PADDING] + down
        column = column * SHAPE[STRIDE] - SHAPE[PADDING] + right
        is_read = is_read & (row >= 0) & (column >= 0)

    channel = (term // (SHAPE[SIZE] * SHAPE[SIZE]))[None, :]
    is_read = is_read & (channel < SHAPE[INPUTS])
    is_read = is_read & (row < SHAPE[HEIGHT]) & (column < SHAPE[WIDTH])
    of_channel = (image * SHAPE[INPUTS])[:, None] + channel
    place = of_channel * (SHAPE[HEIGHT] * SHAPE[WIDTH]) + row * SHAPE[WIDTH] + column
    return tl.load(source + place, mask=is_read, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _factors(
    weight: tensor,
    client: tensor,
    channel: tensor,
    term: tensor,
    SHAPE: tl.constexpr,
    IS_GRADIENT: tl.constexpr,
) -> tensor:
    """Weights of a client [terms, channels]: [its outputs, its inputs, k, k]."""
    channel = channel[None, :]
    of_input = (term // (SHAPE[SIZE] * SHAPE[SIZE]))[:, None]
    if IS_GRADIENT:
        of_kernel = (client * SHAPE[INPUTS] + of_input) * SHAPE[OUTPUTS] + channel
    else:
        of_kernel = (client * SHAPE[OUTPUTS] + channel) * SHAPE[INPUTS] + of_input
    in_kernel = (term % (SHAPE[SIZE] * SHAPE[SIZE]))[:, None]
    place = of_kernel * (SHAPE[SIZE] * SHAPE[SIZE]) + in_kernel
    is_weight = (channel < SHAPE[OUTPUTS]) & (of_input < SHAPE[INPUTS])
    return tl.load(weight + place, mask=is_weight, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _output_places(
    image: tensor, channel: tensor, position: tensor, SHAPE: tl.constexpr
) -> tensor:
    """Where outputs [positions, channels] are in memory."""
    of_channel = (image * SHAPE[OUTPUTS])[:, None] + channel[None, :]
    in_image = (position % (SHAPE[ROWS] * SHAPE[COLUMNS]))[:, None]
    return of_channel * (SHAPE[ROWS] * SHAPE[COLUMNS]) + in_image


@triton.jit  # type: ignore[untyped-decorator]
def _images_kernel(
    source: tensor,
    weight: tensor,
    bias: tensor,
    out: tensor,
    SHAPE: tl.constexpr,
    IS_GRADIENT: tl.constexpr,
    SIDE: tl.constexpr,
) -> None:
    """Images [B, K * outputs, rows, columns] from [B, K * inputs, height, width].

    They are the outputs of a convolution, or the gradient by its input from that by its
    outputs: then inputs and outputs of the shape are swapped.
    """
    client = tl.program_id(2)
    position = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    channel = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    is_position = (position < SHAPE[IMAGES] * SHAPE[ROWS] * SHAPE[COLUMNS])[:, None]
    is_channel = channel < SHAPE[OUTPUTS]
    image = position // (SHAPE[ROWS] * SHAPE[COLUMNS]) * tl.num_programs(2) + client

    total = tl.zeros((POSITIONS, SIDE), tl.float32)
    for first in range(0, SHAPE[INPUTS] * SHAPE[SIZE] * SHAPE[SIZE], TERMS):
        term = first + tl.arange(0, TERMS)
        patches = _patches(
            source, image, position, term, is_position, SHAPE, IS_GRADIENT
        )
        factors = _factors(weight, client, channel, term, SHAPE, IS_GRADIENT)
        total += tl.dot(patches, factors, input_precision="ieee")

    if not IS_GRADIENT:
        of_client = bias + client * SHAPE[OUTPUTS] + channel
        total += tl.load(of_client, mask=is_channel, other=0.0)[None, :]
    place = _output_places(image, channel, position, SHAPE)
    tl.store(out + place, total, mask=is_position & is_channel[None, :])


@triton.jit  # type: ignore[untyped-decorator]
def _weight_kernel(
    x: tensor,
    slope: tensor,
    out: tensor,
    SHAPE: tl.constexpr,
    SIDE: tl.constexpr,
) -> None:
    """Parts [parts, K * outputs, inputs, k, k] of the gradient by the weight."""
    clients = tl.num_programs(2) // PARTS
    part = tl.program_id(2) // clients
    client = tl.program_id(2) % clients
    channel = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    term = tl.program_id(1) * TERMS + tl.arange(0, TERMS)

    total = tl.zeros((SIDE, TERMS), tl.float32)
    outputs = SHAPE[IMAGES] * SHAPE[ROWS] * SHAPE[COLUMNS]
    for first in range(0, outputs, PARTS * POSITIONS):
        position = first + part * POSITIONS + tl.arange(0, POSITIONS)
        is_position = (position < outputs)[:, None]
        image = position // (SHAPE[ROWS] * SHAPE[COLUMNS]) * clients + client
        patches = _patches(x, image, position, term, is_position, SHAPE, False)
        slopes = tl.load(
            slope + _output_places(image, channel, position, SHAPE),
            mask=is_position & (channel < SHAPE[OUTPUTS])[None, :],
            other=0.0,
        )
        total += tl.dot(tl.trans(slopes), patches, input_precision="ieee")

    terms = SHAPE[INPUTS] * SHAPE[SIZE] * SHAPE[SIZE]
    row = (tl.program_id(2) * SHAPE[OUTPUTS] + channel)[:, None]
    tl.store(
        out + row * terms + term[None, :],
        total,
        mask=(channel < SHAPE[OUTPUTS])[:, None] & (term < terms)[None, :],
    )


def _channels_of_tile(channels: int) -> int:
    side: int = triton.next_power_of_2(channels)
    return min(MOST_CHANNELS, max(LEAST_SIDE, side))


def _compute_images(
    source: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor, shape: Shape
) -> None:
    """Write outputs, or without a bias the gradient by the input, to ``out``."""
    outputs = shape[OUTPUTS.value]
    side = _channels_of_tile(outputs)
    positions = triton.cdiv(out[:, 0].numel(), POSITIONS.value)
    grid = (positions, triton.cdiv(outputs, side), out.shape[1] // outputs)
    is_gradient = bias is None
    _images_kernel[grid](source, weight, bias, out, shape, is_gradient, side)


def _swapped(shape: Shape) -> Shape:
    """The shape with inputs for outputs."""
    inputs, outputs, height, width, rows, columns, *kernel = shape
    return (outputs, inputs, rows, columns, height, width, *kernel)


class _Convolution(torch.autograd.Function):
    """The convolution of all clients, and its gradients."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, weight: Tensor, bias: Tensor, shape: Shape
    ) -> Tensor:
        """Outputs [B, K * outputs, rows, columns]."""
        context.save_for_backward(x, weight)
        context.shape = shape
        size = shape[ROWS.value : COLUMNS.value + 1]
        out = x.new_empty((len(x), len(weight), *size))
        _compute_images(x, weight, bias, out, shape)
        return out

    @staticmethod
    def backward(
        context: Any, slope: Tensor
    ) -> tuple[Tensor | None, Tensor, Tensor, None]:
        """Gradients by images, weights and biases."""
        x, weight = context.saved_tensors
        shape: Shape = context.shape
        slope = slope.contiguous()
        before = None
        if context.needs_input_grad[0]:
            before = torch.empty_like(x)
            _compute_images(slope, weight, None, before, _swapped(shape))

        parts = weight.new_empty((PARTS.value, *weight.shape))
        outputs = shape[OUTPUTS.value]
        side = _channels_of_tile(outputs)
        terms = triton.cdiv(weight[0].numel(), TERMS.value)
        clients = len(weight) // outputs
        grid = (triton.cdiv(outputs, side), terms, clients * PARTS.value)
        _weight_kernel[grid](x, slope, parts, shape, side)
        return before, parts.sum(0), slope.sum((0, 2, 3)), None


def client_conv2d(
    x: Tensor, weight: Tensor, bias: Tensor, clients: int, stride: int, padding: int
) -> Tensor:
    """The convolution of each client's images with its own weight; differentiable.

    It is ``torch.nn.functional.conv2d`` with as many groups as clients, in float32.

    Args:
        x: images [B, K * inputs, H, W], the channels of a client after those before.
        weight: square kernels [K * outputs, inputs, k, k].
        bias: [K * outputs].
        clients: their number K.
        stride: in both directions, in pixels.
        padding: zeros on every side, in pixels.

    Returns:
        Outputs [B, K * outputs, rows, columns].

    Raises:
        ValueError: for kernels that are not square, or not of that many clients.
    """
    outputs, inputs, size, width = weight.shape
    if x.shape[1] != clients * inputs or outputs % clients or size != width:
        raise ValueError(f"no square kernels of {clients} clients: {weight.shape}")
    height, width = x.shape[2:]
    rows = (height + 2 * padding - size) // stride + 1
    columns = (width + 2 * padding - size) // stride + 1
    of_client = outputs // clients
    lengths = (height, width, rows, columns, size)
    shape = (inputs, of_client, *lengths, stride, padding, len(x))
    tensors = (x.contiguous(), weight.contiguous(), bias.contiguous())
    out: Tensor = _Convolution.apply(*tensors, shape)  # type: ignore[no-untyped-call]
    return out
