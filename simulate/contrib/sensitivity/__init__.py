"""Sensitivity tests of registered algorithms, on the code that trains.

``check_sensitivity`` executes rounds on neighbouring data sets with the noise off and
compares all outputs. The package may import everything of ``simulate``; nothing imports
it.
"""

from __future__ import annotations

from simulate.contrib.sensitivity.neighbours import SensitivityReport, Violation
from simulate.contrib.sensitivity.sensitivity import (
    bench_experiment,
    bench_plans,
    check_experiment,
    check_sensitivity,
)

__all__ = [
    "SensitivityReport",
    "Violation",
    "bench_experiment",
    "bench_plans",
    "check_experiment",
    "check_sensitivity",
]
