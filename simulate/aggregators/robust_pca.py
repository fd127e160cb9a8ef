"""Principal component pursuit: a matrix as a low-rank one plus a sparse one.

E. J. Candes, X. Li, Y. Ma, J. Wright, Robust Principal Component Analysis?, J. ACM 2011;
Algorithm 3 of Robust-HDP. The alternating directions are the same, but the penalty mu grows
(Z. Lin, M. Chen, Y. Ma, The Augmented Lagrange Multiplier Method, 2010): some 60 steps reach what a
fixed mu reaches in about a thousand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softshrink

TOLERANCE = 1e-7
ITERATIONS = 1000
GROWTH = 1.2
"""Factor on mu after each step."""


def pursuit(
    matrix: Tensor,
    *,
    tolerance: float = TOLERANCE,
    iterations: int = ITERATIONS,
) -> tuple[Tensor, Tensor]:
    """Minimise the nuclear norm of L plus lambda times the 1-norm of S, with L + S = M.

    lambda is 1 / sqrt(max(rows, columns)), as Candes et al. recommend; mu starts at
    1.25 / |M|_2, as Lin et al. do.

    Args:
        matrix: M [rows, columns].
        tolerance: stop when |M - L - S|_F / |M|_F is at most this.
        iterations: largest number of steps.

    Returns:
        L and S, float64, on the device of M.
    """
    m = matrix.double()
    largest = float(torch.linalg.matrix_norm(m, 2))
    sparse, dual = torch.zeros_like(m), torch.zeros_like(m)
    if largest == 0:
        return sparse, sparse.clone()
    mu, price = 1.25 / largest, 1 / math.sqrt(max(m.shape))
    goal = tolerance * float(torch.linalg.matrix_norm(m))
    low = sparse
    for _ in range(iterations):
        low = _singular_shrink(m - sparse + dual / mu, 1 / mu)
        sparse = softshrink(m - low + dual / mu, price / mu)
        residual = m - low - sparse
        dual = dual + mu * residual
        mu *= GROWTH
        if float(torch.linalg.matrix_norm(residual)) <= goal:
            break
    return low, sparse


def _singular_shrink(values: Tensor, by: float) -> Tensor:
    """Soft-thresholds the singular values, from the smaller Gram matrix of a tall matrix."""
    if values.shape[0] < values.shape[1]:
        return _singular_shrink(values.T, by).T
    squares, right = torch.linalg.eigh(values.T @ values)
    singular = squares.clamp(min=0).sqrt()
    above = singular > by
    factor = (singular[above] - by) / singular[above]
    basis = right[:, above]
    shrunk: Tensor = (values @ basis) * factor @ basis.T
    return shrunk
