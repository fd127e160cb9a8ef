"""The registry of auditors: their order, and auditors of other distributions."""

from __future__ import annotations

import numpy as np
import pytest

from privplan import auditing as module
from privplan.auditing import (
    VIEWS,
    AuditEvidence,
    Auditor,
    GroupTraces,
    auditors,
    empirical_epsilons,
    exceeded,
)
from privplan.registry import Registry

NAMES = ["one run", "f-DP", "f-DP, Gaussian", "Gaussian"]
TRACES = GroupTraces(group="all", included="0101", rounds=(0, 1, 0, 1), final=(0, 1, 0, 1))


def constant(scores: np.ndarray, included: np.ndarray, delta: float, confidence: float) -> float:
    """An epsilon that no run reaches."""
    return 50.0


toy = Auditor(constant, "bound")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Auditor]:
    fresh = Registry[Auditor]("auditor", "privplan.auditors", check=module._as_auditor)
    for name in NAMES:
        fresh.register(name, module.AUDITORS.get(name))
    monkeypatch.setattr(module, "AUDITORS", fresh)
    return fresh


def check_toy() -> None:
    epsilons = [one.epsilon for one in empirical_epsilons(TRACES, 1e-3) if one.method == "toy"]
    assert epsilons == [50.0] * len(VIEWS)
    evidence = AuditEvidence(plan_digest="", chain="", orthogonal=True, groups=(TRACES,))
    lines = list(exceeded(evidence, {"all": (40.0, 1e-3)}, 1e-6))
    assert len(lines) == len(VIEWS)
    assert all("canaries lost epsilon 50 at least (toy" in line for line in lines)


def test_auditors_are_listed_in_their_order() -> None:
    assert list(auditors()) == NAMES


def test_a_registered_auditor_is_used(registry: Registry[Auditor]) -> None:
    registry.register("toy", toy)
    assert list(auditors()) == [*NAMES, "toy"]
    check_toy()


@pytest.mark.parametrize("name", auditors())
def test_more_confidence_never_raises_a_bound(name: str) -> None:
    source = np.random.default_rng(7)
    for _ in range(4):
        included = source.random(150) < 0.5
        scores = source.normal(size=150) + included * source.uniform(0, 5)
        found = [auditors()[name].answer(scores, included, 1e-3, at) for at in (0.9, 0.95, 0.999)]
        assert found == sorted(found, reverse=True)
        assert found[0] >= 0
