"""The false-alarm rate of a verdict: the sum of the rates that its checks declare."""

import re

import pytest

from privplan.verification.checks.check import CHECKS
from privplan.verification.verify import false_alarm_rate
from tests.sabotage.bench import honest


def test_a_verdict_on_an_honest_run_is_broken_at_most_once_in_a_thousand():
    assert 4e-4 < false_alarm_rate() <= 1e-3


def test_every_stated_rate_is_declared_and_every_declared_rate_is_of_a_test():
    verdict = honest("planned", "poisson", 7)
    stated = {
        check.name: float(found[1])
        for check in verdict.checks
        if (found := re.search(r"false alarms at most ([\d.e-]+)", check.reason))
    }
    declared = {name: check.false_alarm for name, check in CHECKS.items() if check.false_alarm}
    assert len(stated) == 4  # the noise is the seed's, so its tests state no rate
    assert {name: declared[name] for name in stated} == pytest.approx(stated)
    of_noise = {"noise distribution", "noise coverage", "noise independence"}
    assert set(declared) - set(stated) == {"sums", "record", "audit", *of_noise}
