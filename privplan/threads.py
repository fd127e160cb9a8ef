"""One thread for the matrix products of a call, and not for the program around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

# Variables by which a user says how many threads NumPy's matrix products take.
_CHOICES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@contextmanager
def one_product_thread() -> Iterator[None]:
    """Let matrix products take one thread in this block, then as many as before.

    Those of a plan or a verdict are small: more threads answer no sooner, and spin
    while they wait for the next product, which doubles the processor time. Without
    effect where the environment says how many threads there are. Also a decorator.
    """
    if any(name in os.environ for name in _CHOICES):
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
