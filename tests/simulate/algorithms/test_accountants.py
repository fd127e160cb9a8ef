"""All methods of a comparison calibrate with the accountant of the spec."""

from __future__ import annotations

import pytest

from privplan.plan import Plan
from privplan.planning.solver import solve
from simulate.algorithms.registry import ALGORITHMS, algorithm
from tests.simulate.conftest import digits_spec

CLIENT = [name for name, entry in ALGORITHMS.items() if entry.unit == "client"]


@pytest.fixture(scope="module")
def rdp_plan() -> Plan:
    """The preset for the digits, calibrated with RDP."""
    planning = {"accountant": "rdp", "ratios": "uniform"}
    return solve(digits_spec(rounds=8, planning=planning), second_opinion=False)


@pytest.mark.parametrize("name", CLIENT)
def test_the_executed_plan_is_calibrated_with_the_spec_s_accountant(
    name: str, rdp_plan: Plan
) -> None:
    """By RDP, the spec's accountant, no budget is exceeded; the certificate says what PLD gives.

    A method that calibrated with PLD would exceed its budget by RDP, which is looser.
    """
    plan = algorithm(name, rdp_plan).plan
    assert plan.spec.planning.accountant == "rdp"
    if name == "Local-only":
        return
    spent = {row.group: row.epsilon_upper for row in plan.certificate if row.accountant == "rdp"}
    for group in plan.groups:
        assert spent[group.name] <= group.epsilon * (1 + 1e-6)
