"""Principal component pursuit: a matrix as a low-rank one plus a sparse one.

E. J. Candes, X. Li, Y. Ma, J. Wright, Robust Principal Component Analysis?, J. ACM
2011; Algorithm 3 of Robust-HDP. The alternating directions are the same, but the
penalty mu grows (Z. Lin, M. Chen, Y. Ma, The Augmented Lagrange Multiplier Method,
2010): some 60 steps reach what a fixed mu reaches in about a thousand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softshrink

# Norm of the residual M - L - S, relative to that of M, at which the steps end.
TOLERANCE = 1e-7
# Some 60 steps suffice; a matrix that needs more is left as it then is.
MAX_STEPS = 1000
# Factor on mu after each step.
GROWTH = 1.2


def pursuit(
    matrix: Tensor, *, tolerance: float = TOLERANCE, iterations: int = MAX_STEPS
) -> tuple[Tensor, Tensor]:
    """Minimise |L|_* + lambda |S|_1 with L + S = M.

    lambda is that of Candes et al., the first mu that of Lin et al.

    Args:
        matrix: M, of any shape.
        tolerance: the steps end once |M - L - S| is at most this times |M|.
        iterations: the largest number of steps.

    Returns:
        L and S, float64.
    """
    m = matrix.double()
    if m.shape[0] < m.shape[1]:
        low, sparse = pursuit(m.T, tolerance=tolerance, iterations=iterations)
        return low.T, sparse.T
    spectral_norm, size = _copied(torch.linalg.matrix_norm(m, 2), m)
    sparse = torch.zeros_like(m)
    if spectral_norm == 0:
        return sparse, sparse.clone()

    mu = 1.25 / spectral_norm  # as Lin et al. begin
    price = 1 / math.sqrt(max(m.shape))  # lambda, Candes et al., Theorem 1.1
    dual = torch.zeros_like(m)
    low = sparse
    residual = m
    for _ in range(iterations):
        # The singular values of the tall matrix, from its smaller Gram matrix.
        values = m - sparse + dual / mu
        squares, right = torch.linalg.eigh(values.T @ values)
        singular = squares.clamp(min=0).sqrt()

        # One copy from the device says whether the step before has converged, and the
        # rank.
        rank, distance = _copied((singular > 1 / mu).sum(), residual)
        if distance <= tolerance * size:
            break

        low = _low_rank(values, singular, right, int(rank), 1 / mu)
        sparse = softshrink(m - low + dual / mu, price / mu)
        residual = m - low - sparse
        dual = dual + mu * residual
        mu *= GROWTH
    return low, sparse


def _copied(number: Tensor, matrix: Tensor) -> tuple[float, float]:
    """A number and the norm of a matrix, in one copy from their device."""
    norm = torch.linalg.matrix_norm(matrix)
    copied_number, copied_norm = torch.stack([number.double(), norm.double()]).tolist()
    return copied_number, copied_norm


def _low_rank(
    values: Tensor, singular: Tensor, right: Tensor, rank: int, threshold: float
) -> Tensor:
    """A matrix with its singular values soft-thresholded.

    Args:
        values: the matrix, of at least as many rows as columns.
        singular: its singular values, ascending.
        right: its right singular vectors, as columns in the same order.
        rank: how many singular values exceed the threshold.
        threshold: what is taken off each of them.
    """
    above = slice(len(singular) - rank, None)
    basis = right[:, above].contiguous()
    shrunk = (singular[above] - threshold) / singular[above]
    return (values @ basis) * shrunk @ basis.T
