"""Precision of matrix products and convolutions on GPUs.

A GPU may compute float32 products in TF32, with 10 bits of mantissa; PyTorch does so for
convolutions unless it is set otherwise. Norms, clipping, sums, noise and evaluation must not:
a clipping norm is a bound only for the numbers that are summed. They are computed in float32 or
better. Local training before clipping may use TF32 (``--precision tf32``): whatever the update is,
it is clipped afterwards. Where records are clipped inside local training it may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from privplan.errors import InputError
from simulate.algorithm import Algorithm
from simulate.components import ClientBatch, LocalResult

PRECISIONS = ("float32", "tf32")


@contextmanager
def products_in_tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 in float32 products on GPUs until the block ends."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = allowed
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before


def with_precision(
    algorithm: Algorithm, precision: str, device: torch.device, unit: str
) -> Algorithm:
    """The algorithm with local training in a precision; unchanged for ``float32``.

    Args:
        algorithm: the algorithm.
        precision: one of ``PRECISIONS``.
        device: where the run trains.
        unit: unit of privacy of the algorithm's releases.

    Raises:
        InputError: for an unknown precision, one that the device does not have, or an algorithm
            that clips records inside local training.
    """
    if precision not in PRECISIONS:
        raise InputError.one("precision", f"must be one of {', '.join(PRECISIONS)}", precision)
    if precision == "float32":
        return algorithm
    if device.type != "cuda":
        raise InputError.one("precision", f"must be float32 on {device.type}", precision)
    if unit == "record":
        rule = f"must be float32 for {algorithm.name}, which clips records in local training"
        raise InputError.one("precision", rule, precision)
    exact = algorithm.local.train

    def train(batch: ClientBatch) -> LocalResult:
        with products_in_tf32(True):
            return exact(batch)

    return replace(algorithm, local=replace(algorithm.local, train=train))
