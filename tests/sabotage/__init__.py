"""Runs that are broken on purpose: one table of faults, each caught by a named check."""

from __future__ import annotations

from tests.sabotage.bench import Finding, honest, honest_runs, plan, planted, tried
from tests.sabotage.books import BOOKS
from tests.sabotage.cohorts import COHORTS
from tests.sabotage.contributions import CONTRIBUTIONS
from tests.sabotage.fault import Fault
from tests.sabotage.noise import NOISE
from tests.sabotage.own_noise import OWN_NOISE

__all__ = ["FAULTS", "Fault", "Finding", "honest", "honest_runs", "plan", "planted", "tried"]

FAULTS: tuple[Fault, ...] = (*NOISE, *CONTRIBUTIONS, *OWN_NOISE, *COHORTS, *BOOKS)
