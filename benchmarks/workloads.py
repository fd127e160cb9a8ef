"""Plans that several benchmarks execute."""

from __future__ import annotations

from typing import Any

from privplan.plan import Plan
from privplan.planning.solver import solve
from privplan.spec.spec import Spec
from simulate.models.registry import model


def w1(rounds: int, **fields: Any) -> Plan:
    """The plan of W1: 6,000 clients of 10 images in three groups, 120 take part.

    Args:
        rounds: number of rounds, of 5 local steps of batch 10 of `cnn-2`.
        fields: further fields of the spec.
    """
    groups = [("strict", 2.0), ("medium", 6.0), ("loose", 12.0)]
    spec = Spec.parse(
        {
            "name": "W1",
            "groups": [
                {"name": name, "clients": 2000, "epsilon": e} for name, e in groups
            ],
            "rounds": rounds,
            "cohort": 120,
            "delta": 1e-4,
            "local": {"steps": 5, "batch_size": 10, "learning_rate": 0.1},
            "model": {"name": "cnn-2", "parameters": model("cnn-2").parameters},
            "planning": {"ratios": "uniform", "accountant": "rdp"},
            **fields,
        }
    )
    return solve(spec, second_opinion=False)
