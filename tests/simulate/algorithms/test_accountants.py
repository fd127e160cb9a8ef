"""All methods of a comparison calibrate with the accountant of the spec."""

from __future__ import annotations

import pytest

from privplan.plan import Plan
from simulate.algorithms.registry import ALGORITHMS, algorithm

CLIENT = [name for name, entry in ALGORITHMS.items() if entry.unit == "client"]


@pytest.mark.parametrize("name", CLIENT)
def test_the_executed_plan_is_calibrated_with_the_spec_s_accountant(
    name: str, short_plan: Plan
) -> None:
    """By RDP, the preset's accountant, no budget is exceeded; the certificate says what PLD gives.

    A method that calibrated with PLD would exceed its budget by RDP, which is looser.
    """
    assert short_plan.spec.planning.accountant == "rdp"
    plan = algorithm(name, short_plan).plan
    assert plan.spec.planning.accountant == "rdp"
    if name == "Local-only":
        return
    spent = {row.group: row.epsilon_upper for row in plan.certificate if row.accountant == "rdp"}
    for group in plan.groups:
        assert spent[group.name] <= group.epsilon * (1 + 1e-6)
