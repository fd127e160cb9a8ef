"""What another distribution computes of a plan's promise is its author's word."""

from privplan.laws.builtin import Poisson
from privplan.promise import GUARANTEES
from tests.guard.plans import two_groups


def test_a_guarantee_of_another_distribution_is_named(monkeypatch):
    def cheap(plan, history, delta):
        return 0.1

    plan = two_groups(2)
    assert plan.foreign_part is None
    monkeypatch.setitem(GUARANTEES._components, "cheap", cheap)
    rows = [row.model_copy(update={"accountant": "cheap"}) for row in plan.certificate]
    plan = plan.model_copy(update={"certificate": tuple(rows)})
    assert plan.guarantee == "cheap"
    assert plan.foreign_part == "the guarantee cheap"


def test_a_law_of_another_distribution_is_named(monkeypatch):
    monkeypatch.setattr(Poisson, "__module__", "another.law")
    assert two_groups(2).foreign_part == "the law poisson"
