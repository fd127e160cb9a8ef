"""Matrix products take one thread within a call, and what they took after it."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import privplan
from privplan.planning import frontier, solver
from privplan.verification import verify


def threads_of_products():
    return {
        pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"
    }


@pytest.fixture
def two_threads(monkeypatch):
    """A program in which NumPy's products take two threads, without a user's word."""
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert np.dot(1.0, 1.0) == 1
    with threadpool_limits(limits=2, user_api="blas"):
        if threads_of_products() != {2}:
            pytest.skip("NumPy's library of matrix products takes no two threads here")
        yield


class ReachedError(Exception):
    """Raised in place of the work, with the threads that it would have."""


def reached(*arguments, **options):
    raise ReachedError(threads_of_products())


@pytest.mark.parametrize(
    ("module", "first_step", "call"),
    [
        (solver, "given_spec", lambda: solver.solve({})),
        (
            frontier,
            "is_objective",
            lambda: frontier.frontier(privplan.preset("digits-planned")),
        ),
        (
            verify,
            "run_checks",
            lambda: verify._verdict_of(verify.Run(None, None, None), ""),
        ),
    ],
)
def test_the_work_of_a_call_takes_one_thread(
    module, first_step, call, two_threads, monkeypatch
):
    monkeypatch.setattr(module, first_step, reached)
    with pytest.raises(ReachedError) as stop:
        call()
    assert stop.value.args == ({1},)
    assert threads_of_products() == {2}


def test_threads_that_a_user_chose_stay(two_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(solver, "given_spec", reached)
    with pytest.raises(ReachedError) as stop:
        solver.solve({})
    assert stop.value.args == ({2},)
