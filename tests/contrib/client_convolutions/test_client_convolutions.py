"""The Triton kernels in Triton's interpreter, beside PyTorch's own convolutions."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.testing import assert_close

has_triton = find_spec("triton") is not None
if has_triton:
    from simulate.contrib import client_convolutions

# A process decides when it imports Triton whether kernels are interpreted.
INTERPRETED = "TRITON_INTERPRET"
is_interpreted = has_triton and os.environ.get(INTERPRETED) == "1"
in_interpreter = pytest.mark.skipif(not is_interpreted, reason="in its own process")
compiled = pytest.mark.skipif(is_interpreted or not has_triton, reason="needs Triton")
# The interpreter of 3.6 was seen to fail with NumPy 2.4, that of 3.9 to work.
is_old = has_triton and version("triton") < "3.9"

# Clients, images, inputs, outputs, height, width, side of the kernel, stride, padding.
SHAPES = {
    "first of cnn-2": (3, 2, 1, 16, 9, 8, 5, 1, 2),
    "second of cnn-2": (2, 1, 16, 32, 5, 6, 5, 1, 2),
    "cnn-3": (2, 2, 3, 32, 5, 5, 3, 1, 1),
    "many channels": (1, 2, 17, 65, 4, 3, 3, 1, 0),
    "halves of resnet": (2, 2, 5, 7, 7, 8, 3, 2, 1),
    "shortcut of resnet": (3, 2, 4, 6, 5, 6, 1, 2, 0),
    "first of resnet": (1, 1, 3, 4, 11, 9, 7, 2, 3),
}


@compiled
@pytest.mark.skipif(is_old, reason="its interpreter fails")
def test_the_kernels_in_a_process_of_their_own():
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, str(Path(__file__))],
        env={**os.environ, INTERPRETED: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:]


@compiled
@pytest.mark.parametrize("is_gradient", [False, True])
def test_the_kernels_are_compiled_for_an_h100_without_atomics(is_gradient):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    tensor = "*fp32"
    constants = {"SHAPE": (16, 32, 14, 14, 14, 14, 5, 1, 2, 10), "SIDE": 32}
    kernel = client_convolutions._weight_kernel
    signature = {"x": tensor, "slope": tensor, "out": tensor}
    if is_gradient:
        kernel = client_convolutions._images_kernel
        constants["IS_GRADIENT"] = True
        signature = {"source": tensor, "weight": tensor, "out": tensor}
        constants["bias"] = None
    signature |= dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    assert binary.asm["cubin"]
    assert "fma.rn.f32" in binary.asm["ptx"]
    assert not re.search(r"\b(atom|red)\.|tf32", binary.asm["ptx"])


def inputs_of(shape):
    """Images, kernels and biases of the clients, with a gradient."""
    clients, images, inputs, outputs, height, width, size, _, _ = shape
    draw = torch.Generator().manual_seed(3)
    tensors = (
        torch.randn(images, clients * inputs, height, width, generator=draw),
        torch.randn(clients * outputs, inputs, size, size, generator=draw),
        torch.randn(clients * outputs, generator=draw),
    )
    return tuple(tensor.requires_grad_() for tensor in tensors)


@in_interpreter
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_outputs_and_gradients_are_those_of_pytorch(shape):
    clients, *_, stride, padding = shape
    tensors = inputs_of(shape)
    outputs = client_convolutions.client_conv2d(*tensors, clients, stride, padding)
    expected = functional.conv2d(
        *tensors, stride=stride, padding=padding, groups=clients
    )
    assert_close(outputs, expected, rtol=1e-4, atol=1e-4)
    slope = torch.randn(expected.shape, generator=torch.Generator().manual_seed(4))
    # Contiguous in another order, as a layer that follows may give it.
    slope = slope.movedim(1, -1).contiguous().movedim(-1, 1)
    gradients = torch.autograd.grad(outputs, tensors, slope)
    of_pytorch = torch.autograd.grad(expected, tensors, slope)
    assert_close(gradients, of_pytorch, rtol=1e-4, atol=1e-4)


@in_interpreter
def test_the_same_bits_come_each_time_and_of_each_client_alone():
    clients, _, inputs, outputs, *_, stride, padding = SHAPES["halves of resnet"]
    x, weight, bias = inputs_of(SHAPES["halves of resnet"])

    def results(tensors, count):
        out = client_convolutions.client_conv2d(*tensors, count, stride, padding)
        return out, *torch.autograd.grad(out.square().sum(), tensors)

    together = results((x, weight, bias), clients)
    again = results((x, weight, bias), clients)
    alone = results((x[:, :inputs], weight[:outputs], bias[:outputs]), 1)
    for value, repeated in zip(together, again, strict=True):
        assert torch.equal(value, repeated)
    assert torch.equal(together[0][:, :outputs], alone[0])
    assert torch.equal(together[1][:, :inputs], alone[1])
    assert torch.equal(together[2][:outputs], alone[2])


@in_interpreter
def test_kernels_of_another_number_of_clients_are_refused():
    x, weight, bias = inputs_of(SHAPES["shortcut of resnet"])
    with pytest.raises(ValueError, match="no square kernels of 2 clients"):
        client_convolutions.client_conv2d(x, weight, bias, 2, 1, 0)
    with pytest.raises(ValueError, match="no square kernels of 3 clients"):
        client_convolutions.client_conv2d(x, weight.expand(-1, -1, 1, 3), bias, 3, 1, 0)
